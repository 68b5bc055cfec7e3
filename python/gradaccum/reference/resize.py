"""Upsample, ZeroPad2d, Cat: they move pixels, so backward moves gradients the other way.

Upsampling, bilinear or nearest, is a linear map along each axis. Row i of a matrix A (m, n) says of
which of the n source pixels output i consists:

    nearest                       1 at pixel ⌊i n / m⌋
    bilinear                      position s_i = max(0, (i + 1/2) n / m - 1/2), centre on centre
    bilinear, align_corners       s_i = i (n - 1) / (m - 1), corner on corner
                                  1 - (s_i - k) at pixel k = ⌊s_i⌋, s_i - k at its neighbour k + 1

    Y = A X Bᵀ  for every channel,   so   dX = Aᵀ dY B            (from Y_ij = Σ_ab A_ia X_ab B_jb)

With ``scale_factor`` f, m = ⌊n f⌋ and 1 / f stands for n / m (as PyTorch; they differ if n f is not
whole).

zero_pad2d: y is x in the middle of zeros, so dx is the middle of dy. cat: y is one input after the
other, so dy is cut where they meet.
"""
import math

import numpy as np

from ._images import pair


def _source_weights(n, m, step, mode, align_corners):
    """A (m, n); ``step`` is the source pixels per output pixel, None for exactly n / m."""
    a = np.zeros((m, n))
    for i in range(m):
        if mode == "nearest":
            a[i, min(i * n // m if step is None else int(i * step), n - 1)] = 1
            continue
        if align_corners:
            position = i * (n - 1) / (m - 1) if m > 1 else 0.0
        else:
            position = max(0.0, (i + 0.5) * (n / m if step is None else step) - 0.5)
        k = min(int(position), n - 1)
        a[i, k] += 1 - (position - k)
        a[i, min(k + 1, n - 1)] += position - k      # the last pixel is its own neighbour
    return a


def _step(n, m, factor, mode):
    """Source pixels per output pixel; None (n / m) where PyTorch copies or doubles pixels."""
    return None if m == n or (mode == "nearest" and m == 2 * n) else 1 / factor


def upsample_forward(x, *, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """x (n, C, H, W) -> y (n, C, *size). Either ``size`` or ``scale_factor``: a number or a pair.

    mode is "nearest" or "bilinear"; align_corners belongs to the latter. As torch.nn.Upsample.
    """
    if mode not in ("nearest", "bilinear"):
        raise ValueError(f'upsample: mode={mode!r}, expected "nearest" or "bilinear"')
    if (size is None) == (scale_factor is None):
        raise ValueError("upsample: give either size or scale_factor")
    if size is not None:
        size, steps = pair(size), (None, None)
    else:
        factors = pair(scale_factor)
        size = [math.floor(n * f) for n, f in zip(x.shape[2:], factors)]
        steps = [_step(n, m, f, mode) for n, m, f in zip(x.shape[2:], size, factors)]
    a, b = (_source_weights(n, m, step, mode, align_corners).astype(x.dtype)
            for n, m, step in zip(x.shape[2:], size, steps))
    return a @ x @ b.T, (a, b)


def upsample_backward(dy, saved):
    a, b = saved
    return (a.T @ dy @ b,), {}


def zero_pad2d_forward(x, *, padding):
    """x (n, C, H, W) -> y with zeros around.

    padding: a number or (left, right, top, bottom); negative numbers cut off.
    """
    left, right, top, bottom = sides = _sides(padding)
    add = [(0, 0), (0, 0), (max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0))]
    y = np.pad(x, add)
    rows = slice(max(-top, 0), y.shape[2] - max(-bottom, 0))
    columns = slice(max(-left, 0), y.shape[3] - max(-right, 0))
    return y[:, :, rows, columns], sides


def _sides(padding):
    return tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 4


def zero_pad2d_backward(dy, sides):
    """Padding by -p undoes padding by p, and a pixel that was cut off has gradient 0."""
    dx, _ = zero_pad2d_forward(dy, padding=tuple(-side for side in sides))
    return (dx,), {}


def cat_forward(*inputs, dim=None):
    """Inputs one after the other along ``dim``: if None, channels of images, else the last axis."""
    axis = (1 if inputs[0].ndim == 4 else -1) if dim is None else dim
    return np.concatenate(inputs, axis=axis), (axis, [x.shape[axis] for x in inputs])


def cat_backward(dy, saved):
    axis, sizes = saved
    return tuple(np.split(dy, np.cumsum(sizes)[:-1], axis=axis)), {}
