"""Layer normalisation: the features of each token by themselves (Ba, Kiros, Hinton 2016).

    m, v = mean and variance of one row (the last axis; the last axes if w has several)
    h = (x - m) / √(v + ε),   y = w h + b                                       arXiv:1607.06450

Backward (``_standardize`` derives the last line), sums over rows, means inside a row:

    dw = Σ dy h,   db = Σ dy,   dh = w dy
    dx = (dh - mean(dh) - h mean(dh h)) / √(v + ε)

No sample and no token sees another, so every split of a batch gives the same result.
"""
from ._standardize import (last_axes, scale_and_shift, scale_and_shift_backward, standardize,
                           standardize_backward)


def layer_norm_forward(x, *, weight=None, bias=None, eps=1e-5, normalized_shape=None):
    """x (n, ..., features), weight and bias (features,) -> y of x's shape.

    ``normalized_shape`` is needed only for several axes without weight.
    """
    axes, others = last_axes(x, weight, normalized_shape)
    h, s = standardize(x, axes, eps)
    return scale_and_shift(h, weight, bias), (h, s, weight, bias, axes, others)


def layer_norm_backward(dy, saved):
    h, s, weight, bias, axes, others = saved
    dh, dparams = scale_and_shift_backward(dy, h, weight, bias, others)
    return (standardize_backward(dh, h, s, axes),), dparams
