"""SGD, Adam, AdamW: hyper-parameters, groups and state. The arithmetic is in the C core, one pass over the parameters."""
from __future__ import annotations

import weakref
from typing import Mapping

import numpy as np

from .. import _core
from ..network import Network


class Optimizer:
    """Base class.

    Args:
        net: the planned network whose parameters it updates.
        lr: learning rate.
        groups: dicts with "params" (names, or prefixes that end with "*") and hyper-parameters of their own; all other
            parameters take the arguments. Example: ``[{"params": ["*bias"], "weight_decay": 0.0}]``; "*" also stands first.
    """

    kind = 0
    split_invariant = True                                   # its update is the same, bit for bit, for every split of a window
    _own_update = False                                      # acc.update is its _update(acc, x, y, weight)
    _keeps_gradient = True                                   # the window's gradient is known at the boundary

    def __init__(self, net: Network, groups, **hyper):
        if not isinstance(net, Network):
            raise TypeError(f"{type(self).__name__}: got {type(net).__name__}, expected a network from ga.plan(...)")
        self.net = net
        self._groups = [self._to_core(hyper)]
        self.groups = [dict(hyper)]
        indices = [0] * len(net._param_names)
        for i, group in enumerate(groups or [], start=1):
            own = {k: v for k, v in group.items() if k != "params"}
            unknown = set(own) - set(hyper)
            if unknown or "params" not in group:
                raise ValueError(f"{type(self).__name__}: group {i - 1} needs \"params\" and may set {sorted(hyper)}; got {sorted(group)}")
            self.groups.append({**hyper, **own})
            self._groups.append(self._to_core(self.groups[-1]))
            for pattern in group["params"]:
                hits = [k for k, name in enumerate(net._param_names) if _matches(pattern, name)]
                if not hits:
                    raise ValueError(f"{type(self).__name__}: no parameter is named {pattern!r}; there are {', '.join(net._param_names)}")
                for k in hits:
                    indices[k] = i
        self._indices = indices
        states = self._state_count()
        what = f"{type(self).__name__}'s state"
        owner, kinds = f"optimizer {id(self)}", {"optimizer_state": states * net.params.nbytes}
        net.memory.add(owner, kinds, what)
        try:
            self._core = _core.Optimizer(net._core, self.kind, self._groups, indices)
        except BaseException:
            net.memory.gone(owner, kinds)
            raise
        weakref.finalize(self, net.memory.gone, owner, kinds)

    def _to_core(self, hyper: dict) -> dict:
        core = dict(hyper)
        if "betas" in core:
            try:
                core["beta1"], core["beta2"] = core.pop("betas")
            except (TypeError, ValueError):
                raise ValueError(f"{type(self).__name__}: betas={hyper['betas']!r}, expected two numbers") from None
        return core

    def _state_count(self) -> int:
        raise NotImplementedError

    @property
    def lr(self) -> float:
        """Learning rate of the first group; setting it sets all groups."""
        return self.groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        self.set(lr=value)

    def set(self, group: int | None = None, **hyper) -> None:
        """Changes hyper-parameters of one group, or of all, between updates."""
        for i in range(len(self.groups)) if group is None else [group]:
            unknown = set(hyper) - set(self.groups[i])
            if unknown:
                raise ValueError(f"{type(self).__name__}: unknown {', '.join(sorted(unknown))}; there are {', '.join(self.groups[i])}")
            self._core.set(i, self._to_core({**self.groups[i], **hyper}))
            self.groups[i].update(hyper)

    @property
    def updates(self) -> int:
        """Updates that it has done: Adam's clock."""
        return self._core.clock

    @property
    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """``{parameter: {"exp_avg": view, ...}}``, live and read-only."""
        flat = self._core.states()
        return {name: {key: p.of(a) for key, a in flat.items()} for name, p in self.net._parameters.items()}

    def step(self) -> None:
        """One update. Inside a window after ``normalize`` (and ``clip``); else with the gradients as they are."""
        accumulator = self.net._accumulator and self.net._accumulator()
        if accumulator is None:
            self._core.step()
            self.net._filled_by = "optimizer.step"
        elif accumulator.optimizer is not self:
            raise _core.StageError("step: this network's window belongs to an Accumulator with another optimizer")
        else:
            accumulator._apply()

    # ---- what an Accumulator asks; an optimizer that needs more than the gradient of the window answers otherwise ----

    def _join(self, acc) -> None:
        """Refuses an Accumulator with options that cannot work."""

    def _allow(self, acc, call: str) -> None:
        """Refuses a way to run a window that cannot work."""

    def _add(self, acc, x, y, weight) -> tuple[float, float, int, bool]:
        """One micro-batch: loss sum, weight, samples, whether it was rejected."""
        return acc._core.add(x, y, weight)

    def _accumulate(self, acc) -> bool:
        """The stage ``accumulate``."""
        return acc._core.accumulate()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the state as flat arrays, and "updates"."""
        return {name: a.copy() for name, a in self._core.states().items()} | {"updates": np.int64(self.updates)}

    def load_state_dict(self, state: Mapping) -> None:
        """Restores what ``state_dict`` gave. Checked before anything is written."""
        mine = self._core.states(True)
        if set(state) != set(mine) | {"updates"}:
            raise ValueError(f"{type(self).__name__}.load_state_dict: got {sorted(state)}, expected {sorted(mine)} and updates")
        for name, a in mine.items():
            given = np.asarray(state[name])
            if given.shape != a.shape or given.dtype.kind not in "fiu":
                raise ValueError(f"{type(self).__name__}.load_state_dict: {name} has shape {given.shape}, expected {a.shape}"
                                 f"; dtype {given.dtype}, expected real numbers")
        self._core.clock = int(state["updates"])
        for name, a in mine.items():
            a[...] = state[name]

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in self.groups[0].items())})"


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


class SGD(Optimizer):
    """Stochastic gradient descent as torch.optim.SGD."""

    kind = 0

    def __init__(self, net: Network, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
                 nesterov: bool = False, groups=None):
        super().__init__(net, groups, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov)

    def _state_count(self):
        return int(any(g["momentum"] for g in self.groups))


class Adam(Optimizer):
    """Adam as torch.optim.Adam: weight decay is added to the gradient. Kingma, Ba 2015, arXiv:1412.6980."""

    kind = 1

    def __init__(self, net: Network, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, amsgrad: bool = False, groups=None):
        super().__init__(net, groups, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)

    def _state_count(self):
        return 2 + any(g["amsgrad"] for g in self.groups)


class AdamW(Adam):
    """AdamW as torch.optim.AdamW: parameters shrink by lr * weight_decay. Loshchilov, Hutter 2019, arXiv:1711.05101."""

    kind = 2

    def __init__(self, net: Network, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, groups=None):
        super().__init__(net, lr, betas, eps, weight_decay, amsgrad, groups)
