"""AdamA: what changes when the window's buffer goes away. ``hand_net`` and its gradients by hand are in conftest."""
import numpy as np
import pytest
from conftest import below, hand_net, residual_net

import gradaccum as ga
from gradaccum import nn, optim, reference

B1, B2 = 0.9, 0.999


def window(net, optimizer=optim.AdamA, k=2, **options):
    opt = optimizer(net, lr=1.0)
    return ga.Accumulator(net, opt, k, reduction="mean_of_means", **options), opt


def moments(opt):
    state = opt.state["0.weight"]
    return state["exp_avg"].item(), state["exp_avg_sq"].item()


def steps(acc, gradients):
    return [acc.step([[g]], below(1)) for g in gradients]


def test_the_cross_terms_by_hand():
    """Micro-batches with gradients +1 and -1, so g_i / K = ±1/2: Adam's v gets 0, AdamA's (1 - β₂) (1/4 + 1/4). Then 3 and 1, g_i / K = 1.5 and 0.5:
    Adam's v gets (1 - β₂) 4, AdamA's (1 - β₂) (2.25 + 0.25); the difference is 2 * 1.5 * 0.5. m is equal."""
    seen = {}
    for optimizer in (optim.Adam, optim.AdamA):
        net = hand_net(dtype="float64")
        acc, opt = window(net, optimizer)
        steps(acc, [1.0, -1.0])
        first = moments(opt)
        steps(acc, [3.0, 1.0])
        seen[optimizer.__name__] = first, moments(opt)
    assert seen["Adam"][0] == (0.0, 0.0)
    assert seen["AdamA"][0] == pytest.approx((0.0, (1 - B2) / 2), rel=1e-12, abs=1e-17)
    assert seen["Adam"][1] == pytest.approx(((1 - B1) * 2, (1 - B2) * 4), rel=1e-12)
    assert seen["AdamA"][1] == pytest.approx(((1 - B1) * 2, (1 - B2) * (B2 / 2 + 2.5)), rel=1e-12)


def test_the_step_by_hand():
    """Gradients 3 and 1 in the first update: m̂ = 2, v̂ = 2.5, so the step is 2 / √2.5; Adam's would be 2 / √4."""
    for optimizer, expected in ((optim.AdamA, 2 / 2.5**0.5), (optim.Adam, 1.0)):
        net = hand_net(dtype="float64")
        acc, opt = window(net, optimizer)
        steps(acc, [3.0, 1.0])
        assert net.params[0] == pytest.approx(-expected, rel=1e-7) and opt.updates == acc.updates == 1


def test_the_moments_decay_once_a_window():
    """Gradient 1 in the first micro-batch of four, then zeros: after a window m = (1 - β₁) / 4, after the next that times β₁."""
    net = hand_net(dtype="float64")
    acc, opt = window(net, k=4)
    steps(acc, [1.0, 0.0, 0.0, 0.0])
    assert moments(opt) == pytest.approx(((1 - B1) / 4, (1 - B2) / 16), rel=1e-12)
    steps(acc, [0.0] * 4)
    assert moments(opt) == pytest.approx((B1 * (1 - B1) / 4, B2 * (1 - B2) / 16), rel=1e-12)


def test_one_micro_batch_a_window_has_the_bits_of_adam():
    params = []
    for optimizer in (optim.Adam, optim.AdamA):
        net = hand_net(3)
        acc, _ = window(net, optimizer, k=1)
        for x in np.random.default_rng(0).normal(size=(10, 1, 3)):
            acc.step(x, below(1))
        params.append(net.params.copy())
    assert np.array_equal(*params) and params[0].all()


def ways(net, acc, x, y, way):
    if way == "update":
        return acc.update(x, y)
    if way == "step":
        return [acc.step(x[i:i + 8], y[i:i + 8]) for i in range(0, 24, 8)][-1].update
    if way == "stages":
        for _ in acc.stages(x, y):
            pass
        return acc.last_update
    acc.begin()
    for i in range(0, 24, 8):
        net.forward(x[i:i + 8])
        net.loss(y[i:i + 8])
        net.backward()
        acc.accumulate()
    acc.normalize()
    acc.optimizer.step()
    acc.clear()
    return acc.last_update


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_four_ways_have_the_same_bits_and_are_those_of_the_reference(dtype):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(24, 12)).astype("float32"), rng.integers(0, 5, 24)
    results = []
    for way in ("update", "step", "stages", "by hand"):
        net, _ = residual_net(8, dtype)
        acc = ga.Accumulator(net, optim.AdamA(net, lr=0.01), 3, reduction="mean_of_means")
        records = [ways(net, acc, x, y, way) for _ in range(3)]
        results.append(net.params.copy())
        assert [(r.update, r.samples, r.micro_steps, r.grad_norm, r.grad_norm_clipped) for r in records] == [(i, 24, 3, None, None) for i in (1, 2, 3)]
        assert len(records[0].micro_losses) == 3 and not net.grads.any()
    assert all(np.array_equal(r, results[0]) for r in results)
    net, opt = residual_net(8, dtype)                        # gradients of the micro-batches from a staged window of another network
    acc = ga.Accumulator(net, None, staged=True, reduction="mean_of_means")
    param, state = net.params.astype(np.float64), {}
    for update in range(3):
        net._core.array(0, 0, net.params.shape, True)[...] = param
        net._core.touch()
        c = acc._core.get_state()["counters"]
        acc._core.set_state("clear", (0, 0, 0, 0), (0.0,) * 4 + (False,), (c["micro_steps"], update, c["samples"], c["elements"], c["weight"]))
        acc.begin()
        grads = []
        for i in range(0, 24, 8):
            net.forward(x[i:i + 8])
            net.loss(y[i:i + 8])
            net.backward()
            grads.append(net.grads.astype(np.float64))
            acc.accumulate()
        acc.clear(discard=True)
        param, state = reference.adama_step(param, grads, state, lr=0.01)
    error = np.abs(results[0] - param).max()
    assert error < (1e-4 if dtype == "float32" else 1e-11)


def test_a_split_changes_the_update_and_this_is_declared():
    x, params = np.array([[1.0], [3.0], [-2.0], [5.0]]), []
    for m in (4, 2, 1):
        net = hand_net(micro_batch=m)
        acc, opt = window(net, k=None)
        acc.update(x, below(4))
        params.append(net.params[0])
        assert not opt.split_invariant
    assert len(set(params)) == 3 and optim.Adam.split_invariant


def test_tied_weights_frozen_parameters_and_groups():
    """The chains of a tied weight are in its moments, a frozen parameter has none, a group has its own rate."""
    tied = nn.Linear(3, 3, bias=False)
    model = nn.Sequential(tied, nn.ReLU(), tied, nn.Linear(3, 3), nn.Linear(3, 1))
    model[3].requires_grad_(False)
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(4, 3)), rng.normal(size=(4, 1))
    results = []
    for optimizer in (optim.Adam, optim.AdamA):
        net = ga.plan(model, input_shape=(3,), loss=nn.MSELoss(), micro_batch=4, dtype="float64")
        acc = ga.Accumulator(net, optimizer(net, lr=0.1, groups=[{"params": ["4.*"], "lr": 0.0}]), reduction="mean_of_means")
        before = net.state_dict()
        acc.update(x, t)
        after = net.state_dict()
        assert np.array_equal(before["3.weight"], after["3.weight"]) and np.array_equal(before["4.weight"], after["4.weight"])
        assert not np.array_equal(before["0.weight"], after["0.weight"])
        results.append(after["0.weight"])
    assert np.array_equal(*results)


# ---- memory ----

def bytes_of(optimizer, **options):
    net = ga.plan(nn.Linear(1000, 10, bias=False), input_shape=(1000,), loss=nn.MSELoss(), micro_batch=1)
    acc = ga.Accumulator(net, optimizer(net), **options)
    kinds = net.memory.by_kind()
    assert acc.buffer.nbytes == 40000
    return {kind: kinds.get(kind, 0) for kind in ("micro_batch_gradient", "gradient_buffer", "optimizer_state")}


def test_bytes_with_and_without_buffer():
    """10,000 parameters in float32. A staged window has two gradients, a direct one and AdamA one; it is another one."""
    p = 40000
    assert bytes_of(optim.Adam, staged=True) == {"micro_batch_gradient": p, "gradient_buffer": p, "optimizer_state": 2 * p}
    assert bytes_of(optim.Adam) == {"micro_batch_gradient": 0, "gradient_buffer": p, "optimizer_state": 2 * p}
    assert bytes_of(optim.AdamA, reduction="mean_of_means") == {"micro_batch_gradient": p, "gradient_buffer": 0, "optimizer_state": 2 * p}


# ---- what is refused, and why ----

@pytest.mark.parametrize("options, text", [
    ({"reduction": "mean"}, "reduction='mean'.*before the weight of the window is known.*mean_of_means"),
    ({"reduction": "sum"}, "reduction='sum'"),
    ({"max_grad_norm": 1.0}, "max_grad_norm: clipping by the norm of the window"),
    ({"staged": True}, "no buffer to stage"),
    ({"accumulator": "float64"}, "no buffer to stage"),
    ({"on_non_finite": "skip_micro_batch"}, "no buffer to stage"),
    ({"on_non_finite": "skip_update"}, "a window cannot be skipped"),
    ({"tail": "drop"}, "cannot be dropped"),
    ({"noise_scale": True}, "noise_scale"),
])
def test_options_that_need_the_buffer_are_refused(options, text):
    net = hand_net()
    with pytest.raises(ValueError, match=text):
        ga.Accumulator(net, optim.AdamA(net), **({"reduction": "mean_of_means"} | options))
    assert window(net)[0].step([[1.0]], below(1)).loss == 1000.0


def test_clipping_later_is_refused_too():
    acc, _ = window(hand_net())
    with pytest.raises(ValueError, match="max_grad_norm: clipping"):
        acc.max_grad_norm = 1.0
    assert acc.max_grad_norm is None
    steps(acc, [1.0])
    with pytest.raises(ValueError, match="clip: clipping"):
        acc.clip(1.0)


def test_the_number_of_micro_batches_must_be_known():
    net = hand_net()
    acc, _ = window(net, k=None)
    for call in (acc.begin, lambda: next(acc.stages([[1.0]], below(1)))):
        with pytest.raises(ValueError, match="must be known before the first"):
            call()
    assert acc.update([[1.0], [2.0]], below(2)).update == 1         # the batch tells


def test_an_unfinished_window_is_refused_at_flush_and_carried():
    acc, _ = window(hand_net(), k=3)
    steps(acc, [1.0])
    with pytest.raises(ValueError, match='flush: the window holds 1 of 3 micro-batches.*tail="carry"'):
        acc.flush()
    with pytest.raises(ValueError, match="normalize: the window holds 1 of 3"):
        acc.normalize()
    with pytest.raises(ga.StageError, match="nothing to throw away"):
        acc.clear(discard=True)
    assert [s.is_boundary for s in steps(acc, [1.0, 1.0])] == [False, True]
    acc, _ = window(hand_net(), k=2, tail="carry")
    steps(acc, [1.0])
    assert acc.flush() is None and steps(acc, [1.0])[0].update.samples == 2


def test_a_micro_batch_of_another_weight_is_not_taken():
    net = hand_net(dtype="float64")
    acc, opt = window(net, k=2)
    acc.step([[1.0], [2.0]], below(2))
    before = moments(opt), acc.samples, acc.micro_step, acc.weight_sum
    with pytest.raises(ValueError, match="micro-batch 2 has weight 1, expected 2 as those before it"):
        acc.step([[5.0]], below(1))
    assert (moments(opt), acc.samples, acc.micro_step, acc.weight_sum) == before and not net.grads.any()
    assert acc.step([[3.0], [4.0]], below(2)).update.samples == 4
    assert moments(opt)[0] == pytest.approx((1 - B1) * 2.5, rel=1e-12)


def test_a_micro_batch_without_weight_or_with_nan_is_not_taken():
    net = hand_net()
    acc, opt = window(net)
    with pytest.raises(ValueError, match="micro-batch 1 has weight 0, expected some"):
        acc.step([[1.0]], below(1), [0.0])
    with pytest.raises(FloatingPointError, match="not added to the moments"):
        acc.step([[np.nan]], below(1))
    assert moments(opt) == (0.0, 0.0) and acc.micro_step == 0 and not net.grads.any()
    assert steps(acc, [1.0, 1.0])[1].update.update == 1


class Fragile(nn.Function):
    """Fails in backward where an input is 7."""

    def forward(self, x):
        self.x = x.copy()
        return x

    def backward(self, grad):
        if (self.x == 7).any():
            raise RuntimeError("broken")
        return grad


def test_a_micro_batch_whose_backward_fails_is_not_taken():
    net = ga.plan(nn.Sequential(nn.Linear(1, 1, bias=False), Fragile(), nn.Linear(1, 1, bias=False)), input_shape=(1,), loss=nn.L1Loss(), micro_batch=1)
    net.load_state_dict({"0.weight": [[1.0]], "2.weight": [[1.0]]})
    opt = optim.AdamA(net)
    acc = ga.Accumulator(net, opt, 2, reduction="mean_of_means")
    steps(acc, [2.0])
    before = opt.state_dict()
    with pytest.raises(RuntimeError, match="broken"):
        steps(acc, [7.0])
    assert all(np.array_equal(a, before[name]) for name, a in opt.state_dict().items()) and not net.grads.any() and acc.micro_step == 1
    assert steps(acc, [3.0])[0].update.samples == 2


def test_a_replaced_accumulator_writes_nothing():
    net = hand_net()
    old, _ = window(net)
    new, opt = window(net)
    with pytest.raises(ga.StageError, match="replaced by a newer one"):
        steps(old, [1.0])
    assert not net.grads.any() and steps(new, [1.0, 1.0])[1].update.update == 1 and opt.updates == 1


def test_update_with_a_short_piece_is_refused_before_anything_is_written():
    net = hand_net(micro_batch=2)
    acc, opt = window(net, k=2)
    with pytest.raises(ValueError, match="3 samples in pieces of 2 leave one of 1"):
        acc.update(np.ones((3, 1)), below(3))
    assert moments(opt) == (0.0, 0.0) and acc.samples == 0


def test_an_error_in_the_middle_of_update_tells_what_the_moments_hold():
    net = ga.plan(nn.Linear(2, 3), input_shape=(2,), loss=nn.CrossEntropyLoss(), micro_batch=2)
    opt = optim.AdamA(net)
    acc = ga.Accumulator(net, opt, reduction="mean_of_means")
    kept, x = opt.state_dict(), np.ones((6, 2))
    with pytest.raises(ValueError, match="micro-batch 3 has weight 1") as error:
        acc.update(x, np.array([0, 1, 2, 0, 1, -100]))
    assert "2 micro-batches of this window are in exp_avg" in error.value.__notes__[0]
    assert (acc.micro_step, acc.samples, acc.updates, net.stage) == (0, 0, 0, "clear") and opt.state_dict()["exp_avg"].any()
    opt.load_state_dict(kept)
    assert acc.update(x, np.array([0, 1, 2, 0, 1, 2])).update == 1


def test_without_an_accumulator_there_is_no_window():
    with pytest.raises(ga.StageError, match="give it to an Accumulator"):
        optim.AdamA(hand_net()).step()


def test_a_run_is_resumed_inside_a_window(tmp_path):
    net = hand_net()
    acc, opt = window(net, k=3)
    steps(acc, [1.0, 2.0, 3.0, 4.0])
    acc.save(tmp_path / "run.safetensors")
    steps(acc, [5.0, 6.0])
    other = hand_net()
    resumed, _ = window(other, k=3)
    resumed.load(tmp_path / "run.safetensors")
    assert resumed.micro_step == 1
    steps(resumed, [5.0, 6.0])
    assert np.array_equal(net.params, other.params) and resumed.updates == 2 and opt.updates == 2


def test_convergence_on_digits():
    """Handwritten digits after 6 epochs, windows of 4 x 16: both optimizers classify more than 85 of 100 new ones."""
    from gradaccum.data import batches, digits

    x_train, y_train, x_test, y_test = digits()
    for optimizer in (optim.Adam, optim.AdamA):
        net = ga.plan(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=16)
        acc = ga.Accumulator(net, optimizer(net, lr=3e-3), 4, reduction="mean_of_means")
        for epoch in range(6):
            for x, y in batches(x_train, y_train, 64, epoch=epoch, drop_last=True):
                acc.update(x, y)
        assert (net.predict(x_test).argmax(axis=1) == y_test).mean() > 0.85
