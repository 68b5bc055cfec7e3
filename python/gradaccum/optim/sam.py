"""SAM: every window is run twice."""
from __future__ import annotations

import math
import weakref

import numpy as np

from .._core import StageError
from .._undo import Undo, layer_state, set_layer_state
from .optimizers import Optimizer

_CHUNK = 1 << 16                                             # elements that are in float64 at a time


class SAM(Optimizer):
    """Sharpness-aware minimisation (Foret et al. 2021, arXiv:2010.01412) around another optimizer; ASAM (Kwon et al. 2021, arXiv:2102.11600).

    In ``acc.update(x, y)``:

    1. the window at w gives its gradient g, of all micro-batches, as ever
    2. w + e with e = rho g / |g|, or adaptive e = rho w² g / |w g|, elementwise
    3. the same window at w + e: the gradient that is applied
    4. w is put back from a copy, bit for bit, and the base optimizer makes its step

    Both passes have the same dropout masks. Splits keep the same bits. Running statistics (BatchNorm) are those of the first pass. The record
    has the loss at w and the gradient norm at w + e; ``max_grad_norm`` clips the latter. A window takes twice the time.

    Only ``acc.update`` and ``acc.update_many`` can do it: a stream of micro-batches (``acc.step``) cannot be run a second time.

    Args:
        base_optimizer: makes the step; groups, learning rate and state are its.
        rho: length of the step e; 0 gives the base optimizer.
        adaptive: scale e with the size of each parameter; rho is then about ten times as large.

    Attributes:
        sharpness: loss at w + e minus loss at w in the last window; nan before, and for a skipped one.

    Extra memory, in ``net.memory``: a copy of the parameters, and two of the layer state. The first pass's gradient needs none: it is used up
    before the second begins.
    """

    _own_update = True

    def __init__(self, base_optimizer: Optimizer, rho: float = 0.05, adaptive: bool = False):
        if not isinstance(base_optimizer, Optimizer) or base_optimizer._own_update:
            raise TypeError(f"SAM: base_optimizer is of type {type(base_optimizer).__name__}, expected one that makes a step from a gradient, such as "
                            "optim.SGD(net, lr=0.1)")
        if isinstance(rho, bool) or not isinstance(rho, (int, float, np.number)) or not 0 <= rho < math.inf:
            raise ValueError(f"SAM: rho={rho!r}, expected a finite number, not negative")
        self.base_optimizer, self.net, self.rho, self.adaptive = base_optimizer, base_optimizer.net, float(rho), bool(adaptive)
        self.kind, self.groups = base_optimizer.kind, base_optimizer.groups
        self._core, self._groups, self._indices = base_optimizer._core, base_optimizer._groups, base_optimizer._indices
        self.sharpness = math.nan
        memory, owner = self.net.memory, f"SAM {id(self)}"
        kinds = {"optimizer_state": self.net.params.nbytes + 2 * memory.by_kind().get("layer_state", 0)}
        memory.add(owner, kinds, "SAM's copy of the parameters")
        self._kept = np.empty_like(self.net.params)
        weakref.finalize(self, memory.gone, owner, kinds)

    def _to_core(self, hyper: dict) -> dict:
        return self.base_optimizer._to_core(hyper)

    def step(self) -> None:
        """Not alone: see ``acc.update``."""
        raise StageError("step: SAM runs the whole window twice, so it cannot step from the gradient of one pass; call acc.update(x, y) with all "
                         "samples of the window")

    def _allow(self, acc, call: str) -> None:
        if call in ("step", "begin", "stages", "record"):
            raise ValueError(f"{call}: SAM runs every window twice, and micro-batches that come one by one cannot be run again; gather the samples of "
                             "the window and call acc.update(x, y), which cuts them into micro-batches")

    def _update(self, acc, x, y, weight):
        micro_batches = acc._cut("update", x, y, weight)
        net, undo = self.net, Undo(acc)
        params = net._core.array(0, 0, net.params.shape, True)
        self._kept[...] = params
        self.sharpness = math.nan
        try:
            losses = [acc._core.add(*m)[:2] for m in micro_batches]
            if not acc.weight_sum > 0:
                return acc._finish()                         # skipped, with the reason
            acc._core.normalize()
            state = acc._core.get_state()
            if not self._perturb(params, state["grad_norm"]):
                if acc.on_non_finite == "raise":
                    raise FloatingPointError("update: the window's gradient has NaN or infinity in the first pass of SAM; nothing was updated")
                acc._core.clear(True)
                acc._micro_losses = _means(losses)
                return acc._record_state(state, skipped=2)
            layers = layer_state(net)
            undo.empty()
            net._core.touch()
            for m in micro_batches:
                acc._core.add(*m)
            self._put_back(params)
            set_layer_state(net, layers)
            here, there = state["loss_sum"] / state["weight_sum"], acc.loss_sum / acc.weight_sum if acc.weight_sum > 0 else math.nan
            acc._micro_losses = _means(losses)
            record = acc._finish()
            record.loss = here
            self.sharpness = math.nan if record.skipped else there - here
            return record
        except BaseException:
            self._put_back(params)
            undo()
            raise

    def _put_back(self, params) -> None:
        params[...] = self._kept
        self.net._core.touch()

    def _perturb(self, params: np.ndarray, norm: float) -> bool:
        """Adds e, each element computed in float64 and rounded once; False if the gradient is not finite."""
        w, g = self._kept, self.net.grads
        parts = [slice(i, i + _CHUNK) for i in range(0, w.size, _CHUNK)]
        if self.adaptive and math.isfinite(norm):
            norm = math.sqrt(sum(float(np.square(np.multiply(w[p], g[p], dtype=np.float64)).sum()) for p in parts))
        if not math.isfinite(norm):
            return False
        for p in parts if norm > 0 else ():
            direction = g[p].astype(np.float64) / norm
            if self.adaptive:
                direction *= np.square(w[p], dtype=np.float64)
            params[p] = w[p] + self.rho * direction
        return True

    def __repr__(self):
        return f"SAM({self.base_optimizer!r}, rho={self.rho:g}{', adaptive=True' if self.adaptive else ''})"


def _means(losses: list[tuple[float, float]]) -> list[float]:
    return [loss / weight if weight > 0 else math.nan for loss, weight in losses]
