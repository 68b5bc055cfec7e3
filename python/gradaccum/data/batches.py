"""Cutting arrays into batches."""
from __future__ import annotations

from typing import Iterator

import numpy as np

from .._checks import whole


def batches(x, y, size: int, shuffle: bool = True, seed: int = 0, epoch: int = 0,
            drop_last: bool = False) -> Iterator[tuple]:
    """Pairs (x, y) of ``size`` samples; the last may be smaller.

    Args:
        x, y: arrays of equal length; x may also be a tuple, list or dict of arrays, for a network
            with several inputs.
        size: samples per batch.
        shuffle: mix the samples.
        seed, epoch: the order is a function of these two and of nothing else, so a run that is
            resumed in epoch 7 sees the order that it would have seen. Give each epoch its number.
        drop_last: leave out a last, smaller batch.

    Raises:
        ValueError: at the call, not at the first batch: sizes, lengths, or nothing to iterate over.
    """
    size, seed, epoch = whole("size", size), whole("seed", seed, 0), whole("epoch", epoch, 0)
    several = isinstance(x, (dict, tuple, list))
    named = x if isinstance(x, dict) else dict(enumerate(x)) if several else {"x": x}
    parts = {name: np.asarray(part) for name, part in named.items()}
    y = np.asarray(y)
    if not parts or y.ndim == 0 or any(part.ndim == 0 for part in parts.values()):
        raise ValueError("x and y must be arrays of samples (x may be a tuple or dict of arrays), "
                         "and one of them is a single number or empty; give x as np.asarray(x)")
    for name, part in parts.items():
        if len(part) != len(y):
            raise ValueError(f"{f'x[{name!r}]' if several else 'x'} has {len(part)} samples and y "
                             f"has {len(y)}: they must be equal")
    n = len(y)
    if n == 0:
        raise ValueError("x and y have no samples")
    if drop_last and n < size:
        raise ValueError(f"drop_last=True with {n} samples and size={size} leaves no batch at all; "
                         "take a smaller size, or drop_last=False")
    order = np.arange(n)
    if shuffle:
        key = np.array([seed, epoch], dtype=np.uint64)
        order = np.random.Generator(np.random.Philox(key=key)).permutation(n)

    def cut(index):
        pieces = {name: part[index] for name, part in parts.items()}
        if isinstance(x, dict):
            return pieces
        return tuple(pieces.values()) if several else pieces["x"]

    end = n - n % size if drop_last else n
    return ((cut(order[i:i + size]), y[order[i:i + size]]) for i in range(0, end, size))
