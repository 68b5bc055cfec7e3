"""Cross entropy of logits x with the class y, for each target element:

    p_c = exp(x_c) / Σ_j exp(x_j)
    l   = w_y (1 - e) (-log p_y) + e / C Σ_c w_c (-log p_c)          weight w_y
    dl/dx_c = w_y (1 - e) (p_c - [c = y]) + e / C (p_c Σ_j w_j - w_c)

w: class weights, e: label smoothing. Targets equal to ``ignore_index`` have loss 0 and weight 0. As torch.nn.CrossEntropyLoss, but
sums instead of a mean: the mean of several micro-batches' means is not the mean of all (see ``window``).
"""
import numpy as np

from ._losses import element_weights, per_sample_sums


def cross_entropy_loss_forward(x, target, *, sample_weight=None, per="element", weight=None, ignore_index=-100, label_smoothing=0.0):
    """x: (n, C), (n, T, C) or (n, C, H, W); target: (n,), (n, T) or (n, H, W)."""
    axis = 1 if x.ndim == 4 else -1
    logits = np.moveaxis(x, axis, -1).astype(np.float64)
    classes = logits.shape[-1]
    w = np.ones(classes) if weight is None else np.asarray(weight, dtype=np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    counted = target != ignore_index
    y = np.where(counted, target, 0)
    given, factors = element_weights(sample_weight, target.shape)
    given = given * counted
    hit = np.take_along_axis(log_p, y[..., None], axis=-1)[..., 0]
    losses = given * (-(1 - label_smoothing) * w[y] * hit - label_smoothing / classes * (w * log_p).sum(axis=-1))
    loss, total, scale = per_sample_sums(losses, given * w[y], factors, per)
    return (loss, total), (x.dtype, axis, log_p, y, given, w, label_smoothing, scale)


def cross_entropy_loss_backward(saved):
    dtype, axis, log_p, y, given, w, e, scale = saved
    classes = log_p.shape[-1]
    p, one_hot = np.exp(log_p), np.eye(classes)[y]
    d = w[y][..., None] * (1 - e) * (p - one_hot) + e / classes * (p * w.sum() - w)
    d = d * (given * scale.reshape(-1, *[1] * (given.ndim - 1)))[..., None]
    return np.moveaxis(d, -1, axis).astype(dtype)
