"""Pooling: the largest value, or the mean, of each window of pixels, channel by channel.

Maximum: y = max of the window, so ∂y/∂x is 1 for the pixel that was the largest and 0 for the
others:

    dx[the largest pixel of window (i, j)] += dy[i, j]        of equal ones the first, as in PyTorch

Windows may overlap, hence +=. Padding is -∞, which is never the largest.

Mean: y is linear in x. A window is rows times columns, so its mean is the mean over the columns of
the means over the rows, and with matrices A (OH, H) and B (OW, W) whose row i holds 1 / (size of
window i) at the pixels of window i, else 0:

    Y = A X Bᵀ  for every channel,   so   dX = Aᵀ dY B            (from Y_ij = Σ_ab A_ia X_ab B_jb)

Padding adds pixels with value 0, which have no column in A; ``count_include_pad`` says whether they
count in the size. The adaptive pooling has windows from ⌊i n / m⌋ to ⌈(i + 1) n / m⌉ for output i
of m.
"""
import numpy as np

from ._images import crop, pad, pair, patches, taps


def max_pool2d_forward(x, *, kernel_size, stride=None, padding=0, dilation=1):
    """x (n, C, H, W) -> y (n, C, OH, OW). stride=None: kernel_size, windows side by side."""
    kernel, dilation = pair(kernel_size), pair(dilation)
    stride = kernel if stride is None else pair(stride)
    pads = [(p, p) for p in pair(padding)]
    padded = pad(x, pads, -np.inf)
    windows = patches(padded, kernel, stride, dilation)
    windows = windows.reshape(*windows.shape[:4], -1)
    largest = windows.argmax(axis=-1)        # which tap of the kernel; the first of equal ones
    y = np.take_along_axis(windows, largest[..., None], axis=-1)[..., 0]
    return y, (padded.shape, largest, kernel, stride, pads, dilation)


def max_pool2d_backward(dy, saved):
    shape, largest, kernel, stride, pads, dilation = saved
    dx = np.zeros(shape, dtype=dy.dtype)
    for u, v, rows, columns in taps(kernel, stride, dilation, dy.shape[2:]):
        dx[:, :, rows, columns] += np.where(largest == u * kernel[1] + v, dy, 0)
    return (crop(dx, pads),), {}


def _mean_matrix(n, kernel, stride, padding, count_include_pad, dtype):
    """A (m, n) for windows of ``kernel`` pixels."""
    m = (n + 2 * padding - kernel) // stride + 1
    if m < 1:
        raise ValueError(f"avg_pool2d: windows of {kernel} pixels do not fit into {n} pixels with "
                         f"{padding} more on both sides")
    a = np.zeros((m, n), dtype=dtype)
    for i in range(m):
        start = i * stride - padding
        first, last = max(start, 0), min(start + kernel, n)
        a[i, first:last] = 1 / (kernel if count_include_pad else last - first)
    return a


def _adaptive_matrix(n, m, dtype):
    """A (m, n) for m windows that cover n pixels."""
    a = np.zeros((m, n), dtype=dtype)
    for i in range(m):
        first, last = i * n // m, -(-(i + 1) * n // m)
        a[i, first:last] = 1 / (last - first)
    return a


def avg_pool2d_forward(x, *, kernel_size, stride=None, padding=0, count_include_pad=True):
    """x (n, C, H, W) -> y (n, C, OH, OW). stride=None: kernel_size, windows side by side."""
    kernel = pair(kernel_size)
    stride = kernel if stride is None else pair(stride)
    a, b = (_mean_matrix(n, k, s, p, count_include_pad, x.dtype)
            for n, k, s, p in zip(x.shape[2:], kernel, stride, pair(padding)))
    return a @ x @ b.T, (a, b)


def avg_pool2d_backward(dy, saved):
    a, b = saved
    return (a.T @ dy @ b,), {}


def adaptive_avg_pool2d_forward(x, *, output_size):
    """x (n, C, H, W) -> y (n, C, *output_size)."""
    a, b = (_adaptive_matrix(n, m, x.dtype) for n, m in zip(x.shape[2:], pair(output_size)))
    return a @ x @ b.T, (a, b)


adaptive_avg_pool2d_backward = avg_pool2d_backward
