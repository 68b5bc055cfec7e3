"""Multi-head self-attention: every token looks at the others and takes a mean of what they hold.

Vaswani et al. 2017, arXiv:1706.03762. For one sample x (T, E) and one head with D = E / heads:

    q, k, v = x Wqᵀ + bq, x Wkᵀ + bk, x Wvᵀ + bv      (T, D) each: question, label, content
    S_ij = q_i · k_j / √D                             how well j answers i; -∞ if hidden
    P = softmax(S) over j,   o = P v                  weights that sum to 1; weighted mean
    y = [o of head 1, ..., o of head h] Woutᵀ + bout

``in_proj_weight`` (3 E, E) holds Wq, Wk, Wv of all heads, one below the other. Why √D: a sum of D
products of independent numbers with variance 1 has variance D.

Backward, one line per line above, from the last (softmax and linear as derived in their files):

    do = dy Wout                                      cut into heads
    dv = Pᵀ do,   dP = do vᵀ                          o is linear in P and in v
    dS_ij = P_ij (dP_ij - Σ_l dP_il P_il)             0 where hidden, since P is 0 there
    dq = dS k / √D,   dk = dSᵀ q / √D                 S is linear in q and in k
    dx = [dq dk dv] W_in                              three uses of x: their gradients add

Dropout multiplies P by 0 or 1 / (1 - p) before it meets v. Here P is an array of T x T numbers a
head; the C code never has more than a block of its rows.
"""
import math

import numpy as np

from .linear import linear_backward, linear_forward
from .random import random_elements, random_stream, random_substream


def attention_mask(samples, heads, steps, p, seed, update, layer, sample0):
    """0 or 1 / (1 - p), (n, heads, T, T): a stream per sample, head and query."""
    if p == 1:
        return np.zeros((samples, heads, steps, steps))
    mask = np.empty((samples, heads, steps, steps))
    for s, h, i in np.ndindex(samples, heads, steps):
        stream = random_substream(random_stream(seed, update, layer, sample0 + s), h << 32 | i)
        dropped = random_elements(stream, steps) < int(p * 2**32)
        mask[s, h, i] = np.where(dropped, 0.0, 1 / (1 - p))
    return mask


def multihead_attention_forward(x, lengths=None, *, num_heads, in_proj_weight, out_proj_weight,
                                in_proj_bias=None, out_proj_bias=None, key_padding_mask=None,
                                causal=False, dropout=0.0, training=True, seed=0, update=0, layer=0,
                                sample0=0):
    """x (n, T, E) -> y (n, T, E), as torch.nn.MultiheadAttention(..., batch_first=True)(x, x, x).

    Args:
        lengths: (n,) of integers; tokens from there on are hidden from all.
        key_padding_mask: the same in general, (n, T) of bool; True hides the token, as in PyTorch.
        in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias: (3 E, E), (3 E,), (E, E),
            (E,); gradients of the last two are called ``out_proj.weight`` and ``out_proj.bias``.
        causal: token i sees tokens 0 ... i only.
        dropout: probability that a weight P_ij becomes 0.

    A token from which everything is hidden has P = 0, so y = out_proj_bias. (PyTorch gives this or
    nan, depending on the kernel it chooses.) P is the fifth entry of ``saved``.
    """
    n, steps, width = x.shape
    if width % num_heads:
        raise ValueError(f"multihead_attention: num_heads={num_heads} does not divide the {width} "
                         "features")
    qkv, saved_in = linear_forward(x, weight=in_proj_weight, bias=in_proj_bias)
    q, k, v = (_heads(part, num_heads) for part in np.split(qkv, 3, axis=-1))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(width // num_heads)
    p = _softmax_of_seen(scores, _hidden(n, steps, lengths, key_padding_mask, causal))
    mask = np.ones_like(p)
    if training and dropout > 0:
        mask = attention_mask(n, num_heads, steps, dropout, seed, update, layer, sample0)
        mask = mask.astype(x.dtype)
    o = (p * mask) @ v
    y, saved_out = linear_forward(_join(o), weight=out_proj_weight, bias=out_proj_bias)
    return y, (saved_in, q, k, v, p, mask, saved_out)


def multihead_attention_backward(dy, saved):
    saved_in, q, k, v, p, mask, saved_out = saved
    heads, root = q.shape[1], math.sqrt(q.shape[-1])
    (do,), d_out = linear_backward(dy, saved_out)
    do = _heads(do, heads)
    dv = (p * mask).swapaxes(-1, -2) @ do
    dp = do @ v.swapaxes(-1, -2) * mask
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True))
    dq, dk = ds @ k / root, ds.swapaxes(-1, -2) @ q / root
    dqkv = np.concatenate([_join(dq), _join(dk), _join(dv)], axis=-1)
    (dx,), d_in = linear_backward(dqkv, saved_in)
    dparams = {f"in_proj_{name}": gradient for name, gradient in d_in.items()}
    dparams |= {f"out_proj.{name}": gradient for name, gradient in d_out.items()}
    return (dx,), dparams


def _heads(a, num_heads):
    """(n, T, E) -> (n, heads, T, D)."""
    n, steps, width = a.shape
    return a.reshape(n, steps, num_heads, width // num_heads).swapaxes(1, 2)


def _join(a):
    """(n, heads, T, D) -> (n, T, E)."""
    n, heads, steps, size = a.shape
    return a.swapaxes(1, 2).reshape(n, steps, heads * size)


def _hidden(n, steps, lengths, key_padding_mask, causal):
    """(n, 1, T, T) of bool: True where token i (axis 2) must not see token j (axis 3)."""
    hidden = np.zeros((n, 1, steps, steps), dtype=bool)
    if causal:
        hidden |= np.triu(np.ones((steps, steps), dtype=bool), k=1)
    if lengths is not None:
        lengths = np.asarray(lengths)
        if lengths.shape != (n,):
            raise ValueError(f"multihead_attention: lengths has shape {lengths.shape}, expected "
                             f"({n},): one number of tokens a sample")
        hidden |= (np.arange(steps) >= lengths[:, None])[:, None, None, :]
    if key_padding_mask is not None:
        key_padding_mask = np.asarray(key_padding_mask)
        if key_padding_mask.shape != (n, steps):
            raise ValueError("multihead_attention: key_padding_mask has shape "
                             f"{key_padding_mask.shape}, expected {(n, steps)}: one True (hidden) "
                             "or False a token")
        hidden |= key_padding_mask.astype(bool)[:, None, None, :]
    return hidden


def _softmax_of_seen(scores, hidden):
    """Softmax over the last axis of what is not hidden; 0 where hidden."""
    scores = np.where(hidden, -np.inf, scores)
    top = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(top > -np.inf, top, 0))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total > 0, total, 1)
