"""Dropout."""
from __future__ import annotations

from .module import Layer


class Dropout(Layer):
    """Zeroes each element with probability p and multiplies the others by 1 / (1 - p); does nothing in evaluation mode.

    The mask is a function of (seed, update, layer, sample in the window, element), so a sample has the same mask in every
    split of the window. Srivastava et al. 2014.
    """

    kind = "dropout"

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: p={p}, expected a probability in [0, 1]")
        self.p = p

    def options(self):
        return {"p": self.p}

    def extra_repr(self):
        return f"p={self.p}"
