"""Sequences of unequal length as micro-batches under a budget of tokens."""
from __future__ import annotations

from typing import Iterable, NamedTuple

import numpy as np

from .._checks import choice, whole


class Pack(NamedTuple):
    """One micro-batch.

    tokens: int64 (n, width), padded on the right. targets: int64 (n, width) or (n,), or None.
    lengths: int64 (n,), without padding. index: int64 (n,), where the samples stood in the original
    list.
    """

    tokens: np.ndarray
    targets: np.ndarray | None
    lengths: np.ndarray
    index: np.ndarray


def pack(sequences, targets=None, *, max_tokens: int, sort: bool = True, pad: int = 0,
         ignore_index: int = -100, width: int | None = None) -> list[Pack]:
    """Micro-batches of at most ``max_tokens`` tokens, padding included.

    Memory goes with n * width, and a batch is as wide as its longest sequence: a fixed number of
    samples either wastes memory on short ones or exceeds it on long ones. The gradient of the window
    stays exact, because padding has the target ``ignore_index``, which weighs nothing, and the window
    divides by the weight that was there.

    Args:
        sequences: of whole numbers, each at least one.
        targets: one number per sequence (its class); or a sequence of numbers per sequence, one for
            each token; or "next": the target of each token is the one after it (the last token is
            then only a target); or None.
        max_tokens: limit of n * width.
        sort: put sequences of similar length together (shortest first, equal ones in their order), so
            that there is little padding; pack the samples of one window at a time, or mix the
            batches, lest training goes from short to long. False keeps the order. Either way a new
            batch begins when the next sequence does not fit.
        pad: token of the padding. ignore_index: target of the padding.
        width: pad every batch to this many tokens instead of to its longest, for a network that was
            planned for this length.

    Returns:
        The batches; every sequence is in exactly one. ``unpack`` restores the original order.

    Raises:
        ValueError: a sequence longer than the budget or the width (names it), or shapes that differ.
    """
    budget = whole("max_tokens", max_tokens)
    rows = [_row(s, f"sequence {i}") for i, s in enumerate(sequences)]
    if not rows:
        raise ValueError("sequences is empty: nothing to pack")
    goals = _goals(targets, rows)
    if isinstance(targets, str):                             # "next"
        rows = [row[:-1] for row in rows]
    limit = budget if width is None else whole("width", width)
    if limit > budget:
        raise ValueError(f"width={width} is more than max_tokens={budget}: not one sequence would fit")
    for i, row in enumerate(rows):
        if len(row) > limit:
            name = f"max_tokens={budget}" if width is None else f"width={width}"
            raise ValueError(f"sequence {i} has {len(row)} tokens, more than {name}: shorten it, or "
                             f"allow at least {len(row)}")
    lengths = np.array([len(row) for row in rows])
    order = np.argsort(lengths, kind="stable") if sort else np.arange(len(rows))

    out, start, longest = [], 0, 0
    for end, length in enumerate(lengths[order]):
        wider = max(longest, length) if width is None else width
        if (end - start + 1) * wider > budget:
            out.append(_batch(rows, goals, order[start:end], longest, pad, ignore_index))
            start, wider = end, length if width is None else width
        longest = wider
    out.append(_batch(rows, goals, order[start:], longest, pad, ignore_index))
    return out


def unpack(packs: Iterable[Pack], values=None, per: str = "token"):
    """What belongs to each sequence, in the order of the original list.

    Args:
        packs: all batches that ``pack`` returned, in any order.
        values: one array per batch; None takes the tokens themselves.
        per: "token": arrays (n, width, ...), and the padding is cut off; "sample": arrays (n, ...).

    Returns:
        For "token", a list of arrays (length, ...); for "sample", one array (number of sequences, ...).

    Raises:
        ValueError: a batch is missing or there twice, or a shape does not fit; names which.
    """
    choice("per", per, ("token", "sample"))
    packs = list(packs)
    values = [p.tokens for p in packs] if values is None else [np.asarray(v) for v in values]
    if len(values) != len(packs):
        raise ValueError(f"{len(values)} values for {len(packs)} batches: one array per batch is needed")
    index = np.concatenate([p.index for p in packs]) if packs else np.empty(0, np.int64)
    if not np.array_equal(np.sort(index), np.arange(len(index))):
        there, times = np.unique(index, return_counts=True)
        wrong = there[times > 1] if (times > 1).any() else np.setdiff1d(np.arange(there.max()), there)
        raise ValueError(f"packs must be all batches of one packing, but sequence {wrong[0]} is "
                         f"{'in more than one' if (times > 1).any() else 'in none'} of them")
    out: list = [None] * len(index)
    for b, (p, value) in enumerate(zip(packs, values)):
        want = p.tokens.shape if per == "token" else p.tokens.shape[:1]
        if value.shape[:len(want)] != want:
            raise ValueError(f"values[{b}] has shape {value.shape}; per={per!r} expects it to begin "
                             f"with {want}")
        for row, length, i in zip(value, p.lengths, p.index):
            out[i] = row[:length] if per == "token" else row
    return out if per == "token" else np.array(out)


def _row(sequence, what: str) -> np.ndarray:
    row = np.asarray(sequence)
    if row.ndim != 1 or row.size == 0 or row.dtype.kind not in "iu":
        raise ValueError(f"{what} has shape {row.shape} and dtype {row.dtype}; expected whole "
                         "numbers, shape (length,), at least one"
                         + ("; encode texts first" if row.dtype.kind in "US" else ""))
    return row.astype(np.int64)


def _goals(targets, rows):
    """None, an array with one number per sequence, or a list of arrays with one for each token."""
    if targets is None:
        return None
    if isinstance(targets, str):
        choice("targets", targets, ("next",))
        for i, row in enumerate(rows):
            if len(row) < 2:
                raise ValueError(f'sequence {i} has one token: targets="next" needs at least two, '
                                 "for instance a begin or an end mark around it")
        return [row[1:] for row in rows]
    targets = list(targets)
    if len(targets) != len(rows):
        raise ValueError(f"{len(targets)} targets for {len(rows)} sequences: they must be equal")
    if all(np.ndim(t) == 0 for t in targets):
        return _row(targets, "targets")
    goals = [_row(t, f"target {i}") for i, t in enumerate(targets)]
    for i, (goal, row) in enumerate(zip(goals, rows)):
        if len(goal) != len(row):
            raise ValueError(f"target {i} has {len(goal)} numbers and its sequence {len(row)} tokens: "
                             "give one for each token, or one number per sequence")
    return goals


def _batch(rows, goals, index, width, pad, ignore_index) -> Pack:
    def filled(parts, fill):
        table = np.full((len(index), width), fill, dtype=np.int64)
        for line, i in zip(table, index):
            line[:len(parts[i])] = parts[i]
        return table

    per_token = isinstance(goals, list)
    wanted = filled(goals, ignore_index) if per_token else None if goals is None else goals[index]
    lengths = np.array([len(rows[i]) for i in index], dtype=np.int64)
    return Pack(filled(rows, pad), wanted, lengths, index.astype(np.int64))
