"""Add, the residual connection: y = a + b. The gradient goes to both."""


def add_forward(a, b):
    return a + b, None


def add_backward(dy, saved):
    return (dy, dy), {}
