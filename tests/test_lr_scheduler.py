"""Learning rates as functions of updates, with numbers worked by hand. ``tests/parity`` compares them with PyTorch's."""
import math

import numpy as np
import pytest
from conftest import below, hand_net

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.optim import lr_scheduler as lrs

ROOT = math.sqrt(0.5)


def sgd(net=None, lr=0.8, **options):
    return optim.SGD(net or hand_net(), lr=lr, **options)


def two_groups(**options):
    net = ga.plan(nn.Linear(1, 1), input_shape=(1,), loss=nn.L1Loss(), micro_batch=4, dtype="float64")
    net.load_state_dict({"weight": [[0.0]], "bias": [0.0]})
    return net, optim.SGD(net, lr=0.8, groups=[{"params": ["bias"], "lr": 0.08}], **options)


def weight_of(net):
    return net.parameters()["0.weight"].data.item()


def counted(updates):
    return 1 / (1 + updates)


FORMULAS = {
    "ConstantLR": (lambda o: lrs.ConstantLR(o, factor=0.5, total_iters=3), [0.4, 0.4, 0.4, 0.8, 0.8]),
    "LinearLR": (lambda o: lrs.LinearLR(o, start_factor=0.25, total_iters=3), [0.2, 0.4, 0.6, 0.8, 0.8]),
    "LinearLR down": (lambda o: lrs.LinearLR(o, 1.0, 0.5, 2), [0.8, 0.6, 0.4, 0.4]),
    "StepLR": (lambda o: lrs.StepLR(o, 2, 0.5), [0.8, 0.8, 0.4, 0.4, 0.2]),
    "MultiStepLR": (lambda o: lrs.MultiStepLR(o, [3, 1, 3], 0.5), [0.8, 0.4, 0.4, 0.1, 0.1]),
    "ExponentialLR": (lambda o: lrs.ExponentialLR(o, 0.5), [0.8, 0.4, 0.2, 0.1]),
    "PolynomialLR": (lambda o: lrs.PolynomialLR(o, 4, 2.0), [0.8, 0.45, 0.2, 0.05, 0.0, 0.0]),
    "CosineAnnealingLR": (lambda o: lrs.CosineAnnealingLR(o, 4), [0.8, 0.4 * (1 + ROOT), 0.4, 0.4 * (1 - ROOT), 0.0, 0.4 * (1 - ROOT)]),
    "CosineAnnealingLR, eta_min": (lambda o: lrs.CosineAnnealingLR(o, 2, eta_min=0.2), [0.8, 0.5, 0.2]),
    "CosineAnnealingWarmRestarts": (lambda o: lrs.CosineAnnealingWarmRestarts(o, 2), [0.8, 0.4, 0.8, 0.4, 0.8]),
    "CosineAnnealingWarmRestarts, longer": (lambda o: lrs.CosineAnnealingWarmRestarts(o, 1, T_mult=2), [0.8, 0.8, 0.4, 0.8, 0.4 * (1 + ROOT), 0.4]),
    "OneCycleLR": (lambda o: lrs.OneCycleLR(o, 0.8, total_steps=6, pct_start=0.5, anneal_strategy="linear", cycle_momentum=False, div_factor=4,
                                            final_div_factor=1.0), [0.2, 0.5, 0.8, 0.6, 0.4, 0.2]),
    "OneCycleLR, cos": (lambda o: lrs.OneCycleLR(o, 0.8, epochs=3, steps_per_epoch=2, pct_start=0.5, cycle_momentum=False, div_factor=4,
                                                 final_div_factor=1.0), [0.2, 0.5, 0.8, 0.65, 0.35, 0.2]),
    "OneCycleLR, three phases": (lambda o: lrs.OneCycleLR(o, 0.8, total_steps=10, anneal_strategy="linear", cycle_momentum=False, div_factor=4,
                                                          final_div_factor=2, three_phase=True), [0.2, 0.5, 0.8, 0.5, 0.2, 0.18, 0.16, 0.14, 0.12, 0.1]),
    "OneCycleLR, peak first": (lambda o: lrs.OneCycleLR(o, 0.8, total_steps=4, pct_start=0.25, anneal_strategy="linear", cycle_momentum=False,
                                                        div_factor=4, final_div_factor=1.0), [0.8, 0.6, 0.4, 0.2]),
    "LambdaLR": (lambda o: lrs.LambdaLR(o, counted), [0.8, 0.4, 0.8 / 3, 0.2]),
    "MultiplicativeLR": (lambda o: lrs.MultiplicativeLR(o, lambda u: u / (u + 1)), [0.8, 0.4, 0.8 / 3, 0.2]),
    "SequentialLR": (lambda o: lrs.SequentialLR(o, [lrs.ConstantLR(o, 0.5, 9), lrs.ExponentialLR(o, 0.5), lrs.StepLR(o, 1, 0.1)], [2, 4]),
                     [0.4, 0.4, 0.8, 0.4, 0.8, 0.08]),
    "ChainedScheduler": (lambda o: lrs.ChainedScheduler([lrs.ConstantLR(o, 0.5, 2), lrs.ExponentialLR(o, 0.5)]), [0.4, 0.2, 0.2, 0.1, 0.05]),
    "chained chains": (lambda o: lrs.ChainedScheduler([lrs.ChainedScheduler([lrs.StepLR(o, 1, 0.5), lrs.CosineAnnealingLR(o, 2)]), lrs.StepLR(o, 1, 0.5)]),
                       [0.8, 0.1, 0.0]),
    "with_warmup": (lambda o: lrs.with_warmup(lrs.CosineAnnealingLR(o, 2), 3, start_factor=0.25), [0.2, 0.4, 0.6, 0.8, 0.4, 0.0]),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_rates_by_hand(name):
    make, expected = FORMULAS[name]
    scheduler = make(sgd())
    assert [scheduler(u) for u in range(len(expected))] == [[pytest.approx(lr, rel=1e-15, abs=1e-16)] for lr in expected]


def test_a_scheduler_is_a_pure_function_of_updates():
    """Any order, any number of times, np.int64 too; the optimizer stays; later changes of its rate do not move the base rate."""
    for name, (make, expected) in FORMULAS.items():
        opt = sgd()
        scheduler = make(opt)
        forth = [scheduler(u) for u in range(len(expected))]
        opt.lr = 0.3
        assert [scheduler(np.int64(u)) for u in reversed(range(len(expected)))] == forth[::-1], name
        assert opt.lr == 0.3


def test_each_group_has_its_own_base_rate():
    _, opt = two_groups()
    assert lrs.StepLR(opt, 1, 0.5)(1) == [0.4, 0.04]
    assert lrs.LambdaLR(opt, [counted, lambda u: 2.0])(1) == [0.4, 0.16]
    assert lrs.MultiplicativeLR(opt, [counted, lambda u: 2.0])(2) == [0.8 * 0.5 * (1 / 3), 0.32]
    assert lrs.OneCycleLR(opt, [0.8, 0.4], 6, pct_start=0.5, cycle_momentum=False)(2) == [0.8, 0.4]
    assert lrs.SequentialLR(opt, [lrs.StepLR(opt, 1, 0.5)], [])(1) == [0.4, 0.04]


def test_of_one_s_own():
    class Square(lrs.LRScheduler):
        def get_lr(self, updates):
            return [base / (1 + updates) ** 2 for base in self.base_lrs]

    _, opt = two_groups()
    assert Square(opt)(1) == [0.2, 0.02] and repr(Square(opt)) == "Square()"
    with pytest.raises(NotImplementedError, match="LRScheduler defines no get_lr"):
        lrs.LRScheduler(opt)(0)


def test_schedulers_say_what_they_are():
    opt = sgd()
    assert repr(lrs.CosineAnnealingLR(opt, 10)) == "CosineAnnealingLR(T_max=10, eta_min=0.0)"
    assert repr(lrs.SequentialLR(opt, [lrs.StepLR(opt, 3)], [])) == "SequentialLR(schedulers=[StepLR(step_size=3, gamma=0.1)], milestones=[])"


# ---- in an Accumulator ----

def rates_of(k, updates, schedule):
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=k)
    acc.schedule = schedule(acc)
    return [u.lr for u in (acc.step([[1.0]], below(1)).update for _ in range(updates * k)) if u]


@pytest.mark.parametrize("k", [1, 4])
def test_d36_schedule_counts_updates_not_micro_steps(k):
    """A cosine over 10 updates: K = 4 sees the K = 1 list, 0.8 (1 + cos(pi u / 10)) / 2."""
    assert rates_of(k, 10, lambda acc: lrs.CosineAnnealingLR(acc.optimizer, 10)) == [0.8 * ((1 + math.cos(math.pi * u / 10)) / 2) for u in range(10)]


@pytest.mark.parametrize("k", [1, 3])
def test_d37_a_scheduler_that_reads_a_counter_reads_updates(k):
    def schedule(acc):
        scheduler = lrs.StepLR(acc.optimizer, 2, 0.5)
        return lambda _: scheduler(acc.updates)

    assert rates_of(k, 5, schedule) == [0.8, 0.8, 0.4, 0.4, 0.2]


WAYS = {
    "update": lambda acc, x, y: acc.update(x, y),
    "step": lambda acc, x, y: [acc.step(x[i:i + 1], y[i:i + 1]) for i in range(len(y))],
    "stages": lambda acc, x, y: list(acc.stages(x, y)),
    "update_many": lambda acc, x, y: acc.update_many(x, y, len(y)),
}


def window_by_hand(acc, x, y):
    acc.begin()
    for i in range(len(y)):
        acc.net.forward(x[i:i + 1])
        acc.net.loss(y[i:i + 1])
        acc.net.backward()
        acc.accumulate()
    acc.normalize()
    acc.optimizer.step()
    acc.clear()


WAYS["by hand"] = window_by_hand


@pytest.mark.parametrize("schedule", ["scheduler", "list", "tuple"])
@pytest.mark.parametrize("way", WAYS)
def test_groups_are_set_one_by_one(way, schedule):
    """Gradients of weight and bias are 2 and 1: with rates 0.8, 0.08, then 0.4, 0.04 they move by 2.4 and 0.12."""
    net, opt = two_groups()
    scheduler = lrs.StepLR(opt, 1, 0.5)
    acc = ga.Accumulator(net, opt, accumulation_steps=2, schedule={
        "scheduler": scheduler, "list": scheduler.get_lr, "tuple": lambda u: tuple(scheduler(u))}[schedule])
    acc.micro_batch = 1
    for _ in range(2):
        WAYS[way](acc, np.array([[1.0], [3.0]]), below(2))
    assert acc.updates == 2 and [g["lr"] for g in opt.groups] == [0.4, 0.04] and acc.last_update.lr == 0.4
    assert net.params.tolist() == pytest.approx([-2.4, -0.12], rel=1e-15)


def test_a_plain_function_sets_all_groups():
    net, opt = two_groups()
    acc = ga.Accumulator(net, opt, schedule=lambda u: np.float32(0.5))
    acc.update([[1.0]], below(1))
    assert [g["lr"] for g in opt.groups] == [0.5, 0.5]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value, text", [
    (-0.1, "schedule(1) = -0.1: expected a finite learning rate, not negative"),
    (math.nan, "schedule(1) = nan: expected a finite"), (math.inf, "schedule(1) = inf"), (None, "schedule(1) = None"), ("x", "schedule(1) = 'x'"),
    ([0.1], "schedule(1) = [0.1]: expected a finite learning rate, not negative, or a list of 2, one for each group"), ([0.1] * 3, "or a list of 2, one for"),
    ([0.1, -1.0], "schedule(1) = [0.1, -1.0]: expected a finite"),
], ids=str)
def test_a_wrong_rate_is_refused_before_anything_is_added(way, value, text):
    net, opt = two_groups()
    acc = ga.Accumulator(net, opt, accumulation_steps=2, schedule=lambda u: value if u else 0.5)
    acc.micro_batch = 1
    x, y = np.array([[1.0], [3.0]]), below(2)
    WAYS[way](acc, x, y)
    before = net.snapshot() | opt.state_dict() | acc._core.get_state() | {"groups": [dict(g) for g in opt.groups]}
    with pytest.raises(ValueError) as error:
        WAYS[way](acc, x, y)
    assert text in str(error.value) and net.stage == "clear"
    after = net.snapshot() | opt.state_dict() | acc._core.get_state() | {"groups": [dict(g) for g in opt.groups]}
    assert all(np.array_equal(before[key], after[key]) for key in before)
    acc.schedule = None
    WAYS[way](acc, x, y)                                     # and it goes on
    assert acc.updates == 2


def test_a_failed_update_puts_rate_and_momentum_back():
    net = hand_net()
    opt = sgd(net, momentum=0.9)
    acc = ga.Accumulator(net, opt, schedule=lrs.OneCycleLR(opt, 0.5, 10))
    with pytest.raises(FloatingPointError):
        acc.update([[np.inf]], below(1))
    assert opt.groups[0]["lr"] == 0.8 and opt.groups[0]["momentum"] == 0.9 and weight_of(net) == 0


def test_a_schedule_with_a_state_is_asked_once_an_update():
    class Counter:
        calls = 0

        def __call__(self, updates):
            self.calls += 1
            return [0.5, 0.25]

        def state_dict(self):
            return {"calls": self.calls}

        def load_state_dict(self, state):
            self.calls = state["calls"]

    for way, do in WAYS.items():
        acc = ga.Accumulator(*two_groups(), accumulation_steps=2, schedule=Counter())
        acc.micro_batch = 1
        for _ in range(3):
            do(acc, np.ones((2, 1)), below(2))
        assert acc.schedule.calls == 3, way


def test_update_many_has_the_bits_of_update_with_every_kind_of_schedule():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(40, 1)), rng.normal(size=(40, 1))
    for make in (lambda opt: lrs.StepLR(opt, 2, 0.5), lambda opt: lrs.OneCycleLR(opt, 0.5, 10), lambda opt: lambda u: [0.1 / (1 + u), 0.2]):
        results = []
        for way in ("update", "update_many"):
            net, opt = two_groups(momentum=0.9)
            acc = ga.Accumulator(net, opt, schedule=make(opt))
            rates = [acc.update(x[i:i + 4], y[i:i + 4]).lr for i in range(0, 40, 4)] if way == "update" else [u.lr for u in acc.update_many(x, y, 4)]
            results.append((net.params.tolist(), rates, opt.groups))
        assert results[0] == results[1]


def test_resuming_needs_no_state_of_the_scheduler(tmp_path):
    """Stopped inside update 3 of 8, made anew, loaded: the same bits, rates and momenta."""
    def make():
        net = hand_net()
        opt = sgd(net, momentum=0.9)
        return ga.Accumulator(net, opt, accumulation_steps=3, schedule=lrs.OneCycleLR(opt, 0.5, 8))

    gradients = np.random.default_rng(0).normal(size=(24, 1, 1))
    whole, first, second = make(), make(), make()
    expected = [whole.step(g, below(1)).update for g in gradients]
    for g in gradients[:8]:
        first.step(g, below(1))
    first.save(tmp_path / "run")
    second.load(tmp_path / "run")
    assert [second.step(g, below(1)).update for g in gradients[8:]] == expected[8:]
    assert weight_of(second.net) == weight_of(whole.net) and second.optimizer.groups == whole.optimizer.groups


# ---- momentum that runs against the rate ----

def test_one_cycle_sets_the_momentum_of_sgd():
    """Rates 0.2, 0.5, 0.8, momenta 0.95, 0.875, 0.8, gradient 1: v = 1, 0.875 + 1, 0.8 * 1.875 + 1."""
    net = hand_net(dtype="float64")
    opt = sgd(net, momentum=0.5)
    scheduler = lrs.OneCycleLR(opt, 0.8, 6, pct_start=0.5, anneal_strategy="linear", base_momentum=0.8, div_factor=4, final_div_factor=1.0)
    assert [scheduler.momentum(u)[0] for u in range(6)] == pytest.approx([0.95, 0.875, 0.8, 0.85, 0.9, 0.95], rel=1e-15)
    acc = ga.Accumulator(net, opt, accumulation_steps=2, schedule=scheduler)
    seen = []
    for _ in range(6):
        acc.step([[1.0]], below(1))
        seen.append(opt.groups[0]["momentum"])
    assert seen == pytest.approx([0.5, 0.95, 0.95, 0.875, 0.875, 0.8], rel=1e-15)        # set at the boundary only
    assert opt.state["0.weight"]["momentum_buffer"].item() == pytest.approx(2.5, rel=1e-15)
    assert weight_of(net) == pytest.approx(-(0.2 + 0.5 * 1.875 + 0.8 * 2.5), rel=1e-15)


def test_one_cycle_sets_the_first_beta_of_adam():
    """Adam divides by 1 - beta1**t with the beta of that update, as PyTorch does: gradient 1, then m = 0.8 * 0.1 + 0.2 over 1 - 0.8**2."""
    net = hand_net(dtype="float64")
    opt = optim.Adam(net, lr=1.0, betas=(0.5, 0.99), eps=0.0)
    scheduler = lrs.OneCycleLR(opt, 0.8, 4, pct_start=0.5, max_momentum=0.9, base_momentum=0.8, div_factor=4)
    acc = ga.Accumulator(net, opt, schedule=scheduler)
    acc.update([[1.0]], below(1))
    assert opt.groups[0]["betas"] == (0.9, 0.99) and weight_of(net) == pytest.approx(-0.2, rel=1e-14)
    acc.update([[1.0]], below(1))
    assert opt.groups[0]["betas"] == (0.8, 0.99)
    assert weight_of(net) == pytest.approx(-0.2 - 0.8 * (0.8 * 0.1 + 0.2) / (1 - 0.8**2), rel=1e-14)


# ---- momentum correction (Goyal et al. 2017, equation 10) ----

def folded(rates, gradients, m, corrected):
    """Equation 9, u' = m u + lr' g and w' = w - u', or 10, where the old u is scaled by lr' / lr."""
    w, u, before = 0.0, 0.0, rates[0]
    for lr, g in zip(rates, gradients):
        u = m * (lr / before if corrected else 1.0) * u + lr * g
        w, before = w - u, lr
    return w


def trained(schedule, gradients, **options):
    net = hand_net(dtype="float64")
    opt = sgd(net, lr=1.0, **options)
    acc = ga.Accumulator(net, opt, accumulation_steps=2, schedule=schedule(opt))
    for g in gradients:
        for _ in range(2):                                   # a window of two equal micro-batches
            acc.step([[g]], below(1))
    return weight_of(net)


def test_momentum_correction_by_hand():
    """m = 0.5, rates 1 and 0.5, gradients 1 and 1: u = 1, then corrected 0.5 * 0.5 * 1 + 0.5 = 0.75, without 0.5 * 1 + 0.5 = 1.

    Ours: v = 1, then 0.5 * 1 + 1 = 1.5, times 0.5: 0.75.
    """
    assert folded([1.0, 0.5], [1.0, 1.0], 0.5, corrected=True) == -1.75
    assert folded([1.0, 0.5], [1.0, 1.0], 0.5, corrected=False) == -2.0
    assert trained(lambda opt: lrs.StepLR(opt, 1, 0.5), [1.0, 1.0], momentum=0.5) == -1.75
    assert trained(lambda opt: lrs.FoldedMomentum(lrs.StepLR(opt, 1, 0.5)), [1.0, 1.0], momentum=0.5) == -2.0


@pytest.mark.parametrize("make", [
    lambda opt: lrs.with_warmup(lrs.StepLR(opt, 3, 0.1), 4, start_factor=0.2), lambda opt: lrs.LambdaLR(opt, lambda u: [1.0, 0.25, 4.0, 0.5][u % 4]),
], ids=["warm-up and steps", "up and down"])
def test_momentum_correction_is_exact_at_every_change_of_the_rate(make):
    gradients = np.random.default_rng(1).normal(size=12).tolist()
    rates = [make(sgd(lr=1.0))(u)[0] for u in range(12)]
    corrected, plain = (folded(rates, gradients, 0.9, c) for c in (True, False))
    assert abs(corrected - plain) > 0.1
    assert trained(make, gradients, momentum=0.9) == pytest.approx(corrected, rel=1e-12)
    assert trained(lambda opt: lrs.FoldedMomentum(make(opt)), gradients, momentum=0.9) == pytest.approx(plain, rel=1e-12)


def test_a_constant_rate_needs_no_correction():
    gradients = [1.0, -3.0, 2.0]
    assert folded([0.5] * 3, gradients, 0.75, True) == folded([0.5] * 3, gradients, 0.75, False)
    assert trained(lambda opt: lrs.FoldedMomentum(lrs.ConstantLR(opt, 0.5, 9)), gradients, momentum=0.75) == folded([0.5] * 3, gradients, 0.75, True)


# ---- bad arguments ----

@pytest.mark.parametrize("make, text", [
    (lambda o: lrs.ConstantLR(o, 1.5), "factor=1.5: expected a finite number, 0 to 1"),
    (lambda o: lrs.LinearLR(o, 0.0), "start_factor=0: .*the first update does nothing"),
    (lambda o: lrs.LinearLR(o, end_factor=1.1), "end_factor=1.1"),
    (lambda o: lrs.LinearLR(o, total_iters=0), "total_iters=0: expected a whole number, at least 1"),
    (lambda o: lrs.StepLR(o, 2.5), "step_size=2.5"), (lambda o: lrs.StepLR(o, 2, math.nan), "gamma=nan"),
    (lambda o: lrs.MultiStepLR(o, [-1]), "milestones=-1"), (lambda o: lrs.ExponentialLR(o, -0.5), "gamma=-0.5: expected a finite number, at least 0"),
    (lambda o: lrs.PolynomialLR(o, 4, True), "power=True"), (lambda o: lrs.CosineAnnealingLR(o, 0), "T_max=0"),
    (lambda o: lrs.CosineAnnealingLR(o, 5, eta_min="a"), "eta_min='a'"), (lambda o: lrs.CosineAnnealingWarmRestarts(o, 5, 1.5), "T_mult=1.5"),
    (lambda o: lrs.OneCycleLR(o, 0.1), "give total_steps, the number of updates"), (lambda o: lrs.OneCycleLR(o, 0.1, epochs=3), "give total_steps"),
    (lambda o: lrs.OneCycleLR(o, [0.1, 0.2], 10), "max_lr: got 2 values, but the optimizer has 1 groups"),
    (lambda o: lrs.OneCycleLR(o, 0.1, 10), r"cycle_momentum=True: SGD was made without momentum.*optim.SGD\(net, momentum=0.9\)"),
    (lambda o: lrs.OneCycleLR(o, 0.1, 10, anneal_strategy="sin"), "anneal_strategy='sin'"),
    (lambda o: lrs.OneCycleLR(o, 0.1, 10, div_factor=0), "div_factor=0, final_div_factor=10000.0: expected numbers above 0"),
    (lambda o: lrs.OneCycleLR(sgd(momentum=0.9), 0.1, 10, max_momentum=1.5), "max_momentum=1.5"),
    (lambda o: lrs.OneCycleLR(optim.Adam(hand_net()), 0.1, 10, max_momentum=1), "max_momentum=1: betas are below 1"),
    (lambda o: lrs.LambdaLR(o, [counted] * 2), "lr_lambda: got 2 values"),
    (lambda o: lrs.SequentialLR(o, [], []), "schedulers: got none"),
    (lambda o: lrs.SequentialLR(o, [lrs.StepLR(o, 1)] * 2, [3, 5]), r"milestones=\[3, 5\]: expected 1 rising numbers"),
    (lambda o: lrs.SequentialLR(o, [lrs.StepLR(o, 1)] * 3, [5, 3]), r"milestones=\[5, 3\]"),
    (lambda o: lrs.SequentialLR(o, [lrs.StepLR(sgd(), 1)], []), "was built for another optimizer"),
    (lambda o: lrs.SequentialLR(o, [lrs.StepLR(o, 1), lrs.MultiplicativeLR(o, counted)], [3]), "can only be the first"),
    (lambda o: lrs.ChainedScheduler([]), "got none|expected an optimizer"),
    (lambda o: lrs.ChainedScheduler([lrs.LambdaLR(o, counted)]), r"LambdaLR\(.* is no factor of the base rate"),
    (lambda o: lrs.ChainedScheduler([lrs.CosineAnnealingLR(o, 5, 0.1)]), "is no factor of the base rate"),
    (lambda o: lrs.FoldedMomentum(lrs.StepLR(o, 1)), "has no velocity of this form"),
])
def test_arguments(make, text):
    with pytest.raises((ValueError, TypeError), match=text):
        make(sgd())


def test_folded_momentum_and_cycles_refuse_what_they_cannot_do_exactly():
    cycle = lrs.OneCycleLR(opt := sgd(momentum=0.9), 0.1, 10)
    for call in (lambda: lrs.SequentialLR(opt, [cycle], []), lambda: lrs.FoldedMomentum(cycle)):
        with pytest.raises(ValueError, match="cycle_momentum=False"):
            call()
    for other in (sgd(momentum=0.9, nesterov=True), optim.AdamW(hand_net())):
        with pytest.raises(ValueError, match="has no velocity of this form"):
            lrs.FoldedMomentum(lrs.StepLR(other, 1))
    with pytest.raises(ValueError, match="the rate for update 3 is 0"):
        lrs.FoldedMomentum(lrs.PolynomialLR(opt, 2)).hyper(2)
    with pytest.raises(ValueError, match="cycle_momentum=False"):
        lrs.OneCycleLR(opt, 0.1, 10, cycle_momentum=False).momentum(0)


def test_one_cycle_ends():
    net = hand_net()
    opt = sgd(net)
    acc = ga.Accumulator(net, opt, schedule=lrs.OneCycleLR(opt, 0.5, 2, cycle_momentum=False))
    for _ in range(2):
        acc.step([[1.0]], below(1))
    with pytest.raises(ValueError, match="total_steps=2 updates, so there is no rate for update 3; plan it with ga.planned_updates"):
        acc.step([[1.0]], below(1))
    assert acc.micro_step == 0 and acc.updates == 2


def test_things_of_another_type():
    opt = sgd()
    for call, text in [
        (lambda: lrs.StepLR(hand_net(), 1), "StepLR: got Network, expected an optimizer"),
        (lambda: lrs.LambdaLR(opt, 0.5), "lr_lambda: got float, expected a function"),
        (lambda: lrs.SequentialLR(opt, [counted], []), "schedulers: got function"),
        (lambda: lrs.with_warmup(counted, 3), "with_warmup: got function"),
        (lambda: lrs.FoldedMomentum(counted), "FoldedMomentum: got function"),
        (lambda: lrs.StepLR(opt, 1).step(), r"StepLR.step: a scheduler is a function of updates .*schedule=scheduler"),
        (lambda: ga.Accumulator(opt.net, opt, schedule=0.1), "schedule: got float, expected one of optim.lr_scheduler"),
    ]:
        with pytest.raises(TypeError, match=text):
            call()
    with pytest.raises(ValueError, match="updates=-1"):
        lrs.StepLR(opt, 1)(-1)
    with pytest.raises(ValueError, match=r"schedule: StepLR\(step_size=1, gamma=0.1\) was made for another optimizer"):
        ga.Accumulator(opt.net, opt, schedule=lrs.StepLR(sgd(), 1))


def test_one_rate_for_all_groups_stays_one_c_call():
    """A scheduler that sets no more than one rate goes into the C loop of ``update_many``, whose records are made when they are looked at."""
    net = hand_net()
    opt = sgd(net)
    acc = ga.Accumulator(net, opt, schedule=lrs.StepLR(opt, 2, 0.5))
    updates = acc.update_many(np.ones((6, 1)), below(6), 2)
    assert type(updates).__name__ == "Updates" and updates.lr.tolist() == [0.8, 0.8, 0.4] and opt.lr == 0.4
