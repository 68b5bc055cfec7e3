"""max_pool2d, avg_pool2d, adaptive_avg_pool2d."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.MaxPool2d(2), (3, 6, 8)), (nn.MaxPool2d(3, 2, 1), (2, 7, 6)), (nn.MaxPool2d((2, 3), (1, 2)), (2, 5, 7)),
    (nn.MaxPool2d(2, dilation=2), (2, 6, 5)), (nn.MaxPool2d(1), (1, 1, 2)),
    (nn.AvgPool2d(2), (3, 6, 8)), (nn.AvgPool2d(3, 2, 1), (2, 7, 6)), (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 7, 6)),
    (nn.AdaptiveAvgPool2d(1), (3, 5, 4)), (nn.AdaptiveAvgPool2d((3, 2)), (2, 7, 5)), (nn.AdaptiveAvgPool2d(4), (2, 3, 3)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_pool(layer, shape):
    check_layer(layer, shape)


def test_of_equal_values_the_first_gets_the_gradient():
    net = ga.plan(nn.Sequential(nn.Conv2d(1, 1, 1), nn.MaxPool2d(2)), input_shape=(1, 2, 2), loss=nn.MSELoss(), micro_batch=1, keep="all")
    net.forward(np.ones((1, 1, 2, 2)))
    net.loss(np.full((1, 1, 1, 1), 100.0))
    net.backward()
    assert (net.node("0").output_grad != 0).ravel().tolist() == [True, False, False, False]


@pytest.mark.parametrize("make, text", [
    (lambda: nn.MaxPool2d(9), "the image is smaller than the kernel: height 5"),
    (lambda: nn.MaxPool2d(2, padding=2), "padding is 0 to half the kernel"),
    (lambda: nn.AvgPool2d(2, ceil_mode=True), "ceil_mode=True is not supported"),
    (lambda: nn.AvgPool2d(0), "kernel_size=0"),
    (lambda: nn.AdaptiveAvgPool2d(0), "output_size=0"),
])
def test_what_cannot_be(make, text):
    with pytest.raises(ValueError, match=text):
        ga.plan(make(), input_shape=(3, 5, 6), micro_batch=1)
