"""Softmax over classes: y_c = exp(x_c) / Σ_j exp(x_j). The classes are the last axis; of images (n, C, H, W), axis 1.

    dy_c/dx_k = y_c ([c = k] - y_k), so dx_k = y_k (dy_k - Σ_c dy_c y_c)

Subtracting the maximum first changes nothing in exact arithmetic and keeps exp from overflowing.
"""
import numpy as np


def softmax_forward(x, *, dim=None):
    axis = 1 if x.ndim == 4 else -1
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    y = e / e.sum(axis=axis, keepdims=True)
    return y, (y, axis)


def softmax_backward(dy, saved):
    y, axis = saved
    return (y * (dy - (dy * y).sum(axis=axis, keepdims=True)),), {}
