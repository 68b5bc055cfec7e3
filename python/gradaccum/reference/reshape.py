"""Flatten and Identity: the same numbers in the same order, so the gradients are, too.

    y_i = x_i        dx_i = dy_i
"""
import math


def flatten_forward(x):
    """x (n, ...) -> y (n, features), in row-major order (images: channel by channel)."""
    return x.reshape(len(x), math.prod(x.shape[1:])), x.shape


def flatten_backward(dy, shape):
    return (dy.reshape(shape),), {}


def identity_forward(x):
    """x -> x."""
    return x, None


def identity_backward(dy, saved):
    return (dy,), {}
