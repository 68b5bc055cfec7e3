"""Self-attention: each step of a sequence takes a weighted mean of all steps it may see (Vaswani et al. 2017, section 3.2).

    [q k v] = x W_inᵀ + b_in, cut into heads;   s_ij = q_i · k_j / √(head size),   p_i = softmax(s_i) over what i sees,   o_i = Σ_j p_ij v_j
    y = [heads side by side] W_outᵀ + b_out

With dP = dO Vᵀ, softmax gives dS = P (dP - Σ_j dP P), so dQ = dS K / √size, dK = dSᵀ Q / √size, dV = Pᵀ dO. Dropout multiplies P by 0 or
1 / (1 - p) before it meets V. Here P is an array of T x T numbers a head; the C code never has more than a block of its rows.
"""
import numpy as np

from .random import _GOLDEN, _MASK, _mix, random_elements, random_stream


def attention_mask(samples, heads, steps, p, seed, update, layer, sample0):
    """Factors 0 or 1 / (1 - p), (n, heads, T, T): a stream for each sample, head and query; the keys are its elements."""
    threshold, keep = min(int(p * 2**32), 2**32 - 1), 1 / (1 - p) if p < 1 else 0.0
    mask = np.empty((samples, heads, steps, steps))
    for s in range(samples):
        stream = random_stream(seed, update, layer, sample0 + s)
        for h in range(heads):
            for i in range(steps):
                mask[s, h, i] = np.where(random_elements(_mix(stream + _GOLDEN + (h << 32 | i) & _MASK), steps) < threshold, 0.0, keep)
    return mask


def multihead_attention_forward(x, lengths=None, *, num_heads, in_proj_weight, out_proj_weight, in_proj_bias=None, out_proj_bias=None, causal=False,
                                dropout=0.0, training=True, seed=0, update=0, layer=0, sample0=0):
    """x (n, T, C); lengths (n,) hides the keys from there on; weights (3 C, C) and (C, C)."""
    n, steps, features = x.shape
    heads = lambda a: a.reshape(n, steps, num_heads, -1).swapaxes(1, 2)  # noqa: E731
    q, k, v = (heads(part) for part in np.split(x @ in_proj_weight.T + (0 if in_proj_bias is None else in_proj_bias), 3, axis=-1))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(steps, dtype=bool), scores, -np.inf)
    if lengths is not None:
        scores = np.where((np.arange(steps) < np.asarray(lengths)[:, None])[:, None, None, :], scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = p / p.sum(axis=-1, keepdims=True)
    mask = attention_mask(n, num_heads, steps, dropout, seed, update, layer, sample0) if training and dropout > 0 else 1
    o = ((p * mask) @ v).swapaxes(1, 2).reshape(x.shape)
    y = o @ out_proj_weight.T + (0 if out_proj_bias is None else out_proj_bias)
    return y.astype(x.dtype), (x, q, k, v, p, mask, o, in_proj_weight, out_proj_weight, in_proj_bias is not None)


def multihead_attention_backward(dy, saved):
    x, q, k, v, p, mask, o, w_in, w_out, biased = saved
    n, num_heads, steps, size = q.shape
    d_o = (dy @ w_out).reshape(n, steps, num_heads, size).swapaxes(1, 2)
    dp = d_o @ v.swapaxes(2, 3) * mask
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) / np.sqrt(size)
    d_heads = [ds @ k, ds.swapaxes(2, 3) @ q, (p * mask).swapaxes(2, 3) @ d_o]
    d_qkv = np.concatenate([d.swapaxes(1, 2).reshape(x.shape) for d in d_heads], axis=-1)
    rows = lambda a: a.reshape(-1, a.shape[-1])  # noqa: E731
    gradients = {"in_proj_weight": rows(d_qkv).T @ rows(x), "out_proj.weight": rows(dy).T @ rows(o)}
    if biased:
        gradients |= {"in_proj_bias": rows(d_qkv).sum(axis=0), "out_proj.bias": rows(dy).sum(axis=0)}
    return (d_qkv @ w_in,), gradients
