"""dot_product_loss: its gradient is its target."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_loss


@pytest.mark.parametrize("shape", [(4,), (2, 3), (3, 2, 2)])
def test_dot_product_loss(shape):
    check_loss(nn.DotProductLoss(), shape)


def test_by_hand():
    """(1, 2) . (3, -1) = 1 and (4, 0) . (1, 5) = 4: sum 5, weight 2."""
    net = ga.plan(nn.Identity(), input_shape=(2,), loss=nn.DotProductLoss(), micro_batch=2)
    net.forward([[1.0, 2.0], [4.0, 0.0]])
    assert net.loss([[3.0, -1.0], [1.0, 5.0]]) == (5.0, 2.0)
    assert net.loss([[3.0, -1.0], [1.0, 5.0]], [2.0, 0.0]) == (2.0, 2.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_is_the_target_bit_for_bit(dtype):
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(2, 5, 3)).astype(dtype)
    net = ga.plan(nn.Sequential(nn.Identity(), nn.Linear(3, 3)), input_shape=(3,), loss=nn.DotProductLoss(), micro_batch=5, dtype=dtype, keep="all")
    net.forward(x)
    net.loss(t)
    net.backward()
    assert np.array_equal(net.node("1").output_grad, t)


def test_a_target_of_another_shape_and_a_reduction_are_refused():
    net = ga.plan(nn.Identity(), input_shape=(3,), loss=nn.DotProductLoss(), micro_batch=1)
    net.forward(np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        net.loss(np.ones((1, 2)))
    with pytest.raises(TypeError, match="reduction"):
        nn.DotProductLoss(reduction="mean")
