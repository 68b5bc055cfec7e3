"""An epoch of windows in one C call, for networks so small that Python would cost more than the window."""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ._checks import whole
from .accumulator import REASONS, Accumulator
from .records import Update

_LOSS_SUM, _WEIGHT, _NORM, _NORM_CLIPPED, _SAMPLES, _TOKENS, _MICRO_STEPS, _CLIPPED, _SKIPPED = range(9)


class Updates(Sequence):
    """What ``acc.update_many`` returns: a sequence of ``Update`` records, made when they are looked at.

    ``loss``, ``grad_norm``, ``lr``, ``weight``, ``samples`` are arrays with one number a window.
    """

    def __init__(self, rows: np.ndarray, losses: np.ndarray, weights: np.ndarray, first: int, rates: np.ndarray, seconds: float):
        self._rows, self._losses, self._weights, self._rates, self._seconds = rows, losses, weights, rates, seconds
        self._ends = np.cumsum(rows[:, _MICRO_STEPS]).astype(int)
        self._updates = first + np.cumsum(rows[:, _SKIPPED] == 0)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        i = range(len(self))[i]
        row, skipped = self._rows[i].tolist(), int(self._rows[i, _SKIPPED])
        part = slice(self._ends[i] - int(row[_MICRO_STEPS]), self._ends[i])
        with np.errstate(invalid="ignore", divide="ignore"):
            micro_losses = (self._losses[part] / self._weights[part]).tolist()
        has_weight = row[_WEIGHT] > 0
        return Update(
            update=int(self._updates[i]), loss=row[_LOSS_SUM] / row[_WEIGHT] if has_weight else math.nan, weight=row[_WEIGHT],
            samples=int(row[_SAMPLES]), tokens=int(row[_TOKENS]), micro_steps=int(row[_MICRO_STEPS]), micro_losses=micro_losses,
            grad_norm=row[_NORM] if has_weight else None, grad_norm_clipped=None if skipped else row[_NORM_CLIPPED], clipped=bool(row[_CLIPPED]),
            lr=float(self._rates[i]), skipped=bool(skipped), reason=REASONS[skipped], seconds=self._seconds / len(self))

    @property
    def loss(self) -> np.ndarray:
        """Mean loss of each window; nan without weight."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._rows[:, _LOSS_SUM] / self._rows[:, _WEIGHT]

    @property
    def grad_norm(self) -> np.ndarray:
        """Norm of each window's gradient before clipping."""
        return self._rows[:, _NORM].copy()

    @property
    def weight(self) -> np.ndarray:
        """Weight of each window."""
        return self._rows[:, _WEIGHT].copy()

    @property
    def samples(self) -> np.ndarray:
        """Samples of each window."""
        return self._rows[:, _SAMPLES].astype(int)

    @property
    def lr(self) -> np.ndarray:
        """Learning rate of each update (first group)."""
        return self._rates.copy()

    def __repr__(self):
        if not len(self):
            return "Updates: none"
        return f"Updates: {len(self)} windows, {int(self._rows[:, _SAMPLES].sum())} samples, loss {self.loss[0]:.4g} to {self.loss[-1]:.4g}"


def window_size(acc: Accumulator, batch_size: int | None) -> int:
    """Samples of a window: what is asked for, or what the accumulator was made for."""
    if batch_size is not None:
        return whole("batch_size", batch_size)
    if acc.effective_batch_size is not None:
        return acc.effective_batch_size
    if acc.accumulation_steps is None:
        raise ValueError("update_many: give batch_size, the samples of a window; this Accumulator was made without accumulation_steps or "
                         "effective_batch_size")
    return acc.accumulation_steps * acc.micro_batch
