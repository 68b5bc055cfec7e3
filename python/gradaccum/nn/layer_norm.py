"""Normalisation of the last axis, row by row: the same for every split."""
from __future__ import annotations

from .._checks import sizes, whole
from .module import Layer, Symbol
from .parameter import Parameter, ones, zeros


class _RowNorm(Layer):
    def __init__(self, normalized_shape, eps):
        super().__init__()
        name = type(self).__name__
        self.normalized_shape = tuple(whole(f"{name}: normalized_shape", n) for n in sizes(f"{name}: normalized_shape", normalized_shape))
        if len(self.normalized_shape) != 1:
            raise ValueError(f"{name}: normalized_shape={normalized_shape!r}, expected one number: only the last axis is normalised")
        self.eps = eps

    def check(self, x: Symbol):
        if len(x.shape) in (1, 2) and x.shape[-1] != self.normalized_shape[0]:
            raise ValueError(f"{self!r}: the input has shape {x.shape} per sample, so normalized_shape should be {x.shape[-1]}")


class LayerNorm(_RowNorm):
    """(x - mean) / sqrt(variance + eps) · weight + bias along the last axis of (C,) or (T, C) (Ba, Kiros, Hinton 2016, arXiv:1607.06450).

    Args:
        normalized_shape: C. eps, elementwise_affine, bias: as torch.nn.LayerNorm.

    Parameters: ``weight`` (C,), ones; ``bias`` (C,), zeros.
    """

    kind = "layer_norm"
    parameter_names = ("weight", "bias")

    def __init__(self, normalized_shape, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True):
        super().__init__(normalized_shape, eps)
        self.weight = Parameter(self.normalized_shape, ones) if elementwise_affine else None
        self.bias = Parameter(self.normalized_shape, zeros) if elementwise_affine and bias else None

    def options(self):
        return {"eps": self.eps, "elementwise_affine": self.weight is not None, "bias": self.bias is not None}

    def extra_repr(self):
        return f"{self.normalized_shape[0]}, eps={self.eps}"


class RMSNorm(_RowNorm):
    """x / sqrt(mean of x² + eps) · weight along the last axis of (C,) or (T, C) (Zhang, Sennrich 2019, arXiv:1910.07467).

    Args:
        normalized_shape: C. elementwise_affine: as torch.nn.RMSNorm.
        eps: None stands for the spacing of the network's numbers at 1, ``numpy.finfo(dtype).eps``.

    Parameter: ``weight`` (C,), ones.
    """

    kind = "rms_norm"
    parameter_names = ("weight",)

    def __init__(self, normalized_shape, eps: float | None = None, elementwise_affine: bool = True):
        super().__init__(normalized_shape, eps)
        if eps is not None and not eps >= 0:
            raise ValueError(f"RMSNorm: eps={eps}, expected 0 or more, or None")
        self.weight = Parameter(self.normalized_shape, ones) if elementwise_affine else None

    def options(self):
        return {"eps": -1 if self.eps is None else self.eps, "elementwise_affine": self.weight is not None}

    def extra_repr(self):
        return f"{self.normalized_shape[0]}, eps={self.eps}"
