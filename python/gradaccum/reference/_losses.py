"""What the losses share: given weights, and counting by element or by sample."""
import numpy as np


def element_weights(sample_weight, shape):
    """Weight of each target element of (n, ...) from None, (n,) or ``shape``; and the factor of each sample."""
    n = shape[0]
    if sample_weight is None:
        return np.ones(shape), np.ones(n)
    sample_weight = np.asarray(sample_weight, dtype=np.float64)
    if sample_weight.ndim == 1:
        return np.ones(shape), sample_weight
    return sample_weight, np.ones(n)


def per_sample_sums(losses, weights, factors, per):
    """Sums per sample, and what each element's gradient is multiplied by.

    per="element": a sample adds its weighted losses and its weights. per="sample": it counts as one.
    """
    n = len(losses)
    loss, weight = losses.reshape(n, -1).sum(axis=1), weights.reshape(n, -1).sum(axis=1)
    if per == "element":
        return loss * factors, weight * factors, factors
    counts = weight > 0
    scale = np.where(counts, factors / np.where(counts, weight, 1), 0)
    return loss * scale, np.where(counts, factors, 0), scale
