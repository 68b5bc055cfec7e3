"""Dropout: in training each element is 0 with probability p, else divided by 1 - p.

Srivastava et al. 2014.

    y_i = m_i x_i,   m_i = 0 with probability p, else 1 / (1 - p)        dx_i = m_i dy_i

The mean of m_i is (1 - p) / (1 - p) = 1, so evaluation needs no change: y = x. The mask does not
depend on x, so backward multiplies by the same mask.

The mask is a function of (seed, update, layer, number of the sample in the window, element), see
``random``: a sample has the same mask in whichever micro-batch it comes. dropout2d drops whole
channels of images (Tompson et al. 2015), since neighbouring pixels tell the same story.
"""
import math

import numpy as np

from .random import random_elements, random_stream


def dropout_mask(shape, p, seed, update, layer, sample0):
    """0 or 1 / (1 - p) for each element of ``shape`` = (n, ...), float64.

    Elements of a sample are counted in the order in which they are stored: row by row, but images
    (n, C, H, W) channels last. ``sample0`` is the number of the first sample in the window.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p={p}, expected a probability in [0, 1]")
    if p == 1:
        return np.zeros(shape)
    image = len(shape) == 4
    stored = (shape[2], shape[3], shape[1]) if image else shape[1:]
    masks = []
    for sample in range(shape[0]):
        stream = random_stream(seed, update, layer, sample0 + sample)
        dropped = random_elements(stream, math.prod(stored)) < int(p * 2**32)
        mask = np.where(dropped, 0.0, 1 / (1 - p)).reshape(stored)
        masks.append(np.moveaxis(mask, -1, 0) if image else mask)
    return np.array(masks).reshape(shape)


def dropout_forward(x, *, p=0.5, training=True, seed=0, update=0, layer=0, sample0=0):
    """x (n, ...) -> y of the same shape."""
    if not training:
        return x, np.ones_like(x)
    mask = dropout_mask(x.shape, p, seed, update, layer, sample0).astype(x.dtype)
    return x * mask, mask


def dropout_backward(dy, mask):
    return (dy * mask,), {}


def dropout2d_forward(x, *, p=0.5, training=True, seed=0, update=0, layer=0, sample0=0):
    """x (n, C, H, W) -> y of the same shape; the channels are the elements of the mask."""
    if not training:
        return x, np.ones_like(x)
    mask = dropout_mask(x.shape[:2], p, seed, update, layer, sample0).astype(x.dtype)
    mask = mask[:, :, None, None]
    return x * mask, mask


dropout2d_backward = dropout_backward
