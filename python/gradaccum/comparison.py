"""One exercise in one call: what happens to speed, stability, memory and the result when a batch is split differently?"""
from __future__ import annotations

import hashlib
import math
import sys
import textwrap
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, Sequence

import numpy as np

from . import nn, optim
from ._checks import choice, whole
from .accumulator import Accumulator
from .data import batches
from .errors import BudgetError
from .memory import format_bytes, parse_bytes
from .nn.module import Module
from .plan import plan
from .show.style import COLOURS

SCALINGS = {"linear": lambda ratio: ratio, "sqrt": math.sqrt}


@dataclass
class _Run:
    """One setting with one seed, finished."""

    losses: np.ndarray
    samples: np.ndarray                                      # of each window
    seconds: np.ndarray
    train_loss: float
    validation_loss: float | None
    train_accuracy: float | None
    validation_accuracy: float | None
    by_kind: dict[str, int]
    bits: str                                                # digest of all parameters and of the loss of every update


def compare(model: Module | Callable[[], Module], data, settings: Sequence[tuple[int, int]] = ((128, 1), (32, 4), (8, 16), (1, 128)), *,
            loss=None, optimizer: Callable = optim.SGD, lr: float | Callable[[int], float] = 0.1, scaling: str | None = None, epochs: int = 5,
            seeds: Sequence[int] = (0, 1, 2), memory_limit: int | str | None = None, progress: bool = True, **plan_options) -> "Comparison":
    """Trains the same model with each setting and each seed, and puts speed, stability, memory and result side by side.

    For one seed, every setting starts from the same weights and sees the same samples in the same order. A window is micro_batch x
    accumulation_steps samples; the last of an epoch may be smaller.

    Args:
        model: a module, or a function that makes one, ``lambda: nn.Sequential(...)``.
        data: (x_train, y_train), (x_train, y_train, x_validation, y_validation), or an object with x_train, y_train, x_test and y_test. The
            shape of a sample is that of x: (features,), (T,), (C, H, W), ...
        settings: pairs (micro_batch, accumulation_steps).
        loss: one of ``nn``'s losses; CrossEntropyLoss by default.
        optimizer: called as ``optimizer(net, lr=lr)``: optim.SGD, optim.AdamW, or a function of your own.
        lr: learning rate, or a function of the effective batch size that gives it.
        scaling: "linear" or "sqrt": ``lr`` is that of the first setting, and the others scale with the effective batch size or its root
            (Goyal et al. 2017, arXiv:1706.02677; Krizhevsky 2014, arXiv:1404.5997).
        epochs: passes over the training data. seeds: of initial weights, dropout and the order of the samples.
        memory_limit: bytes or a text such as "8 MiB"; a setting that does not fit is a row that says so.
        progress: a bar with tqdm, else one line a run.
        plan_options: for ``ga.plan``, such as dtype or recompute.

    Returns:
        Comparison. After Ctrl-C it holds the runs that were finished.

    Raises:
        ValueError, TypeError: before anything is trained.
    """
    make = _factory(model)
    arrays = _arrays(data)
    x, y = arrays[:2]
    pairs = _pairs(settings, len(y))
    rates = _rates(lr, scaling, [m * k for m, k in pairs])
    epochs, seeds, limit = whole("epochs", epochs), _seeds(seeds), parse_bytes(memory_limit)
    loss = nn.CrossEntropyLoss() if loss is None else loss
    if not callable(optimizer):
        raise TypeError(f"optimizer: got {type(optimizer).__name__}, expected a class or function that is called as optimizer(net, lr=lr), such as optim.SGD")
    reserved = set(plan_options) & {"input_shape", "inputs", "micro_batch", "seed"}
    if reserved:
        raise TypeError(f"compare: {', '.join(sorted(reserved))} come from the data, the settings and the seeds")
    result = Comparison(pairs, rates, seeds, epochs, len(y), limit, getattr(optimizer, "__name__", "optimizer"))

    def build(i: int, seed: int):
        m, k = pairs[i]
        net = plan(make(), input_shape=x.shape[1:], loss=loss, micro_batch=m, memory_limit=limit, seed=seed, **plan_options)
        opt = optimizer(net, lr=rates[i])
        if not isinstance(opt, optim.Optimizer):
            raise TypeError(f"optimizer: it returned {type(opt).__name__}, expected one of gradaccum.optim")
        return net, Accumulator(net, opt, k)

    for i in range(len(pairs)):                              # every refusal and every mistake shows before the first run
        try:
            net, acc = build(i, seeds[0])
        except BudgetError as error:
            result._refused[i] = error
            continue
        result._note(net)
        del net, acc
    order = [(seed, i) for seed in seeds for i in range(len(pairs)) if i not in result._refused]
    total = sum(epochs * -(-len(y) // math.prod(pairs[i])) for _, i in order)
    try:
        with _progress(progress, total) as tell:
            for seed, i in order:
                name = f"{pairs[i][0]} x {pairs[i][1]}, seed {seed}"
                result._runs[i].append(_run(*build(i, seed), arrays, math.prod(pairs[i]), epochs, seed, lambda: tell(name)))
                tell(name, done=True)
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def _run(net, acc, arrays, window: int, epochs: int, seed: int, tell) -> _Run:
    x, y, x_validation, y_validation = arrays
    records = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*batch statistics are those of a micro-batch")   # the comparison says so itself
        for epoch in range(epochs):
            for xb, yb in batches(x, y, window, seed=seed, epoch=epoch):
                records.append(acc.update(xb, yb))
                tell()
    losses = np.array([record.loss for record in records])
    bits = hashlib.blake2b(net.params.tobytes() + losses.tobytes()).hexdigest()
    validation = (net.evaluate(x_validation, y_validation), _accuracy(net, x_validation, y_validation)) if x_validation is not None else (None, None)
    return _Run(losses, np.array([record.samples for record in records]), np.array([record.seconds for record in records]), net.evaluate(x, y), validation[0],
                _accuracy(net, x, y), validation[1], net.memory.by_kind(), bits)


def _accuracy(net, x, y) -> float | None:
    """Share of samples (steps, pixels) whose class is right; None if the targets are no classes."""
    if net._loss.kind != "cross_entropy_loss":
        return None
    output = net.predict(x)
    counted = y != net._loss.ignore_index
    right = output.argmax(axis=1 if output.ndim in (2, 4) else -1) == y
    return float(right[counted].mean()) if counted.any() else None


class Comparison:
    """What ``ga.compare`` returns; prints as a table.

    Attributes:
        interrupted: whether Ctrl-C ended it early.
        seeds, epochs, samples, memory_limit: as compared.
    """

    def __init__(self, settings, rates, seeds, epochs, samples, memory_limit, optimizer):
        self.settings, self.seeds, self.epochs, self.samples, self.memory_limit = settings, seeds, epochs, samples, memory_limit
        self.interrupted = False
        self._rates, self._optimizer = rates, optimizer
        self._runs: list[list[_Run]] = [[] for _ in settings]
        self._refused: dict[int, BudgetError] = {}
        self._mixing: list[str] = []
        self._engine = "native"

    def _note(self, net) -> None:
        self._mixing = [f"{node.name} ({node.kind})" for node in net.nodes if node.mixes_samples]
        self._engine = net.engine

    @property
    def rows(self) -> list[dict]:
        """One dict a setting.

        Keys: micro_batch, accumulation_steps, effective_batch_size, lr, seeds (finished), updates (of a run), bytes, by_kind; seconds_per_update,
        seconds_per_sample (medians over all updates); loss_spread (standard deviation of the change of the loss from one update to
        the next, mean over seeds); train_loss, validation_loss, train_accuracy, validation_accuracy (after the last update, evaluation mode,
        means over seeds) and each of these + "_std" (standard deviation over seeds, None for one seed); losses (one array a
        seed); same_bits (as the first finished setting with this effective batch, None if there is nothing to compare); refused (None, or
        "does not fit: ..."). Numbers are None where nothing was run.
        """
        rows = []
        for i, (m, k) in enumerate(self.settings):
            row = {"micro_batch": m, "accumulation_steps": k, "effective_batch_size": m * k, "lr": self._rates[i], "seeds": len(self._runs[i]),
                   "refused": None}
            if i in self._refused:
                row |= {"refused": f"does not fit: {str(self._refused[i]).splitlines()[0]}", "bytes": self._refused[i].asked,
                        "by_kind": dict(self._refused[i].by_kind)}
            rows.append({**dict.fromkeys(_EMPTY), **row, **_numbers(self._runs[i]), "same_bits": self._same_bits(i)})
        return rows

    def _first(self, i: int) -> int | None:
        """The first setting with the effective batch of setting i that has runs."""
        same = [j for j, (m, k) in enumerate(self.settings) if m * k == math.prod(self.settings[i]) and self._runs[j]]
        return same[0] if len(same) > 1 else None

    def _same_bits(self, i: int) -> bool | None:
        first = self._first(i)
        if first is None or not self._runs[i]:
            return None
        return all(a.bits == b.bits for a, b in zip(self._runs[first], self._runs[i]))

    @property
    def same_bits(self) -> bool | None:
        """Whether all settings with the same effective batch gave the same bits; None if no two of them can be compared."""
        answers = [same for same in (self._same_bits(i) for i in range(len(self.settings))) if same is not None]
        return all(answers) if answers else None

    def statement(self) -> str:
        """A sentence or two about the bits, and why they differ if they do."""
        same = self.same_bits
        if same is None:
            return "Same bits: no two settings with the same effective batch were run, so there is nothing to compare."
        if same:
            return ("Same bits: yes. Settings with the same effective batch have the same parameters and the same loss in every update, with every seed.")
        why = []
        if self._mixing:
            why.append(f"{', '.join(self._mixing)} mixes the samples of a micro-batch, so each split is another model; GroupNorm mixes nothing, "
                       "and GhostBatchNorm2d has the same groups in every split")
        if self._engine != "native":
            why.append(f'engine="{self._engine}" adds in another order for every size; engine="native" does not')
        return "Same bits: NO. " + ("; ".join(why) if why else "Check for a layer of your own that mixes samples, or ties=\"fold\"") + "."

    @property
    def text(self) -> str:
        """The comparison as a table of text."""
        head = (f"Comparison: {self.samples} samples, {self.epochs} epochs, seeds {', '.join(map(str, self.seeds))}, {self._optimizer}"
                + ("; interrupted" if self.interrupted else ""))
        lines = [head, f"{'micro x steps':>13} {'batch':>6} {'lr':>8} {'updates':>7} {'ms/update':>9} {'us/sample':>9} {'spread':>8} {'train loss':>15} "
                       f"{'valid. loss':>15} {'accuracy':>15} {'bytes':>11} bits"]
        for row in self.rows:
            name = f"{row['micro_batch']} x {row['accumulation_steps']}"
            start = f"{name:>13} {row['effective_batch_size']:>6} {row['lr']:>8.4g}"
            if row["refused"]:
                lines.append(f"{start}  {row['refused']}")
            elif not row["seeds"]:
                lines.append(f"{start}  not run")
            else:
                accuracy = "validation_accuracy" if row["validation_accuracy"] is not None else "train_accuracy"
                bits = {None: "", True: "same", False: "other"}[row["same_bits"]]
                lines.append(f"{start} {row['updates']:>7} {1e3 * row['seconds_per_update']:>9.3f} {1e6 * row['seconds_per_sample']:>9.2f} "
                             f"{row['loss_spread']:>8.4f} {_with_std(row, 'train_loss'):>15} {_with_std(row, 'validation_loss'):>15} "
                             f"{_with_std(row, accuracy):>15} {format_bytes(row['bytes']):>11} {bits}")
        return "\n".join([*lines, self.statement()])

    __repr__ = text.fget

    def picture(self):
        """Five panels, one message each, and the sentence about the bits: a matplotlib Figure."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("picture() needs matplotlib: pip install 'gradaccum[show]'") from None
        rows = self.rows
        ran = [i for i, row in enumerate(rows) if row["seeds"]]
        if not ran:
            raise ValueError("picture: no setting was run; print(comparison) says why")
        names = [f"{row['micro_batch']} × {row['accumulation_steps']}" for row in rows]
        colours = [COLOURS[i % len(COLOURS)] for i in range(len(rows))]
        figure = Figure(figsize=(12, 7.2), layout="constrained")
        (speed, memory, learning), (stability, result, words) = figure.subplots(2, 3)

        def bars(axes, indices, values):
            axes.barh([names[i] for i in indices], values, color=[colours[i] for i in indices], height=0.65)
            axes.invert_yaxis()

        micro = [1e6 * rows[i]["seconds_per_sample"] for i in ran]
        bars(speed, ran, micro)
        speed.set(xlabel="microseconds per sample (median)",
                  title=f"Speed: {names[ran[int(np.argmin(micro))]]} is the fastest"
                        + (f",\n{max(micro) / min(micro):.1f} times as fast as the slowest" if len(ran) > 1 else ""))
        kib = [(row["bytes"] or 0) / 1024 for row in rows]
        known = [i for i, row in enumerate(rows) if row["bytes"]]
        bars(memory, known, [kib[i] for i in known])
        for bar, i in zip(memory.patches, known):
            if rows[i]["refused"]:
                bar.set(facecolor="white", edgecolor=colours[i], hatch="//")
        least = min(ran, key=lambda i: kib[i])
        title = f"Memory: {names[least]} needs the least"
        if self.memory_limit is not None:
            memory.axvline(self.memory_limit / 1024, color="crimson", linewidth=2)
            refused = [names[i] for i in self._refused]
            title += f",\n{', '.join(refused)} {'does' if len(refused) == 1 else 'do'} not fit (line: limit)" if refused else ",\nall fit the limit (line)"
        memory.set(xlabel="KiB (hatched: refused)" if self._refused else "KiB", title=title)
        for i in ran:                                        # of equal batches the first ones wide, so that equal curves show below each other
            equal = [j for j in ran if rows[j]["effective_batch_size"] == rows[i]["effective_batch_size"]]
            width = 1.0 if len(equal) == 1 else 5.0 - 4.0 * equal.index(i) / (len(equal) - 1)
            for j, run in enumerate(self._runs[i]):
                learning.plot(np.cumsum(run.samples), run.losses, color=colours[i], linewidth=width, alpha=0.8, label=names[i] if j == 0 else None)
        learning.set(xlabel="samples seen", ylabel="loss of the window",
                     title="Learning: equal batches, one curve" if self.same_bits else "Learning: loss against samples seen")
        learning.legend(title="micro-batch × steps", fontsize=8, title_fontsize=8)
        bars(stability, ran, [rows[i]["loss_spread"] for i in ran])
        steady = min(ran, key=lambda i: rows[i]["loss_spread"])
        batches_seen = {rows[i]["effective_batch_size"] for i in ran}
        stability.set(xlabel="spread of the loss from update to update",
                      title="Stability: one batch, one spread" if len(batches_seen) == 1 and self.same_bits
                      else f"Stability: batch {rows[steady]['effective_batch_size']} is the steadiest")
        part = "validation" if rows[ran[0]]["validation_loss"] is not None else "train"
        key = f"{part}_accuracy" if rows[ran[0]][f"{part}_accuracy"] is not None else f"{part}_loss"
        label = key.replace("_", " ")
        values = np.array([rows[i][key] for i in ran])
        stds = [rows[i][f"{key}_std"] or 0.0 for i in ran]
        for place, i in enumerate(ran):
            result.errorbar(values[place], names[i], xerr=stds[place], fmt="o", markersize=9, capsize=4, color=colours[i], ecolor="0.3")
        result.invert_yaxis()
        result.margins(y=0.15)
        best = rows[ran[int(np.argmax(values) if key.endswith("accuracy") else np.argmin(values))]]
        apart = np.ptp(values)
        result.set(xlabel=f"{label}, mean and standard deviation\nover {len(self._runs[ran[0]])} seeds",
                   title=f"Result: the same {label}" if apart == 0 else "Result: apart by no more than the seeds" if apart <= max(stds)
                   else f"Result: batch {best['effective_batch_size']} has the best mean")
        words.set_axis_off()
        about = f"{self.samples} samples, {self.epochs} epochs, seeds {', '.join(map(str, self.seeds))}, {self._optimizer}."
        words.text(0, 1, "\n\n".join("\n".join(textwrap.wrap(text, 42)) for text in (self.statement(), about)), va="top", fontsize=11)
        for axes in figure.axes:
            axes.spines[["top", "right"]].set_visible(False)
            axes.title.set_fontsize(11)
        return figure


_EMPTY = ("bytes", "by_kind", "updates", "seconds_per_update", "seconds_per_sample", "loss_spread", "losses",
          *(name + end for name in ("train_loss", "validation_loss", "train_accuracy", "validation_accuracy") for end in ("", "_std")))


def _numbers(runs: list[_Run]) -> dict:
    if not runs:
        return {}
    row = {"bytes": sum(runs[0].by_kind.values()), "by_kind": dict(runs[0].by_kind), "updates": len(runs[0].losses), "losses": [run.losses for run in runs],
           "seconds_per_update": float(np.median(np.concatenate([run.seconds for run in runs]))),
           "seconds_per_sample": float(np.median(np.concatenate([run.seconds / run.samples for run in runs]))),
           "loss_spread": float(np.mean([np.std(np.diff(run.losses)) if len(run.losses) > 1 else 0.0 for run in runs]))}
    for name in ("train_loss", "validation_loss", "train_accuracy", "validation_accuracy"):
        values = [getattr(run, name) for run in runs]
        if values[0] is not None:
            row |= {name: float(np.mean(values)), f"{name}_std": float(np.std(values, ddof=1)) if len(values) > 1 else None}
    return row


def _with_std(row: dict, name: str) -> str:
    value, std = row[name], row[f"{name}_std"]
    return "" if value is None else f"{value:.4f}" if std is None else f"{value:.4f} ± {std:.4f}"


# ---- arguments ----

def _factory(model) -> Callable[[], Module]:
    if isinstance(model, Module):
        return lambda: model
    if not callable(model):
        raise TypeError(f"model: got {type(model).__name__}, expected an nn.Module or a function that makes one, lambda: nn.Sequential(...)")

    def make():
        module = model()
        if not isinstance(module, Module):
            raise TypeError(f"model: the function returned {type(module).__name__}, expected an nn.Module")
        return module

    return make


def _arrays(data) -> tuple:
    """(x_train, y_train, x_validation, y_validation); the last two may be None."""
    if hasattr(data, "x_train"):
        parts = [getattr(data, name, None) for name in ("x_train", "y_train", "x_test", "y_test")]
    elif isinstance(data, (tuple, list)) and len(data) in (2, 4):
        parts = list(data) + [None] * (4 - len(data))
    else:
        raise TypeError("data: expected (x_train, y_train), (x_train, y_train, x_validation, y_validation), or an object with x_train, y_train, x_test, y_test")
    parts = [None if part is None else np.asarray(part) for part in parts]
    for x, y, name in ((parts[0], parts[1], "training"), (parts[2], parts[3], "validation")):
        if x is None and y is None and name == "validation":
            continue
        if x is None or y is None or x.ndim == 0 or y.ndim == 0 or len(x) != len(y) or len(y) == 0:
            shapes = ["none" if a is None else str(a.shape) for a in (x, y)]
            raise ValueError(f"data: the {name} arrays x and y have the shapes {' and '.join(shapes)}: expected equal numbers of samples, at least 1")
    return tuple(parts)


def _pairs(settings, samples: int) -> list[tuple[int, int]]:
    pairs = []
    for i, pair in enumerate(settings):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(f"settings[{i}]={pair!r}: expected a pair (micro_batch, accumulation_steps), such as (32, 4)")
        m, k = whole(f"settings[{i}]: micro_batch", pair[0]), whole(f"settings[{i}]: accumulation_steps", pair[1])
        if m * k > samples:
            raise ValueError(f"settings[{i}]={(m, k)}: an effective batch of {m * k} is larger than the training data, {samples} samples; take a smaller one")
        pairs.append((m, k))
    if not pairs:
        raise ValueError("settings: it is empty; give at least one pair (micro_batch, accumulation_steps), such as [(128, 1), (32, 4)]")
    return pairs


def _rates(lr, scaling, effective: list[int]) -> list[float]:
    if callable(lr):
        if scaling is not None:
            raise ValueError(f"scaling={scaling!r}: lr is a function of the effective batch already; give a number, or leave scaling out")
        rates = [lr(n) for n in effective]
    else:
        choice("scaling", scaling, (None, *SCALINGS))
        rates = [lr] * len(effective)
    for n, rate in zip(effective, rates):
        name = f"lr({n})" if callable(lr) else "lr"
        if isinstance(rate, bool) or not isinstance(rate, (int, float, np.number)) or not (rate > 0 and math.isfinite(rate)):
            raise ValueError(f"{name}={rate!r}: expected a finite learning rate above 0" + ("" if callable(lr) else ', a number or a function of the '
                             'effective batch size (scaling="linear" or "sqrt" scales a number)'))
    if scaling is None:
        return [float(rate) for rate in rates]
    return [float(rate) * SCALINGS[scaling](n / effective[0]) for n, rate in zip(effective, rates)]


def _seeds(seeds) -> tuple[int, ...]:
    if isinstance(seeds, (int, np.integer, str)) or not hasattr(seeds, "__iter__"):
        raise ValueError(f"seeds={seeds!r}: expected a list of whole numbers, such as (0, 1, 2)")
    seeds = tuple(whole(f"seeds[{i}]", seed, 0) for i, seed in enumerate(seeds))
    if not seeds:
        raise ValueError("seeds: it is empty; give at least one, such as (0,)")
    return seeds


@contextmanager
def _progress(wanted: bool, total: int):
    """A function that is told of each update, and of each finished run."""
    if not wanted:
        yield lambda name, done=False: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield lambda name, done=False: print(f"compare: {name} done", file=sys.stderr) if done else None
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                      # tqdm's about notebook widgets that are not installed
        bar = tqdm(total=total, unit="update", leave=False)

    def tell(name, done=False):
        if not done:
            bar.set_description_str(name, refresh=False)
            bar.update()

    with bar:
        yield tell
