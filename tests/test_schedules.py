"""Schedules: everything that changes during a run is a function of updates, never of micro-steps."""
import math

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim, schedules
from gradaccum.optim import lr_scheduler as lr

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 2, 40)


def made(micro_batch=4, make=lambda net: optim.SGD(net, lr=1.0, momentum=0.9), seed=0):
    net = ga.plan(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), input_shape=(3,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, seed=seed)
    return net, make(net)


OPT = made()[1]
TWO = made(make=lambda net: optim.SGD(net, lr=1.0, momentum=0.9, groups=[{"params": ["*bias"], "lr": 0.5}]))[1]


# ---- learning rates, by hand ----

@pytest.mark.parametrize("scheduler, expected", [
    (lr.ConstantLR(OPT, 0.5, 2), {0: 0.5, 1: 0.5, 2: 1, 9: 1}),
    (lr.LinearLR(OPT, 0.25, 1.0, 3), {0: 0.25, 1: 0.5, 2: 0.75, 3: 1, 7: 1}),
    (lr.StepLR(OPT, 3, 0.5), {0: 1, 2: 1, 3: 0.5, 6: 0.25}),
    (lr.MultiStepLR(OPT, [5, 2], 0.5), {0: 1, 1: 1, 2: 0.5, 4: 0.5, 5: 0.25}),
    (lr.ExponentialLR(OPT, 0.5), {0: 1, 3: 0.125}),
    (lr.PolynomialLR(OPT, 4, 2.0), {0: 1, 1: 0.5625, 2: 0.25, 4: 0, 6: 0}),
    (lr.CosineAnnealingLR(OPT, 4, 0.2), {0: 1, 2: 0.6, 4: 0.2}),
    (lr.CosineAnnealingWarmRestarts(OPT, 2, 2), {0: 1, 1: 0.5, 2: 1, 4: 0.5, 6: 1}),                          # 2, then 4, then 8 updates
    (lr.LambdaLR(OPT, lambda u: 1 / (1 + u)), {0: 1, 1: 0.5, 3: 0.25}),
    (lr.MultiplicativeLR(OPT, lambda u: 0.5 if u < 3 else 2.0), {0: 1, 1: 0.5, 2: 0.25, 3: 0.5}),
    (lr.SequentialLR(OPT, [lr.LinearLR(OPT, 0.5, 1.0, 2), lr.ExponentialLR(OPT, 0.5)], [2]), {0: 0.5, 1: 0.75, 2: 1, 3: 0.5, 4: 0.25}),
    (lr.ChainedScheduler([lr.ConstantLR(OPT, 0.5, 2), lr.ExponentialLR(OPT, 0.5)]), {0: 0.5, 1: 0.25, 2: 0.25}),
], ids=lambda s: type(s).__name__ if isinstance(s, lr.LRScheduler) else "")
def test_rates_by_hand(scheduler, expected):
    for updates, rate in expected.items():
        assert scheduler(int(updates)) == [pytest.approx(rate, abs=1e-15)]
        assert scheduler(int(updates)) == scheduler(int(updates))            # asking changes nothing


def test_one_cycle_by_hand():
    """10 updates, pct_start 0.4: up in updates 0..3 (turn at 0.4 * 10 - 1 = 3), down in 3..9; momentum the other way."""
    cycle = lr.OneCycleLR(OPT, max_lr=1.0, total_steps=10, pct_start=0.4, anneal_strategy="linear", div_factor=10, final_div_factor=100)
    assert [round(cycle(u)[0], 6) for u in (0, 1, 3, 6, 9)] == [0.1, 0.4, 1.0, 0.5005, 0.001]
    assert [round(cycle.hyper(u)[0]["momentum"], 6) for u in (0, 3, 9)] == [0.95, 0.85, 0.95]
    with pytest.raises(ValueError, match="total_steps=10"):
        cycle(11)
    net, opt = made()
    acc = ga.Accumulator(net, opt, schedule=lr.OneCycleLR(opt, 0.1, total_steps=10, pct_start=0.4))
    for _ in range(4):
        acc.update(X, Y)
    assert opt.groups[0]["momentum"] == 0.85 and acc.last_update.lr == pytest.approx(0.1)
    net, adam = made(make=lambda net: optim.AdamW(net, lr=0.1, betas=(0.9, 0.99)))
    assert lr.OneCycleLR(adam, 0.1, epochs=2, steps_per_epoch=5).hyper(0)[0]["betas"] == (0.95, 0.99)


def test_each_group_has_its_base_rate():
    assert lr.ExponentialLR(TWO, 0.5)(1) == [0.5, 0.25]
    assert lr.LambdaLR(TWO, [lambda u: 1.0, lambda u: 0.0])(3) == [1.0, 0.0]
    net, opt = made(make=lambda net: optim.SGD(net, lr=1.0, groups=[{"params": ["*bias"], "lr": 0.5}]))
    acc = ga.Accumulator(net, opt, schedule=lr.ExponentialLR(opt, 0.5))
    acc.update(X, Y)
    acc.update(X, Y)
    assert [g["lr"] for g in opt.groups] == [0.5, 0.25]
    many = made(make=lambda net: optim.SGD(net, lr=1.0, groups=[{"params": ["*bias"], "lr": 0.5}]))
    other = ga.Accumulator(*many, schedule=lr.ExponentialLR(many[1], 0.5))
    other.update_many(np.concatenate([X, X]), np.concatenate([Y, Y]), 40)
    assert np.array_equal(other.net.params, net.params)


def test_momentum_needs_no_correction_when_the_rate_changes():
    """Goyal et al. 2017, remark 2, by hand: g = 1, m = 0.5, rates 1 then 0.1. Rate outside: v = 1, 1.5; steps 1, 0.15. Folded in, uncorrected: second step
    0.5 * 1 + 0.1 = 0.6; corrected by lr_new / lr_old = 0.1: 0.5 * 0.1 * 1 + 0.1 = 0.15. Ours is the corrected one."""
    class Line(nn.Module):                                   # loss x w: its gradient is x = 1
        def __init__(self):
            super().__init__()
            self.w = nn.Linear(1, 1, bias=False)

        def forward(self, x):
            return self.w(x)

    net = ga.plan(Line(), input_shape=(1,), loss=nn.L1Loss(), micro_batch=1, dtype="float64")
    net.load_state_dict({"w.weight": [[5.0]]})
    acc = ga.Accumulator(net, optim.SGD(net, lr=1.0, momentum=0.5), schedule=lambda u: [1.0, 0.1][u])
    places = [net.params[0]]
    for _ in range(2):
        acc.update(np.ones((1, 1)), np.zeros((1, 1)))        # |5 - 0|: gradient 1
        places.append(net.params[0])
    assert np.diff(places) == pytest.approx([-1.0, -0.15])


# ---- in the window ----

def test_d36_d42_a_schedule_counts_updates_not_micro_steps():
    """Cosine over 10 updates, K = 4: the rates seen equal the list of K = 1, in every way to run a window."""
    expected = [0.5 * (1 + math.cos(math.pi * u / 10)) for u in range(10)]
    for k in (1, 4):
        net, opt = made(micro_batch=40 // k)
        acc = ga.Accumulator(net, opt, accumulation_steps=k, schedule=lr.CosineAnnealingLR(opt, 10))
        seen = []
        for u in range(10):
            if u % 2:
                for i in range(0, 40, 40 // k):
                    acc.step(X[i:i + 40 // k], Y[i:i + 40 // k])
            else:
                acc.update(X, Y)
            seen.append(acc.last_update.lr)
        assert seen == pytest.approx(expected, abs=1e-15)


def test_d37_a_scheduler_never_reads_a_counter_of_micro_steps():
    net, opt = made()
    asked = []
    acc = ga.Accumulator(net, opt, accumulation_steps=10, schedule=lambda u: asked.append(u) or 0.1)
    for _ in range(3):
        for i in range(0, 40, 4):
            acc.step(X[i:i + 4], Y[i:i + 4])
    assert asked == [0, 1, 2] and acc.micro_steps == 30


def test_a_schedule_of_accumulation_steps_is_the_windows_made_by_hand():
    """1, 1, 2, 2, 4 micro-batches a window, in bits."""
    net, opt = made()
    acc = ga.Accumulator(net, opt, accumulation_steps=schedules.milestones({0: 1, 2: 2, 4: 4}))
    other, opt2 = made()
    by_hand = ga.Accumulator(other, opt2)
    for i in range(0, 40, 4):
        acc.step(X[i:i + 4], Y[i:i + 4])
    first = 0
    for k in (1, 1, 2, 2, 4):
        by_hand.update(X[first:first + 4 * k], Y[first:first + 4 * k])
        first += 4 * k
    assert acc.updates == by_hand.updates == 5 and np.array_equal(net.params, other.params)
    assert acc.micro_step == 0 and acc.accumulation_steps == 4
    events = [e for e in acc.stages(X[:16], Y[:16]) if e.stage == "accumulate"]
    assert len(events) == 4 and acc.accumulation_steps == 4
    with pytest.raises(ValueError, match="accumulation_steps is 4"):
        acc.update(X[:20], Y[:20])


@pytest.mark.parametrize("steps", [0, 2.5, -1, math.nan, "4", True])
def test_a_schedule_that_gives_no_number_of_steps_is_refused_before_anything_is_added(steps):
    net, opt = made()
    acc = ga.Accumulator(net, opt, accumulation_steps=lambda u: steps if u else 1)
    acc.step(X[:4], Y[:4])
    before = net.params.copy()
    for call in (lambda: acc.step(X[:4], Y[:4]), lambda: acc.update(X[:4], Y[:4]), lambda: list(acc.stages(X[:4], Y[:4]))):
        with pytest.raises(ValueError, match=r"accumulation_steps\(1\)"):
            call()
    assert acc.micro_step == 0 and acc.micro_steps == 1 and np.array_equal(net.params, before)


@pytest.mark.parametrize("rate", [-0.1, math.nan, math.inf, [0.1, 0.1]])
def test_a_schedule_that_gives_no_rate_is_refused(rate):
    net, opt = made()
    acc = ga.Accumulator(net, opt, schedule=lambda u: rate)
    before = net.params.copy()
    with pytest.raises(ValueError, match=r"schedule\(0\)"):
        acc.update(X, Y)
    assert np.array_equal(net.params, before) and opt.lr == 1.0 and acc.updates == 0 and acc.micro_step == 0


def test_ramp_of_the_batch_by_hand():
    """8, 16, 24 samples for 40 samples each of 120, then 32: 5 + 3 + 2 windows (40 / 8, then up to 80 in 16s: 48, seen 88; then to 120 in 24s: 48)."""
    ramp = schedules.rampup(8, 8, 120, effective_batch_size=32, micro_batch=4)
    assert [ramp(u) for u in range(12)] == [2] * 5 + [4] * 3 + [6] * 2 + [8] * 2
    assert schedules.rampup(32, 8, 100, effective_batch_size=32, micro_batch=8)(0) == 4
    assert schedules.constant(3)(99) == 3


def test_steps_from_the_noise_scale():
    """scale 100 at micro-batch 8: round(12.5) = 12; with r = 25: sqrt(2500) = 50, round(6.25) = 6. Unknown: the minimum. At most one change in 10 updates."""
    scale = [None]
    steps = schedules.from_noise_scale(8, lambda: scale[0], minimum=2, maximum=20, every=10)
    assert steps(0) == 2
    scale[0] = 100.0
    assert [steps(u) for u in (1, 1, 2)] == [12, 12, 12]
    scale[0] = 1e9
    assert [steps(u) for u in (5, 10, 11, 12)] == [12, 12, 20, 20]
    again = schedules.from_noise_scale(8, lambda: scale[0], minimum=2, maximum=20, every=10)
    again.load_state_dict(steps.state_dict())
    assert again(12) == 20
    scale[0] = 100.0
    assert schedules.from_noise_scale(8, lambda: scale[0], r=25.0)(0) == 6
    scale[0] = math.nan
    assert schedules.from_noise_scale(8, lambda: scale[0], minimum=3)(0) == 3


def test_steps_follow_the_measured_noise():
    net, opt = made()
    steps = schedules.from_noise_scale(4, minimum=2, maximum=10, every=1)
    with pytest.raises(ValueError, match="noise_scale=True"):
        ga.Accumulator(net, opt, accumulation_steps=steps)
    acc = ga.Accumulator(net, opt, accumulation_steps=steps, noise_scale=True)
    seen = []
    for i in range(60):
        step = acc.step(X[i % 10 * 4:i % 10 * 4 + 4], Y[i % 10 * 4:i % 10 * 4 + 4])
        if step.update:
            scale = acc.noise_scale.scale
            seen.append(scale)
            if scale and math.isfinite(scale) and scale > 0:
                assert acc.accumulation_steps == min(max(round(scale / 4), 2), 10)
    assert any(seen)


# ---- planned updates ----

@pytest.mark.parametrize("tail, expected", [("flush", 6), ("drop", 4), ("carry", 5)])
def test_d23_d25_d39_planned_updates_for_each_tail(tail, expected):
    """2 epochs of 10 micro-batches, K = 4: 3 + 3, 2 + 2, or 20 // 4."""
    assert ga.planned_updates(micro_batches=10, accumulation_steps=4, epochs=2, tail=tail) == expected


@pytest.mark.parametrize("tail", schedules.TAILS)
@pytest.mark.parametrize("options", [dict(accumulation_steps=4), dict(accumulation_steps=lambda u: 1 + u % 3), dict(effective_batch_size=10)],
                         ids=["steps", "function", "samples"])
def test_the_plan_makes_the_windows_that_the_accumulator_makes(tail, options):
    """37 samples in fours, uneven at the end, 3 epochs: sizes of all windows, and their number."""
    net, opt = made()
    acc = ga.Accumulator(net, opt, tail=tail, **options)
    made_windows = []
    for _ in range(3):
        for i in range(0, 37, 4):
            step = acc.step(X[i:min(i + 4, 37)], Y[i:min(i + 4, 37)])
            made_windows += [(step.update.micro_steps, step.update.samples)] if step.update else []
        last = acc.flush()
        made_windows += [(last.micro_steps, last.samples)] if last else []
    sizes = [4] * 9 + [1]
    assert list(schedules.windows(sizes, epochs=3, tail=tail, **options)) == made_windows
    assert ga.planned_updates(samples=37, micro_batch=4, epochs=3, tail=tail, **options) == acc.updates == len(made_windows)


@pytest.mark.parametrize("call", [
    lambda: ga.planned_updates(accumulation_steps=4), lambda: ga.planned_updates(micro_batches=4),
    lambda: ga.planned_updates(micro_batches=0, accumulation_steps=4),
    lambda: ga.planned_updates(micro_batches=4, accumulation_steps=4, tail="keep"), lambda: ga.planned_updates(micro_batches=4, effective_batch_size=16),
    lambda: ga.planned_updates(micro_batches=4, accumulation_steps=2, effective_batch_size=16), lambda: ga.planned_updates(samples=4, accumulation_steps=2),
    lambda: ga.planned_updates(micro_batches=4, accumulation_steps=lambda u: 0), lambda: schedules.milestones({1: 2}), lambda: schedules.milestones({}),
    lambda: schedules.milestones({0: 0}), lambda: schedules.rampup(8, 6, 100, effective_batch_size=32, micro_batch=4),
    lambda: schedules.rampup(8, 16, 100, effective_batch_size=32, micro_batch=4), lambda: schedules.from_noise_scale(4, lambda: 1.0, minimum=5, maximum=2),
    lambda: schedules.from_noise_scale(4, lambda: 1.0, r=0), lambda: lr.StepLR(OPT, 0), lambda: lr.LinearLR(OPT, 0.0), lambda: lr.ConstantLR(OPT, 2.0),
    lambda: lr.OneCycleLR(OPT, 0.1), lambda: lr.OneCycleLR(OPT, [0.1, 0.2], 10), lambda: lr.OneCycleLR(made(make=lambda n: optim.SGD(n, lr=1.0))[1], 0.1, 10),
    lambda: lr.SequentialLR(OPT, [lr.StepLR(OPT, 2)], [3]), lambda: lr.SequentialLR(OPT, [lr.StepLR(OPT, 2), lr.StepLR(TWO, 2)], [3]),
    lambda: lr.LambdaLR(TWO, [lambda u: 1.0]), lambda: lr.ExponentialLR(OPT, math.nan),
])
def test_bad_input(call):
    with pytest.raises(ValueError):
        call()


def test_wrong_types():
    with pytest.raises(TypeError, match="optimizer"):
        lr.StepLR("sgd", 3)
    with pytest.raises(TypeError, match="scale"):
        schedules.from_noise_scale(4, 3.0)
    with pytest.raises(TypeError, match="schedulers"):
        lr.SequentialLR(OPT, [lambda u: 1.0], [])
