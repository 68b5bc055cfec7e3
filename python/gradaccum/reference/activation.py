"""Activations: a function f of one number, applied to every element.

Element i of y depends on element i of x only, so the chain rule is one product:

    y_i = f(x_i)        dx_i = dy_i f'(x_i)

    relu        max(x, 0)                             f' = 1 where x > 0, else 0
    leaky_relu  x if x > 0 else s x                   f' = 1 where x > 0, else s
    gelu        x Φ(x), Φ(x) = (1 + erf(x/√2)) / 2    f' = Φ(x) + x φ(x), φ(x) = exp(-x²/2) / √(2π)
    silu        x σ(x), σ(x) = 1 / (1 + exp(-x))      f' = σ(x) + x σ(x) (1 - σ(x))
    tanh        tanh x                                f' = 1 - tanh² x
    sigmoid     σ(x)                                  f' = σ(x) (1 - σ(x))

Φ is the distribution function of the normal distribution and φ its density, so Φ' = φ (Hendrycks,
Gimpel 2016, arXiv:1606.08415). approximate="tanh" takes, with u = √(2/π) (x + a x³) and a =
0.044715, x (1 + tanh u) / 2 instead; f' = (1 + tanh u) / 2 + x / 2 (1 - tanh² u) u' with u' =
√(2/π) (1 + 3 a x²). From σ(x) = 1 / (1 + exp(-x)): σ' = exp(-x) / (1 + exp(-x))² = σ (1 - σ).

At 0 the slope of relu is a choice: 0, as in PyTorch. tanh and sigmoid keep y, the others x.
"""
import math

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def logistic(x):
    """σ(x), in a form that cannot overflow: only exp of negative numbers is taken."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def relu_forward(x):
    """x of any shape -> y of the same shape, as all functions here."""
    return np.maximum(x, 0), x


def relu_backward(dy, x):
    return (np.where(x > 0, dy, 0),), {}


def leaky_relu_forward(x, *, negative_slope=0.01):
    return np.where(x > 0, x, negative_slope * x), (x, negative_slope)


def leaky_relu_backward(dy, saved):
    x, negative_slope = saved
    return (np.where(x > 0, dy, negative_slope * dy),), {}


def gelu_forward(x, *, approximate="none"):
    if approximate == "none":
        y = x * (1 + _erf(x / math.sqrt(2))) / 2
    elif approximate == "tanh":
        y = x * (1 + np.tanh(_SQRT_2_OVER_PI * (x + _CUBIC * x**3))) / 2
    else:
        raise ValueError(f'gelu: approximate={approximate!r}, expected "none" or "tanh"')
    return y.astype(x.dtype), (x, approximate)


def gelu_backward(dy, saved):
    x, approximate = saved
    if approximate == "none":
        density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        slope = (1 + _erf(x / math.sqrt(2))) / 2 + x * density
    else:
        t = np.tanh(_SQRT_2_OVER_PI * (x + _CUBIC * x**3))
        du = _SQRT_2_OVER_PI * (1 + 3 * _CUBIC * x * x)
        slope = (1 + t) / 2 + x / 2 * (1 - t * t) * du
    return ((dy * slope).astype(x.dtype),), {}


def silu_forward(x):
    return x * logistic(x), x


def silu_backward(dy, x):
    s = logistic(x)
    return (dy * (s + x * s * (1 - s)),), {}


def tanh_forward(x):
    y = np.tanh(x)
    return y, y


def tanh_backward(dy, y):
    return (dy * (1 - y * y),), {}


def sigmoid_forward(x):
    y = logistic(x)
    return y, y


def sigmoid_backward(dy, y):
    return (dy * y * (1 - y),), {}
