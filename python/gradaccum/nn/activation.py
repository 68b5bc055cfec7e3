"""Activations. All work element by element and keep the shape, but Softmax, which works along an axis."""
from __future__ import annotations

from .module import Layer, Symbol


class ReLU(Layer):
    """max(x, 0). ``inplace`` is accepted for compatibility: the plan decides where memory is shared."""

    kind = "relu"

    def __init__(self, inplace: bool = False):
        super().__init__()


class LeakyReLU(Layer):
    """x where x > 0, else negative_slope * x."""

    kind = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        super().__init__()
        self.negative_slope = negative_slope

    def options(self):
        return {"negative_slope": self.negative_slope}

    def extra_repr(self):
        return f"negative_slope={self.negative_slope}"


class GELU(Layer):
    """x Φ(x) with the normal distribution function Φ; approximate="tanh" uses its usual approximation.

    Hendrycks, Gimpel 2016, arXiv:1606.08415.
    """

    kind = "gelu"

    def __init__(self, approximate: str = "none"):
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ValueError(f'GELU: approximate={approximate!r}, expected "none" or "tanh"')
        self.approximate = approximate

    def options(self):
        return {"approximate_tanh": self.approximate == "tanh"}

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class SiLU(Layer):
    """x / (1 + exp(-x)), also known as swish."""

    kind = "silu"

    def __init__(self, inplace: bool = False):
        super().__init__()


class Tanh(Layer):
    """tanh(x)."""

    kind = "tanh"


class Sigmoid(Layer):
    """1 / (1 + exp(-x))."""

    kind = "sigmoid"


class Softmax(Layer):
    """exp(x) / sum of exp(x) along an axis.

    Args:
        dim: -1, the last axis of (C,) and (T, C); for images (C, H, W), 1 (in PyTorch's count), the channels.
    """

    kind = "softmax"

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def check(self, x: Symbol):
        rank = len(x.shape) + 1                              # with the sample axis, as PyTorch counts
        axis = 1 if rank == 4 else rank - 1
        if self.dim is not None and self.dim % rank != axis:
            raise ValueError(f"Softmax: dim={self.dim} of an input {x.shape} per sample is not supported; use dim={axis}")

    def extra_repr(self):
        return f"dim={self.dim}"
