"""Sharpness-aware minimisation: step downhill from the worst point nearby (Foret et al. 2021,
arXiv:2010.01412).

SAM looks for weights whose whole neighbourhood has a small loss: min over w of the max over
|e| <= ρ of L(w + e). To first order L(w + e) = L(w) + e·g, largest for e along g, so

    e = ρ g / |g|                          g: gradient of the window at w, |g| over all parameters
    w ← step(w, gradient at w + e)         the step of any optimizer, from w

The length ρ says little if the parameters have different scales: doubling the weights of one layer
and halving those of the next changes no output of a ReLU network, but the ball. Adaptive SAM (Kwon
et al. 2021, arXiv:2102.11600) measures e relative to w, |e / w| <= ρ, elementwise. With e = |w| u,
|u| <= ρ and g·e = (|w| g)·u the best u is ρ |w| g / |w g|, so

    e = ρ w² g / |w g|

Both take the gradient of the whole window at w. With the gradient of one micro-batch in its place
they are another method: a different e for each micro-batch (m-sharpness).
"""
import math

import numpy as np


def sam_perturbation(params, grads, *, rho=0.05, adaptive=False):
    """List of e, one array a parameter; 0 where the gradient is."""
    if adaptive:
        scaled = [np.abs(w) * g for w, g in zip(params, grads)]
    else:
        scaled = grads
    norm = math.sqrt(sum(float(np.square(s, dtype=np.float64).sum()) for s in scaled))
    if norm == 0:
        return [np.zeros_like(w) for w in params]
    if adaptive:
        return [rho * np.abs(w) * s / norm for w, s in zip(params, scaled)]
    return [rho * s / norm for s in scaled]


def sam_step(params, gradient, step, *, rho=0.05, adaptive=False):
    """New parameters.

    ``gradient(params)`` is the gradient of the whole window at any point, a list of arrays;
    ``step(params, grads)`` the optimizer's.
    """
    e = sam_perturbation(params, gradient(params), rho=rho, adaptive=adaptive)
    return step(params, gradient([w + d for w, d in zip(params, e)]))
