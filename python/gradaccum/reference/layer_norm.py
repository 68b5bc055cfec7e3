"""Layer normalisation: each row (the last axis) by its own mean and variance (Ba, Kiros, Hinton 2016).

    x' = (x - m) / √(v + ε),  y = w x' + b;   with g = dy w:  dx = (g - mean(g) - x' mean(g x')) / √(v + ε);  dw = Σ dy x',  db = Σ dy

The two means taken off dx are what the row's own m and v, which depend on every x of the row, give back.
"""
import numpy as np


def layer_norm_forward(x, *, weight=None, bias=None, eps=1e-5):
    """x (n, C) or (n, T, C), weight and bias (C,)."""
    scale = 1 / np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    h = (x - x.mean(axis=-1, keepdims=True)) * scale
    y = h if weight is None else h * weight
    return y if bias is None else y + bias, (h, scale, weight, bias is not None)


def layer_norm_backward(dy, saved):
    h, scale, weight, biased = saved
    rows = tuple(range(dy.ndim - 1))
    gradients = {} if weight is None else {"weight": (dy * h).sum(axis=rows)}
    if biased:
        gradients["bias"] = dy.sum(axis=rows)
    g = dy if weight is None else dy * weight
    return ((g - g.mean(axis=-1, keepdims=True) - h * (g * h).mean(axis=-1, keepdims=True)) * scale,), gradients
