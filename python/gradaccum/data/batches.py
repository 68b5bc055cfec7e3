"""Cutting arrays into batches: one epoch, or epoch after epoch with a position that can be saved."""
from __future__ import annotations

from typing import Iterator

import numpy as np

from .._checks import whole


def batches(x, y, size: int, shuffle: bool = True, seed: int = 0, epoch: int = 0,
            drop_last: bool = False, start: int = 0) -> Iterator[tuple]:
    """Pairs (x, y) of ``size`` samples; the last may be smaller.

    Args:
        x, y: arrays of equal length; x may also be a tuple, list or dict of arrays, for a network
            with several inputs.
        size: samples per batch.
        shuffle: mix the samples.
        seed, epoch: the order is a function of these two and of nothing else, so a run that is
            resumed in epoch 7 sees the order that it would have seen. Give each epoch its number.
        drop_last: leave out a last, smaller batch.
        start: samples of the epoch that are left out because they were seen already.

    Raises:
        ValueError: at the call, not at the first batch: sizes, lengths, or nothing to iterate over.
    """
    size, seed, epoch, start = whole("size", size), whole("seed", seed, 0), whole("epoch", epoch, 0), whole("start", start, 0)
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

    end = n - (n - start) % size if drop_last and start <= n else n
    return ((cut(order[i:i + size]), y[order[i:i + size]]) for i in range(start, end, size))


class Loader:
    """The batches of epoch after epoch, with a position that is saved and restored with the run.

        loader = ga.data.Loader(x, y, batch_size=32)
        for epoch in range(loader.epoch, 10):
            for xb, yb in loader:
                acc.step(xb, yb)
                acc.save("run.safetensors", data=loader)
            acc.flush()

    Each ``for`` loop gives the rest of the epoch at hand; when that is used up, the next one begins. So the same loop, begun after
    ``acc.load(..., data=loader)``, goes on with the sample that comes next. A batch counts as seen as soon as it is handed out: save
    after it was used.

    Args:
        x, y, shuffle, seed, drop_last: see ``batches``.
        batch_size: samples per batch.

    Attributes:
        epoch: number of the epoch at hand, from 0.
        position: samples of this epoch that were handed out; the next one is number ``position`` of the epoch's order.
    """

    def __init__(self, x, y, batch_size: int, *, shuffle: bool = True, seed: int = 0, drop_last: bool = False):
        batches(x, y, batch_size, shuffle, seed, drop_last=drop_last)            # refuses what it cannot cut
        self.x, self.y = x, y
        self.batch_size, self.seed, self.shuffle, self.drop_last = int(batch_size), int(seed), bool(shuffle), bool(drop_last)
        self.epoch = self.position = 0

    def __iter__(self) -> Iterator[tuple]:
        for x, y in batches(self.x, self.y, self.batch_size, self.shuffle, self.seed, self.epoch, self.drop_last, self.position):
            self.position += len(y)
            yield x, y
        self.epoch, self.position = self.epoch + 1, 0

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        n = len(self.y)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def state_dict(self) -> dict:
        """Plain numbers: the position, and what fixes the order."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed, "shuffle": self.shuffle, "samples": len(self.y)}

    def load_state_dict(self, state: dict) -> None:
        """Goes to a saved position. The batch size may be another one, the order of the samples not.

        Raises:
            ValueError: another seed, number of samples or shuffle, or no position; nothing is changed.
        """
        mine = self.state_dict()
        if set(state) != set(mine):
            raise ValueError(f"Loader.load_state_dict: got {sorted(state)}, expected {sorted(mine)}")
        for name in ("seed", "shuffle", "samples"):
            if state[name] != mine[name]:
                raise ValueError(f"Loader.load_state_dict: {name} was {state[name]} and is {mine[name]} here, so the samples would come in another order; "
                                 "make the Loader as it was")
        epoch, position = whole("epoch", state["epoch"], 0), whole("position", state["position"], 0)
        if position > len(self.y):
            raise ValueError(f"Loader.load_state_dict: position={position}, but an epoch has {len(self.y)} samples")
        self.epoch, self.position = epoch, position

    def __repr__(self):
        return f"Loader: epoch {self.epoch}, sample {self.position} of {len(self.y)}, batches of {self.batch_size}"
