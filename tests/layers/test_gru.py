"""gru: all promises of a layer; shorter sequences and padding."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [(nn.GRU(3, 4), (5, 3)), (nn.GRU(7, 19), (4, 7)), (nn.GRU(2, 1), (1, 2)), (nn.GRU(5, 33, bias=False), (3, 5))]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_gru(layer, shape):
    check_layer(layer, shape)


def gradients(x, weight, steps=9, micro_batch=3):
    net = ga.plan(nn.GRU(4, 6), input_shape=(steps, 4), loss=nn.MSELoss(), micro_batch=micro_batch)
    y = net.forward(x).copy()
    net.loss(np.ones(y.shape), weight)
    net.backward()
    return y, net.grads.copy()


def test_padding_changes_no_bit():
    """Steps of weight 0 at the end, or no such steps, or a network planned for fewer: the same bits."""
    x = np.random.default_rng(0).normal(size=(3, 9, 4)).astype("float32")
    weight = np.zeros((3, 9, 6))
    weight[:, :5] = 1
    y, full = gradients(x, weight)
    short, cut = gradients(x[:, :5], None)
    tight, same = gradients(x[:, :5], None, steps=5)
    assert np.array_equal(y[:, :5], short) and np.array_equal(full, cut) and np.array_equal(cut, same) and np.array_equal(short, tight) and full.any()


@pytest.fixture
def threads():
    before = ga.get_num_threads()
    yield ga.set_num_threads
    ga.set_num_threads(before)


def test_threads_divide_samples(threads):
    """Large enough for two threads."""
    x = np.random.default_rng(0).normal(size=(8, 10, 32)).astype("float32")
    results = []
    for number in (1, 2):
        threads(number)
        net = ga.plan(nn.GRU(32, 160), input_shape=(10, 32), loss=nn.MSELoss(), micro_batch=8)
        y = net.forward(x).copy()
        net.loss(np.ones(y.shape))
        net.backward()
        results.append((y, net.grads.copy()))
    assert np.array_equal(results[0][0], results[1][0]) and np.array_equal(results[0][1], results[1][1])


@pytest.mark.parametrize("make, shape, text", [
    (lambda: nn.GRU(4, 3), (2, 5), "input_size should be 5"),
    (lambda: nn.GRU(4, 0), (2, 4), "hidden_size=0"),
    (lambda: nn.GRU(4, 3), (4,), r"expected \(steps, features\)"),
    (lambda: nn.GRU(4, 3, num_layers=2), (2, 4), "num_layers=2"),
    (lambda: nn.GRU(4, 3, batch_first=False), (2, 4), "batch_first=False is not supported"),
    (lambda: nn.GRU(4, 3, bidirectional=True), (2, 4), "bidirectional=True is not supported"),
])
def test_what_cannot_be(make, shape, text):
    with pytest.raises(ValueError, match=text):
        ga.plan(make(), input_shape=shape, micro_batch=2)
