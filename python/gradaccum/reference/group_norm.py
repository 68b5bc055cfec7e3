"""Group normalisation: each group of channels of each sample by its own mean and variance (Wu, He 2018).

    x' = (x - m) / √(v + ε) over the group's channels and pixels;  y = w x' + b per channel
    with g = dy w:  dx = (g - mean(g) - x' mean(g x')) / √(v + ε);  dw = Σ dy x',  db = Σ dy

No sample sees another, so every split gives the same result. Instance normalisation has one channel per group.
"""
import numpy as np


def group_norm_forward(x, *, num_groups, weight=None, bias=None, eps=1e-5):
    groups = x.reshape(len(x), num_groups, -1)
    scale = 1 / np.sqrt(groups.var(axis=2, keepdims=True) + eps)
    h = ((groups - groups.mean(axis=2, keepdims=True)) * scale).reshape(x.shape)
    column = (1, -1, *[1] * (x.ndim - 2))
    y = h if weight is None else h * weight.reshape(column) + bias.reshape(column)
    return y, (h, scale, weight)


def group_norm_backward(dy, saved):
    h, scale, weight = saved
    axes, column = (0, *range(2, h.ndim)), (1, -1, *[1] * (h.ndim - 2))
    gradients = {} if weight is None else {"weight": (dy * h).sum(axis=axes), "bias": dy.sum(axis=axes)}
    g = (dy if weight is None else dy * weight.reshape(column)).reshape(*scale.shape[:2], -1)
    n = h.reshape(g.shape)
    d = (g - g.mean(axis=2, keepdims=True) - n * (g * n).mean(axis=2, keepdims=True)) * scale
    return (d.reshape(h.shape),), gradients


def instance_norm2d_forward(x, *, weight=None, bias=None, eps=1e-5):
    return group_norm_forward(x, num_groups=x.shape[1], weight=weight, bias=bias, eps=eps)


instance_norm2d_backward = group_norm_backward
