"""Accumulation steps as functions of updates: ``Accumulator(..., accumulation_steps=schedules.milestones({0: 1, 1000: 4}))``.

Each is called with the number of updates so far and gives the micro-batches of the next window. A run's windows, and so its planned number of
updates, follow from them: ``ga.planned_updates`` makes them with the same rule as the Accumulator.
"""
from __future__ import annotations

import math
from bisect import bisect_right
from typing import Callable, Iterator, Mapping

from ._checks import choice, whole

TAILS = ("flush", "drop", "carry")


def is_complete(micro_step: int, samples: int, accumulation_steps: int | None, effective_batch_size: int | None) -> bool:
    """Whether a window of that many micro-batches and samples is complete: the one rule of the Accumulator and of ``windows``."""
    if effective_batch_size is not None:
        return samples >= effective_batch_size
    return micro_step >= (accumulation_steps or 1)


def steps_at(accumulation_steps, updates: int) -> int | None:
    """The number of micro-batches after ``updates`` updates, of a number or a function."""
    if callable(accumulation_steps):
        return whole(f"accumulation_steps({updates})", accumulation_steps(updates))
    return None if accumulation_steps is None else whole("accumulation_steps", accumulation_steps)


def windows(micro_batches, *, accumulation_steps: int | Callable[[int], int] | None = None, effective_batch_size: int | None = None, epochs: int = 1,
            tail: str = "flush") -> Iterator[tuple[int, int]]:
    """(micro-batches, samples) of each window of a run that ends in an update.

    Args:
        micro_batches: of an epoch: their number, or a list of their numbers of samples.
        accumulation_steps, effective_batch_size, tail: as for ``Accumulator``.
    """
    choice("tail", tail, TAILS)
    if isinstance(micro_batches, (list, tuple)):
        sizes = [whole("micro_batches", n) for n in micro_batches]
    else:
        sizes = [1] * whole("micro_batches", micro_batches)
    updates, count, samples = 0, 0, 0
    for _ in range(whole("epochs", epochs)):
        for n in sizes:
            count, samples = count + 1, samples + n
            if is_complete(count, samples, steps_at(accumulation_steps, updates), effective_batch_size):
                yield count, samples
                updates, count, samples = updates + 1, 0, 0
        if tail == "flush" and count:
            yield count, samples
            updates += 1
        if tail != "carry":
            count, samples = 0, 0


def planned_updates(*, micro_batches: int | list[int] | None = None, accumulation_steps: int | Callable[[int], int] | None = None,
                    effective_batch_size: int | None = None, samples: int | None = None, micro_batch: int | None = None, epochs: int = 1,
                    tail: str = "flush") -> int:
    """Number of updates of a run: what a learning-rate schedule needs to know before it starts.

    Args:
        micro_batches: of an epoch: their number, or a list of their numbers of samples; or give samples and micro_batch instead.
        accumulation_steps: micro-batches of a window, also as a function of updates. effective_batch_size: samples of a window instead.
        epochs: number of passes.
        tail: policy at the end of each epoch; "carry" continues the window in the next epoch.
    """
    if (micro_batches is None) == (samples is None):
        raise ValueError("planned_updates: give either micro_batches, or samples and micro_batch")
    if (accumulation_steps is None) == (effective_batch_size is None):
        raise ValueError("planned_updates: give either accumulation_steps or effective_batch_size, the size of a window")
    if samples is not None:
        size, samples = whole("micro_batch", micro_batch), whole("samples", samples)
        micro_batches = [min(size, samples - i) for i in range(0, samples, size)]
    if effective_batch_size is not None:
        whole("effective_batch_size", effective_batch_size)
        if not isinstance(micro_batches, (list, tuple)):
            raise ValueError("planned_updates: effective_batch_size counts samples, so give samples and micro_batch, or a list of micro_batches")
    return sum(1 for _ in windows(micro_batches, accumulation_steps=accumulation_steps, effective_batch_size=effective_batch_size, epochs=epochs, tail=tail))


def constant(steps: int) -> Callable[[int], int]:
    """The same number for all updates."""
    steps = whole("steps", steps)
    return lambda updates: steps


def milestones(steps: Mapping[int, int]) -> Callable[[int], int]:
    """``{0: 1, 1000: 4}``: 1 micro-batch a window, from update 1,000 on 4. The first key is 0."""
    at = sorted(whole("milestones", u, 0) for u in steps)
    if not at or at[0] != 0:
        raise ValueError(f"milestones: {dict(steps)!r} does not say with how many micro-batches update 0 is made; the first key is 0")
    values = [whole(f"milestones[{u}]", steps[u]) for u in at]
    return lambda updates: values[bisect_right(at, updates) - 1]


def rampup(start: int, increment: int, samples: int, *, effective_batch_size: int, micro_batch: int) -> Callable[[int], int]:
    """Batch-size warm-up: windows of ``start`` samples, ``increment`` more at a time, ``effective_batch_size`` after ``samples`` samples in all.

    Each size is kept for an equal share of the samples (Megatron-LM's rampup-batch-size). All sizes are multiples of micro_batch.
    """
    for name, value in (("start", start), ("increment", increment), ("effective_batch_size", effective_batch_size)):
        if whole(name, value) % whole("micro_batch", micro_batch):
            raise ValueError(f"{name}={value}: not a multiple of micro_batch={micro_batch}")
    if effective_batch_size < start or (effective_batch_size - start) % increment:
        raise ValueError(f"rampup: {effective_batch_size} is not reached from {start} in steps of {increment}")
    rises = (effective_batch_size - start) // increment
    share = whole("samples", samples, 0) / rises if rises else 0.0
    table, seen, updates = {}, 0, 0
    for k in range(rises):
        size = start + k * increment
        if seen < (k + 1) * share:
            table[updates] = size // micro_batch
            count = math.ceil(((k + 1) * share - seen) / size)
            seen, updates = seen + count * size, updates + count
    table[updates] = effective_batch_size // micro_batch
    return milestones(table)


class from_noise_scale:
    """Accumulation steps from the measured gradient noise scale: windows of about sqrt(r * scale) samples, or with r=None of ``scale`` samples.

    McCandlish et al. 2018 (arXiv:1812.06162), appendix D: B = sqrt(r B_noise) spends optimally at a fixed exchange rate r of samples for updates;
    B = B_noise, the critical batch, costs twice the least number of either.

    Args:
        micro_batch: samples of a micro-batch.
        scale: gives the scale in samples, or None while it is unknown; by default that of the Accumulator it is given to, which measures it
            (``noise_scale=True``).
        r: exchange rate in samples an update, or None.
        minimum, maximum: accumulation steps; minimum holds while the scale is unknown.
        every: updates between two changes.
    """

    def __init__(self, micro_batch: int, scale: Callable[[], float | None] | None = None, *, r: float | None = None, minimum: int = 1, maximum: int = 64,
                 every: int = 100):
        if scale is not None and not callable(scale):
            raise TypeError(f"scale: got {type(scale).__name__}, expected a function that gives the scale, or None")
        if r is not None and not r > 0:
            raise ValueError(f"r={r}: expected a number above 0, or None")
        self._scale, self._micro_batch, self._r = scale, whole("micro_batch", micro_batch), r
        self._minimum, self._maximum, self._every = whole("minimum", minimum), whole("maximum", maximum), whole("every", every)
        if maximum < minimum:
            raise ValueError(f"minimum={minimum}, maximum={maximum}: the minimum is above the maximum")
        self._steps, self._next = minimum, 0                 # in force until update _next

    def attach(self, acc) -> None:
        """Called by the Accumulator that it is given to."""
        if self._scale is None:
            if acc.noise_scale is None:
                raise ValueError("accumulation_steps: from_noise_scale needs a measured scale; make the Accumulator with noise_scale=True, or give scale=")
            noise = acc.noise_scale
            self._scale = lambda: noise.scale

    def __call__(self, updates: int) -> int:
        scale = self._scale() if updates >= self._next else None
        if scale is not None and math.isfinite(scale) and scale > 0:
            batch = scale if self._r is None else math.sqrt(self._r * scale)
            self._steps = min(max(round(batch / self._micro_batch), self._minimum), self._maximum)
            self._next = updates + self._every
        return self._steps

    def state_dict(self) -> dict:
        """The steps in force, and until when."""
        return {"steps": self._steps, "next": self._next}

    def load_state_dict(self, state: dict) -> None:
        """Restores what ``state_dict`` gave."""
        steps, until = whole("steps", state["steps"]), whole("next", state["next"], 0)
        self._steps, self._next = steps, until
