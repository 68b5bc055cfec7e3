"""softmax: all promises of a layer."""
import pytest

from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.Softmax(-1), (5,)),
    (nn.Softmax(), (1,)),
    (nn.Softmax(-1), (3, 40)),
    (nn.Softmax(1), (3, 2, 4)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_softmax(layer, shape):
    check_layer(layer, shape)
