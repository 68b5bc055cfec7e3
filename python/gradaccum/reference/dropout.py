"""Dropout: in training each element is 0 with probability p, else x / (1 - p), so that its mean stays x (Srivastava et al. 2014)."""
import numpy as np

from .random import random_elements, random_stream


def dropout_mask(shape, p, seed, update, layer, sample0):
    """0 or 1 / (1 - p) for each element of (n, ...). Elements count in stored order: images channels last."""
    stored = (shape[2], shape[3], shape[1]) if len(shape) == 4 else shape[1:]
    threshold = min(int(p * 2**32), 2**32 - 1)
    rows = []
    for s in range(shape[0]):
        numbers = random_elements(random_stream(seed, update, layer, sample0 + s), int(np.prod(stored)))
        row = np.where(numbers < threshold, 0.0, 1 / (1 - p) if p < 1 else 0.0).reshape(stored)
        rows.append(np.moveaxis(row, -1, 0) if len(shape) == 4 else row)
    return np.array(rows)


def dropout_forward(x, *, p=0.5, training=True, seed=0, update=0, layer=0, sample0=0):
    mask = dropout_mask(x.shape, p, seed, update, layer, sample0).astype(x.dtype) if training else np.ones_like(x)
    return x * mask, mask


def dropout2d_forward(x, *, p=0.5, training=True, seed=0, update=0, layer=0, sample0=0):
    """The same for whole channels of images (n, C, H, W)."""
    mask = dropout_mask(x.shape[:2], p, seed, update, layer, sample0)[:, :, None, None].astype(x.dtype) if training else np.ones_like(x)
    return x * mask, mask


def dropout_backward(dy, mask):
    return (dy * mask,), {}


dropout2d_backward = dropout_backward
