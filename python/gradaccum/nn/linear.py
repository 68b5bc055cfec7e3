"""Linear and Identity, Flatten."""
from __future__ import annotations

from .._checks import whole
from .module import Layer, Symbol
from .parameter import Parameter, fan_in_uniform


class Linear(Layer):
    """y = x Wᵀ + b, on the last axis of (features,) or (steps, features).

    Args:
        in_features, out_features: sizes.
        bias: False leaves b out.

    Parameters: ``weight`` (out_features, in_features), ``bias`` (out_features,), both uniform in ±1/sqrt(in_features).
    """

    kind = "linear"
    parameter_names = ("weight", "bias")

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__()
        self.in_features, self.out_features = whole("Linear: in_features", in_features), whole("Linear: out_features", out_features)
        self.weight = Parameter((out_features, in_features), fan_in_uniform(in_features))
        self.bias = Parameter((out_features,), fan_in_uniform(in_features)) if bias else None

    def options(self):
        return {"out_features": self.out_features, "bias": self.bias is not None}

    def check(self, x: Symbol):
        if len(x.shape) in (1, 2) and x.shape[-1] != self.in_features:
            raise ValueError(f"{self!r}: the input has shape {x.shape} per sample, so in_features should be {x.shape[-1]}")

    def extra_repr(self):
        return f"{self.in_features}, {self.out_features}" + ("" if self.bias is not None else ", bias=False")


class Identity(Layer):
    """y = x. Arguments are accepted and ignored, as in PyTorch."""

    kind = "identity"

    def __init__(self, *args, **kwargs):
        super().__init__()


class Flatten(Layer):
    """(C, H, W) or (T, C) to (features,), in PyTorch's order. The sample axis always stays (start_dim=1, end_dim=-1)."""

    kind = "flatten"

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        if (start_dim, end_dim) != (1, -1):
            raise ValueError(f"Flatten({start_dim}, {end_dim}): only start_dim=1, end_dim=-1 is supported: all but the sample axis")
