"""Losses that compare element by element; each element weighs 1.

    mse_loss              (x - t)²                                 2 (x - t)
    l1_loss               |x - t|                                  sign(x - t)
    bce_with_logits_loss  (1 - t) x + q log(1 + exp(-x))           (1 - t) - q / (1 + exp(x)),   q = 1 + (pos_weight - 1) t

The last is -[pos_weight t log σ(x) + (1 - t) log(1 - σ(x))] with both logarithms written so that they cannot overflow.
"""
import numpy as np

from ._losses import element_weights, per_sample_sums


def _sums(losses, slopes, x, sample_weight, per):
    given, factors = element_weights(sample_weight, x.shape)
    loss, total, scale = per_sample_sums(given * losses, given, factors, per)
    d = slopes * given * scale.reshape(-1, *[1] * (x.ndim - 1))
    return (loss, total), d.astype(x.dtype)


def mse_loss_forward(x, target, *, sample_weight=None, per="element"):
    d = x.astype(np.float64) - target
    return _sums(d * d, 2 * d, x, sample_weight, per)


def mse_loss_backward(saved):
    return saved


def l1_loss_forward(x, target, *, sample_weight=None, per="element"):
    d = x.astype(np.float64) - target
    return _sums(np.abs(d), np.sign(d), x, sample_weight, per)


def l1_loss_backward(saved):
    return saved


def bce_with_logits_loss_forward(x, target, *, sample_weight=None, per="element", pos_weight=None):
    z, t = x.astype(np.float64), np.asarray(target, dtype=np.float64)
    pw = 1.0 if pos_weight is None else np.asarray(pos_weight, dtype=np.float64)
    if z.ndim == 4 and pos_weight is not None:
        pw = pw.reshape(-1, 1, 1)                            # one a channel
    q = 1 + (pw - 1) * t
    softplus = np.maximum(-z, 0) + np.log1p(np.exp(-np.abs(z)))
    slope = (1 - t) - q * np.where(z > 0, np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))), 1 / (1 + np.exp(-np.abs(z))))
    return _sums((1 - t) * z + q * softplus, slope, x, sample_weight, per)


def bce_with_logits_loss_backward(saved):
    return saved
