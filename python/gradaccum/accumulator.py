"""The accumulation window, from Python: four ways to run it, one set of C functions.

    acc.update(x, y)                     the batch is the window: split, accumulate, one update
    acc.step(xb, yb)                     one micro-batch; updates by itself at the boundary
    for event in acc.stages(x, y): ...   the same window, one event per stage
    acc.begin(); net.forward(xb); net.loss(yb); net.backward(); acc.accumulate()
    acc.normalize(); acc.clip(1.0); opt.step(); acc.clear()
"""
from __future__ import annotations

import math
import time
import warnings
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, Iterator

import numpy as np

from . import _core
from ._checks import choice, whole
from ._core import StageError
from ._language import N_
from ._stages import following
from .loss_scale import DynamicLossScale
from .network import Network
from .noise import DECAY, NoiseScale
from .optim import Optimizer
from .records import Event, Step, Update
from .schedules import TAILS, missing, steps_at

if TYPE_CHECKING:
    from .many import Updates

REDUCTIONS = {"mean": 0, "mean_of_means": 1, "sum": 2}
BUFFERS = {"float64": 1, "compensated": 2, "bfloat16": 3, "float16": 4}
NON_FINITE = {"raise": 0, "skip_micro_batch": 1, "skip_update": 2}
REASONS = {0: "", 1: N_("the window has no weight: all targets ignored or all weights 0"), 2: N_("the gradient has NaN or infinity")}


class Accumulator:
    """Gathers micro-batches into windows and updates once per window.

    Args:
        net: planned network with a loss.
        optimizer: built for that network; None if only gradients are wanted.
        accumulation_steps: micro-batches per update (alias ``gradient_accumulation_steps``), or a function of the number of
            updates so far. None: ``update`` takes any batch, ``step`` updates after every micro-batch.
        effective_batch_size: samples per update instead; the pieces are then as equal as the plan's micro_batch allows.
        reduction: "mean", the exact weighted mean of the window; "mean_of_means", the usual recipe, wrong for uneven
            micro-batches (each counts as one, also one without weight); "sum".
        tail: what ``flush`` does with an unfinished window: "flush" applies it, "drop" throws it away, "carry" keeps it open.
        accumulator: precision of the window's buffer: the network's, "float64", "compensated" (two floats, Knuth's two-sum), or
            for demonstrations "bfloat16", "float16". Others than the network's imply ``staged``.
        staged: keep the gradient of the micro-batch (``net.grads``) and the window's buffer (``buffer``) apart.
        max_grad_norm: clip the window's gradient once, at the boundary, as torch.nn.utils.clip_grad_norm_.
        loss_scale: factor of the loss in backward, the same for a whole window, taken out again once at the boundary: a number, "dynamic", or a
            ``ga.DynamicLossScale``, which needs on_non_finite="skip_update". For demonstrations; float32 does not need it.
        on_non_finite: "raise", "skip_micro_batch" (implies staged) or "skip_update".
        schedule: function of the number of updates that gives the learning rate (or a list, one for each group), called before each update; or one of
            ``optim.lr_scheduler``. It may be asked more than once for the same update, except if it has a state (``state_dict``).
        ema: decay of a moving average of the parameters, once per update; see ``ema``.
        noise_scale: measure the gradient noise scale of each window; True, or the decay of its smoothing. See ``gradaccum.noise``.
    """

    def __init__(self, net: Network, optimizer: Optimizer | None = None, accumulation_steps: int | Callable[[int], int] | None = None, *,
                 gradient_accumulation_steps=None, effective_batch_size: int | None = None, reduction: str = "mean", tail: str = "flush",
                 accumulator: str | None = None, staged: bool = False, max_grad_norm: float | None = None,
                 loss_scale: "float | str | DynamicLossScale | None" = None,
                 on_non_finite: str = "raise", schedule: Callable[[int], float | list[float]] | None = None, ema: float | None = None,
                 noise_scale: bool | float = False):
        if not isinstance(net, Network):
            raise TypeError(f"net: got {type(net).__name__}, expected a network from ga.plan(...)")
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer: got {type(optimizer).__name__}, expected one of gradaccum.optim")
        if optimizer is not None and optimizer.net is not net:
            raise ValueError("optimizer: it was built for another network; make one with this network, optim.SGD(net, ...)")
        if net._loss is None:
            raise ValueError("net: it was planned without a loss; use ga.plan(..., loss=nn.CrossEntropyLoss())")
        if gradient_accumulation_steps is not None:
            if accumulation_steps is not None:
                raise ValueError("accumulation_steps and gradient_accumulation_steps are the same argument: give one")
            accumulation_steps = gradient_accumulation_steps
        if accumulation_steps is not None and effective_batch_size is not None:
            raise ValueError(
                f"accumulation_steps={accumulation_steps} and effective_batch_size={effective_batch_size} both set the size of a window: give one")
        choice("reduction", reduction, REDUCTIONS)
        choice("tail", tail, TAILS)
        choice("on_non_finite", on_non_finite, NON_FINITE)
        own = str(net.dtype)
        choice("accumulator", accumulator, (None, own, *BUFFERS))
        if accumulator == own:
            accumulator = None
        if ema is not None and not 0 <= ema <= 1:
            raise ValueError(f"ema={ema}: expected a decay in [0, 1]")
        _check_norm(max_grad_norm)
        _check_schedule(schedule, optimizer)
        if isinstance(loss_scale, str):
            choice("loss_scale", loss_scale, ("dynamic",))
            loss_scale = DynamicLossScale()
        if isinstance(loss_scale, DynamicLossScale) and on_non_finite != "skip_update":
            raise ValueError(f"loss_scale: a dynamic one grows until a window overflows, but on_non_finite={on_non_finite!r} does not skip windows; use "
                             'on_non_finite="skip_update"')
        self.net, self.optimizer = net, optimizer
        self.reduction, self.tail, self.accumulator = reduction, tail, accumulator or own
        self.staged = bool(staged or accumulator is not None or on_non_finite == "skip_micro_batch")
        self._max_grad_norm, self.loss_scale, self.on_non_finite = max_grad_norm, loss_scale, on_non_finite
        self.schedule = schedule
        self.last_update: Update | None = None
        self._started = 0.0                                  # of the window at hand
        self._micro_losses: list[float] = []
        self._registered: dict[str, object] = {}             # saved and loaded with the run
        self._accumulation_steps = accumulation_steps
        self.effective_batch_size = effective_batch_size
        self.micro_batch = net.micro_batch
        if effective_batch_size is not None:
            n = whole("effective_batch_size", effective_batch_size)
            steps = -(-n // net.micro_batch)
            self.micro_batch = -(-n // steps)                # as equal as possible
        self._core_buffer = BUFFERS.get(accumulator, 0)
        self._ema_decay = -1.0 if ema is None else float(ema)
        self.noise_scale = None if noise_scale is False else NoiseScale(DECAY if noise_scale is True else noise_scale)
        if hasattr(accumulation_steps, "attach"):
            accumulation_steps.attach(self)
        self.accumulation_steps                              # refuses a wrong K now
        if optimizer is not None:
            optimizer._join(self)
        self._attach()

    def _options(self):
        return (self.net._core, self.optimizer._core if self.optimizer else None, REDUCTIONS[self.reduction], self.staged,
                self._core_buffer, self._max_grad_norm or 0.0, NON_FINITE[self.on_non_finite],
                self._scale(), self._ema_decay)

    def _attach(self):
        net, count = self.net, self.net.params.size
        size = {1: 8, 2: 2 * net.dtype.itemsize, 3: 2, 4: 2}.get(self._core_buffer, net.dtype.itemsize)
        memory, staged_before, owner = net.memory, net.memory._staged, f"window {id(self)}"
        extra = {"gradient_buffer": count * size * self.staged, "ema": count * net.dtype.itemsize * (self._ema_decay >= 0)}
        memory._staged = self.staged or not (self.optimizer is None or self.optimizer._keeps_gradient)
        try:
            memory.add(owner, extra, "the accumulation window")
            self._core = _core.Window(*self._options())
            if self.noise_scale is not None:
                self.noise_scale._core = self._core
                self._core.measure(True)
        except BaseException:
            memory._staged = staged_before
            memory._extra.pop(owner, None)
            raise
        net._accumulator = weakref.ref(self)
        weakref.finalize(self, memory.gone, owner, extra)

    @property
    def max_grad_norm(self) -> float | None:
        """Limit of the window's gradient norm; may be set while the window is empty."""
        return self._max_grad_norm

    @max_grad_norm.setter
    def max_grad_norm(self, value: float | None) -> None:
        before = self._max_grad_norm
        _check_norm(value)
        if value is not None:
            self._allow("max_grad_norm")
        self._max_grad_norm = value
        try:
            self._core.set(*self._options())
        except BaseException:
            self._max_grad_norm = before
            raise

    # ---- what is in the window ----

    @property
    def accumulation_steps(self) -> int | None:
        """Micro-batches of the window at hand; None if any number is taken."""
        if self.effective_batch_size is not None:
            return -(-self.effective_batch_size // self.net.micro_batch)
        return steps_at(self._accumulation_steps, self.updates if callable(self._accumulation_steps) and hasattr(self, "_core") else 0)

    @property
    def micro_step(self) -> int:
        """Micro-batches in the open window."""
        return self._core.sums()[0]

    @property
    def loss_sum(self) -> float:
        """Sum of losses in the open window."""
        return self._core.sums()[1]

    @property
    def weight_sum(self) -> float:
        """Sum of weights in the open window: what the gradient will be divided by."""
        return self._core.sums()[2]

    @property
    def is_boundary(self) -> bool:
        """Whether the next ``step`` completes the window (counted in micro-batches)."""
        return self._missing(self.accumulation_steps) <= 1

    def _missing(self, steps: int | None) -> int:
        """Micro-batches that the window lacks."""
        micro_step, _, _, samples = self._core.sums()
        return missing(micro_step, samples, self.micro_batch, steps, self.effective_batch_size)

    @property
    def buffer(self) -> np.ndarray:
        """Flat, live, read-only view of the window's buffer: ``net.grads`` itself unless staged."""
        return self._core.buffer if self.staged else self.net.grads

    @property
    def compensation(self) -> np.ndarray | None:
        """What the buffer could not hold (accumulator="compensated"); the sum is buffer + compensation."""
        return self._core.compensation

    @property
    def ema(self) -> dict[str, np.ndarray] | None:
        """Moving average of each parameter, live views; None without ``ema=``."""
        flat = self._core.ema
        if flat is None:
            return None
        return {name: p.of(flat) for name, p in self.net._parameters.items()}

    def _counter(self, name):
        return self._core.get_state()["counters"][name]

    @property
    def micro_steps(self) -> int:
        """Micro-batches since the start."""
        return self._counter("micro_steps")

    @property
    def updates(self) -> int:
        """Updates since the start. Skipped windows do not count."""
        return self._counter("updates")

    @property
    def samples(self) -> int:
        """Samples since the start."""
        return self._counter("samples")

    @property
    def tokens(self) -> int:
        """Target elements with weight since the start."""
        return self._counter("elements")

    @property
    def weight(self) -> float:
        """Weight since the start."""
        return self._counter("weight")

    # ---- (a) a whole window ----

    def update(self, x, y, weight=None) -> Update:
        """The batch is the window: cut into pieces of ``micro_batch`` (the last may be short), accumulated, applied. One C call.

        Args:
            x, y, weight: any number of samples. See ``Network.loss`` for y and weight.

        Raises:
            ValueError: more pieces than ``accumulation_steps``. StageError: the window already holds something.
        """
        self._need_optimizer("update")
        limit = self._limit("update", y)
        self.net._before()
        self._started = time.perf_counter()
        if self.optimizer._own_update:
            return self.optimizer._update(self, x, y, weight)
        with self._scheduled():
            raw, losses, weights = self._core.update(self.net._as_inputs(x), y, weight, self.micro_batch, limit or 0)
        self._micro_losses = []
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._record(raw, (losses / weights).tolist())

    def update_many(self, x, y, batch_size: int | None = None, weight=None) -> "Updates | list[Update]":
        """Window after window over arrays that are in memory, in order, in one C call: what calls of ``update`` would do, without Python between.

        Args:
            x, y, weight: as for ``update``; shuffled before, if they should be.
            batch_size: samples of a window, the last may be short; by default effective_batch_size, or accumulation_steps * micro_batch.

        Returns:
            A sequence of one record a window.

        Raises:
            As ``update``; the windows before the one that failed stay applied, and ``last_update`` is the last of them.
        """
        from .many import Updates, window_size

        self._need_optimizer("update_many")
        if callable(self._accumulation_steps) and batch_size is None:
            raise ValueError("update_many: accumulation_steps is a function of updates, so windows differ; give batch_size, or call update for each")
        size, first = window_size(self, batch_size), self.updates
        limit = self.accumulation_steps
        if limit is not None and -(-min(size, len(y)) // self.micro_batch) > limit:
            raise ValueError(f"update_many: windows of {size} samples are {-(-size // self.micro_batch)} micro-batches of {self.micro_batch}, but "
                             f"accumulation_steps is {limit}")
        windows, rates = -(-len(y) // size), None
        alone = (self.noise_scale is not None or isinstance(self.loss_scale, DynamicLossScale) or callable(self._accumulation_steps)
                 or hasattr(self.schedule, "state_dict") or self.optimizer._own_update)
        if self.schedule is not None and not alone:
            planned = [self._rates(first + i) for i in range(windows)]
            rates, alone = np.array([groups[0]["lr"] for groups in planned]), any(g != {"lr": groups[0]["lr"]} for groups in planned for g in groups)
        if alone:                                            # something must run in Python between two windows
            part = lambda a, i: a if a is None else {k: v[i:i + size] for k, v in a.items()} if isinstance(a, dict) else a[i:i + size]  # noqa: E731
            return [self.update(part(x, i), y[i:i + size], part(weight, i)) for i in range(0, len(y), size)]
        self.net._before()
        self._started = time.perf_counter()
        rows, losses, weights, done, error = self._core.update_many(self.net._as_inputs(x), y, weight, size, self.micro_batch, rates)
        rows, self._micro_losses = rows[:done], []
        before = np.cumsum(np.concatenate([[0], rows[:-1, 8] == 0])).astype(int) if done else np.zeros(0, int)
        used = np.full(done, self.optimizer.lr) if rates is None else rates[before]
        if rates is not None and done:
            for group in self.optimizer.groups:
                group["lr"] = float(used[-1])
        updates = Updates(rows, losses, weights, first, used, time.perf_counter() - self._started)
        if done:
            if rows[:, 6].max() > 1:
                self._warn_of_batch_statistics()
            self.last_update, self.net._filled_by = updates[-1], f"update {self.updates}"
        if error is not None:
            raise error
        return updates

    def _cut(self, call: str, x, y, weight) -> list[tuple]:
        """The batch as a window: (inputs, y, weight) of each micro-batch. Checked: the window is empty, and may have that many."""
        if self.micro_step or self.net.stage not in ("clear", "forward", "loss"):
            raise StageError(f"{call}: the window already holds {self.micro_step} micro-batches (stage {self.net.stage!r}); flush it or clear(discard=True)")
        x, y = [np.asarray(a) for a in self.net._as_inputs(x)], np.asarray(y)
        weight = None if weight is None else np.asarray(weight)
        if y.size == 0:
            raise ValueError(f"{call}: y has shape {y.shape}: a window needs at least 1 sample")
        n, piece, limit = len(y), self.micro_batch, self._limit(call, y)
        for name, a in [*zip(self.net._inputs, x), ("weight", weight)]:
            if a is not None and (not a.ndim or len(a) != n):
                raise ValueError(f"{call}: {name} has shape {a.shape}, but y has {n} samples")
        if limit and -(-n // piece) > limit:
            raise ValueError(f"{call}: {n} samples in micro-batches of {piece} are {-(-n // piece)} micro-batches, but accumulation_steps is {limit}")
        parts = [slice(i, i + piece) for i in range(0, n, piece)]
        return [(tuple(a[p] for a in x), y[p], None if weight is None else weight[p]) for p in parts]

    def _limit(self, call: str, y) -> int | None:
        """Micro-batches that a window may have at most."""
        if self.effective_batch_size is None:
            return self.accumulation_steps
        if len(y) > self.effective_batch_size:
            raise ValueError(f"{call}: got {len(y)} samples, but effective_batch_size is {self.effective_batch_size}: the batch is the window, so give at "
                             "most that many")
        return None

    # ---- (b) one micro-batch ----

    def step(self, x, y, weight=None) -> Step:
        """One micro-batch of at most ``net.micro_batch`` samples; at the boundary also the update."""
        self._need_optimizer("step")
        steps = self.accumulation_steps                      # a function of updates may refuse: before anything is added
        if self.micro_step and self.net.stage == "accumulate" and self._missing(steps) <= 0:
            raise StageError("step: the window is complete but was not applied; clear(discard=True) drops it")
        self.net._before()
        if not self.micro_step:
            self._ask_schedule()
            self._started = time.perf_counter()
        loss_sum, total, samples, rejected = self.optimizer._add(self, self.net._as_inputs(x), y, weight)
        loss = loss_sum / total if total > 0 else math.nan
        self._micro_losses.append(loss)
        done = self._missing(steps) <= 0
        return Step(loss, total, samples, done, self._finish() if done else None, rejected)

    def flush(self) -> Update | None:
        """End of an epoch: the unfinished window, by the tail policy. None if there is none or it is not applied."""
        if not self.micro_step or self.tail == "carry":
            return None
        if self.tail == "drop":
            self.clear(discard=True)
            return None
        self._need_optimizer("flush")
        return self._finish()

    def _finish(self) -> Update:
        with self._scheduled():
            raw = self._core.finish()
        losses, self._micro_losses = self._micro_losses, []
        return self._record(raw, losses)

    def _need_optimizer(self, call):
        if self.optimizer is None:
            raise ValueError(f"{call}: this Accumulator was made without an optimizer; give one to update parameters")
        self._allow(call)

    def _allow(self, call: str) -> None:
        """Refuses what this optimizer cannot do."""
        if self.optimizer is not None:
            self.optimizer._allow(self, call)

    @contextmanager
    def _scheduled(self):
        """What the schedule sets for the update inside; what there was before it if that fails."""
        if self.schedule is None:
            yield
            return
        before = [dict(group) for group in self.optimizer.groups]
        new = self._rates(self.updates)
        try:
            for i, hyper in enumerate(new):
                self.optimizer.set(i, **hyper)
            yield
        except BaseException:
            for i, hyper in enumerate(before):
                self.optimizer.set(i, **hyper)
            raise

    def _rates(self, updates: int) -> list[dict]:
        """What the schedule sets for the update after ``updates`` updates, by group."""
        _check_schedule(self.schedule, self.optimizer)
        groups = len(self.optimizer.groups)
        if hasattr(self.schedule, "hyper"):
            found = self.schedule.hyper(updates)
            given = [hyper["lr"] for hyper in found]
        else:
            given = self.schedule(updates)
            found = [{"lr": lr} for lr in (given if isinstance(given, (list, tuple)) else [given] * groups)]
        try:
            found = [hyper | {"lr": float(hyper["lr"])} for hyper in found]
        except (TypeError, ValueError):
            found = []
        if len(found) != groups or not all(hyper["lr"] >= 0 and math.isfinite(hyper["lr"]) for hyper in found):
            raise ValueError(f"schedule({updates}) = {given!r}: expected a finite learning rate, not negative, or a list of {groups}, one for each group")
        return found

    def _ask_schedule(self) -> None:
        """Refuses a wrong rate before anything is added. A schedule with a state is asked once, at the boundary."""
        if self.schedule is not None and self.optimizer is not None and not hasattr(self.schedule, "state_dict"):
            self._rates(self.updates)

    def _record(self, raw: dict, micro_losses: list[float]) -> Update:
        skipped = raw["skipped"]
        if raw["micro_steps"] > 1:
            self._warn_of_batch_statistics()
        known = self.optimizer is None or self.optimizer._keeps_gradient
        norm = raw["grad_norm"] if raw["weight"] > 0 and known else None
        self.last_update = Update(
            update=self.updates, loss=raw["loss_sum"] / raw["weight"] if raw["weight"] > 0 else math.nan, weight=raw["weight"],
            samples=raw["samples"], tokens=raw["elements"], micro_steps=raw["micro_steps"], micro_losses=micro_losses, grad_norm=norm,
            grad_norm_clipped=None if skipped or not known else raw["grad_norm_clipped"], clipped=raw["clipped"],
            lr=self.optimizer.lr if self.optimizer else None, skipped=bool(skipped), reason=REASONS[skipped], rejected=raw["rejected"],
            non_finite=self._core.non_finite if skipped == 2 or raw["rejected"] else "",
            loss_scale=self._scale(), seconds=time.perf_counter() - self._started)
        if not skipped:
            self.net._filled_by = f"update {self.updates}"
        if self.noise_scale is not None:
            self.noise_scale._window(self.last_update, self.reduction)
        if isinstance(self.loss_scale, DynamicLossScale) and skipped != 1:
            self.loss_scale.update(overflow=skipped == 2)
            self._rescale()
        return self.last_update

    def _scale(self) -> float:
        return 1.0 if self.loss_scale is None else float(self.loss_scale)

    def _rescale(self) -> None:
        """Gives the core a scale that has moved, once the window is empty."""
        if self.net.stage == "clear":
            self._core.set(*self._options())

    def _warn_of_batch_statistics(self) -> None:
        net = self.net
        if net._warned or not net.training:
            return
        net._warned = True
        mixing = [node.name for node in net.nodes if node.mixes_samples]
        if mixing:
            warnings.warn(
                f"{', '.join(mixing)}: batch statistics are those of a micro-batch, so an accumulated window is not the full batch; GroupNorm has no "
                "such statistics, GhostBatchNorm2d has the same ones in every split, and running_stats=\"window\" at least keeps the running "
                "statistics from moving several times per update", UserWarning, stacklevel=4)

    # ---- (c) one event per stage ----

    def stages(self, x, y, weight=None) -> Iterator[Event]:
        """The window of ``update``, one event after each stage. Stopping early leaves the window open."""
        self._need_optimizer("stages")
        net, micro_batches = self.net, self._cut("stages", x, y, weight)
        self.begin()
        for step, (x, y, weight) in enumerate(micro_batches, start=1):
            net.forward(dict(zip(net._inputs, x)))
            yield self._event("forward", step, ("activations",), samples=len(y))
            loss_sum, total = net.loss(y, weight)
            yield self._event("loss", step, ("loss_sum", "weight"), loss_sum=loss_sum, weight=total)
            net.backward()
            yield self._event("backward", step, ("activation gradients", "net.grads"), grad_norm=_norm(net.grads))
            self.accumulate()
            changed = ("acc.buffer", "acc.loss_sum", "acc.weight_sum") if self.staged else ("acc.loss_sum", "acc.weight_sum")
            yield self._event("accumulate", step, changed, loss_sum=self.loss_sum, weight=self.weight_sum, buffer_norm=_norm(self.buffer))
        if not self.weight_sum > 0:
            record = self._finish()
            yield self._event("clear", None, ("net.grads", "acc.buffer"), skipped=1.0, loss=record.loss)
            return
        self.normalize()
        state = self._core.get_state()
        yield self._event("normalize", None, ("net.grads",), weight=self.weight_sum, grad_norm=state["grad_norm"])
        if self.on_non_finite != "raise" and not math.isfinite(state["grad_norm"]):
            self._core.clear(True)
            record = self._record_state(state, skipped=2)
            yield self._event("clear", None, ("net.grads", "acc.buffer"), skipped=1.0, loss=record.loss)
            return
        if self.max_grad_norm is not None:
            norm, clipped = self._clip(self.max_grad_norm)
            yield self._event("clip", None, ("net.grads",) * clipped, grad_norm=norm, clipped=float(clipped))
        self.optimizer.step()
        yield self._event("update", None, ("parameters", "optimizer state"), lr=self.optimizer.lr, loss=self.last_update.loss)
        self.clear()
        yield self._event("clear", None, ("net.grads", "acc.buffer"))

    def _event(self, stage, step, changed, **values) -> Event:
        net = self.net
        views = {"net.params": net.params, "net.grads": net.grads, "acc.buffer": self.buffer}
        if step is not None:
            views["output"] = net._prediction()
        event = Event(stage, step, tuple(dict.fromkeys(changed)), views, values)
        event._accumulator, event._moment = self, self._moment()
        return event

    def _moment(self) -> tuple:
        """Where the window is: changes with every stage and every update."""
        return self.net.stage, *self._core.get_state()["counters"].values(), self.micro_step

    def record(self, x, y, weight=None, *, image_shape=None):
        """The window of ``update``, with the same bits, recorded: numbers, small pictures, bytes and formula of every stage.

        Args:
            x, y, weight: as for ``update``.
            image_shape: (height, width), (1, height, width) or (3, height, width) of input rows that are images but do not look so.

        Returns:
            gradaccum.replay.Recording: ``events``, ``table()``, ``to_json()``, ``save_html(path)``.

        A large network or long window has smaller and fewer pictures: at most 12 parameters (the first and last 6), 64 x 64 pixels each, 32
        samples a micro-batch of 32 x 32 pixels, less when all pictures of a window would take more than 144 KiB. Numbers are never left out.

        Raises:
            As ``stages``. After an error the window is empty, and counters and layer state are as they were.
        """
        from .replay import record

        return record(self, x, y, weight, image_shape=image_shape)

    # ---- (d) by hand ----

    def begin(self) -> None:
        """Opens a window; it must be empty."""
        self._allow("begin")
        self._ask_schedule()
        self._core.begin()
        self._micro_losses = []
        self._started = time.perf_counter()

    def accumulate(self) -> bool:
        """Takes the micro-batch into the window: loss, weight, counts, and in a staged window its gradient. True if rejected."""
        rejected = self._core.accumulate() if self.optimizer is None else self.optimizer._accumulate(self)
        loss_sum, total = self.net._last_loss
        self._micro_losses.append(loss_sum / total if total > 0 else math.nan)
        return rejected

    def normalize(self) -> float:
        """Divides the window's gradient, now in ``net.grads``; returns its norm."""
        self._allow("normalize")
        self._core.normalize()
        return self._core.get_state()["grad_norm"]

    def clip(self, max_norm: float | None = None) -> float:
        """Clips ``net.grads`` to a norm; returns the norm before."""
        return self._clip(self.max_grad_norm if max_norm is None else max_norm)[0]

    def _clip(self, max_norm):
        if max_norm is None:
            raise ValueError("clip: give max_norm, or make the Accumulator with max_grad_norm=")
        self._allow("clip")
        return self._core.clip(float(max_norm))

    def _apply(self) -> None:
        """``optimizer.step()`` inside a window."""
        state = self._core.get_state()
        with self._scheduled():
            self._core.apply()
        self._record_state(state, skipped=0)

    def _record_state(self, state: dict, skipped: int) -> Update:
        losses, self._micro_losses = self._micro_losses, []
        return self._record({**state, "weight": state["weight_sum"], "micro_steps": state["micro_step"], "skipped": skipped}, losses)

    def clear(self, discard: bool = False) -> None:
        """Empties the window after an update; with ``discard=True`` also one that holds something."""
        if discard:
            self._allow("clear")
        self._core.clear(bool(discard))
        self._micro_losses = []
        if isinstance(self.loss_scale, DynamicLossScale):
            self._rescale()

    # ---- a run in a file ----

    def save(self, path, *, data=None, extra=None) -> None:
        """Saves the whole run, wherever the window is, so that it goes on with the same bits.

        Parameters, layer state, the open window with its buffers and sums, optimizer state and hyper-parameters, moving average, counters,
        and the state of ``schedule``, ``data`` and registered objects. One safetensors file with a checksum; it replaces an old one at
        once, and a power loss leaves one of the two. Between forward and accumulate the state before this micro-batch is saved. What a layer
        of your own (``nn.Function``) keeps in Python is not known here: ``register`` it.

        Args:
            path: of the file, such as "run.safetensors".
            data: the ``ga.data.Loader`` (or another object with ``state_dict`` and ``load_state_dict``) that the micro-batches come from.
            extra: anything that JSON can hold; ``load`` returns it.

        Raises:
            StageError: the micro-batch at hand has already changed what would be saved; the text tells what to do.
            OSError: the file could not be written, such as on a full disk; an old one is unchanged.
        """
        from . import checkpoint
        checkpoint.save(self, path, data=data, extra=extra)

    def load(self, path, *, data=None):
        """Restores what ``save`` saved into a network, optimizer and Accumulator that were made in the same way; returns ``extra``.

        Whatever they held is replaced, an open window too. Call it before the loop over ``data`` begins.

        May differ: micro_batch, memory options, threads; accumulation_steps, effective_batch_size, tail, max_grad_norm, on_non_finite,
        schedule and the decay of ema, where those given to this Accumulator hold and a UserWarning names the change. Hyper-parameters such
        as lr come from the file; set them afterwards to change them.

        Raises:
            ValueError: the file is damaged or of another run, and how; nothing was changed.
        """
        from . import checkpoint
        return checkpoint.load(self, path, data=data)

    def register(self, name: str, item) -> None:
        """Saves and loads an object with the run: one with ``state_dict()`` (numbers, texts, lists, NumPy arrays by name) and
        ``load_state_dict(state)``, which checks before it changes anything. Register it under the same name before ``load``."""
        from . import checkpoint
        checkpoint.register(self, name, item)

    def __repr__(self):
        micro_step, _loss, weight, samples = self._core.sums()
        k, stage = self.accumulation_steps or "any", self.net.stage
        return (f"Accumulator: micro-step {micro_step} of {k}, {samples} samples, weight {weight:g} in the window (stage {stage!r}, next: "
                f"{', '.join(following(stage))})\n"
                f"  {self.updates} updates, {self.micro_steps} micro-steps, {self.samples} samples so far; reduction {self.reduction!r}")

    def _repr_html_(self):
        from .show import cards
        return cards.accumulator(self)


def _norm(a: np.ndarray) -> float:
    return float(np.sqrt(np.sum(np.square(a, dtype=np.float64))))


def _check_norm(value) -> None:
    if value is not None and not value > 0:
        raise ValueError(f"max_grad_norm={value}: expected a number above 0, or None for no clipping")


def _check_schedule(schedule, optimizer: Optimizer | None) -> None:
    if schedule is not None and not callable(schedule):
        raise TypeError(f"schedule: got {type(schedule).__name__}, expected one of optim.lr_scheduler, or a function of the number of updates that gives a "
                        "learning rate")
    if optimizer is not None and getattr(getattr(schedule, "optimizer", None), "groups", optimizer.groups) is not optimizer.groups:
        raise ValueError(f"schedule: {schedule!r} was made for another optimizer; make one for this")
