"""Losses. Each returns (sum of losses, sum of weights); the window divides, once.

All take ``per="element"`` or ``per="sample"``. With "element" the mean of a window is over target elements (tokens, pixels,
outputs); with "sample" each sample counts as one: its loss is the weighted mean of its own elements.
"""
from __future__ import annotations

import numpy as np

from .module import Layer

_NO_REDUCTION = (
    "{name}: {argument}={value!r} is not an argument here. A loss returns (loss_sum, weight), and the accumulation window divides once, "
    "by the weight of all its micro-batches; a mean inside the loss would be a mean of means, which is wrong for uneven micro-batches. "
    'Choose at the window: Accumulator(..., reduction="mean" | "mean_of_means" | "sum").'
)


class Loss(Layer):
    """Base class of losses."""

    def __init__(self, per: str = "element", **refused):
        super().__init__()
        for name in ("reduction", "size_average", "reduce"):
            if name in refused:
                raise ValueError(_NO_REDUCTION.format(name=type(self).__name__, argument=name, value=refused.pop(name)))
        if refused:
            raise TypeError(f"{type(self).__name__}: unknown argument {next(iter(refused))!r}")
        if per not in ("element", "sample"):
            raise ValueError(f'{type(self).__name__}: per={per!r}, expected "element" or "sample"')
        self.per = per

    def options(self):
        return {"per_sample": self.per == "sample"}


def _weights(name: str, values) -> np.ndarray | None:
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(f"{name}: expected a list of finite numbers, none negative, got {values!r}")
    return array


class CrossEntropyLoss(Loss):
    """Cross entropy of logits with class indices.

    Args:
        weight: one number a class; the weight of a target is its class's.
        ignore_index: targets with this value count nothing.
        label_smoothing: in [0, 1] (Szegedy et al. 2016).
        per: see above.

    Logits (C,), (T, C) or (C, H, W) per sample; targets int64, (n,), (n, T) or (n, H, W).
    """

    kind = "cross_entropy_loss"

    def __init__(self, weight=None, ignore_index: int = -100, label_smoothing: float = 0.0, per: str = "element", **refused):
        super().__init__(per, **refused)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"CrossEntropyLoss: label_smoothing={label_smoothing}, expected a number in [0, 1]")
        self.weight = _weights("CrossEntropyLoss: weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def options(self):
        return super().options() | {"ignore_index": self.ignore_index, "label_smoothing": self.label_smoothing,
                                    "has_weight": self.weight is not None}

    def state(self):
        return [] if self.weight is None else [("_weight", self.weight)]

    def check(self, x):
        classes = x.shape[0] if len(x.shape) == 3 else x.shape[-1]
        if self.weight is not None and len(self.weight) != classes:
            raise ValueError(f"CrossEntropyLoss: weight has {len(self.weight)} classes, the logits have {classes}")


class MSELoss(Loss):
    """(x - y)², each element weighs 1. Targets have the shape of the prediction."""

    kind = "mse_loss"


class L1Loss(Loss):
    """|x - y|, each element weighs 1. Targets have the shape of the prediction."""

    kind = "l1_loss"


class DotProductLoss(Loss):
    """Sum of x t over the elements of a sample, which weighs 1: a loss whose gradient is its target.

    For backward from a gradient that was worked out elsewhere: ``net.loss(gradient)``, ``net.backward()``. With Accumulator(reduction="sum")
    nothing is divided. ``ga.losses.cached`` puts the gradient of a loss that couples samples through it. Targets have the shape of the
    prediction.
    """

    kind = "dot_product_loss"

    def __init__(self):
        super().__init__("sample")

    def options(self):
        return {}


class BCEWithLogitsLoss(Loss):
    """Binary cross entropy of logits with targets in [0, 1], of the shape of the prediction.

    Args:
        pos_weight: weight of positive targets, one number a feature (channel).
    """

    kind = "bce_with_logits_loss"

    def __init__(self, pos_weight=None, per: str = "element", **refused):
        super().__init__(per, **refused)
        self.pos_weight = _weights("BCEWithLogitsLoss: pos_weight", pos_weight)

    def options(self):
        return super().options() | {"has_pos_weight": self.pos_weight is not None}

    def state(self):
        return [] if self.pos_weight is None else [("_pos_weight", self.pos_weight)]

    def check(self, x):
        channels = x.shape[0] if len(x.shape) == 3 else x.shape[-1]
        if self.pos_weight is not None and len(self.pos_weight) != channels:
            raise ValueError(f"BCEWithLogitsLoss: pos_weight has {len(self.pos_weight)} numbers, the prediction has {channels} features")
