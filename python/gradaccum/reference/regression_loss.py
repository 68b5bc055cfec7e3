"""Losses that compare element by element; each element weighs 1 (times the weights that are given).

    mse_loss              l = (x - t)²                             dl/dx = 2 (x - t)
    l1_loss               l = |x - t|                              dl/dx = sign(x - t), 0 at x = t
    bce_with_logits_loss  l = -[a t log σ(x) + (1 - t) log(1 - σ(x))]       a: pos_weight, else 1

For the last, log σ(x) = -log(1 + exp(-x)) and log(1 - σ(x)) = -x - log(1 + exp(-x)), so

    l = (1 - t) x + q log(1 + exp(-x)),   q = 1 + (a - 1) t
    dl/dx = (1 - t) - q σ(-x)    as d/dx log(1 + exp(-x)) = -exp(-x) / (1 + exp(-x)) = -σ(-x)

and without pos_weight dl/dx = σ(x) - t. log(1 + exp(-x)) = max(-x, 0) + log(1 + exp(-|x|)) cannot
overflow.
"""
import numpy as np

from ._losses import element_weights, per_element, per_sample_sums
from .activation import logistic


def _in_float64(x, target, name):
    target = np.asarray(target)
    if target.shape != x.shape:
        raise ValueError(f"{name}: the target has shape {target.shape}, the prediction {x.shape}; "
                         "they must be equal, nothing is broadcast")
    return x.astype(np.float64), target.astype(np.float64)


def _sums(losses, slopes, x, sample_weight, per):
    """Losses and weights of the samples, and the gradient, from those of the elements."""
    given, factors = element_weights(sample_weight, x.shape)
    loss, weight, scale = per_sample_sums(given * losses, given, factors, per)
    d = slopes * given * per_element(scale, x.ndim)
    return (loss, weight), d.astype(x.dtype)


def mse_loss_forward(x, target, *, sample_weight=None, per="element"):
    """x and target (n, ...) of one shape -> losses and weights (n,) in float64."""
    a, t = _in_float64(x, target, "mse_loss")
    return _sums((a - t) ** 2, 2 * (a - t), x, sample_weight, per)


def mse_loss_backward(saved):
    return saved


def l1_loss_forward(x, target, *, sample_weight=None, per="element"):
    """x and target (n, ...) of one shape -> losses and weights (n,) in float64."""
    a, t = _in_float64(x, target, "l1_loss")
    return _sums(np.abs(a - t), np.sign(a - t), x, sample_weight, per)


def l1_loss_backward(saved):
    return saved


def bce_with_logits_loss_forward(x, target, *, sample_weight=None, per="element", pos_weight=None):
    """x and target (n, ...) of one shape, targets in [0, 1] -> losses and weights (n,) in float64.

    ``pos_weight`` is a number, or one a feature (last axis; of images (n, C, H, W), one a channel).
    """
    a, t = _in_float64(x, target, "bce_with_logits_loss")
    positive = np.asarray(1.0 if pos_weight is None else pos_weight, dtype=np.float64)
    if x.ndim == 4 and positive.ndim == 1:
        positive = positive.reshape(-1, 1, 1)
    q = 1 + (positive - 1) * t
    softplus = np.maximum(-a, 0) + np.log1p(np.exp(-np.abs(a)))
    return _sums((1 - t) * a + q * softplus, (1 - t) - q * logistic(-a), x, sample_weight, per)


def bce_with_logits_loss_backward(saved):
    return saved
