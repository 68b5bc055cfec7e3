"""Embedding: a table with one row of features for each token; y is the rows that the tokens name.

    y_r = W[t_r]         r runs over all positions of all samples

This is Linear without bias on one-hot vectors, y = onehot(t) W, without the zeros. Its gradient is

    dW = onehot(t)ᵀ dy,    that is    dW[t_r] += dy_r    for r = 1, 2, ...

A token that occurs twice gets both gradients, one that does not occur 0. Tokens are whole numbers,
so they have no gradient.
"""
import numpy as np


def embedding_forward(tokens, *, weight, padding_idx=None):
    """tokens (n,), (n, T), ... of integers, weight (rows, features) -> y (n, T, ..., features).

    The row ``padding_idx`` gets no gradient. IndexError for a token that is not in 0 ... rows - 1.
    """
    tokens, rows = np.asarray(tokens), len(weight)
    wrong = (tokens < 0) | (tokens >= rows)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise IndexError(f"embedding: token {tokens[wrong][0]} at {where}, "
                         f"expected 0 to {rows - 1}")
    return weight[tokens], (tokens, weight.shape, padding_idx)


def embedding_backward(dy, saved):
    tokens, shape, padding_idx = saved
    dweight = np.zeros(shape, dtype=dy.dtype)
    np.add.at(dweight, tokens, dy)           # dweight[tokens] += dy would add once only
    if padding_idx is not None:
        dweight[padding_idx] = 0
    return (), {"weight": dweight}
