"""Loss scales, static and dynamic, and the name of the first NaN or infinity."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim

X = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, 12)


def accumulator(loss_scale=None, on_non_finite="skip_update", model=None, lr=0.1, **options):
    model = model or nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    net = ga.plan(model, input_shape=(5,), loss=nn.CrossEntropyLoss(), micro_batch=4, seed=3)
    return ga.Accumulator(net, optim.SGD(net, lr=lr), loss_scale=loss_scale, on_non_finite=on_non_finite, **options)


# ---- the rule, by hand ----

def test_growth_and_backoff_by_hand():
    """1024: two updates in a row double it, an overflow halves it and starts the count again (torch.amp.GradScaler's rule)."""
    scale = ga.DynamicLossScale(1024, growth_interval=2)
    seen = []
    for overflow in (False, False, False, True, False, False, True, True):
        scale.update(overflow)
        seen.append((float(scale), scale.growth_tracker))
    assert seen == [(1024, 1), (2048, 0), (2048, 1), (1024, 0), (1024, 1), (2048, 0), (1024, 0), (512, 0)]


def test_the_rule_of_torch():
    torch = pytest.importorskip("torch")
    theirs = torch.amp.GradScaler("cpu", init_scale=64.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=3)
    ours = ga.DynamicLossScale(64.0, 3.0, 0.25, 3)
    p = torch.zeros(1, requires_grad=True)
    opt = torch.optim.SGD([p], lr=0.0)
    for overflow in (False, False, False, False, True, False, False, False, True, True, False):
        p.grad = torch.full((1,), np.inf if overflow else 1.0)
        theirs.scale(torch.zeros(1))
        theirs.step(opt)
        theirs.update()
        ours.update(overflow)
        assert float(ours) == theirs.get_scale()


# ---- in a window ----

def test_a_power_of_two_changes_no_bit():
    """Scaling by 2^k is exact, and it is taken out once: parameters, norms and losses (D41) are those without."""
    plain, scaled = accumulator(), accumulator(2.0**16)
    for _ in range(5):
        a, b = plain.update(X, Y), scaled.update(X, Y)
        assert (a.loss, a.micro_losses, a.grad_norm) == (b.loss, b.micro_losses, b.grad_norm) and (a.loss_scale, b.loss_scale) == (1.0, 65536.0)
    assert np.array_equal(plain.net.params, scaled.net.params)


def test_dynamic_scale_skips_shrinks_and_then_trains():
    """2^127 times a gradient above 2 is infinite in float32: windows are skipped and halve the scale until one fits."""
    acc, plain = accumulator(ga.DynamicLossScale(2.0**127, growth_interval=100)), accumulator()
    before, updates = acc.net.params.copy(), []
    while not updates or updates[-1].skipped:
        assert np.array_equal(acc.net.params, before)
        updates.append(acc.update(100 * X, Y))
    skipped = len(updates) - 1
    assert skipped >= 1 and acc.updates == 1
    assert [u.loss_scale for u in updates] == [2.0**(127 - i) for i in range(skipped + 1)]
    assert all(u.reason == "the gradient has NaN or infinity" and u.non_finite.startswith(("gradient of ", "divisor")) for u in updates[:-1])
    plain.update(100 * X, Y)
    assert np.array_equal(acc.net.params, plain.net.params)


@pytest.mark.parametrize("way", ["step", "stages", "by hand", "update_many"])
def test_the_scale_is_frozen_inside_a_window_and_moves_between_windows(way):
    """growth_interval=1: it doubles after each window (D47: two scales in one window would add up wrongly)."""
    acc = accumulator(ga.DynamicLossScale(8.0, growth_interval=1), accumulation_steps=3)
    plain = accumulator(accumulation_steps=3)
    for k in range(4):
        if way == "step":
            for i in (0, 4, 8):
                assert float(acc.loss_scale) == 8.0 * 2**k
                acc.step(X[i:i + 4], Y[i:i + 4])
        elif way == "stages":
            for event in acc.stages(X, Y):
                pass
        elif way == "update_many":
            acc.update_many(X, Y)
        else:
            acc.begin()
            for i in (0, 4, 8):
                acc.net.forward(X[i:i + 4])
                acc.net.loss(Y[i:i + 4])
                acc.net.backward()
                acc.accumulate()
            acc.normalize()
            acc.optimizer.step()
            acc.clear()
        assert acc.last_update.loss_scale == 8.0 * 2**k and float(acc.loss_scale) == 8.0 * 2**(k + 1)
        plain.update(X, Y)
    assert np.array_equal(acc.net.params, plain.net.params)


def test_a_window_without_weight_moves_no_scale():
    acc = accumulator(ga.DynamicLossScale(8.0, growth_interval=1))
    acc.update(X, Y, np.zeros(12))
    assert float(acc.loss_scale) == 8.0


def test_a_run_goes_on_with_its_scale(tmp_path):
    acc, other = (accumulator(ga.DynamicLossScale(8.0, growth_interval=2), accumulation_steps=3) for _ in range(2))
    for _ in range(3):
        acc.update(X, Y)
    acc.step(X[:4], Y[:4])
    acc.save(tmp_path / "run")
    other.load(tmp_path / "run")
    assert (float(other.loss_scale), other.loss_scale.growth_tracker) == (16.0, 1)
    for a in (acc, other):
        a.step(X[4:8], Y[4:8])
        a.step(X[8:], Y[8:])
    assert acc.last_update == other.last_update and np.array_equal(acc.net.params, other.net.params)


@pytest.mark.parametrize("make, text", [
    (lambda: accumulator("dynamic", on_non_finite="raise"), "skip_update"),
    (lambda: accumulator("automatic"), "loss_scale"),
    (lambda: accumulator(0.0), "loss_scale"),
    (lambda: ga.DynamicLossScale(0), "init_scale"),
    (lambda: ga.DynamicLossScale(growth_factor=1), "growth_factor"),
    (lambda: ga.DynamicLossScale(backoff_factor=1), "backoff_factor"),
    (lambda: ga.DynamicLossScale(growth_interval=0), "growth_interval"),
    (lambda: ga.DynamicLossScale().load_state_dict({"scale": -1, "growth_tracker": 0}), "scale"),
])
def test_bad_input(make, text):
    with pytest.raises(ValueError, match=text):
        make()


# ---- the first NaN or infinity by name ----

class Bad(nn.Function):
    """Infinity for a sample whose first number is above 50, forward or backward."""

    def __init__(self, backward):
        super().__init__()
        self.where = backward

    def output_shape(self, shape):
        return shape

    def forward(self, x):
        return x if self.where else np.where(x[:, :1] > 50, np.inf, x).astype(x.dtype)

    def backward(self, grad):
        return np.where(np.ones_like(grad) > 0, np.nan, grad).astype(grad.dtype) if self.where else grad


@pytest.mark.parametrize("way", ["update", "step", "stages", "by hand"])
def test_the_first_node_is_named(way):
    """Sample 6 makes infinity in node 2; everything after it has it too."""
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), Bad(False), nn.Linear(6, 3))
    acc = accumulator(model=model)
    weight = np.zeros((6, 5), np.float32)
    weight[:, 0] = 1
    acc.net.load_state_dict({**acc.net.state_dict(), "0.weight": weight, "0.bias": np.zeros(6)})
    x = X.copy()
    x[6, 0] = 60
    if way == "update":
        record = acc.update(x, Y)
    elif way == "step":
        for i in (0, 4, 8):
            acc.step(x[i:i + 4], Y[i:i + 4])
        record = acc.last_update if acc.last_update.skipped else None
    elif way == "stages":
        for event in acc.stages(x, Y):
            pass
        record = acc.last_update
    else:
        acc.begin()
        acc.net.forward(x[4:8])
        acc.net.loss(Y[4:8])
        acc.net.backward()
        acc.accumulate()
        with pytest.raises(FloatingPointError, match=r"first in the output of 2 \(function\), sample 2 of the window"):
            acc.normalize()
            acc.optimizer.step()
        return
    if record is not None:
        assert record.non_finite == "output of 2 (function), sample 6 of the window"


def test_an_input_with_nan_is_named():
    x = X.copy()
    x[9, 3] = np.nan
    assert accumulator().update(x, Y).non_finite == "input x, sample 9 of the window"


def test_a_gradient_that_overflows_is_named_by_the_first_node_of_backward():
    acc = accumulator(model=nn.Sequential(nn.Linear(5, 6), Bad(True), nn.Linear(6, 3)))
    assert acc.update(X, Y).non_finite == "gradient of 0.weight (linear)"   # that of 2.weight is fine: the NaN began between them


def test_looking_for_the_node_changes_nothing():
    """The rejected micro-batch runs forward twice; what follows is as if its samples had been rejected after one."""
    x = X.copy()
    x[6, 0] = np.inf
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    with pytest.warns(UserWarning, match="batch statistics"):
        acc = accumulator(model=model, on_non_finite="skip_micro_batch")
        assert acc.update(x, Y).rejected == 1
    assert acc.last_update.non_finite == "input x, sample 6 of the window"
    state = acc.net._core.array(3, 0, (13,), False)          # running mean, variance, updates
    assert state[12] == 3                                    # not 4
