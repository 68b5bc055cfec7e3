"""What the losses share: given weights, and counting by element or by sample.

A sample has target elements e (tokens, pixels, outputs) with losses l_e and weights w_e; f is the
factor of the whole sample, if weights (n,) are given.

    per="element"   loss = f Σ_e l_e             weight = f Σ_e w_e        elements count alike
    per="sample"    loss = f Σ_e l_e / Σ_e w_e   weight = f                samples count alike

(0 and 0 for a sample without counted elements.) In both cases the loss of the batch is the sum of
losses over the sum of weights, and only the window divides. The l_e are already multiplied by what
their element weighs, so the gradient of a sample is that of its l_e times f, or f / Σ_e w_e.
"""
import numpy as np


def element_weights(sample_weight, shape):
    """Weight of each target element, of ``shape`` = (n, ...), and factor (n,) of each sample.

    ``sample_weight`` is None, (n,), or of the target's shape.
    """
    n = shape[0]
    if sample_weight is None:
        return np.ones(shape), np.ones(n)
    sample_weight = np.asarray(sample_weight, dtype=np.float64)
    if sample_weight.shape == (n,):
        return np.ones(shape), sample_weight
    if sample_weight.shape == tuple(shape):
        return sample_weight, np.ones(n)
    raise ValueError(f"sample_weight has shape {sample_weight.shape}, expected ({n},), one weight "
                     f"a sample, or {tuple(shape)}, one a target element")


def per_sample_sums(losses, weights, factors, per):
    """(loss (n,), weight (n,), scale (n,)): sums, and what multiplies gradients."""
    if per not in ("element", "sample"):
        raise ValueError(f'per={per!r}, expected "element" (each element counts alike) or "sample"')
    n = len(losses)
    loss, weight = losses.reshape(n, -1).sum(axis=1), weights.reshape(n, -1).sum(axis=1)
    if per == "element":
        return loss * factors, weight * factors, factors
    counts = weight > 0
    scale = np.where(counts, factors / np.where(counts, weight, 1), 0)
    return loss * scale, np.where(counts, factors, 0), scale


def per_element(scale, ndim):
    """scale (n,) as (n, 1, ..., 1), to multiply an array of ``ndim`` axes."""
    return scale.reshape(-1, *[1] * (ndim - 1))


def first_index(wrong):
    """Where the first True of an array is, for an error message."""
    return tuple(int(i) for i in np.argwhere(wrong)[0])
