"""Softmax: numbers x_c become shares y_c that are positive and sum to 1.

    y_c = exp(x_c) / Σ_j exp(x_j)

Every y_c depends on every x_k, by the numerator if c = k and by the sum always:

    dy_c/dx_k = y_c ([c = k] - y_k)        so        dx_k = Σ_c dy_c y_c ([c = k] - y_k)
                                                          = y_k (dy_k - Σ_c dy_c y_c)

Subtracting the maximum first multiplies numerator and denominator by the same number: it changes
nothing, and keeps exp from overflowing.
"""
import numpy as np


def softmax_forward(x, *, dim=None):
    """x (n, ...) -> y of the same shape. dim=None: channels of (n, C, H, W), else the last axis."""
    axis = (1 if x.ndim == 4 else -1) if dim is None else dim
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    y = e / e.sum(axis=axis, keepdims=True)
    return y, (y, axis)


def softmax_backward(dy, saved):
    y, axis = saved
    return (y * (dy - (dy * y).sum(axis=axis, keepdims=True)),), {}
