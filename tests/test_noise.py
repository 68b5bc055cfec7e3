"""The gradient noise scale: the formula, the unbiased pairs of both kinds of windows, known noise, and the curve it predicts.

``hand_net`` has the gradient x for a sample x, so G and S are those of the numbers we draw.
"""
import itertools
import json
import math

import numpy as np
import pytest
from conftest import below, hand_net, residual_net
from test_window import by_hand

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.noise import NoiseScale, trade_off


def measured(features=1, micro_batch=1, dtype="float64", **options):
    net = hand_net(features, micro_batch, dtype)
    return ga.Accumulator(net, optim.SGD(net, lr=0.0), **{"noise_scale": True, **options})


def run(acc, sizes, x, y, weight=None):
    """A window of micro-batches of these sizes, by steps."""
    for first, end in itertools.pairwise(np.cumsum([0, *sizes])):
        acc.step(x[first:end], y[first:end], None if weight is None else weight[first:end])
    acc.flush()


# ---- the formula ----

def test_squared_norms_3_at_2_and_1_5_at_8_give_1_and_4_and_scale_4():
    assert ga.noise_scale(2, 3.0, 8, 1.5) == (1.0, 4.0, 4.0)


def test_a_gradient_hidden_by_noise_has_no_scale():
    grad_sq, trace, scale = ga.noise_scale(1, 4.0, 4, 1.0)
    assert (grad_sq, trace) == (0.0, 4.0) and math.isnan(scale)


@pytest.mark.parametrize("pair", [(8, 1, 2, 1), (2, 1, 2, 1), (0, 1, 2, 1), (1, -1, 2, 1), (1, 1, math.inf, 1), (1, math.nan, 2, 1)])
def test_sizes_that_tell_nothing_apart_are_refused(pair):
    with pytest.raises(ValueError, match="expected"):
        ga.noise_scale(*pair)


def test_at_the_noise_scale_updates_and_samples_cost_twice_their_minimum():
    assert trade_off(100, 100) == (2, 2) and trade_off(400, 100) == (1.25, 5) and trade_off(25, 100) == (5, 1.25)
    with pytest.raises(ValueError, match="scale=0"):
        trade_off(1, 0)


# ---- pairs, worked by hand ----

def test_a_staged_window_uses_the_mean_of_the_micro_norms():
    acc = measured(staged=True, accumulation_steps=2)
    run(acc, [1, 1], np.array([[1.0], [3.0]]), below(2))
    noise = acc.noise_scale
    assert noise.last == (1, 5, 2, 4)                        # (1 + 9) / 2, and ((1 + 3) / 2)²
    assert (noise.last_grad_sq, noise.last_trace) == (3, 2)  # 1 * 3, and the sample variance of 1 and 3
    assert noise.scale == pytest.approx(2 / 3, rel=1e-15) and noise.windows == 1 and noise.reason == ""


def test_an_unstaged_window_uses_the_first_prefix():
    acc = measured(accumulation_steps=2)
    run(acc, [1, 1], np.array([[3.0], [1.0]]), below(2))
    noise = acc.noise_scale
    assert noise.last == (1, 9, 2, 4)
    assert (noise.last_grad_sq, noise.last_trace) == (2 * 4 - 9, 10)
    assert noise.scale is None and "not above 0" in noise.reason     # -1: unbiased, and of no use alone


def test_uneven_micro_batches_give_the_cross_product_as_the_squared_gradient():
    acc = measured(staged=True, micro_batch=2, accumulation_steps=2)
    run(acc, [2, 1], np.array([[1.0], [3.0], [5.0]]), below(3))
    noise = acc.noise_scale
    assert noise.last == pytest.approx((5 / 3, 41 / 5, 3, 9), rel=1e-15)     # (4² + 5²) / (2² + 1²)
    assert noise.last_grad_sq == pytest.approx(2 * 4 * 5 / (9 - 5), rel=1e-14)
    assert noise.last_trace == pytest.approx((8.2 - 9) / (3 / 5 - 1 / 3), rel=1e-14)


def test_weights_count_as_kishs_effective_size():
    acc = measured(staged=True, accumulation_steps=2)
    run(acc, [1, 1], np.array([[1.0], [3.0]]), below(2), np.array([2.0, 1.0]))
    assert acc.noise_scale.last == pytest.approx((1, (4 + 9) / 5, 9 / 5, (5 / 3) ** 2), rel=1e-15)


@pytest.mark.parametrize("reduction", ["mean", "mean_of_means", "sum"])
@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("sizes, weight", [([1, 1, 1], None), ([2, 2, 1], None), ([1, 3], None), ([2, 1, 2], [1, 2, 0.5, 3, 0.25])])
def test_the_mean_over_all_outcomes_is_exact(staged, reduction, sizes, weight):
    """Gradients 2 + or - 1 with equal chances: |G|² = 4 and tr S = 1. The mean over all 2^n windows, no sampling."""
    n = sum(sizes)
    acc = measured(staged=staged, micro_batch=3, accumulation_steps=len(sizes), reduction=reduction, loss_scale=4.0)
    found = []
    for signs in itertools.product([-1, 1], repeat=n):
        run(acc, sizes, 2.0 + np.array(signs)[:, None], below(n), None if weight is None else np.array(weight))
        found.append((acc.noise_scale.last_grad_sq, acc.noise_scale.last_trace))
    assert np.mean(found, axis=0) == pytest.approx([4, 1], rel=1e-12)


# ---- smoothing and state ----

def test_each_is_smoothed_with_bias_correction_and_then_divided():
    noise = NoiseScale(0.5)
    noise.add(2, 3.0, 8, 1.5)                                # 1 and 4
    assert (noise.grad_sq, noise.trace, noise.scale) == (1, 4, 4)
    noise.add(1, 11.0, 2, 7.0)                               # 3 and 8
    assert (noise.last_grad_sq, noise.last_trace) == (3, 8)
    assert noise.grad_sq == pytest.approx((0.25 * 1 + 0.5 * 3) / 0.75) and noise.trace == pytest.approx((0.25 * 4 + 0.5 * 8) / 0.75)
    assert noise.scale == pytest.approx(5 / 1.75) and "2 windows" in repr(noise)


@pytest.mark.parametrize("decay", [1.0, -0.1, math.nan, 2])
def test_a_wrong_decay_is_refused(decay):
    with pytest.raises(ValueError, match="noise_scale="):
        measured(noise_scale=decay)


def test_off_is_none():
    assert measured(noise_scale=False).noise_scale is None


@pytest.mark.parametrize("staged", [False, True])
def test_a_restored_run_continues_with_the_same_bits_also_inside_a_window(staged):
    rng = np.random.default_rng(4)
    x = rng.normal(3, 1, size=(7, 1))
    one, two = (measured(staged=staged, accumulation_steps=3, noise_scale=0.9) for _ in range(2))
    run(one, [1] * 4, x, below(7))                           # a window of 3, and of 1 that gives no estimate
    run(one, [1] * 3, x[4:], below(3))
    one.step(x[:1], below(1))
    two.step(x[:1], below(1))
    two._core.noise((0, 0, 0, 0, 0, 0))                      # as in a window that was restored
    two.noise_scale.load_state_dict(json.loads(json.dumps(one.noise_scale.state_dict())))
    assert two.noise_scale.last == one.noise_scale.last and two.noise_scale.windows == 2
    for acc in (one, two):
        acc.step(x[1:2], below(1))
        acc.step(x[2:3], below(1))
    assert one.noise_scale.windows == 3 and two.noise_scale.state_dict() == one.noise_scale.state_dict()
    assert two.noise_scale.grad_sq == one.noise_scale.grad_sq != 0


def test_a_wrong_state_changes_nothing():
    noise = NoiseScale()
    noise.add(2, 3.0, 8, 1.5)
    before = noise.state_dict()
    for wrong in ({}, {**before, "decay": 1.5}, {**before, "last": [1, 2, 1, 2]}):
        with pytest.raises(ValueError):
            noise.load_state_dict(wrong)
        assert noise.state_dict() == before


# ---- windows without an estimate ----

def test_one_micro_batch_gives_no_estimate():
    acc = measured(micro_batch=4)
    acc.update(np.ones((4, 1)), below(4))
    assert acc.noise_scale.scale is None and acc.noise_scale.windows == 0 and "one micro-batch" in acc.noise_scale.reason
    assert "NoiseScale: none" in repr(acc.noise_scale)


def test_windows_and_micro_batches_without_weight():
    acc = measured(accumulation_steps=3)
    run(acc, [1] * 3, np.ones((3, 1)), below(3), np.zeros(3))
    assert acc.last_update.skipped and "no weight" in acc.noise_scale.reason
    run(acc, [1] * 3, np.array([[9.0], [1.0], [3.0]]), below(3), np.array([0.0, 1.0, 1.0]))
    assert acc.noise_scale.last == (1, 1, 2, 4)              # the first with weight is the small batch
    run(acc, [1] * 3, np.ones((3, 1)), below(3), np.array([0.0, 1.0, 0.0]))
    assert acc.noise_scale.last is None and "one micro-batch with weight" in acc.noise_scale.reason and acc.noise_scale.windows == 1


def test_a_skipped_window_and_a_rejected_micro_batch():
    x = np.array([[1.0], [3.0], [5.0]])
    bad = x.copy()
    bad[1] = np.inf
    acc = measured(accumulation_steps=3, on_non_finite="skip_update")
    with np.errstate(invalid="ignore"):
        run(acc, [1] * 3, bad, below(3))
    assert acc.last_update.skipped and "NaN or infinity" in acc.noise_scale.reason and acc.noise_scale.scale is None
    acc = measured(accumulation_steps=3, on_non_finite="skip_micro_batch")
    run(acc, [1] * 3, bad, below(3))
    assert acc.last_update.rejected == 1 and acc.noise_scale.last == (1, 13, 2, 9)   # 1 and 5


def test_weights_that_make_the_window_no_larger_than_its_first_micro_batch():
    acc = measured(micro_batch=9, accumulation_steps=2)
    run(acc, [9, 1], np.ones((10, 1)), below(10), np.array([1.0] * 9 + [100.0]))
    assert acc.noise_scale.windows == 0 and "staged=True" in acc.noise_scale.reason


# ---- the four ways, and the same bits ----

WAYS = {
    "update": lambda acc, x, y, w: acc.update(x, y, w),
    "step": lambda acc, x, y, w: run(acc, [32, 32, 32], x, y, w),
    "stages": lambda acc, x, y, w: list(acc.stages(x, y, w)),
    "by hand": lambda acc, x, y, w: by_hand(acc, [(x[i:i + 32], y[i:i + 32], w[i:i + 32]) for i in (0, 32, 64)]),
}


@pytest.mark.parametrize("staged", [False, True])
def test_four_ways_measure_the_same_bits_and_change_none(batch, staged):
    """Tied weights, dropout, ignored labels, sample weights."""
    def trained(way, noise_scale):
        net, opt = residual_net(32)
        acc = ga.Accumulator(net, opt, accumulation_steps=3, noise_scale=noise_scale, staged=staged)
        for _ in range(3):
            WAYS[way](acc, *batch)
        return net.params.copy(), acc

    params, _ = trained("update", False)
    results = [trained(way, True) for way in WAYS]
    assert all(np.array_equal(p, params) for p, _ in results)
    states = [acc.noise_scale.state_dict() for _, acc in results]
    assert all(state == states[0] for state in states) and states[0]["windows"] == 3


def test_grouped_micro_batches_are_measured_as_single_ones():
    """A network large enough for ``update`` to run micro-batches together: the first is alone all the same, and no bit changes."""
    rng = np.random.default_rng(5)
    x, y, weight = rng.normal(size=(37, 96)).astype("float32"), rng.integers(0, 20, 37), rng.random(37)
    weight[:4] = 0                                           # the first micro-batch and a half

    def trained(way, noise_scale):
        net = ga.plan(nn.Sequential(nn.Linear(96, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 20)), input_shape=(96,),
                      loss=nn.CrossEntropyLoss(), micro_batch=3, seed=5)
        assert net._core.bytes(3)["rows"] > 9
        acc = ga.Accumulator(net, optim.SGD(net, lr=0.1), accumulation_steps=13, noise_scale=noise_scale)
        for _ in range(2):
            acc.update(x, y, weight) if way == "update" else run(acc, [3] * 12 + [1], x, y, weight)
        return net.params.copy(), acc

    off, _ = trained("update", False)
    (update, one), (steps, two) = trained("update", True), trained("step", True)
    assert np.array_equal(off, update) and np.array_equal(off, steps)
    assert one.noise_scale.state_dict() == two.noise_scale.state_dict() and one.noise_scale.windows == 2
    assert one.noise_scale.last.b_small == pytest.approx(weight[4:6].sum() ** 2 / (weight[4:6] ** 2).sum())


def test_update_many_measures_every_window(batch):
    results = []
    for many in (True, False):
        net, opt = residual_net(8)
        acc = ga.Accumulator(net, opt, accumulation_steps=4, noise_scale=True)
        if many:
            acc.update_many(*batch[:2], weight=batch[2])
        else:
            for i in range(0, 96, 32):
                acc.update(*(a[i:i + 32] for a in batch))
        results.append((net.params.copy(), acc.noise_scale.state_dict()))
    assert np.array_equal(results[0][0], results[1][0]) and results[0][1] == results[1][1] and results[0][1]["windows"] == 3


def test_the_prefix_of_a_tied_parameter_is_the_norm_of_its_summed_chains(batch):
    x, y, weight = batch
    for ties in ("exact", "fold"):
        net, opt = residual_net(32, "float64", ties=ties)
        first = ga.Accumulator(net, None)
        first.begin()
        net.forward(x[:32])
        net.loss(y[:32], weight[:32])
        net.backward()
        first.accumulate()
        norm = first.normalize()
        net, opt = residual_net(32, "float64", ties=ties)
        acc = ga.Accumulator(net, opt, noise_scale=True)
        update = acc.update(x, y, weight)
        counted = np.where(y == -100, 0, weight)
        size = lambda w: w.sum() ** 2 / (w**2).sum()  # noqa: E731
        assert acc.noise_scale.last == pytest.approx((size(counted[:32]), norm**2, size(counted), update.grad_norm**2), rel=1e-12)


def test_frozen_parameters_do_not_count():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    model[0].requires_grad_(False)
    net = ga.plan(model, input_shape=(3,), loss=nn.MSELoss(), micro_batch=2, dtype="float64")
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.0), noise_scale=True, staged=True)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(4, 1))
    acc.update(x, y)
    norms = []
    for i in (0, 2):
        p = {k: v.astype(np.float64) for k, v in net.state_dict().items()}
        h = np.tanh(x[i:i + 2] @ p["0.weight"].T + p["0.bias"])
        d = 2 * (h @ p["2.weight"].T + p["2.bias"] - y[i:i + 2]) / 2
        norms.append(np.sum((d.T @ h) ** 2) + np.sum(d) ** 2)
    assert acc.noise_scale.last.g2_small == pytest.approx(np.mean(norms), rel=1e-12)


# ---- known noise ----

def known(staged, windows, steps, size, mean, seed, noise_scale=0.9999):
    """Windows of gradients N(mean, I); the estimates of each window and the Accumulator."""
    features = len(mean)
    acc = measured(features, size, "float64", staged=staged, accumulation_steps=steps, noise_scale=noise_scale)
    rng, found, target = np.random.default_rng(seed), [], below(steps * size)
    for _ in range(windows):
        acc.update(mean + rng.normal(size=(steps * size, features)), target)
        found.append((acc.noise_scale.last_grad_sq, acc.noise_scale.last_trace))
    return np.array(found), acc


@pytest.mark.parametrize("staged", [False, True])
def test_the_estimate_converges_to_the_exact_scale(staged):
    """|G|² = 2, tr S = 16, scale 8; within 4 standard errors of the ratio of means."""
    mean = np.zeros(16)
    mean[:2] = 1
    found, acc = known(staged, 3000, 4, 2, mean, seed=1, noise_scale=0.99999)     # nearly the plain mean
    error = np.std(found[:, 1] - 8 * found[:, 0]) / 2 / math.sqrt(len(found))     # delta method: (trace - 8 grad_sq) / |G|²
    assert error < 0.25
    assert acc.noise_scale.scale == pytest.approx(8, abs=4 * error)
    assert np.mean(found, axis=0) == pytest.approx([2, 16], abs=4 * np.max(np.std(found, axis=0)) / math.sqrt(len(found)))


def test_the_unstaged_pair_has_k_plus_1_times_the_variance():
    """Noise only, K = 4 micro-batches of 2, S = I in 8 dimensions: tr S has variance 2 * 8 / 3 staged, 5 times that unstaged; |G|² twice."""
    variance = {}
    for staged in (False, True):
        found, _ = known(staged, 4000, 4, 2, np.zeros(8), seed=2)
        variance[staged] = np.var(found, axis=0)
    tolerance = 4 * math.sqrt(6 / 4000)                      # a kurtosis of up to 7
    assert variance[True][1] == pytest.approx(16 / 3, rel=tolerance)
    assert variance[False][1] == pytest.approx(5 * 16 / 3, rel=tolerance)
    assert variance[False][0] / variance[True][0] == pytest.approx(2, rel=2 * tolerance)


def least_squares(batch, steps, damping, features, seed, target, most=5000):
    """SGD on y = w x without noise in y, x ~ N(0, I): H = I, G = e, tr S = (features + 1) |e|², so that B_noise = B_simple = features + 1 all the way.
    Its best rate is 1 / (1 + B_noise / B) (equation 2.6); damped, updates are many and small, as the model wants. Updates until |e|² falls to target."""
    net = ga.plan(nn.Linear(features, 1, bias=False), input_shape=(features,), loss=nn.MSELoss(), micro_batch=batch // steps, dtype="float64", seed=seed)
    w = np.ones((1, features))
    net.load_state_dict({"weight": 2 * w})
    opt = optim.SGD(net, lr=damping / (1 + (features + 1) / batch) / 2)         # MSELoss has the factor 2
    acc = ga.Accumulator(net, opt, noise_scale=0.999, staged=True)
    rng = np.random.default_rng(seed)
    for update in range(1, most):
        x = rng.normal(size=(batch, features))
        acc.update(x, x @ w.T)
        if np.sum((net.params - 1) ** 2) <= target * features:
            return update, acc.noise_scale.scale
    raise AssertionError("the target was not reached")


def test_updates_and_samples_follow_the_hyperbola():
    """S = S_min (1 + B_noise / B): with damping c an update takes (2c - c²) / (1 + B_noise / B) of the loss, so S = ln(1 / target) / -ln(1 - that)."""
    features, damping, target, runs = 15, 0.1, 0.01, 6
    scale, rate = features + 1, 2 * damping - damping**2
    s_min = math.log(1 / target) / rate
    for batch in (4, 16, 64):
        updates = [least_squares(batch, 4, damping, features, seed, target)[0] for seed in range(runs)]
        expected = s_min * trade_off(batch, scale)[0]
        # variance of an update's relative loss change, (2 lr)² 2 / B: of (x e)² / |e|² over B samples; summed over the updates
        lr = damping / (1 + scale / batch)
        spread = math.sqrt(expected * 8 * lr**2 / batch) / math.log(1 / target) / math.sqrt(runs)
        assert np.mean(updates) == pytest.approx(expected, rel=4 * spread + damping)       # the model is first order in damping
        assert np.mean(updates) * batch == pytest.approx(s_min * scale * trade_off(batch, scale)[1], rel=4 * spread + damping)


def test_the_scale_of_least_squares_stays_while_the_gradient_shrinks():
    _, scale = least_squares(64, 16, 0.1, 15, seed=0, target=1e-4)
    assert scale == pytest.approx(16, rel=0.25)
