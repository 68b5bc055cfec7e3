"""What a log record is, and what all loggers share."""
from __future__ import annotations

import importlib
import math
import weakref
from pathlib import Path

import numpy as np

from .._checks import choice

AXES = ("samples", "updates", "micro_steps", "tokens")
_AXIS_KEY = {"samples": "samples", "updates": "update", "micro_steps": "micro_step", "tokens": "tokens"}


def place(acc) -> dict:
    """Where a run is: the counters that every record begins with."""
    total = acc._core.get_state()["counters"]
    return {"micro_step": total["micro_steps"], "update": total["updates"], "samples": total["samples"], "tokens": total["elements"]}


def record(acc, update=None, **more) -> dict:
    """The record of an update, flat, in a fixed order.

    micro_step, update, samples, tokens count since the start of the run. loss is the window's mean (sum of losses / weight), grad_norm the norm of its
    divided gradient before clipping; accumulation_steps and window_samples are those of this window; bytes is all the network's memory. Numbers
    that a skipped window does not have are None.

    Args:
        acc: the Accumulator. update: its Update record, by default the last one.
        more: further numbers, such as epoch=3 or val_loss=0.25.
    """
    update = acc.last_update if update is None else update
    if update is None:
        raise ValueError("record: there was no update yet")
    row = place(acc) | {
        "update": update.update, "weight": update.weight, "loss": update.loss, "grad_norm": update.grad_norm, "grad_norm_clipped": update.grad_norm_clipped,
        "clipped": update.clipped, "lr": update.lr, "accumulation_steps": update.micro_steps, "window_samples": update.samples, "seconds": update.seconds,
        "samples_per_second": update.samples_per_second, "tokens_per_second": update.tokens_per_second, "bytes": acc.net.memory.bytes(),
        "skipped": update.skipped, "reason": update.reason, "rejected": update.rejected,
    }
    return row | more


class Logger:
    """Base class: ``write(record)`` and ``close()``; a context manager. What is still open when Python ends, or the logger is forgotten, is closed then.

    Args:
        x: the axis that this log is read by: "samples", "updates", "micro_steps" or "tokens", since the start of the run.
    """

    def __init__(self, x: str = "samples"):
        choice("x", x, AXES)
        self.x, self._last = x, -1
        self._finalizer = None
        self._holds = ""                                     # what was there before, if anything

    def _on_close(self, function, *args) -> None:
        self._finalizer = weakref.finalize(self, function, *args)

    def start(self, acc) -> None:
        """``fit`` calls it before it trains. ValueError if an earlier run is in the log and ``acc`` does not go on with it."""
        if self._holds and not acc.micro_steps:
            raise self._another_run()

    def _another_run(self) -> ValueError:
        return ValueError(f"log: {self._holds} of an earlier run, and this run begins anew; give another path or remove it, or go on with that run: "
                          "acc.load(checkpoint) first")

    def write(self, record: dict) -> None:
        """Takes a record. ValueError if it lies before the last one on the axis."""
        if self._finalizer is not None and not self._finalizer.alive:
            raise ValueError("log: it is closed")
        record = {k: v.item() if isinstance(v, np.generic) else v for k, v in record.items()}
        key = _AXIS_KEY[self.x]
        at = record.get(key)
        if isinstance(at, bool) or not isinstance(at, int) or at < 0:
            raise ValueError(f"record: {key}={at!r}: expected a whole number, since x={self.x!r} is the axis of this log")
        if at < self._last:
            raise ValueError(f"record: {key}={at} comes after {key}={self._last}: an axis does not run backwards; is this the log of another run?")
        self._write(record, at)
        self._last = at

    def _write(self, record: dict, at: int) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no _write(self, record, at)")

    def close(self) -> None:
        """Writes out what is held back. A closed logger takes no more records."""
        if self._finalizer is not None:
            self._finalizer()

    def __enter__(self) -> "Logger":
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def numbers(record: dict) -> dict[str, float]:
    """The finite numbers of a record: what can be drawn."""
    return {k: float(v) for k, v in record.items() if isinstance(v, (int, float)) and math.isfinite(v)}


def load_extra(module: str, package: str):
    """An optional package, or an error with the line that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{package} is not installed: pip install 'gradaccum[log]'") from error


def writable_folder(path) -> Path:
    """The folder, made if it is not there; OSError that says what to do if nothing can be written into it."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".gradaccum-write-test"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(f"log: cannot write into the folder {path}: {error.strerror}; choose another folder, or change its permissions") from error
    return path
