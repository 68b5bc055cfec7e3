"""A parameter of a model: its shape and how it starts. The numbers themselves live in the planned network."""
from __future__ import annotations

import math

import numpy as np


class Parameter:
    """Shape and initial value of a parameter.

    Args:
        shape_or_array: sizes as PyTorch has them, or an array of initial values.
        init: ``init(rng, shape) -> array``; zeros if not given. Ignored for an array.
        requires_grad: False keeps the parameter as it is: backward skips it, the optimizer leaves it alone.

    Assigning the same Parameter to two modules ties them: they share the numbers and the gradient.
    """

    def __init__(self, shape_or_array, init=None, requires_grad: bool = True):
        if isinstance(shape_or_array, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in shape_or_array):
            self.shape = tuple(int(n) for n in shape_or_array)
            self.init = init or zeros
        else:
            array = np.array(shape_or_array, dtype=np.float64)
            self.shape = array.shape
            self.init = lambda rng, shape: array
        self.requires_grad = requires_grad
        self._bound = None                                   # arrays of the network, inside an nn.Function

    @property
    def data(self) -> np.ndarray:
        """The numbers, inside the forward and backward of an ``nn.Function``."""
        return self._array(0)

    @property
    def grad(self) -> np.ndarray:
        """The gradient to add to (``+=``), inside the backward of an ``nn.Function``; None if frozen."""
        return self._array(1)

    def _array(self, which):
        if self._bound is None:
            raise AttributeError(
                "a Parameter of a module has no numbers: they live in the planned network, "
                "net.parameters()[name].data and .grad (or, for nn.Function, inside forward and backward)"
            )
        return self._bound[which]

    def __repr__(self):
        return f"Parameter{self.shape}"


def zeros(rng, shape):
    """All 0."""
    return np.zeros(shape)


def ones(rng, shape):
    """All 1."""
    return np.ones(shape)


def uniform(bound: float):
    """Uniform in [-bound, bound]."""
    return lambda rng, shape: rng.uniform(-bound, bound, shape)


def normal(std: float):
    """Normal with mean 0."""
    return lambda rng, shape: rng.normal(0.0, std, shape)


def fan_in_uniform(fan_in: int):
    """PyTorch's default for linear and convolution weights and biases: uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)].

    That is kaiming_uniform_ with a = sqrt(5) (He et al. 2015): gain sqrt(2 / (1 + 5)), bound gain * sqrt(3 / fan_in).
    """
    return uniform(1 / math.sqrt(fan_in) if fan_in > 0 else 0.0)
