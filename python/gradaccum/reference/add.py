"""Add, the residual connection: y = a + b.

∂y/∂a = ∂y/∂b = 1, so the gradient goes to both unchanged. In a deep network this is its point: one
way back to the input on which nothing is multiplied (He et al. 2015, arXiv:1512.03385).
"""


def add_forward(a, b):
    """a and b of one shape -> y of that shape."""
    if a.shape != b.shape:
        raise ValueError(f"add: shapes {a.shape} and {b.shape} differ, and nothing is broadcast")
    return a + b, None


def add_backward(dy, saved):
    return (dy, dy), {}
