"""reshape: all promises of a layer."""
import pytest

from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.Flatten(), (3, 4, 2)),
    (nn.Flatten(), (1, 4, 2)),
    (nn.Flatten(), (3, 4)),
    (nn.Identity(), (3,)),
    (nn.Identity(), (3, 2, 2)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_reshape(layer, shape):
    check_layer(layer, shape)
