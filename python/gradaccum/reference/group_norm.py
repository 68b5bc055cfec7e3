"""Group normalisation: each group of channels of each sample by itself.

Wu, He 2018, arXiv:1803.08494.

    m, v = mean and variance of one group of one sample, over its channels and pixels
    h = (x - m) / √(v + ε),   y = w h + b      with w, b of the channel

Backward (``_standardize`` derives the last line), sums over samples and pixels, means over the
group:

    dw = Σ dy h,   db = Σ dy,   dh = w dy
    dx = (dh - mean(dh) - h mean(dh h)) / √(v + ε)

No sample sees another, so every split of a batch gives the same result: the layer to take instead
of batch normalisation when gradients are accumulated. Instance normalisation is the case of one
channel per group (Ulyanov, Vedaldi, Lempitsky 2016, arXiv:1607.08022).
"""
from ._standardize import (scale_and_shift, scale_and_shift_backward, standardize,
                           standardize_backward)


def group_norm_forward(x, *, num_groups, weight=None, bias=None, eps=1e-5):
    """x (n, C) or (n, C, H, W), weight and bias (C,) -> y of x's shape."""
    if x.shape[1] % num_groups:
        raise ValueError(f"group_norm: num_groups={num_groups} does not divide the "
                         f"{x.shape[1]} channels")
    h, s = standardize(x.reshape(len(x), num_groups, -1), 2, eps)
    h = h.reshape(x.shape)
    column = (1, -1, *[1] * (x.ndim - 2))
    weight, bias = (None if a is None else a.reshape(column) for a in (weight, bias))
    return scale_and_shift(h, weight, bias), (h, s, weight, bias, num_groups)


def group_norm_backward(dy, saved):
    h, s, weight, bias, num_groups = saved
    dh, dparams = scale_and_shift_backward(dy, h, weight, bias, (0, *range(2, h.ndim)))
    grouped = (len(h), num_groups, -1)
    dx = standardize_backward(dh.reshape(grouped), h.reshape(grouped), s, 2)
    return (dx.reshape(h.shape),), dparams


def instance_norm2d_forward(x, *, weight=None, bias=None, eps=1e-5):
    """x (n, C, H, W), weight and bias (C,) -> y of x's shape."""
    return group_norm_forward(x, num_groups=x.shape[1], weight=weight, bias=bias, eps=eps)


instance_norm2d_backward = group_norm_backward
