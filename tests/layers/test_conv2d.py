"""conv2d, conv_transpose2d: all promises of a layer; sizes, strides, dilations and groups that do not fit nicely."""
import re

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import _core, nn
from gradaccum.testing import check_layer, check_split

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
    (nn.ConvTranspose2d(3, 4, 3), (3, 4, 5)),
    (nn.ConvTranspose2d(3, 2, 2, stride=2), (3, 4, 3)),
    (nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), (3, 4, 5)),
    (nn.ConvTranspose2d(4, 6, 3, stride=(2, 1), padding=(0, 1), groups=2, dilation=(1, 2), bias=False), (4, 3, 5)),
]

# Odd sizes end in the middle of a tile, 17 or 33 channels in that of a vector. Below 32 tiles the weight's gradient is direct; 64 tiles are a block.
WINOGRAD = [
    (nn.Conv2d(3, 5, 3, padding=1, algorithm="winograd"), (3, 7, 6)),
    (nn.Conv2d(16, 16, 3, algorithm="winograd"), (16, 3, 3)),
    (nn.Conv2d(17, 40, 3, padding=2, bias=False, algorithm="winograd"), (17, 5, 8)),
    (nn.Conv2d(33, 17, 3, padding=(0, 1), algorithm="winograd"), (33, 13, 11)),
    (nn.Conv2d(16, 33, 3, padding="same", algorithm="winograd"), (16, 12, 13)),
    (nn.Conv2d(18, 16, 3, padding=(2, 0), algorithm="winograd"), (18, 17, 20)),
    (nn.Conv2d(70, 16, 3, padding=1, algorithm="winograd"), (70, 13, 10)),
]


@pytest.mark.parametrize("layer, shape", CASES + WINOGRAD, ids=repr)
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


def backward(layer, shape, dtype, residual=False, samples=2):
    """Output, gradient of the input, gradient of the weight; the input is made by a layer, so that it has a gradient."""
    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.conv = nn.Conv2d(shape[0], shape[0], 1, groups=shape[0]), layer

        def forward(self, x):
            x = self.scale(x)
            return x + self.conv(x) if residual else self.conv(x)

    rng = np.random.default_rng(0)
    net = ga.plan(Body(), input_shape=shape, loss=nn.MSELoss(), micro_batch=samples, dtype=dtype, seed=1, keep="all")
    y = net.forward(rng.normal(size=(samples, *shape)).astype(dtype)).copy()
    net.loss(rng.normal(size=y.shape).astype(dtype))
    net.backward()
    assert net._core.guards_intact()
    return [a.astype("float64") for a in (y, net.node("scale").output_grad, net.parameters()["conv.weight"].grad)]


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
def test_winograd_adds_to_a_gradient_that_is_there(level, monkeypatch):
    """x + conv(x): two nodes write the gradient of x. 35 channels end in the middle of a vector of each level."""
    monkeypatch.setenv("GRADACCUM_CPU", level)
    direct, winograd = (backward(nn.Conv2d(35, 35, 3, padding=1, algorithm=a), (35, 13, 11), "float64", residual=True) for a in ("direct", "winograd"))
    for got, expected in zip(winograd, direct):
        assert not np.array_equal(got, expected)             # it really is another algorithm
        assert np.abs(got - expected).max() < 1e-11 * np.abs(expected).max()


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
def test_winograd_has_the_same_bits_for_every_split_and_thread_count(level, monkeypatch):
    """Large enough that a single sample is divided over threads: 144 tiles x 16 products x 32 x 33 channels are over two million."""
    monkeypatch.setenv("GRADACCUM_CPU", level)
    body = nn.Sequential(nn.Conv2d(32, 32, 1, groups=32), nn.Conv2d(32, 33, 3, padding=1, algorithm="winograd"))
    check_split(body, (32, 23, 23), samples=4, updates=2, dtypes=("float32",), threads=(1, 2, 5))


@pytest.mark.parametrize("channels, size", [(16, 32), (32, 28), (64, 14), (128, 16)])
def test_winograd_is_more_accurate_than_the_direct_sum(channels, size):
    """float32, largest error over the rms of the result: below that of the direct sum, whose chains are longer, in all three passes. Output and
    input's gradient stay below 2e-6 up to 64 channels, and below 3e-6 with 128."""
    def results(algorithm, dtype):
        return backward(nn.Conv2d(channels, channels, 3, padding=1, algorithm=algorithm), (channels, size, size), dtype)

    true = results("direct", "float64")
    direct, winograd = ([np.abs(a - b).max() / np.sqrt((b**2).mean()) for a, b in zip(results(algorithm, "float32"), true)]
                        for algorithm in ("direct", "winograd"))
    assert all(w < d for w, d in zip(winograd, direct))
    assert max(winograd[:2]) < (2e-6 if channels <= 64 else 3e-6)


def test_winograd_is_in_the_ledger():
    """16 transformed weights instead of 9, for forward and for the gradient of the input: 4 x 2 x 16 x 32 x 32 bytes."""
    packed = {}
    for algorithm in ("direct", "winograd"):
        net = ga.plan(nn.Conv2d(32, 32, 3, padding=1, algorithm=algorithm), input_shape=(32, 16, 16), loss=nn.MSELoss(), micro_batch=2)
        packed[algorithm] = net.memory.by_kind()["packed_weights"]
    assert packed == {"direct": 4 * 2 * 9 * 32 * 32, "winograd": 4 * 2 * 16 * 32 * 32}


def test_winograd_leaves_few_channels_and_openblas_to_the_direct_sum():
    for channels, engine in ((15, "native"), (16, "openblas")) if _core.blas_name() else ((15, "native"),):
        x = np.random.default_rng(0).normal(size=(2, channels, 9, 9)).astype("float32")
        nets = [ga.plan(nn.Conv2d(channels, 16, 3, algorithm=a), input_shape=x.shape[1:], micro_batch=2, engine=engine) for a in ("direct", "winograd")]
        assert np.array_equal(nets[0].predict(x), nets[1].predict(x))


@pytest.mark.parametrize("engine", ["native", "openblas"] if _core.blas_name() else ["native"])
@pytest.mark.parametrize("options, given", [
    (dict(kernel_size=5), "kernel_size=(5, 5)"), (dict(kernel_size=(3, 1)), "kernel_size=(3, 1)"), (dict(stride=2), "stride=(2, 2)"),
    (dict(dilation=(1, 2)), "dilation=(1, 2)"), (dict(groups=2), "groups=2"), (dict(padding=(3, 1)), "padding=(3, 1)"),
])
def test_winograd_says_what_it_is_for(options, given, engine):
    layer = nn.Conv2d(**{"in_channels": 2, "out_channels": 4, "kernel_size": 3, "algorithm": "winograd"} | options)
    text = f'(conv2d): algorithm="winograd" with {given}: it is for kernel_size=3, stride=1, dilation=1, groups=1 and padding 0 to 2; change that, or use '
    with pytest.raises(ValueError, match=re.escape(text)):
        ga.plan(layer, input_shape=(2, 9, 9), micro_batch=1, engine=engine)


def test_a_transposed_convolution_refuses_it():
    class Wrong(nn.ConvTranspose2d):
        def options(self):
            return super().options() | {"winograd": True}

    with pytest.raises(ValueError, match="winograd=1 is for conv2d"):
        ga.plan(Wrong(16, 16, 3), input_shape=(16, 9, 9), micro_batch=1)


@pytest.mark.parametrize("inputs, outputs, options, taken", [
    (16, 64, {}, "winograd"), (64, 16, dict(padding=2), "winograd"),
    (65, 16, {}, "direct"), (16, 65, {}, "direct"),           # its error would pass 2e-6
    (15, 16, {}, "direct"), (16, 16, dict(stride=2), "direct"), (16, 16, dict(kernel_size=(3, 1)), "direct"), (16, 16, dict(dilation=2), "direct"),
])
def test_auto_takes_winograd_where_it_is_exact_and_possible(inputs, outputs, options, taken):
    x = np.random.default_rng(0).normal(size=(1, inputs, 9, 9)).astype("float32")
    nets = [ga.plan(nn.Conv2d(inputs, outputs, **{"kernel_size": 3} | options, algorithm=a), input_shape=x.shape[1:], micro_batch=1) for a in ("auto", taken)]
    assert np.array_equal(nets[0].predict(x), nets[1].predict(x))
    assert nets[0].memory.bytes() == nets[1].memory.bytes()
    if taken == "winograd":
        direct = ga.plan(nn.Conv2d(inputs, outputs, 3, **options, algorithm="direct"), input_shape=x.shape[1:], micro_batch=1)
        assert not np.array_equal(nets[0].predict(x), direct.predict(x))


def test_algorithm_has_three_names():
    with pytest.raises(ValueError, match="Conv2d: algorithm='fft': expected one of 'direct', 'winograd', 'auto'"):
        nn.Conv2d(2, 4, 3, algorithm="fft")
    assert "algorithm='winograd'" in repr(nn.Conv2d(2, 4, 3, algorithm="winograd")) and "algorithm" not in repr(nn.Conv2d(2, 4, 3))
