"""Activations: functions of one number, applied to every element. Backward multiplies by the derivative.

    relu       max(x, 0)                             1 where x > 0, else 0
    leaky_relu x if x > 0 else s x                   1 where x > 0, else s
    gelu       x Φ(x), Φ(x) = (1 + erf(x/√2)) / 2    Φ(x) + x φ(x), φ(x) = exp(-x²/2) / √(2π)       (Hendrycks, Gimpel 2016)
    silu       x σ(x), σ(x) = 1 / (1 + exp(-x))      σ(x) (1 + x (1 - σ(x)))
    tanh       tanh x                                1 - tanh² x
    sigmoid    σ(x)                                  σ(x) (1 - σ(x))
"""
import math

import numpy as np

_erf = np.vectorize(math.erf, otypes=[float])


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def relu_forward(x):
    return np.maximum(x, 0), x


def relu_backward(dy, x):
    return (dy * (x > 0),), {}


def leaky_relu_forward(x, *, negative_slope=0.01):
    return np.where(x > 0, x, negative_slope * x), (x, negative_slope)


def leaky_relu_backward(dy, saved):
    x, slope = saved
    return (dy * np.where(x > 0, 1, slope),), {}


def gelu_forward(x, *, approximate="none"):
    if approximate == "none":
        return x * (1 + _erf(x / math.sqrt(2))) / 2, (x, approximate)
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * (1 + np.tanh(u)) / 2, (x, approximate)


def gelu_backward(dy, saved):
    x, approximate = saved
    if approximate == "none":
        slope = (1 + _erf(x / math.sqrt(2))) / 2 + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    else:
        t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        slope = (1 + t) / 2 + x / 2 * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    return (dy * slope,), {}


def silu_forward(x):
    return x * _sigmoid(x), x


def silu_backward(dy, x):
    s = _sigmoid(x)
    return (dy * s * (1 + x * (1 - s)),), {}


def tanh_forward(x):
    y = np.tanh(x)
    return y, y


def tanh_backward(dy, y):
    return (dy * (1 - y * y),), {}


def sigmoid_forward(x):
    y = _sigmoid(x)
    return y, y


def sigmoid_backward(dy, y):
    return (dy * y * (1 - y),), {}
