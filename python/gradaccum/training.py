"""A training loop: epochs of windows, with validation, logs, early stopping, and an orderly end by Ctrl-C."""
from __future__ import annotations

import math
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import Callable, Iterable

import numpy as np

from ._checks import whole
from .accumulator import Accumulator
from .data.batches import Loader, batches
from .log.record import Logger, place, record


class History(list):
    """What ``fit`` returns: a list of the records, one an update.

    ``epochs`` has one dict an epoch (epoch, loss: mean over its windows by weight, val_loss, val_accuracy, seconds); ``stopped`` tells why it ended:
    "epochs", "callback" or "interrupted".
    """

    def __init__(self):
        super().__init__()
        self.epochs: list[dict] = []
        self.stopped = "epochs"

    def __repr__(self):
        last = self.epochs[-1] if self.epochs else {}
        text = ", ".join(f"{k} {v:.4g}" for k, v in last.items() if k not in ("epoch", "seconds") and isinstance(v, float))
        return f"History: {len(self)} updates in {len(self.epochs)} epochs, ended by {self.stopped}{'; ' + text if text else ''}"


class EarlyStopping:
    """A callback that stops when ``monitor`` has not fallen by ``min_delta`` for ``patience`` epochs.

    Args:
        patience: epochs. min_delta: what counts as better. monitor: "val_loss", or another number of an epoch's record that should fall.
        restore_best: puts the best parameters and layer state back when it stops.
    """

    def __init__(self, patience: int = 5, min_delta: float = 0.0, monitor: str = "val_loss", restore_best: bool = True):
        self.patience, self.min_delta, self.monitor, self.restore_best = whole("patience", patience), float(min_delta), monitor, restore_best
        self.best, self.waited, self._state = math.inf, 0, None

    def __call__(self, acc: Accumulator, row: dict) -> bool:
        if "epoch_ended" not in row:
            return False
        if self.monitor not in row:
            raise ValueError(f"EarlyStopping: an epoch's record has no {self.monitor!r}; there are {', '.join(row)}; give fit validation=, or another monitor")
        value = row[self.monitor]
        if value < self.best - self.min_delta:
            self.best, self.waited = value, 0
            self._state = acc.net.state_dict() if self.restore_best else None
            return False
        self.waited += 1
        if self.waited < self.patience:
            return False
        if self._state is not None:
            acc.net.load_state_dict(self._state)
        return True


def fit(acc: Accumulator, data, epochs: int, validation: tuple | None = None, log: Logger | Iterable[Logger] | None = None, progress: bool = True,
        callbacks: Iterable[Callable[[Accumulator, dict], object]] = (), *, batch_size: int | None = None, micro_batches: bool = False, seed: int = 0,
        checkpoint=None) -> History:
    """Trains for some epochs.

    Args:
        acc: with an optimizer.
        data: (x, y) or (x, y, weight), shuffled anew each epoch as ``ga.data.batches`` does; or something that can be iterated over once an epoch, such as
            a list or a ``ga.data.Loader``, of such batches. Each of them is a window, or with ``micro_batches`` a micro-batch. Arrays begin with epoch
            0 in every call; a run that goes on after ``acc.load`` takes a Loader, whose position is saved with it.
        epochs: number of passes.
        validation: (x, y) or (x, y, weight), evaluated after each epoch: val_loss, and for class labels val_accuracy, the share of right ones among those
            that are not ignored.
        log: a logger of ``ga.log``, or several; they are left open. They take the record of each update, and after a validation one with val_loss.
        progress: a bar with tqdm where it is installed, else a line an epoch.
        callbacks: each is called with (acc, record) after each update, and after each epoch with the epoch's record, which has "epoch_ended"; what is true
            ends the training.
        batch_size: of (x, y): samples of a window, the last may be short; by default windows and their tail are those of ``acc``. With micro_batches: of a
            micro-batch, by default the plan's.
        micro_batches: give the batches to ``acc.step``, and end each epoch by its tail policy, instead of to ``acc.update``.
        seed: of the shuffling.
        checkpoint: path; the run is saved there (``acc.save``) after each epoch and when Ctrl-C ends it.

    Ctrl-C ends the training after the window at hand (a second one at once); what was done is returned, with ``stopped == "interrupted"``.
    The network is left in the mode that it had.

    Raises:
        ValueError: no data, or none in a later epoch because an iterator was used up; batches that are no pairs. TypeError: what is no logger or callback.
    """
    epochs = whole("epochs", epochs)
    logs = [] if log is None else [log] if isinstance(log, Logger) else list(log)
    for item in logs:
        if not isinstance(item, Logger):
            raise TypeError(f"log: got {type(item).__name__}, expected loggers of ga.log, such as ga.log.JSONLines(path)")
    callbacks = list(callbacks)
    for item in callbacks:
        if not callable(item):
            raise TypeError(f"callbacks: got {type(item).__name__}, expected functions of (acc, record)")
    acc._need_optimizer("fit")
    epoch_of, micro_batches = _source(acc, data, batch_size, micro_batches, seed)
    if validation is not None and not (isinstance(validation, (tuple, list)) and len(validation) in (2, 3)):
        raise ValueError("validation: expected (x, y) or (x, y, weight)")
    for item in logs:
        item.start(acc)
    history, was_training = History(), acc.net.training
    first = data.epoch if isinstance(data, Loader) else 0
    bar = _progress(progress, first + epochs)
    acc.net.train()
    try:
        with _interrupts() as interrupted:
            for epoch in range(first, first + epochs):
                started = time.perf_counter()
                sums = [0.0, 0.0]
                for update in _windows(acc, epoch_of(epoch), micro_batches, epoch - first, lambda: interrupted.seen):
                    row = record(acc, update, epoch=epoch)
                    history.append(row)
                    if not update.skipped:
                        sums[0] += update.loss * update.weight
                        sums[1] += update.weight
                    for item in logs:
                        item.write(row)
                    bar.update(epoch, row)
                    if any([f(acc, row) for f in callbacks]):
                        history.stopped = "callback"
                        break
                    if interrupted.seen:
                        break
                if interrupted.seen:
                    history.stopped = "interrupted"
                row = {"epoch": epoch, "epoch_ended": True, "update": acc.updates, "loss": sums[0] / sums[1] if sums[1] else math.nan}
                if validation is not None and history.stopped == "epochs":
                    scores = _validate(acc, validation)
                    row |= scores
                    for item in logs:
                        item.write(place(acc) | {"epoch": epoch} | scores)
                row["seconds"] = time.perf_counter() - started
                history.epochs.append({k: v for k, v in row.items() if k != "epoch_ended"})
                bar.epoch(row)
                if history.stopped == "epochs" and any([f(acc, row) for f in callbacks]):
                    history.stopped = "callback"
                if checkpoint is not None:
                    acc.save(checkpoint, data=data if hasattr(data, "state_dict") else None)
                if history.stopped != "epochs":
                    break
    finally:
        bar.close()
        acc.net.train(was_training)
    return history


def _source(acc, data, batch_size, micro_batches, seed):
    """A function of the epoch that gives its batches, and whether they are micro-batches."""
    if isinstance(data, (tuple, list)) and len(data) in (2, 3) and all(hasattr(a, "__len__") and not isinstance(a, (tuple, list)) for a in data[1:]):
        x, y, *weight = data
        size = batch_size
        if size is None:                                     # windows that differ, or that the tail policy may not apply, are made of micro-batches
            micro_batches = micro_batches or callable(acc._accumulation_steps) or acc.tail != "flush"
            size = acc.micro_batch if micro_batches else acc.effective_batch_size or (acc.accumulation_steps or 1) * acc.micro_batch
        batches(x, y, size)                                  # refuses what it cannot cut
        if not weight:
            return lambda epoch: batches(x, y, size, seed=seed, epoch=epoch), micro_batches
        batches(weight[0], y, size)
        return lambda epoch: ((xb, yb, wb) for (xb, yb), (wb, _) in zip(batches(x, y, size, seed=seed, epoch=epoch),
                                                                        batches(weight[0], y, size, seed=seed, epoch=epoch))), micro_batches
    if batch_size is not None:
        raise ValueError("batch_size cuts arrays (x, y); data that is iterated over has batches already")
    if not hasattr(data, "__iter__"):
        raise TypeError(f"data: got {type(data).__name__}, expected (x, y), or batches that can be iterated over")
    return lambda epoch: data, micro_batches


def _windows(acc, source, micro_batches, passes, stop):
    """Trains on an epoch's batches, after that many passes; gives each window's record. After an interrupt the window at hand is finished, not begun anew."""
    count = int(isinstance(source, Loader) and source.position > 0)      # the rest of an epoch may be nothing
    for batch in source:
        if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
            size = f" of {len(batch)}" if hasattr(batch, "__len__") else ""
            raise ValueError(f"data: a batch is {type(batch).__name__}{size}, expected (x, y) or (x, y, weight)")
        count += 1
        x, y, weight = (*batch, None) if len(batch) == 2 else batch
        if not micro_batches:
            yield acc.update(x, y, weight)
        elif (step := acc.step(x, y, weight)).update is not None:
            yield step.update
        if stop() and not acc.micro_step:
            return
    if not count:
        raise ValueError("data: there are no batches" if not passes else
                         f"data: pass {passes + 1} has no batches: an iterator or generator is used up after one pass; give a list, arrays, or an object that "
                         "begins anew, such as ga.data.Loader")
    if micro_batches and (update := acc.flush()) is not None:
        yield update


def _validate(acc, validation) -> dict:
    from .comparison import _accuracy

    x, y, *weight = validation
    accuracy = _accuracy(acc.net, x, np.asarray(y))
    return {"val_loss": acc.net.evaluate(x, y, *weight)} | ({} if accuracy is None else {"val_accuracy": accuracy})


class _Interrupt:
    seen = False


@contextmanager
def _interrupts():
    """The first Ctrl-C is noted, the second one is raised."""
    state = _Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return

    def note(number, frame):
        if state.seen:
            raise KeyboardInterrupt
        state.seen = True

    before = signal.signal(signal.SIGINT, note) or signal.SIG_DFL        # None: a handler that is not Python's
    try:
        yield state
    finally:
        signal.signal(signal.SIGINT, before)


class _Silent:
    def update(self, epoch, row):
        pass

    def epoch(self, row):
        pass

    def close(self):
        pass


class _Lines(_Silent):
    def __init__(self, epochs):
        self._epochs = epochs

    def epoch(self, row):
        print(f"epoch {row['epoch'] + 1} of {self._epochs}: {_text(row)}", file=sys.stderr, flush=True)


class _Bar(_Silent):
    def __init__(self, tqdm, epochs):
        self._bar, self._epochs = tqdm(unit=" updates", leave=True), epochs

    def update(self, epoch, row):
        self._bar.update()
        if not self._bar.n % 10:
            self._bar.set_description(f"epoch {epoch + 1} of {self._epochs}", refresh=False)
            self._bar.set_postfix_str(f"loss {row['loss']:.4g}", refresh=False)

    def epoch(self, row):
        self._bar.write(f"epoch {row['epoch'] + 1} of {self._epochs}: {_text(row)}")

    def close(self):
        self._bar.close()


def _text(row: dict) -> str:
    return ", ".join(f"{k} {row[k]:.4g}" for k in ("loss", "val_loss", "val_accuracy", "seconds") if k in row)


def _progress(wanted: bool, epochs: int):
    if not wanted:
        return _Silent()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Lines(epochs)
    return _Bar(tqdm, epochs)
