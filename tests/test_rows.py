"""The public bugs of gradient accumulation, D1 to D67 (numbered as in the survey that the design rests on): each is a test named after its row, or stands
here with the reason why it cannot happen."""
import re
from pathlib import Path

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim

CANNOT_HAPPEN = {
    63: "some modules stop synchronising between devices: there are no devices and no synchronisation, and backward of all nodes is one C call",
}


def test_every_row_has_a_test_or_a_reason():
    found: dict[int, list[str]] = {}
    for path in Path(__file__).parent.rglob("test_*.py"):
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")):
            for row in re.findall(r"(?<![a-zA-Z0-9])[dD](\d+)(?=_)", name.removeprefix("test_")):
                found.setdefault(int(row), []).append(name)
    assert not set(found) & set(CANNOT_HAPPEN)
    assert sorted(set(found) | set(CANNOT_HAPPEN)) == list(range(1, 68))


X = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, 16)


def accumulator(micro_batch):
    net = ga.plan(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch)
    return ga.Accumulator(net, optim.SGD(net, lr=0.5))


def test_d09_d15_a_loss_is_a_sum_and_a_weight_and_nothing_else_is_taken():
    """A bare scalar, whose divisor nobody knows, cannot be given; what a loss returns says what it was summed over."""
    with pytest.raises(TypeError, match="expected a loss"):
        ga.plan(nn.Linear(4, 3), input_shape=(4,), loss=lambda z, y: 0.0, micro_batch=4)
    net = ga.plan(nn.Linear(4, 3), input_shape=(4,), loss=nn.CrossEntropyLoss(ignore_index=0), micro_batch=4)
    net.forward(X[:4])
    loss_sum, weight = net.loss([0, 1, 2, 0])
    assert weight == 2 and loss_sum == pytest.approx(sum(net.sample_losses()[0]))


def test_d19_the_learning_rate_of_the_full_batch_stays_right():
    """Nobody has to lower it for accumulation: 1 x 16, 4 x 4 and 16 x 1 make the same step."""
    steps = []
    for micro_batch in (16, 4, 1):
        acc = accumulator(micro_batch)
        before = acc.net.params.copy()
        acc.update(X, Y)
        steps.append(acc.net.params - before)
    assert np.array_equal(steps[0], steps[1]) and np.array_equal(steps[0], steps[2])


def test_d55_no_activation_is_needed_between_micro_batches():
    recording = accumulator(4).record(X, Y)
    for event in recording.events:
        alive = event["bytes"].get("activations", 0)
        assert (alive > 0) == (event["stage"] in ("forward", "loss", "backward")), event["stage"]
