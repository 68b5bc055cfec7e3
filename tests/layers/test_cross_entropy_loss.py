"""cross_entropy_loss: against its reference, finite differences, every split."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_loss


def some_ignored(rng, shape, classes=3):
    y = rng.integers(0, classes, shape)
    y.reshape(-1)[::3] = -100
    return y


CASES = [
    (nn.CrossEntropyLoss(), (5,), None),
    (nn.CrossEntropyLoss(), (1,), None),
    (nn.CrossEntropyLoss(weight=[1.0, 2.0, 0.5], label_smoothing=0.2), (4, 3), some_ignored),
    (nn.CrossEntropyLoss(label_smoothing=1.0), (4,), None),
    (nn.CrossEntropyLoss(weight=[0.0, 2.0, 0.5]), (3,), some_ignored),
    (nn.CrossEntropyLoss(per="sample", ignore_index=1), (3, 2, 2), None),
    (nn.CrossEntropyLoss(per="sample"), (4, 3), some_ignored),
]


@pytest.mark.parametrize("loss, shape, target", CASES)
def test_cross_entropy_loss(loss, shape, target):
    check_loss(loss, shape, target=target)


def test_by_hand():
    """Logits 0, log 3: p = 1/4, 3/4; -log p = log 4 and log 4/3."""
    net = ga.plan(nn.Identity(), input_shape=(2,), loss=nn.CrossEntropyLoss(), micro_batch=2, dtype="float64")
    net.forward([[0, np.log(3)], [0, np.log(3)]])
    loss_sum, weight = net.loss([0, 1])
    assert weight == 2 and loss_sum == pytest.approx(np.log(4) + np.log(4 / 3), rel=1e-14)


def test_large_logits_do_not_overflow():
    net = ga.plan(nn.Identity(), input_shape=(2,), loss=nn.CrossEntropyLoss(), micro_batch=1)
    net.forward([[1e30, -1e30]])
    assert net.loss([0]) == (0.0, 1.0)


@pytest.mark.parametrize("options, match", [
    ({"label_smoothing": 1.5}, "label_smoothing=1.5"), ({"weight": [1, -1]}, "none negative"), ({"per": "token"}, "per='token'"),
    ({"reduction": "mean"}, "the accumulation window divides once"), ({"reduction": "sum"}, "reduction='sum'"), ({"foo": 1}, "foo"),
])
def test_options_that_cannot_be(options, match):
    with pytest.raises((ValueError, TypeError), match=match):
        nn.CrossEntropyLoss(**options)


def test_class_weights_of_another_length():
    with pytest.raises(ValueError, match="weight has 3 classes, the logits have 2"):
        ga.plan(nn.Identity(), input_shape=(2,), loss=nn.CrossEntropyLoss(weight=[1, 1, 1]), micro_batch=1)
