"""Embedding: y = row `token` of W.

Choosing a row is a product with a one-hot vector, so its gradient lands in that row: dW_token = Σ dy over the places of the token.
"""
import numpy as np


def embedding_forward(x, *, weight, padding_idx=None):
    """x (n,) or (n, T) integers, weight (num_embeddings, embedding_dim) -> y (..., embedding_dim)."""
    return weight[x], (x, weight.shape, padding_idx)


def embedding_backward(dy, saved):
    x, shape, padding_idx = saved
    dw = np.zeros(shape, dy.dtype)
    np.add.at(dw, x, dy)                                     # unlike dw[x] += dy this adds up tokens that occur twice
    if padding_idx is not None:
        dw[padding_idx] = 0
    return (), {"weight": dw}
