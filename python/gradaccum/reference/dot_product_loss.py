"""The loss whose gradient is its target.

    l = Σ_i x_i t_i over the elements of a sample; a sample weighs 1            dl/dx = t

So t is the gradient that backward starts from: one that was worked out elsewhere, such as that of a
loss that couples the samples of a batch (``gradaccum.losses``).
"""
from ._losses import element_weights, per_element
from .regression_loss import _in_float64


def dot_product_loss_forward(x, target, *, sample_weight=None):
    """x and target (n, ...) of one shape -> losses and weights (n,) in float64."""
    a, t = _in_float64(x, target, "dot_product_loss")
    given, factors = element_weights(sample_weight, x.shape)
    n = len(x)
    counts = (given.reshape(n, -1) > 0).any(axis=1)
    loss = (given * a * t).reshape(n, -1).sum(axis=1) * factors
    slopes = t * given * per_element(factors, x.ndim)
    return (loss, counts * factors), slopes.astype(x.dtype)


def dot_product_loss_backward(saved):
    return saved
