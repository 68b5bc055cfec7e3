"""AdamA: no window buffer, each micro-batch goes into Adam's moments at once."""
from __future__ import annotations

import math

from .._core import StageError
from ..network import Network
from .._undo import Undo
from .optimizers import Optimizer

_GRADIENTS = 1                                               # block of the core


class AdamA(Optimizer):
    """Adam accumulation (Zhang et al. 2023, arXiv:2305.19982).

    In a window of K micro-batches with mean gradients g_1 ... g_K, once and then for each of them:

        m ← β₁ m, v ← β₂ v            m ← m + (1 - β₁) g_i / K,   v ← v + (1 - β₂) (g_i / K)²

    and at the boundary p ← p - lr m̂ / (√v̂ + ε), bias-corrected with the number of updates. The factor 1/K is that of the mean, written out: m
    is Adam's m, and v has Σ (g_i / K)² where Adam has (Σ g_i / K)². The difference, 2 Σ_{i<j} g_i g_j / K², vanishes on average only for gradients
    that are noise. So the update depends on how the window is split: ``split_invariant`` is False, and ``ga.check_equivalence`` names it.

    What goes with the buffer (each is refused, with the reason):

    - the exact weighted mean: its divisor is known at the end of the window, when the gradients are gone. Give the Accumulator
      reduction="mean_of_means", and micro-batches of equal weight, for which both are the same
    - clipping by the norm of the window, and that norm in the record (None)
    - an unfinished window: each micro-batch was divided by K. tail="carry" keeps it open
    - throwing a window away, or skipping it: m and v have it already

    Memory: staged windows have the gradient of the micro-batch and the window's buffer, this has the first only. (Direct windows, the default of
    other optimizers, have the second only: as many bytes. The paper also frees the gradient layer by layer, which is not done here.)
    """

    kind = 3
    split_invariant = False
    _own_update = True
    _keeps_gradient = False

    def __init__(self, net: Network, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, groups=None):
        super().__init__(net, groups, lr=lr, betas=betas, eps=eps)
        self._pieces = None                                  # K of a window in one call

    def _state_count(self):
        return 2

    def step(self) -> None:
        """At the end of a window; without an Accumulator there is none."""
        if self.net._accumulator is None or self.net._accumulator() is None:
            raise StageError("step: AdamA takes its gradients from the micro-batches of a window; give it to an Accumulator")
        super().step()

    def _join(self, acc) -> None:
        reason = "AdamA keeps no window buffer: each micro-batch goes into exp_avg and exp_avg_sq at once"
        if acc.reduction != "mean_of_means":
            raise ValueError(f"reduction={acc.reduction!r}: {reason}, divided by K, before the weight of the window is known; give "
                             'reduction="mean_of_means", which is the same mean for micro-batches of equal weight')
        if acc.max_grad_norm is not None:
            self._allow(acc, "max_grad_norm")
        if acc.staged:
            raise ValueError(f"staged=True (or what implies it: accumulator=, on_non_finite=\"skip_micro_batch\"): {reason}, so there is no buffer to stage")
        if acc.tail == "drop":
            raise ValueError(f'tail="drop": {reason}, and cannot be dropped any more; give tail="carry"')
        if acc.on_non_finite != "raise":
            raise ValueError(f"on_non_finite={acc.on_non_finite!r}: {reason}, and a window cannot be skipped any more; a micro-batch with NaN raises, "
                             "and is not taken")
        if acc.noise_scale is not None:
            raise ValueError(f"noise_scale: {reason}, so the norm of the window's gradient is never known")

    def _allow(self, acc, call: str) -> None:
        if call in ("clip", "max_grad_norm"):
            raise ValueError(f"{call}: clipping by the norm of the window needs the window's gradient, and AdamA keeps no buffer of it; use optim.Adam")
        if call in ("begin", "stages", "record") and acc.accumulation_steps is None:
            raise ValueError(f"{call}: AdamA divides each micro-batch by their number, so it must be known before the first; give the Accumulator "
                             "accumulation_steps=, or call acc.update(x, y)")
        held = acc.micro_step
        if call in ("flush", "normalize") and 0 < held < self._steps(acc):
            raise ValueError(f"{call}: the window holds {held} of {self._steps(acc)} micro-batches, and AdamA has divided each by {self._steps(acc)}; give the "
                             'missing ones, or let the next epoch do it with tail="carry"')
        if call == "clear" and held and acc.net.stage != "update":
            raise StageError(f"clear: the {held} micro-batches of this window are in exp_avg and exp_avg_sq already, so there is nothing to throw away; "
                             "finish the window, or acc.load(path) an earlier state")

    def _steps(self, acc) -> int:
        return self._pieces or acc.accumulation_steps or 1

    def _accumulate(self, acc) -> bool:
        """Takes the micro-batch, or leaves everything as it was before it."""
        held, weight = acc.micro_step, acc.net._last_loss[1]
        expected = acc.weight_sum / held if held else weight
        try:
            if acc.net.stage == "backward" and not (weight > 0 and math.isclose(weight, expected, rel_tol=1e-12)):
                raise ValueError(f"AdamA: micro-batch {held + 1} has weight {weight:g}, expected {f'{expected:g} as those before it' if held else 'some'}; "
                                 "each counts as one of K, so the mean of the window would be wrong. Give micro-batches of equal weight, or use "
                                 "optim.Adam, whose buffer is divided once")
            self._core.take(not held, self._steps(acc) * acc._scale())
        except (ValueError, FloatingPointError):
            self._drop(acc)
            raise
        return acc._core.accumulate()

    def _drop(self, acc) -> None:
        """Forgets the micro-batch at hand: it is in the gradients, but not yet in the moments."""
        net, state = acc.net, acc._core.get_state()
        held, c = state["micro_step"], state["counters"]
        reals = net._core.bytes(net.micro_batch)["gradients"] // net.dtype.itemsize
        net._core.array(_GRADIENTS, 0, (reals,), True)[...] = 0
        acc._core.set_state("accumulate" if held else "clear", (held, state["samples"], state["elements"], 0), (
            state["loss_sum"], state["weight_sum"], 0.0, 0.0, False), (c["micro_steps"], c["updates"], c["samples"], c["elements"], c["weight"]))

    def _add(self, acc, x, y, weight) -> tuple[float, float, int, bool]:
        net = acc.net
        if net._accumulator() is not acc:
            raise StageError("step: this Accumulator was replaced by a newer one on the same network; use that one")
        net._core.forward(x)
        loss_sum, total = net.loss(y, weight)
        try:
            net.backward()
        except BaseException:
            self._drop(acc)
            raise
        return loss_sum, total, len(y), self._accumulate(acc)

    def _update(self, acc, x, y, weight):
        micro_batches, undo = acc._cut("update", x, y, weight), Undo(acc)
        sizes = {len(m[1]) for m in micro_batches}
        if len(sizes) > 1:
            raise ValueError(f"update: AdamA needs micro-batches of equal weight, but {sum(len(m[1]) for m in micro_batches)} samples in pieces of "
                             f"{max(sizes)} leave one of {min(sizes)}; give a multiple, or use optim.Adam")
        self._pieces = len(micro_batches)
        try:
            for m in micro_batches:
                loss_sum, total, *_ = self._add(acc, *m)
                acc._micro_losses.append(loss_sum / total if total > 0 else math.nan)
            return acc._finish()
        except BaseException as error:
            if acc.micro_step:
                error.add_note(f"AdamA keeps no buffer: {acc.micro_step} micro-batches of this window are in exp_avg and exp_avg_sq already; "
                               "load_state_dict(a copy from before) takes them out.")
            undo()
            raise
        finally:
            self._pieces = None
