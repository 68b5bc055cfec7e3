"""RMS normalisation: the features of each token over their root mean square (Zhang, Sennrich 2019).

    r = √(mean(x²) + ε) of one row (the last axis; the last axes if w has several)
    h = x / r,   y = w h                                                        arXiv:1910.07467

Layer normalisation without the mean, hence cheaper. Backward (``_standardize`` derives the last
line), sums over rows, means inside a row:

    dw = Σ dy h,   dh = w dy,   dx = (dh - h mean(dh h)) / r
"""
import numpy as np

from ._standardize import last_axes, scale_and_shift, scale_and_shift_backward


def rms_norm_forward(x, *, weight=None, eps=None, normalized_shape=None):
    """x (n, ..., features), weight (features,) -> y of x's shape.

    eps=None takes the machine precision of x's dtype, as torch.nn.RMSNorm does.
    """
    axes, others = last_axes(x, weight, normalized_shape)
    eps = float(np.finfo(x.dtype).eps) if eps is None else eps
    r = np.sqrt((x * x).mean(axis=axes, keepdims=True) + eps)
    h = x / r
    return scale_and_shift(h, weight, None), (h, r, weight, axes, others)


def rms_norm_backward(dy, saved):
    h, r, weight, axes, others = saved
    dh, dparams = scale_and_shift_backward(dy, h, weight, None, others)
    return ((dh - h * (dh * h).mean(axis=axes, keepdims=True)) / r,), dparams
