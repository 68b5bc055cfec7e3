"""Pooling: the largest value, or the mean, of each window of pixels, for each channel.

The gradient of a maximum goes to the pixel that was the largest (the first of equal ones); that of a mean goes to all in equal parts.
"""
import numpy as np

from .conv2d import _pair


def _windows(h, w, kernel, stride, padding, dilation):
    """(output row, output column, rows, columns) of each window; pixels outside of the image left out."""
    kernel, padding, dilation = _pair(kernel), _pair(padding), _pair(dilation)
    stride = kernel if stride is None else _pair(stride)
    starts = [range(-p, n + p - (k - 1) * d, s) for n, k, s, p, d in zip((h, w), kernel, stride, padding, dilation)]
    for i, y in enumerate(starts[0]):
        for j, x in enumerate(starts[1]):
            rows = [y + u * dilation[0] for u in range(kernel[0]) if 0 <= y + u * dilation[0] < h]
            columns = [x + v * dilation[1] for v in range(kernel[1]) if 0 <= x + v * dilation[1] < w]
            yield i, j, rows, columns


def max_pool2d_forward(x, *, kernel_size, stride=None, padding=0, dilation=1):
    windows = list(_windows(*x.shape[2:], kernel_size, stride, padding, dilation))
    y = np.empty((*x.shape[:2], windows[-1][0] + 1, windows[-1][1] + 1), dtype=x.dtype)
    for i, j, rows, columns in windows:
        y[:, :, i, j] = x[:, :, rows][:, :, :, columns].max(axis=(2, 3))
    return y, (x, windows)


def max_pool2d_backward(dy, saved):
    x, windows = saved
    dx = np.zeros_like(x)
    n, c = np.indices(x.shape[:2])
    for i, j, rows, columns in windows:
        first = x[:, :, rows][:, :, :, columns].reshape(*x.shape[:2], -1).argmax(axis=2)
        dx[n, c, np.array(rows)[first // len(columns)], np.array(columns)[first % len(columns)]] += dy[:, :, i, j]
    return (dx,), {}


def _average_forward(x, windows, divisor):
    y = np.empty((*x.shape[:2], windows[-1][0] + 1, windows[-1][1] + 1), dtype=x.dtype)
    for i, j, rows, columns in windows:
        y[:, :, i, j] = x[:, :, rows][:, :, :, columns].sum(axis=(2, 3)) / divisor(rows, columns)
    return y, (x.shape, windows, divisor)


def _average_backward(dy, saved):
    shape, windows, divisor = saved
    dx = np.zeros(shape, dtype=dy.dtype)
    for i, j, rows, columns in windows:
        dx[np.ix_(range(shape[0]), range(shape[1]), rows, columns)] += (dy[:, :, i, j] / divisor(rows, columns))[:, :, None, None]
    return (dx,), {}


def avg_pool2d_forward(x, *, kernel_size, stride=None, padding=0, count_include_pad=True):
    area = int(np.prod(_pair(kernel_size)))
    return _average_forward(x, list(_windows(*x.shape[2:], kernel_size, stride, padding, 1)),
                            (lambda rows, columns: area) if count_include_pad else (lambda rows, columns: len(rows) * len(columns)))


avg_pool2d_backward = _average_backward


def adaptive_avg_pool2d_forward(x, *, output_size):
    (h, w), (oh, ow) = x.shape[2:], _pair(output_size)
    span = lambda i, n, m: list(range(i * n // m, -(-(i + 1) * n // m)))  # noqa: E731
    windows = [(i, j, span(i, h, oh), span(j, w, ow)) for i in range(oh) for j in range(ow)]
    return _average_forward(x, windows, lambda rows, columns: len(rows) * len(columns))


adaptive_avg_pool2d_backward = _average_backward
