"""rms_norm: all promises of a layer."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.RMSNorm(6), (6,)), (nn.RMSNorm(19), (3, 19)), (nn.RMSNorm(5, elementwise_affine=False), (4, 5)), (nn.RMSNorm((8,), eps=0.1), (8,)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_rms_norm(layer, shape):
    check_layer(layer, shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_eps_none_is_the_spacing_of_the_type(dtype):
    """A row of zeros but for one number e: mean square e² / 2."""
    net = ga.plan(nn.RMSNorm(2, elementwise_affine=False), input_shape=(2,), micro_batch=1, dtype=dtype)
    e = 1e-8
    expected = e / np.sqrt(e * e / 2 + np.finfo(dtype).eps)
    assert np.allclose(net.predict(np.array([[e, 0]])), [[expected, 0]], rtol=1e-6, atol=0)


@pytest.mark.parametrize("make, shape, text", [
    (lambda: nn.RMSNorm(4), (5,), "normalized_shape should be 5"),
    (lambda: nn.RMSNorm(4), (4, 2, 2), r"expected \(features,\) or \(steps, features\)"),
    (lambda: nn.RMSNorm(4, eps=-1.0), (4,), "eps=-1.0, expected 0 or more, or None"),
])
def test_what_cannot_be(make, shape, text):
    with pytest.raises(ValueError, match=text):
        ga.plan(make(), input_shape=shape, micro_batch=2)
