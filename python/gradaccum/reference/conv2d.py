"""Convolution: slide a kernel over an image and take products.

(Strictly a cross-correlation, as the kernel is not turned round, but everybody says convolution.)

    y[n,o,i,j] = b[o] + Σ_{c,u,v} W[o,c,u,v] x[n,c, i s + u d - p, j s + v d - p]

with stride s, dilation d and padding p; outside of the image x is 0. ``groups`` cut the channels
into as many convolutions that know nothing of each other.

Backward: y is a sum of products W x, so each pair (output, tap) sends dy times the one to the
other:

    dW[o,c,u,v] = Σ_{n,i,j} dy[n,o,i,j] x[n,c, i s + u d - p, j s + v d - p]
    db[o]       = Σ_{n,i,j} dy[n,o,i,j]
    dx[n,c,a,b] = Σ dy[n,o,i,j] W[o,c,u,v]   for all o,u,v,i,j: i s + u d - p = a, j s + v d - p = b

dW is the product of forward's patches with dy. For dx we walk over the taps (u, v): each adds dy
W[:,:,u,v] to the pixels that lay under it, every s-th one.

A transposed convolution is the map dy -> dx as a forward pass (Dumoulin, Visin 2016,
arXiv:1603.07285): it enlarges an image by s. So its own dx is the convolution of dy with W, and its
dW the product of dy's patches with x.
"""
import numpy as np

from ._images import crop, pad, pair, patches, taps


def _pads(padding, kernel, dilation):
    """Zeros [(top, bottom), (left, right)]; "same" gives the odd one to the bottom and right."""
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel)]
        return [(t // 2, t - t // 2) for t in total]
    return [(p, p) for p in pair(0 if padding == "valid" else padding)]


def _correlate(padded, weight, stride, dilation, groups):
    """Σ_{c,u,v} of patches and weights: (n, O, OH, OW)."""
    p = patches(padded, weight.shape[2:], stride, dilation)
    return np.concatenate([np.einsum("nchwuv,ocuv->nohw", p_g, w_g, optimize=True) for p_g, w_g in
                           zip(np.split(p, groups, axis=1), np.split(weight, groups))], axis=1)


def _weight_gradient(padded, dy, kernel, stride, dilation, groups):
    """Σ_{n,h,w} of patches and output gradients: (O, C / groups, kh, kw)."""
    p = patches(padded, kernel, stride, dilation)[:, :, :dy.shape[2], :dy.shape[3]]
    return np.concatenate([np.einsum("nchwuv,nohw->ocuv", p_g, dy_g, optimize=True) for p_g, dy_g in
                           zip(np.split(p, groups, axis=1), np.split(dy, groups, axis=1))])


def _spread(dy, weight, size, stride, dilation, groups):
    """The padded dx (n, C, *size): every tap adds dy times its weight to the pixels under it."""
    channels = weight.shape[1] * groups
    dx = np.zeros((len(dy), channels, *size), dtype=dy.dtype)
    for u, v, rows, columns in taps(weight.shape[2:], stride, dilation, dy.shape[2:]):
        parts = [np.einsum("nohw,oc->nchw", dy_g, w_g[:, :, u, v], optimize=True) for dy_g, w_g in
                 zip(np.split(dy, groups, axis=1), np.split(weight, groups))]
        dx[:, :, rows, columns] += np.concatenate(parts, axis=1)
    return dx


def conv2d_forward(x, *, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """x (n, C, H, W), weight (O, C / groups, kh, kw), bias (O,) -> y (n, O, OH, OW).

    stride, padding, dilation: a number or (height, width); padding also "same" or "valid".
    """
    stride, dilation = pair(stride), pair(dilation)
    pads = _pads(padding, weight.shape[2:], dilation)
    padded = pad(x, pads)
    y = _correlate(padded, weight, stride, dilation, groups)
    if bias is not None:
        y = y + bias[:, None, None]
    return y, (padded, pads, weight, bias is not None, stride, dilation, groups)


def conv2d_backward(dy, saved):
    padded, pads, weight, has_bias, stride, dilation, groups = saved
    dparams = {"weight": _weight_gradient(padded, dy, weight.shape[2:], stride, dilation, groups)}
    if has_bias:
        dparams["bias"] = dy.sum(axis=(0, 2, 3))
    dx = _spread(dy, weight, padded.shape[2:], stride, dilation, groups)
    return (crop(dx, pads),), dparams


def conv_transpose2d_forward(x, *, weight, bias=None, stride=1, padding=0, output_padding=0,
                             dilation=1, groups=1):
    """x (n, C, H, W), weight (C, O / groups, kh, kw), bias (O,) -> y (n, O, OH, OW) with

    OH = (H - 1) stride - 2 padding + dilation (kh - 1) + 1 + output_padding.
    """
    stride, dilation, extra = pair(stride), pair(dilation), pair(output_padding)
    pads = [(p, p) for p in pair(padding)]
    size = [(n - 1) * s + d * (k - 1) + 1 + e
            for n, s, d, k, e in zip(x.shape[2:], stride, dilation, weight.shape[2:], extra)]
    y = crop(_spread(x, weight, size, stride, dilation, groups), pads)
    if bias is not None:
        y = y + bias[:, None, None]
    return y, (x, pads, weight, bias is not None, stride, dilation, groups)


def conv_transpose2d_backward(dy, saved):
    x, pads, weight, has_bias, stride, dilation, groups = saved
    padded = pad(dy, pads)
    dparams = {"weight": _weight_gradient(padded, x, weight.shape[2:], stride, dilation, groups)}
    if has_bias:
        dparams["bias"] = dy.sum(axis=(0, 2, 3))
    # output_padding can make room for more outputs than x has pixels; those came from nowhere.
    dx = _correlate(padded, weight, stride, dilation, groups)[:, :, :x.shape[2], :x.shape[3]]
    return (dx,), dparams
