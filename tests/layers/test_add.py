"""add: all promises of a layer."""
import pytest

from gradaccum import nn
from gradaccum.testing import check_layer


class Twice(nn.Module):
    """x + x: both inputs of the node are the same value."""

    def forward(self, x):
        return x + x


class Sum(nn.Module):
    """A value with three readers: its gradient has three parts."""

    def __init__(self):
        super().__init__()
        self.f = nn.Linear(5, 5)

    def forward(self, x):
        return self.f(x) + x + nn.functional.tanh(x)


CASES = [
    (Twice(), (6,)),
    (Twice(), (3, 2, 4)),
    (Sum(), (5,)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_add(layer, shape):
    check_layer(layer, shape, against_reference=False)


def test_add_of_different_shapes_names_both():
    import gradaccum as ga

    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(5, 4)

        def forward(self, x):
            return self.f(x) + x

    with pytest.raises(ValueError, match=r"add_1 \(add\): shapes \(4,\) and \(5,\) differ; there is no broadcasting"):
        ga.plan(Wrong(), input_shape=(5,), micro_batch=1)
