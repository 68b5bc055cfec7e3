"""Learned positions: y_t = x_t + W_t. Step t gets row t of W, so T steps use the first T rows.

    dx = dy,   dW_t = Σ dy_t over samples,   and 0 for rows from T on, which were not used

Attention is a mean over a set; without positions it would not know the order of its tokens
(Gehring et al. 2017, arXiv:1705.03122, section 3.1).
"""
import numpy as np


def position_forward(x, *, weight):
    """x (n, T, C), weight (max_len, C) with max_len >= T -> y (n, T, C)."""
    if x.shape[1] > len(weight):
        raise ValueError(f"position: x has {x.shape[1]} steps, but weight has rows for "
                         f"{len(weight)} only")
    return x + weight[:x.shape[1]], weight.shape


def position_backward(dy, shape):
    dweight = np.zeros(shape, dtype=dy.dtype)
    dweight[:dy.shape[1]] = dy.sum(axis=0)
    return (dy,), {"weight": dweight}
