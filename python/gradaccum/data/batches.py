"""Cutting arrays into batches."""
from __future__ import annotations

from typing import Iterator

import numpy as np


def batches(x, y, size: int, shuffle: bool = True, seed: int = 0, epoch: int = 0, drop_last: bool = False) -> Iterator[tuple]:
    """Pairs (x, y) of ``size`` samples; the last may be smaller.

    Args:
        x, y: arrays of equal length (x may also be a tuple, list or dict of arrays).
        size: samples per batch.
        shuffle: mix the samples; the order is a function of (seed, epoch), so a resumed run sees the same one.
        drop_last: leave out a last, smaller batch.
    """
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise ValueError(f"size={size!r}: expected a whole number of samples, at least 1")
    parts = list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, (tuple, list)) else [x]
    n = len(y)
    for part in parts:
        if len(part) != n:
            raise ValueError(f"x has {len(part)} samples and y has {n}: they must be equal")
    if n == 0:
        raise ValueError("x and y have no samples")
    order = np.random.Generator(np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))).permutation(n) if shuffle else np.arange(n)

    def cut(index):
        if isinstance(x, dict):
            return {name: np.asarray(a)[index] for name, a in x.items()}
        if isinstance(x, (tuple, list)):
            return tuple(np.asarray(a)[index] for a in x)
        return np.asarray(x)[index]

    y = np.asarray(y)
    return ((cut(order[i:i + size]), y[order[i:i + size]]) for i in range(0, n - n % size if drop_last else n, size))
