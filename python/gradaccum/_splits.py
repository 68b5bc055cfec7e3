"""Splits of a batch into micro-batches of any sizes, for the checks."""
from __future__ import annotations

import numpy as np


def pieces_of(n: int, split) -> list[int]:
    """A split as sizes: an int is the size of equal pieces (the last may be short)."""
    if isinstance(split, (int, np.integer)):
        return [min(int(split), n - i) for i in range(0, n, int(split))]
    split = [int(s) for s in split]
    if sum(split) != n or min(split) < 1:
        raise ValueError(f"split {split}: the sizes must be at least 1 and add up to {n}")
    return split


def default_splits(n: int, seed: int = 0) -> list:
    """1 x n, n x 1, halves, pieces that do not divide, and a random cut."""
    cuts = np.sort(np.random.default_rng(seed).permutation(np.arange(1, n))[:min(3, n - 1)])
    uneven = np.diff([0, *cuts, n]).tolist()
    return list(dict.fromkeys([n, 1, max(n // 2, 1), max(n // 3, 1), max(n - 1, 1)])) + [uneven]


def accumulate(acc, x: dict, y, weight, pieces) -> None:
    """The micro-batches of a window by hand."""
    net, first = acc.net, 0
    acc.begin()
    for n in pieces:
        part = slice(first, first + n)
        net.forward({name: a[part] for name, a in x.items()})
        net.loss(y[part], None if weight is None else weight[part])
        net.backward()
        acc.accumulate()
        first += n
