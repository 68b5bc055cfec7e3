"""Convolution: slide a kernel over an image and take products. (Cross-correlation, as everybody calls convolution.)

    y[n, o, i, j] = b[o] + Σ_{c,u,v} x[n, c, i s + u d - p, j s + v d - p] W[o, c, u, v]

y is linear in x and in W, so each gradient is the same sum with the roles changed:

    dW[o, c, u, v] = Σ_{n,i,j} dy[n, o, i, j] x[n, c, i s + u d - p, ...]       dx[the same place] += dy[n, o, i, j] W[o, c, u, v]

A transposed convolution is the map dy -> dx used as a forward pass (Dumoulin, Visin 2016, arXiv:1603.07285).
"""
import numpy as np


def _pair(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def _pads(padding, kernel, dilation):
    """Zeros before and after, for both axes."""
    if padding == "valid":
        padding = 0
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel)]
        return [(t // 2, t - t // 2) for t in total]
    return [(p, p) for p in _pair(padding)]


def _patches(x, kernel, stride, dilation):
    """All patches under the kernel, a view (n, C, OH, OW, kh, kw)."""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    return view[:, :, ::stride[0], ::stride[1], ::dilation[0], ::dilation[1]]


def conv2d_forward(x, *, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    stride, dilation, kernel = _pair(stride), _pair(dilation), weight.shape[2:]
    pads = _pads(padding, kernel, dilation)
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    parts = [np.einsum("nchwuv,ocuv->nohw", p, w) for p, w in zip(np.split(_patches(padded, kernel, stride, dilation), groups, axis=1),
                                                                 np.split(weight, groups))]
    y = np.concatenate(parts, axis=1)
    return y if bias is None else y + bias[:, None, None], (padded, pads, weight, bias is not None, stride, dilation, groups)


def conv2d_backward(dy, saved):
    padded, pads, weight, has_bias, stride, dilation, groups = saved
    kernel = weight.shape[2:]
    dw = [np.einsum("nchwuv,nohw->ocuv", p, d) for p, d in zip(np.split(_patches(padded, kernel, stride, dilation), groups, axis=1),
                                                               np.split(dy, groups, axis=1))]
    gradients = {"weight": np.concatenate(dw)} | ({"bias": dy.sum(axis=(0, 2, 3))} if has_bias else {})
    return (_spread(dy, weight, padded.shape, pads, stride, dilation, groups),), gradients


def _spread(dy, weight, shape, pads, stride, dilation, groups):
    """dx: each dy adds its kernel's weights to the pixels that it came from."""
    dx = np.zeros(shape, dtype=dy.dtype)
    oh, ow = dy.shape[2:]
    for u in range(weight.shape[2]):
        for v in range(weight.shape[3]):
            parts = [np.einsum("nohw,oc->nchw", d, w[:, :, u, v]) for d, w in zip(np.split(dy, groups, axis=1), np.split(weight, groups))]
            rows = slice(u * dilation[0], u * dilation[0] + (oh - 1) * stride[0] + 1, stride[0])
            columns = slice(v * dilation[1], v * dilation[1] + (ow - 1) * stride[1] + 1, stride[1])
            dx[:, :, rows, columns] += np.concatenate(parts, axis=1)
    (top, bottom), (left, right) = pads
    return dx[:, :, top:shape[2] - bottom, left:shape[3] - right]


def conv_transpose2d_forward(x, *, weight, bias=None, stride=1, padding=0, output_padding=0, dilation=1, groups=1):
    stride, padding, extra, dilation = _pair(stride), _pair(padding), _pair(output_padding), _pair(dilation)
    size = [(n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in zip(x.shape[2:], stride, dilation, weight.shape[2:], extra)]
    shape = (len(x), weight.shape[1] * groups, *size)
    y = _spread(x, weight, shape, [(p, p) for p in padding], stride, dilation, groups)
    return y if bias is None else y + bias[:, None, None], (x, weight, bias is not None, stride, padding, extra, dilation, groups)


def conv_transpose2d_backward(dy, saved):
    x, weight, has_bias, stride, padding, _, dilation, groups = saved
    dx, inner = conv2d_forward(dy, weight=weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    dx = dx[:, :, :x.shape[2], :x.shape[3]]
    padded = inner[0]
    patches = _patches(padded, weight.shape[2:], stride, dilation)[:, :, :x.shape[2], :x.shape[3]]
    dw = [np.einsum("nchwuv,nohw->ocuv", p, d) for p, d in zip(np.split(patches, groups, axis=1), np.split(x, groups, axis=1))]
    return (dx,), {"weight": np.concatenate(dw)} | ({"bias": dy.sum(axis=(0, 2, 3))} if has_bias else {})
