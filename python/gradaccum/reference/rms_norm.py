"""RMS normalisation: each row (the last axis) divided by its root mean square (Zhang, Sennrich 2019).

    x' = x / √(mean(x²) + ε),  y = w x';   with g = dy w:  dx = (g - x' mean(g x')) / √(mean(x²) + ε);  dw = Σ dy x'
"""
import numpy as np


def rms_norm_forward(x, *, weight=None, eps=None):
    """x (n, C) or (n, T, C), weight (C,)."""
    eps = np.finfo(x.dtype).eps if eps is None else eps
    scale = 1 / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + eps)
    h = x * scale
    return h if weight is None else h * weight, (h, scale, weight)


def rms_norm_backward(dy, saved):
    h, scale, weight = saved
    gradients = {} if weight is None else {"weight": (dy * h).sum(axis=tuple(range(dy.ndim - 1)))}
    g = dy if weight is None else dy * weight
    return ((g - h * (g * h).mean(axis=-1, keepdims=True)) * scale,), gradients
