"""Checks of arguments that several modules share. Each names the argument, what was given and what is expected."""
from __future__ import annotations

import numpy as np


def whole(name: str, value, least: int = 1) -> int:
    """``value`` as an int that is at least ``least``; no rounding, no bool."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name}={value!r}: expected a whole number, at least {least}")
    return int(value)


def choice(name: str, value, allowed) -> None:
    """``value`` must be one of ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(repr(a) for a in allowed)}")


def sizes(name: str, value) -> tuple[int, ...]:
    """A shape: one whole number, or a tuple of them."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    if any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) for n in items):
        raise ValueError(f"{name}={value!r}: expected the sizes of one sample, whole numbers such as (64,) or (3, 32, 32)")
    return tuple(int(n) for n in items)
