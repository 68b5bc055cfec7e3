"""activation: all promises of a layer."""
import pytest

from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.ReLU(), (7,)),
    (nn.LeakyReLU(0.2), (3, 4, 5)),
    (nn.GELU(), (9,)),
    (nn.GELU("tanh"), (4, 9)),
    (nn.SiLU(), (9,)),
    (nn.Tanh(), (9,)),
    (nn.Sigmoid(), (3, 2, 4)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_activation(layer, shape):
    check_layer(layer, shape)
