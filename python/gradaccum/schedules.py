"""Accumulation steps as functions of updates: ``Accumulator(..., accumulation_steps=ga.schedules.milestones({0: 1, 1000: 4}))``.

Each is called with the number of updates so far and gives the micro-batches of the next window, which it then keeps; any function that does so can
be used. ``ga.planned_updates`` makes the windows of a run ahead of time, by the same rule and the same function, so the learning rate knows its end:

    steps = ga.schedules.milestones({0: 1, 1000: 4})
    planned = ga.planned_updates(samples=len(x), micro_batch=32, accumulation_steps=steps, epochs=10)
    acc = ga.Accumulator(net, opt, accumulation_steps=steps, schedule=optim.lr_scheduler.CosineAnnealingLR(opt, planned))

Micro-batches come one by one, ``acc.step``, when windows differ; in ``acc.update`` the batch is the window and may have at most that many.
"""
from __future__ import annotations

import math
from bisect import bisect_right
from itertools import chain, groupby, repeat
from typing import Callable, Iterable, Iterator, Mapping

from ._checks import choice, whole

TAILS = ("flush", "drop", "carry")


# ---- windows ----

def steps_at(accumulation_steps, updates: int) -> int | None:
    """The number of micro-batches after ``updates`` updates, of a number or a function."""
    if callable(accumulation_steps):
        return whole(f"accumulation_steps({updates})", accumulation_steps(updates))
    return None if accumulation_steps is None else whole("accumulation_steps", accumulation_steps)


def missing(micro_step: int, samples: int, micro_batch: int, accumulation_steps: int | None, effective_batch_size: int | None) -> int:
    """Micro-batches of ``micro_batch`` samples that a window lacks which has ``micro_step`` of them and ``samples`` samples; 0 or less: it is complete.

    The one rule of the Accumulator and of ``windows``. Without any size a window is one micro-batch.
    """
    if effective_batch_size is not None:
        return -((samples - effective_batch_size) // micro_batch)
    return (accumulation_steps or 1) - micro_step


def windows(micro_batches: int | Iterable[int], *, accumulation_steps: int | Callable[[int], int] | None = None, effective_batch_size: int | None = None,
            epochs: int = 1, tail: str = "flush") -> Iterator[tuple[int, int]]:
    """(micro-batches, samples) of each window of a run that ends in an update: ``acc.step`` for each micro-batch, ``acc.flush()`` after each epoch.

    Args:
        micro_batches: of an epoch: their number, or their numbers of samples.
        accumulation_steps, effective_batch_size, tail: as for ``Accumulator``.
    """
    choice("tail", tail, TAILS)
    sizes = micro_batches if hasattr(micro_batches, "__iter__") else repeat(1, whole("micro_batches", micro_batches))
    runs = [(whole("micro_batches", size), sum(1 for _ in run)) for size, run in groupby(sizes)]
    updates = micro_step = samples = 0
    for _ in range(whole("epochs", epochs)):
        for size, count in runs:
            while count:                                     # of equal micro-batches a window takes what it lacks at once
                if not micro_step:
                    steps = steps_at(accumulation_steps, updates)
                take = min(count, max(missing(micro_step, samples, size, steps, effective_batch_size), 1))
                micro_step, samples, count = micro_step + take, samples + take * size, count - take
                if missing(micro_step, samples, size, steps, effective_batch_size) <= 0:
                    yield micro_step, samples
                    updates, micro_step, samples = updates + 1, 0, 0
        if tail == "flush" and micro_step:
            yield micro_step, samples
            updates += 1
        if tail != "carry":
            micro_step = samples = 0


def planned_updates(accumulator=None, *, micro_batches: int | Iterable[int] | None = None, accumulation_steps: int | Callable[[int], int] | None = None,
                    effective_batch_size: int | None = None, samples: int | None = None, micro_batch: int | None = None, epochs: int = 1,
                    tail: str | None = None) -> int:
    """Number of updates of a run: what a learning-rate schedule needs to know before it starts.

    It counts the windows that ``acc.step``, with ``acc.flush()`` after each epoch, will make. (In ``acc.update`` each batch is a window: the number of
    batches is the number of updates.) A skipped window, without weight or not finite, is no update, and cannot be planned.

    Args:
        accumulator: an Accumulator whose accumulation_steps, effective_batch_size, micro_batch and tail hold.
        micro_batches: of an epoch: their number, or a list of their numbers of samples; or give samples and micro_batch instead.
        accumulation_steps: micro-batches of a window, also as a function of updates. effective_batch_size: samples of a window instead.
        epochs: number of passes.
        tail: policy at the end of each epoch, "flush" if not given; "carry" continues the window in the next epoch.

    Raises:
        ValueError: also for accumulation steps that follow a measurement (``from_noise_scale``).
    """
    if accumulator is not None:
        if not hasattr(accumulator, "_accumulation_steps"):
            raise TypeError(f"planned_updates: got {type(accumulator).__name__}, expected an Accumulator, or arguments by name")
        if accumulation_steps is not None or effective_batch_size is not None or tail is not None:
            raise ValueError("planned_updates: accumulation_steps, effective_batch_size and tail are those of the accumulator; give it or them")
        accumulation_steps, effective_batch_size, tail = accumulator._accumulation_steps, accumulator.effective_batch_size, accumulator.tail
        micro_batch = accumulator.micro_batch if micro_batch is None else micro_batch
    if (micro_batches is None) == (samples is None):
        raise ValueError("planned_updates: give either micro_batches, or samples and micro_batch")
    if (accumulation_steps is None) == (effective_batch_size is None):
        raise ValueError("planned_updates: give either accumulation_steps or effective_batch_size, the size of a window")
    if isinstance(accumulation_steps, from_noise_scale):
        raise ValueError(f"accumulation_steps={accumulation_steps!r} follows what is measured during the run, so nobody knows the number of updates before; "
                         "plan with its minimum and its maximum")
    if samples is not None:
        full, rest = divmod(whole("samples", samples), whole("micro_batch", micro_batch))
        micro_batches = chain(repeat(micro_batch, full), [rest] if rest else [])
    if effective_batch_size is not None:
        whole("effective_batch_size", effective_batch_size)
        if not hasattr(micro_batches, "__iter__"):
            raise ValueError("planned_updates: effective_batch_size counts samples, so give samples and micro_batch, or a list of micro_batches")
    return sum(1 for _ in windows(micro_batches, accumulation_steps=accumulation_steps, effective_batch_size=effective_batch_size, epochs=epochs,
                                  tail="flush" if tail is None else tail))


# ---- accumulation steps ----

class _Milestones:
    """From ``starts[i]`` updates on it is ``steps[i]``."""

    def __init__(self, starts: list[int], steps: list[int]):
        self.starts, self.steps = starts, steps

    def __call__(self, updates: int) -> int:
        return self.steps[bisect_right(self.starts, updates) - 1]

    def __repr__(self):
        return f"accumulation steps by updates {dict(zip(self.starts, self.steps))}"


def constant(steps: int) -> Callable[[int], int]:
    """The same number for all updates."""
    return milestones({0: steps})


def milestones(steps: Mapping[int, int], per_micro_step: int | None = None) -> Callable[[int], int]:
    """``{0: 1, 1000: 4}``: 1 micro-batch a window, from update 1,000 on 4. The first key is 0.

    Args:
        steps: micro-batches of a window, by the update from which on they hold.
        per_micro_step: what keys count instead of updates, as it is in one micro-batch: its samples, or its tokens. ``milestones({0: 1, 3200: 4}, 32)``
            is 4 from 3,200 samples on, which is after 100 updates; a window that is open there is finished first. Windows are taken as full, so
            that the result is a function of updates: what short ones at the end of an epoch lack comes later.
    """
    if not isinstance(steps, Mapping) or 0 not in steps:
        raise ValueError(f"steps={steps!r} does not say with how many micro-batches update 0 is made; the first key is 0, as in {{0: 1, 1000: 4}}")
    rows = sorted((whole("a key of steps", start, 0), whole(f"steps[{start}]", k)) for start, k in steps.items())
    if per_micro_step is None:
        return _Milestones([start for start, _ in rows], [k for _, k in rows])
    per_micro_step = whole("per_micro_step", per_micro_step)
    starts, used, updates, seen = [], [], 0, 0               # seen: samples after ``updates`` updates
    for (start, k), following in zip(rows, [following for following, _ in rows[1:]] + [math.inf]):
        if seen < following:                                 # else one window has jumped over this stage
            starts, used = [*starts, updates], [*used, k]
            if following < math.inf:
                count = -((seen - following) // (k * per_micro_step))
                updates, seen = updates + count, seen + count * k * per_micro_step
    return _Milestones(starts, used)


def rampup(start: int, increment: int, samples: int | None = None, *, effective_batch_size: int, micro_batch: int,
           updates: int | None = None) -> Callable[[int], int]:
    """Batch-size warm-up: windows of ``start`` samples, ``increment`` more at a time, ``effective_batch_size`` after ``samples`` samples in all.

    Each of the n increments is kept for an equal share (Megatron-LM's rampup-batch-size): after s of the S samples a window has
    start + increment floor(s n / S) samples.

    Args:
        start, increment, effective_batch_size: samples, multiples of ``micro_batch``; or tokens, if all numbers are.
        samples: S, counted as in ``milestones``; or updates: the same in updates.
    """
    for name, value in (("start", start), ("increment", increment), ("effective_batch_size", effective_batch_size)):
        if whole(name, value) % whole("micro_batch", micro_batch):
            raise ValueError(f"{name}={value}: not a multiple of micro_batch={micro_batch}")
    if effective_batch_size < start or (effective_batch_size - start) % increment:
        raise ValueError(f"rampup: {effective_batch_size} is not reached from {start} in steps of {increment}")
    if (samples is None) == (updates is None):
        raise ValueError("rampup: give samples or updates, the length of the warm-up")
    length = whole("samples", samples, 0) if updates is None else whole("updates", updates, 0)
    rises = (effective_batch_size - start) // increment
    table = {-(-i * length // max(rises, 1)): (start + i * increment) // micro_batch for i in range(rises + 1)}     # rounded up, the last of equal keys
    return milestones(table, micro_batch if updates is None else None)


class from_noise_scale:
    """Accumulation steps from the measured gradient noise scale (McCandlish et al. 2018, arXiv:1812.06162).

        acc = ga.Accumulator(net, opt, ga.schedules.from_noise_scale(micro_batch=32, maximum=16), noise_scale=True)

    With noise scale N, a window of B samples makes the progress of 1 / (1 + N/B) noiseless updates. If one update less is worth r samples, what that
    progress costs, (r + B)(1 + N/B), is least at B = sqrt(r N) (appendix D). r=None takes r = N: B = N, the critical batch, which needs twice the least
    number of updates and twice that of samples.

    K is B / micro_batch, rounded, from minimum to maximum. It changes at most once in ``every`` updates, never inside a window.

    Args:
        micro_batch: samples of a micro-batch.
        scale: gives the scale in samples, or None (or nan) while it is unknown; by default that of the Accumulator it is given to, which measures it
            (``noise_scale=True``).
        r: exchange rate in samples an update, or None.
        minimum, maximum: accumulation steps; minimum holds until the scale is known. With 1, the Accumulator has one batch size only and cannot
            measure: K would stay 1.
        every: updates between two changes. The smoothed scale needs about 1 / (1 - decay) of them to follow.
    """

    def __init__(self, micro_batch: int, scale: Callable[[], float | None] | None = None, *, r: float | None = None, minimum: int = 2, maximum: int = 64,
                 every: int = 100):
        if scale is not None and not callable(scale):
            raise TypeError(f"scale: got {type(scale).__name__}, expected a function that gives the scale, or None")
        if r is not None and not 0 < r < math.inf:
            raise ValueError(f"r={r}: expected a finite number above 0, or None")
        self._given, self._scale, self._micro_batch, self._r = scale is not None, scale, whole("micro_batch", micro_batch), r
        self._minimum, self._maximum, self._every = whole("minimum", minimum), whole("maximum", maximum), whole("every", every)
        if maximum < minimum:
            raise ValueError(f"minimum={minimum}, maximum={maximum}: the minimum is above the maximum")
        self._steps, self._decided, self._next = minimum, -1, 0      # decided for that many updates; may change from _next on

    def attach(self, acc) -> None:
        """Called by the Accumulator that it is given to."""
        if not self._given:
            if acc.noise_scale is None:
                raise ValueError("accumulation_steps: from_noise_scale needs a measured scale; make the Accumulator with noise_scale=True, or give scale=")
            if self._minimum == 1:
                raise ValueError("accumulation_steps: from_noise_scale with minimum=1 would stay there, since a window of one micro-batch measures no noise "
                                 "scale; take minimum=2, or give scale=")
            noise = acc.noise_scale
            self._scale = lambda: noise.scale

    def __call__(self, updates: int) -> int:
        if updates != self._decided and updates >= self._next and self._scale is not None:
            steps = self._wanted(self._scale())
            if steps != self._steps:
                self._steps, self._next = steps, updates + self._every
        self._decided = updates                              # asked again inside the window: the same
        return self._steps

    def _wanted(self, scale: float | None) -> int:
        if scale is None or math.isnan(scale):
            return self._steps
        if scale < 0:
            raise ValueError(f"from_noise_scale: the scale is {scale}, expected a number of samples, not negative, or None while it is unknown")
        batch = scale if self._r is None else math.sqrt(self._r * scale)
        return round(min(max(batch / self._micro_batch, self._minimum), self._maximum))

    def state_dict(self) -> dict:
        """The steps in force, and until when."""
        return {"steps": self._steps, "decided": self._decided, "next": self._next}

    def load_state_dict(self, state: dict) -> None:
        """Restores what ``state_dict`` gave. Steps outside of limits that were changed hold until the next change."""
        if set(state) != {"steps", "decided", "next"}:
            raise ValueError(f"from_noise_scale: got the state {sorted(state)}, expected decided, next, steps")
        loaded = whole("steps", state["steps"]), whole("decided", state["decided"], -1), whole("next", state["next"], 0)
        self._steps, self._decided, self._next = loaded

    def __repr__(self):
        rule = "noise scale" if self._r is None else f"sqrt({self._r:g} noise scale)"
        return f"accumulation steps {rule} / {self._micro_batch}, from {self._minimum} to {self._maximum}, now {self._steps}"
