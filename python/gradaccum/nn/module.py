"""Describing a model: modules, and the tracing that turns their ``forward`` into nodes.

A module holds no numbers. ``ga.plan`` calls the root's ``forward`` once with symbols; each layer that is called adds a node.
Any directed acyclic graph is possible, and Python's control flow runs while tracing.
"""
from __future__ import annotations

from contextlib import contextmanager

from .._core import Net
from .parameter import Parameter


class Symbol:
    """A value of the network while it is traced.

    Attributes:
        shape: per sample, channels first: (C,), (T, C) or (C, H, W).
    """

    def __init__(self, trace: "Trace", index: int):
        self._trace = trace
        self._index = index
        shape, producer, integer, sequence, _ = trace.net.values()[index]
        self.shape = shape
        self._producer, self._integer, self._sequence = producer, bool(integer), bool(sequence)

    def __add__(self, other):
        if not isinstance(other, Symbol):
            raise TypeError(f"cannot add {type(other).__name__} to a symbol: both sides of + are values of the network")
        return self._trace.add_layer("add", {}, [self, other])

    __radd__ = __add__

    def __array__(self, *args, **kwargs):
        raise TypeError("a symbol has no numbers: use layers in forward(), or an nn.Function for NumPy code")

    def __bool__(self):
        raise TypeError("a symbol has no numbers, so forward() cannot branch on it; the network is traced once")

    def __repr__(self):
        return f"Symbol{self.shape}"


class NeedsIntegers(Exception):
    """Raised while tracing when a network input turns out to hold tokens; the trace starts again with that known."""

    def __init__(self, index: int):
        super().__init__(index)
        self.index = index


class Trace:
    """One walk through ``forward``: the nodes so far, and which Parameter is which parameter of the network."""

    current: "Trace | None" = None

    def __init__(self, net: Net, root: "Module | None"):
        self.net = net
        self.module_names = {id(m): name for name, m in root.named_modules()} if root is not None else {}
        self.param_index: dict[int, int] = {}                # id(Parameter) -> parameter of the network
        self.parameters: list[Parameter] = []                # by parameter of the network
        self.node_modules: list[Module | None] = []          # by node
        self._names: dict[str, int] = {}
        self._taken = set(self.module_names.values())
        self.functions: set[int] = set()                     # id(Function) of those called
        self.checkpoints, self.in_checkpoint = 0, False

    @contextmanager
    def active(self):
        before, Trace.current = Trace.current, self
        try:
            yield self
        finally:
            Trace.current = before

    def _node_name(self, module: "Module | None", kind: str) -> str:
        name = self.module_names.get(id(module)) if module is not None else None
        counter = "loss" if kind.endswith("_loss") else name or kind
        while True:
            self._names[counter] = n = self._names.get(counter, 0) + 1
            if name:
                return name if n == 1 else f"{name}:{n}"     # a layer that is called again
            candidate = "loss" if counter == "loss" and n == 1 else f"{counter}_{n}"
            if candidate not in self._taken:                 # a layer made in forward() takes no attribute's name
                return candidate

    def _adopt(self, node: int, names: list[Parameter]) -> None:
        indices = self.net.nodes()[node][4]
        for parameter, index in zip(names, indices):
            if id(parameter) not in self.param_index:
                self.param_index[id(parameter)] = index
                self.parameters.append(parameter)
                if not parameter.requires_grad:
                    self.net.freeze(index, True)

    def add_layer(self, kind: str, options: dict, inputs: list[Symbol], module: "Layer | None" = None,
                  parameters: list[Parameter] | None = None) -> Symbol:
        parameters = parameters or []
        shared = [self.param_index.get(id(p), -1) for p in parameters]
        node, value = self.net.add_node(kind, self._node_name(module, kind), options, [s._index for s in inputs], shared or None)
        self.node_modules.append(module)
        self._adopt(node, parameters)
        return Symbol(self, value) if value >= 0 else None

    def add_function(self, module: "Module", call, shape, sequence: bool, inputs: list[Symbol],
                     parameters: list[tuple[str, Parameter]]) -> Symbol:
        for name, parameter in parameters:
            if id(parameter) in self.param_index:
                raise ValueError(f"{type(module).__name__}: the parameter {name} of an nn.Function cannot be shared with another layer")
        node, value = self.net.add_function(
            self._node_name(module, type(module).__name__.lower()), call, shape, sequence, [s._index for s in inputs],
            [(name, p.shape) for name, p in parameters])
        self.node_modules.append(module)
        self._adopt(node, [p for _, p in parameters])
        return Symbol(self, value)


class Module:
    """Base class of models. Subclass it, create layers in ``__init__``, and connect them in ``forward``.

    Example::

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 10)
            def forward(self, x):
                return self.b(nn.functional.relu(self.a(x)) + x)
    """

    def __init__(self):
        pass

    def forward(self, *inputs):
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, x)")

    def __call__(self, *inputs):
        if not any(isinstance(s, Symbol) for s in inputs):
            raise TypeError(
                f"{type(self).__name__} describes a computation and holds no numbers: plan it first, "
                "net = ga.plan(model, input_shape=..., micro_batch=...), then net.forward(x) or net.predict(x)")
        return self.forward(*inputs)

    def children(self) -> dict[str, "Module"]:
        """Modules that are attributes of this one, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Module)}

    def named_modules(self, prefix: str = ""):
        """(name, module) of this module and all below it, each once."""
        seen = set()
        stack = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            if isinstance(module, Checkpoint):               # leaves no trace in names
                stack.append((name, module.module))
                continue
            yield name, module
            children = [(f"{name}.{child}" if name else child, m) for child, m in module.children().items()]
            stack.extend(reversed(children))

    def named_parameters(self, all_names: bool = False):
        """(name, Parameter) as PyTorch names them; a tied one once, or under each of its names."""
        seen = set()
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter) and (all_names or id(value) not in seen):
                    seen.add(id(value))
                    yield f"{prefix}.{name}" if prefix else name, value

    def requires_grad_(self, requires_grad: bool = True) -> "Module":
        """Freezes (False) or frees all parameters of this module, before it is planned."""
        for _, parameter in self.named_parameters():
            parameter.requires_grad = requires_grad
        return self

    def __repr__(self):
        lines = [f"  ({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.children().items()]
        extra = self.extra_repr()
        return f"{type(self).__name__}({extra})" if not lines else "\n".join([f"{type(self).__name__}(", *lines, ")"])

    def extra_repr(self) -> str:
        """What stands between the parentheses of repr()."""
        return ""


class Layer(Module):
    """A module that is one node: a layer of the C core.

    Subclasses set ``kind`` (the core's word) and return their options as numbers; their Parameters are the attributes named in
    ``parameter_names``, None where the layer has none.
    """

    kind = ""
    parameter_names: tuple[str, ...] = ()

    def options(self) -> dict[str, float]:
        """Options of the core's layer, by name."""
        return {}

    def state(self) -> list[tuple[str, object]]:
        """(name, initial values) of what the layer keeps beside its parameters, in the core's order; ``_`` names are not saved."""
        return []

    def check(self, *inputs: Symbol) -> None:
        """Refuses inputs that the constructor's arguments do not fit."""

    def forward(self, *inputs):
        self.check(*inputs)
        parameters = [p for p in (getattr(self, name) for name in self.parameter_names) if p is not None]
        return inputs[0]._trace.add_layer(self.kind, self.options(), list(inputs), self, parameters)


class Checkpoint(Module):
    """A module whose activations are not kept for backward but computed again there (Chen et al. 2016, arXiv:1604.06174).

    Less memory, at most one more forward of the module, the same bits, also with dropout and running statistics. A Checkpoint inside
    another is part of the outer one. Names of parameters stay those of the module.
    """

    def __init__(self, module: Module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        trace = inputs[0]._trace
        if trace.in_checkpoint:
            return self.module(*inputs)
        trace.checkpoints += 1
        trace.in_checkpoint = True
        trace.net.segment(trace.checkpoints)
        try:
            return self.module(*inputs)
        finally:
            trace.in_checkpoint = False
            trace.net.segment(0)

    def __repr__(self):
        return f"Checkpoint({self.module!r})"


class _Container(Module):
    """Children by position."""

    def __getitem__(self, index):
        return list(self.children().values())[index]

    def __len__(self):
        return len(self.children())

    def __iter__(self):
        return iter(self.children().values())


class Sequential(_Container):
    """Modules one after the other, named "0", "1", ... as in PyTorch. An OrderedDict-like dict gives other names."""

    def __init__(self, *modules):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], dict):
            items = list(modules[0].items())
        else:
            items = [(str(i), m) for i, m in enumerate(modules)]
        for name, module in items:
            if not isinstance(module, Module):
                raise TypeError(f"Sequential: item {name} is a {type(module).__name__}, expected a module such as nn.ReLU()")
            setattr(self, name, module)

    def forward(self, x):
        for module in self.children().values():
            x = module(x)
        return x


class ModuleList(_Container):
    """A list of modules that are found by ``named_parameters``; it has no forward."""

    def __init__(self, modules=()):
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> "ModuleList":
        setattr(self, str(len(self)), module)
        return self
