"""SAM: the window runs twice, and keeps every promise of the window.

By hand: y = w x with x = 1 and the loss (w - t)², so a sample's gradient is 2 (w - t).
"""
import math

import numpy as np
import pytest
from conftest import hand_net, residual_net

import gradaccum as ga
from gradaccum import nn, optim, reference
from gradaccum.reference.dropout import dropout_mask


def quadratic(w, micro_batch=1, dtype="float64", features=1):
    net = ga.plan(nn.Linear(features, 1, bias=False), input_shape=(features,), loss=nn.MSELoss(), micro_batch=micro_batch, dtype=dtype)
    net.load_state_dict({"weight": np.broadcast_to(w, (1, features))})
    return net


def value(net):
    return net.parameters()["weight"].data.item()


@pytest.mark.parametrize("m", [1, 2])
def test_d66_the_first_pass_sees_the_whole_window(m):
    """Targets 0 and 4 at w = 1: gradients 2 and -6, mean -2, so e = -0.5. At 0.5: 1 and -7, mean -3. w = 1 + 0.25 * 3.

    Had the second micro-batch (or the second pass) begun with a cleared or a full buffer, it would be 1.25, or another number."""
    net = quadratic(1.0, m)
    acc = ga.Accumulator(net, optim.SAM(optim.SGD(net, lr=0.25), rho=0.5))
    update = acc.update(np.ones((2, 1)), [[0.0], [4.0]])
    assert value(net) == 1.75
    assert (update.loss, update.grad_norm, update.samples, update.micro_steps, update.micro_losses) == (
        5.0, 3.0, 2, 2 // m, [5.0] if m == 2 else [1.0, 9.0])
    assert acc.optimizer.sharpness == (0.25 + 12.25) / 2 - 5                     # the loss at 0.5 minus that at 1
    assert (acc.updates, acc.micro_steps, acc.samples, acc.micro_step) == (1, 2 // m, 2, 0) and not acc.buffer.any()


@pytest.mark.parametrize("adaptive, expected", [(False, 3.25), (True, 3.5)])
def test_adaptive_by_hand(adaptive, expected):
    """Targets 0 and 8 at w = 2: mean gradient -4. Plain: w + e = 1.5, gradient -5. Adaptive: e = -0.5 * |w| = -1, gradient -6."""
    net = quadratic(2.0)
    ga.Accumulator(net, optim.SAM(optim.SGD(net, lr=0.25), rho=0.5, adaptive=adaptive)).update(np.ones((2, 1)), [[0.0], [8.0]])
    assert value(net) == expected


def test_rho_0_is_the_base_optimizer_bit_for_bit(batch):
    x, y, weight = batch
    results = []
    for wrap in (lambda o: o, lambda o: optim.SAM(o, rho=0.0)):
        net, opt = residual_net(40)
        acc = ga.Accumulator(net, wrap(opt), max_grad_norm=0.5)
        records = [acc.update(x, y, weight) for _ in range(3)]
        results.append((net.params.copy(), records))
    assert np.array_equal(results[0][0], results[1][0]) and results[0][1] == results[1][1]


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_split_has_the_same_bits(batch, adaptive, dtype):
    """With dropout, whose masks are equal in both passes and in every split, tied weights, ignored labels and sample weights."""
    x, y, weight = batch
    results = []
    for m in (96, 48, 32, 7, 1):
        net, opt = residual_net(m, dtype)
        acc = ga.Accumulator(net, optim.SAM(opt, rho=0.1, adaptive=adaptive), max_grad_norm=0.5, ema=0.9)
        for _ in range(3):
            acc.update(x, y, weight)
        results.append([net.params.copy(), acc._core.ema.copy(), acc.last_update.loss, acc.last_update.grad_norm, acc.optimizer.sharpness])
    for result in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(result, results[0]))


def test_dropout_masks_are_equal_in_both_passes():
    """y = w x behind dropout, w = 1, x = 1, targets 10: gradient 2 (m w - 10) m of a sample with mask m, and e = -0.5."""
    net = ga.plan(nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 1, bias=False)), input_shape=(1,), loss=nn.MSELoss(), micro_batch=8, dtype="float64")
    net.load_state_dict({"1.weight": [[1.0]]})
    update = ga.Accumulator(net, optim.SAM(optim.SGD(net, lr=0.0), rho=0.5)).update(np.ones((64, 1)), np.full((64, 1), 10.0))
    mask = dropout_mask((64, 1), 0.5, net.seed, 0, 0, 0)
    assert update.grad_norm == pytest.approx(abs(np.mean(2 * (0.5 * mask - 10) * mask)), rel=1e-14)
    assert update.loss == pytest.approx(np.mean((mask - 10) ** 2), rel=1e-14) and set(mask.ravel()) == {0.0, 2.0}


def test_against_the_reference():
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(12, 5)), rng.normal(size=(12, 1))
    for adaptive in (False, True):
        net = quadratic(rng.normal(size=5), micro_batch=5, features=5)
        w, state = net.params.copy(), {}

        def gradient(params):
            return [2 * ((x @ params[0])[:, None] - t)[:, 0] @ x / 12]

        def step(params, grads):
            nonlocal state
            new, state = reference.adamw_step(params[0], grads[0], state, lr=0.1)
            return [new]

        acc = ga.Accumulator(net, optim.SAM(optim.AdamW(net, lr=0.1), rho=0.2, adaptive=adaptive))
        for _ in range(4):
            acc.update(x, t)
            (w,) = reference.sam_step([w], gradient, step, rho=0.2, adaptive=adaptive)
        assert net.params == pytest.approx(w, rel=1e-11)


def test_a_zero_gradient_perturbs_nothing():
    net = quadratic(1.0)
    ga.Accumulator(net, optim.SAM(optim.SGD(net, lr=0.25), rho=0.5)).update(np.ones((2, 1)), [[1.0], [1.0]])
    assert value(net) == 1.0
    assert [e.tolist() for e in reference.sam_perturbation([np.ones(2)], [np.zeros(2)])] == [[0.0, 0.0]]


@pytest.mark.parametrize("scale", [1e-42, 1.0, 1e30])
def test_e_has_length_rho_however_small_or_large_the_gradient(scale):
    """Gradient (3, -4) times scale at w = 0: e = 0.5 (0.6, -0.8). The gradient at w + e is the same, so what e was shows in the loss."""
    x = np.array([[3 * scale, -4 * scale]], "float32")
    net = hand_net(2)
    sam = optim.SAM(optim.SGD(net, lr=0.0), rho=0.5)
    ga.Accumulator(net, sam).update(x, [[-1e-45]])
    assert sam.sharpness == pytest.approx(0.5 * 5 * scale, rel=1e-2)


@pytest.mark.filterwarnings("ignore:.*batch statistics")
@pytest.mark.parametrize("running_stats", ["micro_batch", "window"])
def test_running_statistics_are_those_of_the_first_pass(running_stats):
    """As without SAM: counted once, at w."""
    rng = np.random.default_rng(1)
    x, t = rng.normal(size=(8, 3)), rng.normal(size=(8, 3))
    states = []
    for rho in (None, 0.5):
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, running_stats=running_stats))
        net = ga.plan(model, input_shape=(3,), loss=nn.MSELoss(), micro_batch=4, dtype="float64")
        opt = optim.SGD(net, lr=0.1)
        ga.Accumulator(net, opt if rho is None else optim.SAM(opt, rho=rho)).update(x, t)
        states.append({name: a for name, a in net.state_dict().items() if "running" in name or "num_batches" in name})
    assert states[0].keys() == states[1].keys() and all(np.array_equal(a, states[1][name]) for name, a in states[0].items())


# ---- what is refused, and what an error leaves ----

@pytest.mark.parametrize("call", ["step", "stages", "begin", "record"])
def test_a_stream_is_refused_with_the_reason(call):
    net = quadratic(1.0)
    acc = ga.Accumulator(net, optim.SAM(optim.SGD(net)), accumulation_steps=2)
    calls = {"step": lambda: acc.step([[1.0]], [[0.0]]), "stages": lambda: next(acc.stages([[1.0]], [[0.0]])), "begin": acc.begin,
             "record": lambda: acc.record([[1.0]], [[0.0]])}
    with pytest.raises(ValueError, match=f"{call}: SAM runs every window twice.*call acc.update"):
        calls[call]()
    assert acc.micro_step == 0 and acc.update([[1.0]], [[0.0]]).update == 1


def test_a_micro_batch_by_hand_is_not_thrown_away_by_update():
    net = quadratic(1.0)
    acc = ga.Accumulator(net, optim.SAM(optim.SGD(net)))
    net.forward([[1.0]])
    net.loss([[0.0]])
    net.backward()
    with pytest.raises(ga.StageError, match="stage 'backward'"):
        acc.update([[1.0]], [[0.0]])
    assert net.grads.tolist() == [2.0]


def test_step_of_sam_is_refused():
    net = quadratic(1.0)
    with pytest.raises(ga.StageError, match="acc.update"):
        optim.SAM(optim.SGD(net)).step()


@pytest.mark.parametrize("make, kind, text", [
    (lambda net: optim.SAM(net), TypeError, "base_optimizer is of type Network"),
    (lambda net: optim.SAM(optim.SAM(optim.SGD(net))), TypeError, "type SAM"),
    (lambda net: optim.SAM(optim.AdamA(net)), TypeError, "type AdamA"),
    (lambda net: optim.SAM(optim.SGD(net), rho=-1), ValueError, "rho=-1"),
    (lambda net: optim.SAM(optim.SGD(net), rho=math.inf), ValueError, "rho=inf"),
    (lambda net: optim.SAM(optim.SGD(net), rho="0.1"), ValueError, "rho='0.1'"),
])
def test_wrong_arguments(make, kind, text):
    with pytest.raises(kind, match=text):
        make(quadratic(1.0))


class Fragile(nn.Function):
    """Fails in the forward whose number is ``at``."""

    calls, at = 0, None

    def forward(self, x):
        self.calls += 1
        if self.calls == self.at:
            raise RuntimeError("broken")
        return x

    def backward(self, grad):
        return grad


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_after_an_error_in_either_pass_everything_is_as_it_was(at):
    fragile = Fragile()
    net = ga.plan(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, running_stats="window"), fragile), input_shape=(2,), loss=nn.MSELoss(), micro_batch=2)
    acc = ga.Accumulator(net, optim.SAM(optim.SGD(net, lr=1.0)))
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(2, 4, 2))
    before = net.snapshot()
    fragile.calls, fragile.at = 0, at
    with pytest.raises(RuntimeError, match="broken"):
        acc.update(x, t)
    assert all(np.array_equal(a, before[name]) for name, a in net.snapshot().items())
    assert (acc.micro_step, acc.updates, acc.samples, net.stage) == (0, 0, 0, "clear")
    fragile.at = None
    with pytest.warns(UserWarning, match="batch statistics"):
        assert acc.update(x, t).update == 1


@pytest.mark.parametrize("policy", ["raise", "skip_update"])
def test_nan_in_the_first_pass(policy):
    net = quadratic(1.0)
    acc = ga.Accumulator(net, optim.SAM(optim.SGD(net)), on_non_finite=policy)
    x = [[1.0], [math.nan]]
    if policy == "raise":
        with pytest.raises(FloatingPointError, match="first pass of SAM"):
            acc.update(x, np.zeros((2, 1)))
    else:
        record = acc.update(x, np.zeros((2, 1)))
        assert record.skipped and record.reason and math.isnan(acc.optimizer.sharpness)
    assert value(net) == 1.0 and acc.updates == 0 and acc.micro_step == 0


def test_a_window_without_weight_is_skipped():
    net = quadratic(1.0)
    acc = ga.Accumulator(net, optim.SAM(optim.SGD(net)))
    record = acc.update(np.ones((2, 1)), np.zeros((2, 1)), [0.0, 0.0])
    assert record.skipped and value(net) == 1.0 and acc.updates == 0


def test_the_ledger_counts_the_copy():
    net = quadratic(1.0, dtype="float32", features=100)
    base = optim.SGD(net, momentum=0.9)
    before = net.memory.by_kind()["optimizer_state"]
    sam = optim.SAM(base)
    assert net.memory.by_kind()["optimizer_state"] - before == 400 == sam._kept.nbytes
    del sam
    assert net.memory.by_kind()["optimizer_state"] == before
    net = ga.plan(nn.Linear(100, 1), input_shape=(100,), loss=nn.MSELoss(), micro_batch=1, memory_limit=net.memory.bytes() + 200)
    with pytest.raises(ga.BudgetError, match="SAM's copy of the parameters"):
        optim.SAM(optim.SGD(net, momentum=0.9))


def test_options_of_the_window_work_with_sam(batch):
    """Staged, float64 buffer, loss scale, schedule: the same update to rounding, or the same bits."""
    x, y, weight = batch
    results = {}
    for name, options in {"plain": {}, "scale": {"loss_scale": 1024.0}, "staged": {"staged": True}, "float64": {"accumulator": "float64"},
                          "schedule": {"schedule": lambda updates: 1e-2}}.items():
        net, opt = residual_net(32)
        acc = ga.Accumulator(net, optim.SAM(opt, rho=0.1), **options)
        acc.update(x, y, weight)
        results[name] = net.params.copy()
    assert np.array_equal(results["plain"], results["scale"]) and np.array_equal(results["plain"], results["schedule"])
    for name in ("staged", "float64"):
        assert np.linalg.norm(results[name] - results["plain"]) <= 1e-4 * np.linalg.norm(results["plain"])


def test_update_many_is_update_for_each_window(batch):
    x, y, weight = batch
    results = []
    for many in (False, True):
        net, opt = residual_net(16)
        acc = ga.Accumulator(net, optim.SAM(opt), accumulation_steps=2)
        if many:
            acc.update_many(x, y, weight=weight)
        else:
            for i in range(0, 96, 32):
                acc.update(x[i:i + 32], y[i:i + 32], weight[i:i + 32])
        results.append(net.params.copy())
    assert np.array_equal(*results) and acc.updates == 3


def test_a_run_with_sam_is_saved_and_resumed(tmp_path, batch):
    x, y, weight = batch

    def made():
        net, opt = residual_net(32)
        return net, ga.Accumulator(net, optim.SAM(opt))

    net, acc = made()
    acc.update(x, y, weight)
    acc.save(tmp_path / "run.safetensors")
    acc.update(x, y, weight)
    other, resumed = made()
    resumed.load(tmp_path / "run.safetensors")
    resumed.update(x, y, weight)
    assert np.array_equal(net.params, other.params) and resumed.updates == 2


def test_groups_and_learning_rate_are_those_of_the_base():
    net = ga.plan(nn.Linear(1, 1), input_shape=(1,), loss=nn.MSELoss(), micro_batch=2, dtype="float64")
    sam = optim.SAM(optim.SGD(net, lr=0.25, groups=[{"params": ["bias"], "lr": 0.0}]), rho=0.5)
    assert [g["lr"] for g in sam.groups] == [0.25, 0.0]
    bias = net.parameters()["bias"].data.copy()
    ga.Accumulator(net, sam).update(np.ones((2, 1)), [[0.0], [4.0]])
    assert net.parameters()["bias"].data == bias
    sam.lr = 0.5
    assert [g["lr"] for g in sam.base_optimizer.groups] == [0.5, 0.5] and repr(sam).startswith("SAM(SGD(lr=0.5")


@pytest.mark.parametrize("make", [lambda net: optim.SAM(optim.SGD(net, lr=0.1)), lambda net: optim.AdamA(net, lr=0.01)], ids=["SAM", "AdamA"])
def test_fit_and_schedules_take_it_like_any_other(make):
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(32, 3)), rng.normal(size=(32, 1))
    net = ga.plan(nn.Linear(3, 1), input_shape=(3,), loss=nn.MSELoss(), micro_batch=4)
    opt = make(net)
    acc = ga.Accumulator(net, opt, 2, reduction="mean_of_means", schedule=optim.lr_scheduler.StepLR(opt, 4, 0.5))
    history = ga.fit(acc, (x, t), 2, progress=False)
    assert acc.updates == 8 and acc.optimizer.lr == pytest.approx(0.5 * (0.1 if isinstance(opt, optim.SAM) else 0.01)) and "8 updates" in repr(history)
