"""Batch normalisation: each channel minus its mean, over its standard deviation.

Ioffe, Szegedy 2015, arXiv:1502.03167.

    m = mean(x), v = mean((x - m)²) of a channel, over samples and pixels
    h = (x - m) / √(v + ε),   y = w h + b

Backward (``_standardize`` derives the last line): y is linear in w, b and h, so

    dw = Σ dy h,   db = Σ dy,   dh = w dy
    dx = (dh - mean(dh) - h mean(dh h)) / √(v + ε)

m and v belong to the micro-batch, so a split changes y: this is the layer that accumulation does
not leave alone. In evaluation m and v are the running statistics, constants, and dx = dh / √(v +
ε).

Running statistics: r ← (1 - momentum) r + momentum m, and the same with the unbiased variance v N /
(N - 1), N being the number of values of a channel.

Ghost batch normalisation (Hoffer, Hubara, Soudry 2017, arXiv:1705.08741) normalises each group of
``virtual_batch_size`` samples by itself. If micro-batches are multiples of it, no split changes y.

Pooling moments: two groups with (n, mean, M2 = Σ (x - mean)²) have together

    n = n₁ + n₂,   mean = (n₁ mean₁ + n₂ mean₂) / n,   M2 = M2₁ + M2₂ + (mean₂ - mean₁)² n₁ n₂ / n

(Chan, Golub, LeVeque 1979). The last term is what the mean of variances forgets, the distance of
the groups: {0, 2} and {10, 12} have the variances 1 and 1, but together 26.
"""
import numpy as np

from ._standardize import (scale_and_shift, scale_and_shift_backward, standardize,
                           standardize_backward)


def _axes(x):
    """All axes but the channels."""
    return (0, *range(2, x.ndim))


def _column(a, x):
    """a (C,) shaped so that it fits the channels of x."""
    return None if a is None else a.reshape(1, -1, *[1] * (x.ndim - 2))


def batch_norm_forward(x, *, weight=None, bias=None, running_mean=None, running_var=None,
                       momentum=0.1, eps=1e-5, training=True):
    """x (n, C) or (n, C, H, W), all others (C,) -> y of x's shape.

    The last two entries of ``saved`` are the new running mean and variance (the old arrays are not
    changed). ValueError if training with one value per channel: it has no variance.
    """
    axes = _axes(x)
    count = x.size // x.shape[1]
    if training:
        if count < 2:
            raise ValueError(f"batch_norm: x has shape {x.shape}, one value per channel, so there "
                             "is no variance; use more samples, or training=False")
        h, s = standardize(x, axes, eps)
        if running_mean is not None:
            unbiased = x.var(axis=axes) * (count / (count - 1))
            running_mean = (1 - momentum) * running_mean + momentum * x.mean(axis=axes)
            running_var = (1 - momentum) * running_var + momentum * unbiased
    else:
        s = np.sqrt(_column(running_var, x) + eps)
        h = (x - _column(running_mean, x)) / s
    weight, bias = _column(weight, x), _column(bias, x)
    y = scale_and_shift(h, weight, bias)
    return y, (h, s, weight, bias, training, running_mean, running_var)


def batch_norm_backward(dy, saved):
    h, s, weight, bias, training, *_ = saved
    dh, dparams = scale_and_shift_backward(dy, h, weight, bias, _axes(h))
    dx = standardize_backward(dh, h, s, _axes(h)) if training else dh / s
    return (dx,), dparams


def ghost_batch_norm_forward(x, *, virtual_batch_size, weight=None, bias=None, running_mean=None,
                             running_var=None, momentum=0.1, eps=1e-5, training=True):
    """Batch normalisation of each ``virtual_batch_size`` samples; ``saved`` ends as above.

    ValueError if the samples cannot be cut into such groups. In evaluation there are no groups.
    """
    if training and len(x) % virtual_batch_size:
        raise ValueError(f"ghost_batch_norm: {len(x)} samples cannot be cut into ghosts of "
                         f"virtual_batch_size={virtual_batch_size}")
    outputs, ghosts = [], []
    for start in range(0, len(x), virtual_batch_size):
        y, saved = batch_norm_forward(x[start:start + virtual_batch_size], weight=weight, bias=bias,
                                      running_mean=running_mean, running_var=running_var,
                                      momentum=momentum, eps=eps, training=training)
        running_mean, running_var = saved[-2:]
        outputs.append(y)
        ghosts.append(saved)
    return np.concatenate(outputs), (ghosts, running_mean, running_var)


def ghost_batch_norm_backward(dy, saved):
    ghosts, *_ = saved
    dxs, dparams, start = [], {}, 0
    for ghost in ghosts:
        stop = start + len(ghost[0])
        (dx,), gradients = batch_norm_backward(dy[start:stop], ghost)
        dxs.append(dx)
        for name, gradient in gradients.items():             # all ghosts use the same w and b
            dparams[name] = dparams.get(name, 0) + gradient
        start = stop
    return (np.concatenate(dxs),), dparams


def pooled_moments(moments):
    """(n, mean, M2) of the union of groups that are given as (n, mean, M2)."""
    n, mean, m2 = moments[0]
    for other_n, other_mean, other_m2 in moments[1:]:
        total = n + other_n
        distance = other_mean - mean
        mean = mean + distance * other_n / total
        m2 = m2 + other_m2 + distance * distance * n * other_n / total
        n = total
    return n, mean, m2
