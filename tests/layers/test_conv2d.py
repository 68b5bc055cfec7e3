"""conv2d, conv_transpose2d: all promises of a layer; sizes, strides, dilations and groups that do not fit nicely."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.Conv2d(1, 1, 1), (1, 1, 1)),
    (nn.Conv2d(3, 5, 3, padding=1), (3, 7, 6)),
    (nn.Conv2d(2, 40, 3), (2, 5, 8)),
    (nn.Conv2d(5, 3, 1, bias=False), (5, 4, 3)),
    (nn.Conv2d(3, 4, 5, padding=2), (3, 6, 9)),
    (nn.Conv2d(3, 4, 3, stride=2, padding=1), (3, 8, 7)),
    (nn.Conv2d(3, 4, 1, stride=2), (3, 5, 6)),
    (nn.Conv2d(2, 3, (3, 2), stride=(2, 3), padding=(1, 0), dilation=(2, 1)), (2, 9, 8)),
    (nn.Conv2d(2, 3, 3, dilation=2, padding=2), (2, 6, 6)),
    (nn.Conv2d(2, 3, 3, padding="same"), (2, 5, 4)),
    (nn.Conv2d(2, 3, (4, 2), padding="same"), (2, 5, 4)),
    (nn.Conv2d(2, 3, 3, padding=4), (2, 3, 3)),
    (nn.Conv2d(4, 6, 3, padding=1, groups=2), (4, 5, 5)),
    (nn.Conv2d(6, 6, 3, padding=1, groups=6), (6, 5, 4)),
    (nn.Conv2d(6, 6, 3, stride=2, groups=6, bias=False), (6, 5, 7)),
    (nn.Conv2d(3, 6, 3, padding=1, groups=3), (3, 4, 4)),
    (nn.Conv2d(2, 3, 2, stride=5), (2, 9, 7)),
    (nn.Conv2d(3, 5, 3, padding=1, algorithm="winograd"), (3, 7, 6)),
    (nn.Conv2d(1, 1, 3, algorithm="winograd"), (1, 3, 3)),
    (nn.Conv2d(2, 40, 3, padding=2, bias=False, algorithm="winograd"), (2, 5, 8)),
    (nn.Conv2d(33, 17, 3, padding=(0, 1), algorithm="winograd"), (33, 4, 9)),
    (nn.Conv2d(4, 3, 3, padding="same", algorithm="winograd"), (4, 13, 11)),
    (nn.ConvTranspose2d(3, 4, 3), (3, 4, 5)),
    (nn.ConvTranspose2d(3, 2, 2, stride=2), (3, 4, 3)),
    (nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), (3, 4, 5)),
    (nn.ConvTranspose2d(4, 6, 3, stride=(2, 1), padding=(0, 1), groups=2, dilation=(1, 2), bias=False), (4, 3, 5)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_conv(layer, shape):
    check_layer(layer, shape, samples=4)


def test_by_hand():
    """The image 1 2 / 3 4 under the kernel 1 0 / 0 10, padding 1: nine sums that can be read off."""
    net = ga.plan(nn.Conv2d(1, 1, 2, padding=1), input_shape=(1, 2, 2), micro_batch=1)
    net.load_state_dict({"weight": [[[[1, 0], [0, 10]]]], "bias": [100]})
    assert (net.predict([[[[1, 2], [3, 4]]]])[0, 0] - 100).tolist() == [[10, 20, 0], [30, 41, 2], [0, 3, 4]]


def test_views_have_pytorchs_axes_whatever_is_stored():
    net = ga.plan(nn.Conv2d(3, 5, 3), input_shape=(3, 6, 7), loss=nn.MSELoss(), micro_batch=2, keep="all")
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 7)).astype("float32")
    y = net.forward(x)
    assert y.shape == (2, 5, 4, 5) and np.array_equal(y, net.predict(x))
    weight = net.parameters()["weight"].data
    assert weight.shape == (5, 3, 3, 3)
    state = net.state_dict()
    net.load_state_dict({k: v * 2 for k, v in state.items()})
    assert np.array_equal(net.parameters()["weight"].data, 2 * state["weight"])


@pytest.mark.parametrize("make, shape, text", [
    (lambda: nn.Conv2d(3, 4, 3, groups=2), (3, 5, 5), "groups=2 must divide in_channels=3"),
    (lambda: nn.Conv2d(3, 4, 3, padding=-1), (3, 5, 5), "padding=-1"),
    (lambda: nn.Conv2d(3, 4, 0), (3, 5, 5), "kernel_size=0"),
    (lambda: nn.Conv2d(3, 4, 3, padding="full"), (3, 5, 5), "padding='full'"),
    (lambda: nn.Conv2d(3, 4, 3, padding="same", stride=2), (3, 5, 5), "needs stride 1"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="reflect"), (3, 5, 5), "only \"zeros\""),
    (lambda: nn.Conv2d(3, 4, 7), (3, 5, 8), "the image is smaller than the kernel: height 5 with padding, kernel 7"),
    (lambda: nn.Conv2d(3, 4, 3), (2, 5, 5), "in_channels should be 2"),
    (lambda: nn.Conv2d(3, 4, 3), (3,), r"shape \(3,\) per sample, expected an image"),
    (lambda: nn.ConvTranspose2d(3, 4, 3, output_padding=1), (3, 5, 5), "output_padding=1 must be smaller than stride"),
    (lambda: nn.ConvTranspose2d(3, 4, 1, padding=3), (3, 5, 5), "the output would have height -1"),
])
def test_what_cannot_be(make, shape, text):
    with pytest.raises(ValueError, match=text):
        ga.plan(make(), input_shape=shape, micro_batch=1)


@pytest.mark.parametrize("channels, size", [(16, 32), (32, 28), (64, 14), (128, 16)])
def test_winograd_is_more_accurate_than_the_direct_sum(channels, size):
    """float32, largest error over the rms of the result: below that of the direct sum, whose chains are 9 times longer, and up to 64 channels below 2e-6.
    (The input's gradient is the same function on other weights.)"""
    x = np.random.default_rng(0).normal(size=(2, channels, size, size))

    def results(algorithm, dtype):
        layer = nn.Conv2d(channels, channels, 3, padding=1, algorithm=algorithm)
        net = ga.plan(layer, input_shape=(channels, size, size), micro_batch=2, dtype=dtype, seed=1)
        return net.predict(x.astype(dtype)).astype("float64")

    true = results("direct", "float64")
    size_of = np.sqrt((true**2).mean())
    error = {algorithm: np.abs(results(algorithm, "float32") - true).max() / size_of for algorithm in ("direct", "winograd")}
    assert error["winograd"] < error["direct"]
    assert channels > 64 or error["winograd"] < 2e-6


@pytest.mark.parametrize("options", [dict(kernel_size=5), dict(stride=2), dict(dilation=2), dict(groups=2), dict(padding=3)])
def test_winograd_says_what_it_is_for(options):
    layer = nn.Conv2d(**{"in_channels": 2, "out_channels": 4, "kernel_size": 3, "algorithm": "winograd"} | options)
    with pytest.raises(ValueError, match="3 x 3 kernels with stride 1.*direct"):
        ga.plan(layer, input_shape=(2, 9, 9), micro_batch=1)
    with pytest.raises(ValueError, match="algorithm"):
        nn.Conv2d(2, 4, 3, algorithm="fft")
