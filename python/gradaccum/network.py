"""A planned network: its stages, its parameters, its nodes and every array it has."""
from __future__ import annotations

import weakref
from collections import Counter
from typing import TYPE_CHECKING, Mapping

import numpy as np

from ._stages import following
from .memory import format_bytes

if TYPE_CHECKING:
    from .profile import Profile

_PARAMETERS, _GRADIENTS, _ACTIVATIONS, _STATE = 0, 1, 2, 3   # blocks of the core


class NetworkParameter:
    """A parameter of a network.

    Attributes:
        name: as in PyTorch's state_dict.
        data: live, read-only view of the numbers.
        grad: live, read-only view of its gradient in ``net.grads``; None if frozen.
    """

    def __init__(self, net: "Network", name: str, shape: tuple, offset: int, frozen: bool, order: list[int]):
        self.name, self.shape, self.frozen = name, shape, frozen
        self._core, self._offset, self._written, self._net = net._core, offset, net._written, weakref.ref(net)
        self._order, self._count = order, int(np.prod(shape, dtype=np.int64))
        self.data = self._array(_PARAMETERS, False)
        self.grad = None if frozen else self._array(_GRADIENTS, False)

    def _array(self, block: int, writable: bool) -> np.ndarray:
        return self._axes(self._core.array(block, self._offset, (self._count,), writable))

    def _axes(self, flat: np.ndarray) -> np.ndarray:
        """PyTorch's axes over this parameter's part of memory, which may keep them in another order."""
        return flat.reshape([self.shape[axis] for axis in self._order]).transpose(np.argsort(self._order))

    def of(self, flat: np.ndarray) -> np.ndarray:
        """This parameter's part of a flat array such as ``net.grads`` or ``acc.buffer``, as a view with its shape."""
        return self._axes(flat[self._offset:self._offset + self._count])

    def writable(self) -> np.ndarray:
        """A view of ``data`` that can be written. From then on the network looks for changes before every pass."""
        self._written.append(self.name)
        return self._array(_PARAMETERS, True)

    def __repr__(self):
        from .show import cards
        return cards.parameter_text(self)

    def _repr_html_(self):
        from .show import cards
        return cards.parameter(self)


class Node:
    """A node of the network: one layer at one place.

    Attributes:
        name, kind: where it is in the model; the layer's word.
        inputs: names of the nodes (or network inputs) that it reads.
        shape: of its output per sample, None for a loss.
        parameters: names of its parameters.
        mixes_samples: its result for a sample depends on the others of the micro-batch.
    """

    def __init__(self, net: "Network", index: int):
        name, kind, inputs, output, params, mixes, *_ = net._node_info[index]
        self._core, self._memory, self._output = net._core, net.memory, output
        self.index, self.name, self.kind, self.mixes_samples = index, name, kind, bool(mixes)
        self.inputs = [net._value_name(v) for v in inputs]
        self.shape = net._value_info[output][0] if output >= 0 else None
        self.parameters = [net._param_names[p] for p in params]

    @property
    def output(self) -> np.ndarray:
        """Live view of the output, (samples, *shape). StageError if its memory was used again (plan with keep="all")."""
        return self._view(False)

    @property
    def output_grad(self) -> np.ndarray:
        """Live view of the gradient of the loss sum with respect to the output."""
        return self._view(True)

    def _view(self, grad: bool) -> np.ndarray:
        if self._output < 0:
            raise AttributeError(f"{self.name} is the loss: it has no output array; see net.sample_losses()")
        return self._core.value(self._output, grad)

    @property
    def bytes(self) -> dict:
        """Its row of ``net.memory.by_node()``."""
        return self._memory.by_node()[self.index]

    def __repr__(self):
        return f"Node({self.name!r}, {self.kind}, {' + '.join(self.inputs)} -> {self.shape})"


class Network:
    """What ``ga.plan`` returns. One thread at a time may use it.

    Attributes:
        grads: flat view of all gradients: the window's buffer, or in a staged window the gradient of the micro-batch.
        params: flat view of all parameters.
        nodes: the nodes in order; index by number or name through ``node(name)``.
        memory: MemoryReport.
        training: mode.
    """

    def __init__(self, trace, module, loss, values, memory, *, dtype, engine, seed, keep):
        self._core = trace.net
        self._module, self._loss = module, loss
        self.dtype, self.engine, self.seed, self.keep = np.dtype(dtype), engine, seed, keep
        self.memory = memory
        self.micro_batch = memory.micro_batch
        self.training = True
        self._inputs = values
        self._written: list[str] = []                        # parameters that were handed out to be written
        self._warned = False                                 # of batch statistics under accumulation
        self._last_loss = (0.0, 0.0)                         # of the last loss stage
        self._accumulator = None                             # weak reference to the Accumulator at work
        self._filled_by = "ga.plan"                          # what wrote the parameters last
        self._node_info, self._value_info = self._core.nodes(), self._core.values()
        info = self._core.params()
        modules = dict(module.named_modules())
        by_parameter = {id(p): i for p, i in ((p, trace.param_index[id(p)]) for p in trace.parameters)}
        self._all_names = {}                                 # every name -> parameter index; tied ones have several
        for name, parameter in module.named_parameters(all_names=True):
            if id(parameter) in by_parameter:
                self._all_names[name] = by_parameter[id(parameter)]
        self._param_names = [row[0] for row in info]
        for name, index in reversed(self._all_names.items()):
            self._param_names[index] = name
        for index, name in enumerate(self._param_names):     # layers made inside forward()
            self._all_names.setdefault(name, index)
        self._parameters = {
            name: NetworkParameter(self, name, shape, offset, bool(frozen), order)
            for name, (_, shape, offset, _, _, _, frozen, order) in zip(self._param_names, info)
        }
        count = sum(row[3] for row in info)
        self.params = self._core.array(_PARAMETERS, 0, (count,), False)
        self.grads = self._core.array(_GRADIENTS, 0, (count,), False)
        self.nodes = [Node(self, i) for i in range(len(self._node_info))]
        self._buffers = {}                                   # "bn.running_mean" -> (offset, shape)
        self._private = {}                                   # the same for what a state_dict leaves out
        self._find_state(trace, modules)
        self._initialise(trace)

    # ---- construction ----

    def _find_state(self, trace, modules):
        names = {id(m): name for name, m in modules.items()}
        for row, module in zip(self._node_info, trace.node_modules):
            offset, count = row[7], row[8]
            end = offset + count
            for name, values in (module.state() if module is not None and count else []):
                values = np.asarray(values, dtype=np.float64)
                full = f"{names.get(id(module), row[0])}.{name}".lstrip(".")
                table = self._private if name.startswith("_") else self._buffers
                table[full] = (offset, values.shape)
                self._core.array(_STATE, offset, values.shape, True)[...] = values
                offset += values.size
            if module is not None and count and offset != end:
                raise AssertionError(f"{row[0]}: the layer keeps {count} state values, its module describes {count - (end - offset)}")

    def _initialise(self, trace):
        for index, (parameter, name) in enumerate(zip(trace.parameters, self._param_names)):
            rng = np.random.Generator(np.random.Philox(key=np.array([self.seed, index], dtype=np.uint64)))
            self._parameters[name]._array(_PARAMETERS, True)[...] = parameter.init(rng, parameter.shape)
        self._core.touch()

    def _value_name(self, v: int) -> str:
        producer = self._value_info[v][1]
        if producer >= 0:
            return self._node_info[producer][0]
        return next(name for name, index in self._inputs.items() if index == v)

    # ---- inputs ----

    def _as_inputs(self, x) -> tuple:
        if isinstance(x, Mapping):
            if set(x) != set(self._inputs):
                raise ValueError(f"inputs: got {sorted(x)}, the network has {sorted(self._inputs)}")
            return tuple(x[name] for name in self._inputs)
        if len(self._inputs) > 1:
            if not isinstance(x, (tuple, list)) or len(x) != len(self._inputs):
                raise ValueError(f"the network has {len(self._inputs)} inputs: give a dict or a tuple of {', '.join(self._inputs)}")
            return tuple(x)
        return (x,)

    def _before(self):
        if self._written:
            self._core.touch()

    # ---- stages ----

    @property
    def stage(self) -> str:
        """Name of the stage that ran last: clear, forward, loss, backward, accumulate, normalize, clip or update."""
        return self._core.stage

    def forward(self, x) -> np.ndarray:
        """Runs the nodes on a micro-batch (n, *input_shape), n at most ``micro_batch``; returns a live view of the output."""
        self._before()
        self._core.forward(self._as_inputs(x))
        return self._prediction()

    def _prediction(self) -> np.ndarray:
        last = self._node_info[-1]
        return self._core.value(last[2][0] if last[3] < 0 else last[3], False)

    def loss(self, y, weight=None) -> tuple[float, float]:
        """The loss of the micro-batch: (loss_sum, weight). Nothing is divided here.

        Args:
            y: targets, one per sample, step or pixel; integers for classes.
            weight: (n,) one weight a sample, or of the shape of the targets; finite, not negative.
        """
        self._last_loss = self._core.loss(y, weight)
        return self._last_loss

    def backward(self) -> None:
        """Adds the gradient of the loss sum to ``grads``."""
        self._core.backward()

    def zero_grad(self) -> None:
        """Clears the gradients of a network that has no Accumulator."""
        self._core.zero_grad()

    def predict(self, x) -> np.ndarray:
        """Output for any number of rows, in evaluation mode, in pieces of ``micro_batch``: a new array."""
        self._before()
        return self._core.predict(self._as_inputs(x))

    def evaluate(self, x, y, weight=None) -> float:
        """Mean loss (loss_sum / weight) of any number of rows in evaluation mode; nan if they have no weight."""
        self._before()
        loss_sum, total = self._core.evaluate(self._as_inputs(x), y, weight)
        return loss_sum / total if total > 0 else float("nan")

    def sample_losses(self) -> tuple[np.ndarray, np.ndarray]:
        """Per sample of the last loss stage: sum of losses and weight, float64 views."""
        return self._core.sample_losses()

    def train(self, mode: bool = True) -> "Network":
        """Training mode: dropout drops, batch statistics are collected."""
        self._core.train(bool(mode))
        self.training = bool(mode)
        return self

    def eval(self) -> "Network":
        """Evaluation mode."""
        return self.train(False)

    # ---- what there is ----

    def parameters(self) -> dict[str, NetworkParameter]:
        """``{name: NetworkParameter}`` in the order of the nodes, PyTorch's names; a tied one once."""
        return dict(self._parameters)

    def node(self, name: str) -> Node:
        """The node of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"there is no node {name!r}; the nodes are {', '.join(n.name for n in self.nodes)}")

    def snapshot(self) -> dict[str, np.ndarray]:
        """Copies of all parameters, gradients (name + ".grad") and layer state as they are now."""
        out = {name: p.data.copy() for name, p in self._parameters.items()}
        out |= {name + ".grad": p.grad.copy() for name, p in self._parameters.items() if p.grad is not None}
        return out | {name: self._state_view(name).copy() for name in self._buffers}

    def _state_view(self, name: str, writable: bool = False) -> np.ndarray:
        offset, shape = self._buffers.get(name) or self._private[name]
        return self._core.array(_STATE, offset, shape, writable)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of all parameters and layer state, with PyTorch's names and layouts; tied ones under each of their names."""
        out = {name: self._parameters[self._param_names[i]].data.copy(order="C") for name, i in self._all_names.items()}
        return out | {name: self._state_view(name).copy() for name in self._buffers}

    def load_state_dict(self, state: Mapping, strict: bool = True) -> None:
        """Copies arrays into parameters and layer state. All are checked before any is written.

        Args:
            state: ``{name: array}``; anything NumPy understands.
            strict: missing or unexpected names are an error.

        Raises:
            ValueError: names all missing and unexpected keys, or every parameter of another shape.
        """
        wanted = {name: self._parameters[self._param_names[i]].shape for name, i in self._all_names.items()}
        wanted |= {name: shape for name, (_, shape) in self._buffers.items()}
        missing = [name for name in wanted if name not in state]
        unexpected = [name for name in state if name not in wanted]
        if strict and (missing or unexpected):
            parts = [f"missing {', '.join(missing)}"] * bool(missing) + [f"unexpected {', '.join(unexpected)}"] * bool(unexpected)
            raise ValueError("load_state_dict: " + "; ".join(parts) + "; strict=False loads what fits")
        arrays = {}
        for name, shape in wanted.items():
            if name not in state:
                continue
            array = np.asarray(state[name])
            if array.dtype.kind not in "fiub":
                raise TypeError(f"load_state_dict: {name} has dtype {array.dtype}, expected real numbers")
            arrays[name] = array
        wrong = [f"{name}: got {a.shape}, expected {wanted[name]}" for name, a in arrays.items() if a.shape != wanted[name]]
        if wrong:
            raise ValueError("load_state_dict: shapes differ: " + "; ".join(wrong))
        for name, array in arrays.items():
            if name in self._buffers:
                self._state_view(name, True)[...] = array
            else:
                self._parameters[self._param_names[self._all_names[name]]]._array(_PARAMETERS, True)[...] = array
        self._core.touch()
        self._filled_by = "load_state_dict"

    def profile(self) -> "Profile":
        """Seconds, GFLOP/s and GB/s of each node, of what runs inside ``with net.profile() as p: ...``; then ``print(p)``, or ``p.rows``."""
        from .profile import Profile

        return Profile(self)

    def _window(self):
        """The Accumulator at work, or None."""
        return self._accumulator and self._accumulator()

    def table(self) -> str:
        """One line a node: name, kind, shape of its output per sample, names of its parameters. ``print(net)`` shows it too."""
        return "\n".join(f"  {n.name:<16} {n.kind:<20} {str(n.shape or ''):<16} {', '.join(n.parameters)}".rstrip() for n in self.nodes)

    def __repr__(self):
        kinds = Counter(node.kind for node in self.nodes)
        inputs = ", ".join(f"{name} {self._value_info[v][0]}" for name, v in self._inputs.items())
        return (f"Network: {self.params.size:,} parameters, {self.dtype}, micro-batches of up to {self.micro_batch}, stage {self.stage!r}, next: "
                f"{', '.join(following(self.stage, self._window() is not None))}\n"
                f"  inputs {inputs}; {len(self.nodes)} nodes: {', '.join(f'{kind} {n}' for kind, n in kinds.items())}; {format_bytes(self.memory.bytes())}")

    def __str__(self):
        return f"{self!r}\n{self.table()}"

    def _repr_html_(self):
        from .show import cards
        return cards.network(self)
