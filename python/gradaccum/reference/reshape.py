"""Flatten, (n, C, H, W) or (n, T, C) to (n, features), and Identity."""


def flatten_forward(x):
    return x.reshape(len(x), -1), x.shape


def flatten_backward(dy, shape):
    return (dy.reshape(shape),), {}


def identity_forward(x):
    return x, None


def identity_backward(dy, saved):
    return (dy,), {}
