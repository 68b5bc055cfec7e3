"""linear: all promises of a layer."""
import pytest

from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.Linear(6, 5), (6,)),
    (nn.Linear(1, 1), (1,)),
    (nn.Linear(70, 33), (70,)),
    (nn.Linear(3, 40, bias=False), (4, 3)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_linear(layer, shape):
    check_layer(layer, shape)
