"""What convolution and pooling share: a kernel that slides over an image (n, C, H, W).

Along one axis, output i looks with tap u of a kernel of k taps at pixel

    i stride + u dilation          of the padded image,      0 <= u < k

so an axis of n pixels has (n - reach) // stride + 1 outputs, with reach = (k - 1) dilation + 1.
There are two ways to walk over all pairs (i, u): ``patches`` lays all taps of every output side by
side, for the forward pass; ``taps`` takes one tap of all outputs at a time, to send values back.
"""
import numpy as np


def pair(value):
    """One number for both axes, or (height, width)."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def patches(padded, kernel, stride, dilation):
    """All pixels under the kernel: a view (n, C, OH, OW, kh, kw) of a padded image (n, C, H, W)."""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    if any(r > size for r, size in zip(reach, padded.shape[2:])):
        raise ValueError(f"the kernel reaches over {tuple(reach)} pixels, but the padded image has "
                         f"{padded.shape[2:]}; use a smaller kernel or dilation, or more padding")
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    return view[:, :, ::stride[0], ::stride[1], ::dilation[0], ::dilation[1]]


def taps(kernel, stride, dilation, outputs):
    """(u, v, rows, columns) for each tap: the slices of the padded image under it."""
    for u in range(kernel[0]):
        for v in range(kernel[1]):
            first = u * dilation[0], v * dilation[1]
            rows, columns = (slice(a, a + (count - 1) * s + 1, s)
                             for a, count, s in zip(first, outputs, stride))
            yield u, v, rows, columns


def pad(x, pads, value=0.0):
    """x with ``pads`` = [(top, bottom), (left, right)] more pixels."""
    return np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value)


def crop(padded, pads):
    """The opposite of ``pad``."""
    (top, bottom), (left, right) = pads
    return padded[:, :, top:padded.shape[2] - bottom, left:padded.shape[3] - right]
