"""Upsample, ZeroPad2d, Cat: they move pixels, so backward moves gradients the other way.

Bilinear upsampling is a linear map along each axis, y = A x Bᵀ per channel, so dx = Aᵀ dy B.
"""
import numpy as np


def _matrix(n, m, mode, align_corners):
    """(m, n): the weights of the n source pixels for each of m output pixels."""
    a = np.zeros((m, n))
    for i in range(m):
        if mode == "nearest":
            a[i, i * n // m] = 1
            continue
        at = i * (n - 1) / (m - 1) if align_corners and m > 1 else 0 if align_corners else max(0.0, (i + 0.5) * n / m - 0.5)
        low = min(int(at), n - 1)
        a[i, low] += 1 - (at - low)
        a[i, min(low + 1, n - 1)] += at - low
    return a


def upsample_forward(x, *, size=None, scale_factor=None, mode="nearest", align_corners=None):
    if size is None:
        scales = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor, scale_factor)
        size = [int(n * s) for n, s in zip(x.shape[2:], scales)]
    size = size if isinstance(size, (tuple, list)) else (size, size)
    a, b = (_matrix(n, m, mode, align_corners).astype(x.dtype) for n, m in zip(x.shape[2:], size))
    return a @ x @ b.T, (a, b)


def upsample_backward(dy, saved):
    a, b = saved
    return (a.T @ dy @ b,), {}


def zero_pad2d_forward(x, *, padding):
    left, right, top, bottom = padding if isinstance(padding, (tuple, list)) else (padding,) * 4
    y = np.pad(x, [(0, 0), (0, 0), (max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0))])
    return y[:, :, max(-top, 0):y.shape[2] - max(-bottom, 0), max(-left, 0):y.shape[3] - max(-right, 0)], (left, right, top, bottom)


def zero_pad2d_backward(dy, saved):
    return (zero_pad2d_forward(dy, padding=tuple(-n for n in saved))[0],), {}


def cat_forward(*inputs):
    axis = 1 if inputs[0].ndim == 4 else -1
    return np.concatenate(inputs, axis=axis), (axis, [x.shape[axis] for x in inputs])


def cat_backward(dy, saved):
    axis, sizes = saved
    return tuple(np.split(dy, np.cumsum(sizes)[:-1], axis=axis)), {}
