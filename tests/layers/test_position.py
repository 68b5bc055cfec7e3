"""position: all promises of a layer; shorter sequences use the first rows."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_layer


@pytest.mark.parametrize("layer, shape", [(nn.LearnedPositions(4, 3), (4, 3)), (nn.LearnedPositions(9, 5), (2, 5)), (nn.LearnedPositions(1, 1), (1, 1))],
                         ids=repr)
def test_position(layer, shape):
    check_layer(layer, shape)


def test_shorter_sequences_leave_the_other_rows_alone():
    net = ga.plan(nn.LearnedPositions(5, 2), input_shape=(5, 2), loss=nn.MSELoss(), micro_batch=3)
    x = np.ones((3, 2, 2), dtype=np.float32)
    weight = net.parameters()["weight"]
    assert np.array_equal(net.forward(x), x + weight.data[:2])
    net.loss(np.zeros((3, 2, 2)))
    net.backward()
    assert weight.grad[:2].all() and not weight.grad[2:].any()


@pytest.mark.parametrize("make, shape, text", [
    (lambda: nn.LearnedPositions(3, 2), (4, 2), "sequences of 4 steps, but there are 3 positions"),
    (lambda: nn.LearnedPositions(3, 2), (3, 5), "features should be 5"),
    (lambda: nn.LearnedPositions(3, 2), (2,), r"expected \(steps, features\)"),
    (lambda: nn.LearnedPositions(0, 2), (2, 2), "max_len=0"),
])
def test_what_cannot_be(make, shape, text):
    with pytest.raises(ValueError, match=text):
        ga.plan(make(), input_shape=shape, micro_batch=2)
