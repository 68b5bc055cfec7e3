"""Batch normalisation: each channel minus its mean, over its standard deviation (Ioffe, Szegedy 2015).

    m = mean(x), v = mean((x - m)²) over samples and pixels;  x' = (x - m) / √(v + ε);  y = w x' + b
    dx = w / √(v + ε) (dy - mean(dy) - x' mean(dy x'))

m and v belong to the micro-batch, so a split changes y: this is the layer that accumulation does not leave alone. In evaluation m and
v are running statistics, constants, and dx = w dy / √(v + ε).

Pooling moments: two groups with (n, mean, M2 = Σ(x - mean)²) make one with n = n₁ + n₂, mean = (n₁ mean₁ + n₂ mean₂) / n and
M2 = M2₁ + M2₂ + (mean₂ - mean₁)² n₁ n₂ / n (Chan, Golub, LeVeque 1979). {0, 2} and {10, 12} have variances 1 and 1, pooled 26.
"""
import numpy as np


def _axes(x):
    return (0, 2, 3) if x.ndim == 4 else (0,)


def _column(a, x):
    return a.reshape(1, -1, 1, 1) if x.ndim == 4 else a


def batch_norm_forward(x, *, weight=None, bias=None, running_mean=None, running_var=None, momentum=0.1, eps=1e-5, training=True):
    """New running statistics are the last two entries of ``saved``."""
    n = x.size // x.shape[1]
    mean, var = (x.mean(axis=_axes(x)), x.var(axis=_axes(x))) if training else (running_mean, running_var)
    if training and running_mean is not None:
        running_mean = (1 - momentum) * running_mean + momentum * mean
        running_var = (1 - momentum) * running_var + momentum * var * n / (n - 1)            # unbiased
    scale = 1 / np.sqrt(var + eps)
    h = (x - _column(mean, x)) * _column(scale, x)
    y = h if weight is None else h * _column(weight, x) + _column(bias, x)
    return y, (h, scale, weight, training, running_mean, running_var)


def batch_norm_backward(dy, saved):
    h, scale, weight, training, *_ = saved
    axes = _axes(h)
    gradients = {} if weight is None else {"weight": (dy * h).sum(axis=axes), "bias": dy.sum(axis=axes)}
    d = dy
    if training:
        d = d - dy.mean(axis=axes, keepdims=True) - h * (dy * h).mean(axis=axes, keepdims=True)
    return (d * _column(scale if weight is None else scale * weight, h),), gradients


def ghost_batch_norm_forward(x, *, virtual_batch_size, weight=None, bias=None, running_mean=None, running_var=None, momentum=0.1, eps=1e-5,
                             training=True):
    """Batch normalisation of each group of ``virtual_batch_size`` samples by itself (Hoffer et al. 2017)."""
    parts = []
    for i in range(0, len(x), virtual_batch_size):
        part = batch_norm_forward(x[i:i + virtual_batch_size], weight=weight, bias=bias, running_mean=running_mean, running_var=running_var,
                                  momentum=momentum, eps=eps, training=training)
        running_mean, running_var = part[1][-2:]
        parts.append(part)
    return np.concatenate([y for y, _ in parts]), [saved for _, saved in parts]


def ghost_batch_norm_backward(dy, saved):
    results, start = [], 0
    for part in saved:
        n = len(part[0])
        results.append(batch_norm_backward(dy[start:start + n], part))
        start += n
    names = results[0][1]
    return (np.concatenate([r[0][0] for r in results]),), {name: sum(r[1][name] for r in results) for name in names}


def pooled_moments(groups):
    """(n, mean, M2) of the union of groups given as (n, mean, M2)."""
    n, mean, m2 = groups[0]
    for k, other, other_m2 in groups[1:]:
        d = other - mean
        m2 = m2 + other_m2 + d * d * n * k / (n + k)
        mean = mean + d * k / (n + k)
        n = n + k
    return n, mean, m2
