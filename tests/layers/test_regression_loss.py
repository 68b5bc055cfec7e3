"""mse_loss, l1_loss, bce_with_logits_loss: against their references, finite differences, every split."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_loss

CASES = [
    (nn.MSELoss(), (4,)), (nn.MSELoss(per="sample"), (2, 3)), (nn.MSELoss(), (3, 2, 2)),
    (nn.L1Loss(), (3,)), (nn.L1Loss(per="sample"), (4, 2)),
    (nn.BCEWithLogitsLoss(), (4,)), (nn.BCEWithLogitsLoss(pos_weight=[1, 2, 3]), (3, 2, 2)), (nn.BCEWithLogitsLoss(per="sample"), (2, 5)),
]


@pytest.mark.parametrize("loss, shape", CASES)
def test_regression_loss(loss, shape):
    check_loss(loss, shape)


def test_by_hand():
    """Errors 1, 2, 3: squares 14 over 3 elements; absolute 6."""
    for loss, expected in ((nn.MSELoss(), 14.0), (nn.L1Loss(), 6.0)):
        net = ga.plan(nn.Identity(), input_shape=(3,), loss=loss, micro_batch=1)
        net.forward([[1.0, 2.0, -3.0]])
        assert net.loss(np.zeros((1, 3))) == (expected, 3.0)


def test_bce_by_hand_and_without_overflow():
    """Logit 0: log 2 for both targets. Logit 1000 with target 1: 0; with target 0: 1000."""
    net = ga.plan(nn.Identity(), input_shape=(4,), loss=nn.BCEWithLogitsLoss(), micro_batch=1, dtype="float64")
    net.forward([[0.0, 0.0, 1000.0, 1000.0]])
    assert net.loss([[0.0, 1.0, 1.0, 0.0]])[0] == pytest.approx(2 * np.log(2) + 1000, rel=1e-15)


def test_pos_weight_of_another_length():
    with pytest.raises(ValueError, match="pos_weight has 2 numbers, the prediction has 3 features"):
        ga.plan(nn.Identity(), input_shape=(3,), loss=nn.BCEWithLogitsLoss(pos_weight=[1, 1]), micro_batch=1)
