"""Layers without parameters as functions on symbols, for use in ``forward``."""
from __future__ import annotations

from . import activation, dropout as _dropout, image, linear


def _function(layer, name):
    def call(x, *args, **kwargs):
        return layer(*args, **kwargs)(x)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``nn.{layer.__name__}(...)(x)``."
    return call


relu = _function(activation.ReLU, "relu")
leaky_relu = _function(activation.LeakyReLU, "leaky_relu")
gelu = _function(activation.GELU, "gelu")
silu = _function(activation.SiLU, "silu")
tanh = _function(activation.Tanh, "tanh")
sigmoid = _function(activation.Sigmoid, "sigmoid")
softmax = _function(activation.Softmax, "softmax")
dropout = _function(_dropout.Dropout, "dropout")
flatten = _function(linear.Flatten, "flatten")
max_pool2d = _function(image.MaxPool2d, "max_pool2d")
avg_pool2d = _function(image.AvgPool2d, "avg_pool2d")


def cat(inputs):
    """``nn.Cat()(*inputs)``: a list of symbols along the channels (features)."""
    return image.Cat()(*inputs)
