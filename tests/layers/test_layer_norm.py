"""layer_norm: all promises of a layer."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.LayerNorm(6), (6,)), (nn.LayerNorm(19), (3, 19)), (nn.LayerNorm(40, bias=False), (2, 40)), (nn.LayerNorm(5, elementwise_affine=False), (4, 5)),
    (nn.LayerNorm((8,), eps=0.1), (8,)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_layer_norm(layer, shape):
    check_layer(layer, shape)


def test_rows_have_mean_0_and_variance_1():
    net = ga.plan(nn.LayerNorm(300, eps=0.0), input_shape=(4, 300), micro_batch=2)
    y = net.predict(1e3 + np.random.default_rng(0).normal(size=(2, 4, 300)))
    assert np.abs(y.mean(axis=-1)).max() < 1e-4 and np.abs(y.var(axis=-1) - 1).max() < 1e-4


@pytest.mark.parametrize("make, shape, text", [
    (lambda: nn.LayerNorm(4), (5,), "normalized_shape should be 5"),
    (lambda: nn.LayerNorm((3, 4)), (3, 4), "only the last axis is normalised"),
    (lambda: nn.LayerNorm(0), (4,), "normalized_shape=0"),
    (lambda: nn.LayerNorm(4), (4, 2, 2), r"expected \(features,\) or \(steps, features\)"),
    (lambda: nn.LayerNorm(4, eps=-1.0), (4,), "eps=-1, expected 0 or more"),
])
def test_what_cannot_be(make, shape, text):
    with pytest.raises(ValueError, match=text):
        ga.plan(make(), input_shape=shape, micro_batch=2)
