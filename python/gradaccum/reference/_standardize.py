"""What the normalisations share: subtract the mean, divide by the standard deviation.

Over N values x_1 ... x_N:

    m = Σ x_i / N,   v = Σ (x_i - m)² / N,   s = √(v + ε),   h_i = (x_i - m) / s

Every h_j depends on every x_i, in three ways: directly, through m, and through s. From dm/dx_i = 1
/ N and ds/dx_i = (dv/dx_i) / (2 s) = (x_i - m) / (N s) = h_i / N follows

    dh_j/dx_i = ([i = j] - 1 / N) / s - (x_j - m) / s² · h_i / N = ([i = j] - 1/N - h_i h_j / N) / s

and with dh_j = dL/dh_j the chain rule, a sum over j, gives

    dx_i = (dh_i - mean(dh) - h_i mean(dh h)) / s

In words: of dh, take away what would shift all values alike (the mean hides it) and what would
stretch them (the standard deviation hides it). Layers differ in which values belong together.

Without the mean (root mean square only), r = √(mean(x²) + ε), h = x / r and dr/dx_i = h_i / N:

    dx_i = (dh_i - h_i mean(dh h)) / r
"""
import numpy as np


def standardize(x, axes, eps):
    """(h, s): x standardised over ``axes``, and the standard deviations (axes kept, length 1)."""
    s = np.sqrt(x.var(axis=axes, keepdims=True) + eps)
    return (x - x.mean(axis=axes, keepdims=True)) / s, s


def standardize_backward(dh, h, s, axes):
    """dx of ``standardize``."""
    mean, stretch = dh.mean(axis=axes, keepdims=True), (dh * h).mean(axis=axes, keepdims=True)
    return (dh - mean - h * stretch) / s


def scale_and_shift(h, weight, bias):
    """h w + b; either may be None. Both are shaped so that they fit h's axes."""
    if weight is not None:
        h = h * weight
    return h if bias is None else h + bias


def scale_and_shift_backward(dy, h, weight, bias, axes):
    """(dh, dparams): dh = dy w, dw = Σ dy h, db = Σ dy, sums over ``axes``, which w and b lack."""
    dparams = {}
    if weight is not None:
        dparams["weight"] = (dy * h).sum(axis=axes)
    if bias is not None:
        dparams["bias"] = dy.sum(axis=axes)
    return (dy if weight is None else dy * weight), dparams


def last_axes(x, weight, normalized_shape):
    """(axes to normalise, the others): as many as w has, or ``normalized_shape``, or 1."""
    if weight is not None:
        shape = weight.shape
    elif normalized_shape is None:
        shape = x.shape[-1:]
    else:
        shape = tuple(np.atleast_1d(normalized_shape).tolist())
    if x.shape[x.ndim - len(shape):] != shape:
        raise ValueError(f"x has shape {x.shape}, expected (n, ..., {', '.join(map(str, shape))})")
    first = x.ndim - len(shape)
    return tuple(range(first, x.ndim)), tuple(range(first))
