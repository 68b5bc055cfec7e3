"""Accumulation steps as functions of updates, and the planned number of updates, which the rule that makes windows gives."""
import math

import numpy as np
import pytest
from conftest import below, hand_net, residual_net

import gradaccum as ga
from gradaccum import optim, schedules
from gradaccum.optim import lr_scheduler
from gradaccum.schedules import windows


def sgd(net, lr=1.0, **options):
    return optim.SGD(net, lr=lr, **options)


def run(acc, sizes, epochs):
    """Micro-batches of these sizes with ``step``, ``flush`` after each epoch: (micro-steps, samples) of each window."""
    seen = []
    for _ in range(epochs):
        for n in sizes:
            seen.append(acc.step(np.ones((n, 1)), below(n)).update)
        seen.append(acc.flush())
    return [(u.micro_steps, u.samples) for u in seen if u]


def first(steps, count):
    return [steps(u) for u in range(count)]


# ---- schedules ----

def test_constant_and_milestones():
    assert first(schedules.constant(3), 4) == [3, 3, 3, 3]
    assert first(schedules.milestones({0: 1, 2: 4, 5: 2}), 7) == [1, 1, 4, 4, 4, 2, 2]
    assert repr(schedules.milestones({0: 1, 2: 4})) == "accumulation steps by updates {0: 1, 2: 4}"


def test_milestones_in_samples():
    """Micro-batches of 10. 25 samples are reached after 3 windows of 10; then windows of 20: 50 after the fourth."""
    steps = schedules.milestones({0: 1, 25: 2, 50: 4}, 10)
    assert first(steps, 7) == [1, 1, 1, 2, 4, 4, 4]
    assert first(schedules.milestones({0: 1, 3200: 4}, per_micro_step=32), 101) == [1] * 100 + [4]
    # one window of 80 jumps over the stage of 10 to 20; then 20 a window, 200 after six
    assert first(schedules.milestones({0: 8, 10: 4, 20: 2, 200: 1}, 10), 9) == [8] + [2] * 6 + [1] * 2


def test_milestones_in_tokens():
    """128 tokens a micro-batch: 1,000 tokens are reached after 8 windows, 1,024."""
    assert first(schedules.milestones({0: 1, 1000: 2}, 8 * 16), 10) == [1] * 8 + [2] * 2


def megatron(consumed, start, increment, ramp, last):
    """Megatron-LM's rule, core/num_microbatches_calculator.py: the batch size after ``consumed`` samples."""
    if consumed > ramp:
        return last
    return start + int(consumed / (ramp / ((last - start) / increment))) * increment


@pytest.mark.parametrize("start, last, increment, micro, ramp", [(16, 64, 16, 16, 240), (8, 32, 8, 4, 100), (32, 256, 32, 8, 5000), (8, 64, 8, 8, 30)])
def test_the_ramp_is_megatrons(start, last, increment, micro, ramp):
    steps, consumed = schedules.rampup(start, increment, ramp, effective_batch_size=last, micro_batch=micro), 0
    for updates in range(120):
        assert steps(updates) * micro == megatron(consumed, start, increment, ramp, last), updates
        consumed += steps(updates) * micro
    assert steps(119) * micro == last


def test_the_ramp_by_hand():
    """16 to 64 in three increments over 240 samples: one each 80. 5 windows of 16 make 80, 3 of 32 make 176, 2 of 48 make 272."""
    sizes = {"effective_batch_size": 64, "micro_batch": 16}
    assert first(schedules.rampup(16, 16, 240, **sizes), 12) == [1] * 5 + [2] * 3 + [3] * 2 + [4] * 2
    assert first(schedules.rampup(16, 16, updates=7, **sizes), 9) == [1, 1, 1, 2, 2, 3, 3, 4, 4]      # from 7/3, 14/3 and 7 updates on
    assert first(schedules.rampup(16, 16, 0, **sizes), 3) == first(schedules.rampup(64, 16, 99, **sizes), 3) == [4] * 3
    # 8, 16, 24 samples for 40 of 120 each: 5 * 8 = 40, 3 * 16 = 88, 2 * 24 = 136
    assert first(schedules.rampup(8, 8, 120, effective_batch_size=32, micro_batch=4), 12) == [2] * 5 + [4] * 3 + [6] * 2 + [8] * 2


def test_d42_everything_follows_updates_when_k_changes():
    """K = 1, 1, 2, 3, 3 and a rate that halves: windows, rates and the number of updates agree."""
    net = hand_net()
    opt = sgd(net)
    acc = ga.Accumulator(net, opt, accumulation_steps=schedules.milestones({0: 1, 2: 2, 3: 3}), schedule=lr_scheduler.ExponentialLR(opt, 0.5))
    records = [u for u in (acc.step([[1.0]], below(1)).update for _ in range(10)) if u]
    assert [(u.update, u.micro_steps, u.lr) for u in records] == [(1, 1, 1.0), (2, 1, 0.5), (3, 2, 0.25), (4, 3, 0.125), (5, 3, 0.0625)]
    assert opt.updates == acc.updates == 5 == ga.planned_updates(acc, micro_batches=10)


STEPS = schedules.milestones({0: 1, 2: 3, 4: 2})


@pytest.mark.parametrize("way", ["update", "step", "stages", "update of pieces"])
def test_a_run_with_a_schedule_of_k_has_the_bits_of_the_windows_made_by_hand(way, batch):
    """12 micro-batches of 8: windows of 1, 1, 3, 3, 2, 2; dropout, tied weights, ignored labels, AdamW, clipping, average."""
    x, y, weight = batch
    sizes = [8, 8, 24, 24, 16, 16]
    bounds = np.cumsum([0, *sizes])
    net, opt = residual_net(24)                              # by hand: a window is a batch
    hand = ga.Accumulator(net, opt, max_grad_norm=0.5, ema=0.9, schedule=lr_scheduler.StepLR(opt, 2, 0.5))
    expected = [hand.update(x[a:b], y[a:b], weight[a:b]) for a, b in zip(bounds, bounds[1:])]
    net, opt = residual_net(24 if way == "update of pieces" else 8)
    acc = ga.Accumulator(net, opt, STEPS, max_grad_norm=0.5, ema=0.9, schedule=lr_scheduler.StepLR(opt, 2, 0.5))
    acc.micro_batch = 8
    records = []
    for a, b in zip(bounds, bounds[1:]):
        assert acc.accumulation_steps == (b - a) // 8
        if way == "step":
            records += [s.update for s in (acc.step(x[i:i + 8], y[i:i + 8], weight[i:i + 8]) for i in range(a, b, 8)) if s.update]
        elif way == "stages":
            list(acc.stages(x[a:b], y[a:b], weight[a:b]))
            records.append(acc.last_update)
        else:
            records.append(acc.update(x[a:b], y[a:b], weight[a:b]))
    assert [r.micro_steps for r in records] == [1, 1, 3, 3, 2, 2]
    assert np.array_equal(acc.net.params, hand.net.params) and all(np.array_equal(a, hand.ema[k]) for k, a in acc.ema.items())
    for name in ("update", "loss", "weight", "samples", "grad_norm", "lr"):
        assert [getattr(r, name) for r in records] == [getattr(r, name) for r in expected], name


def test_update_and_stages_refuse_more_than_the_window_at_hand():
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, sgd(net), schedules.milestones({0: 2, 1: 1}))
    acc.update(np.ones((2, 1)), below(2))
    for call in (acc.update, lambda x, y: list(acc.stages(x, y)), lambda x, y: acc.update_many(x, y, 2)):
        with pytest.raises(ValueError, match="accumulation_steps is 1"):
            call(np.ones((2, 1)), below(2))
        assert acc.updates == 1 and net.stage == "clear"


def test_update_many_asks_for_k_before_each_window():
    """Windows of 2 micro-batches: allowed in the first two updates, then K is 1; what was applied stays."""
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, sgd(net), schedules.milestones({0: 2, 2: 1}))
    with pytest.raises(ValueError, match="accumulation_steps"):
        acc.update_many(np.ones((8, 1)), below(8), 2)
    assert acc.updates == 2 and net.params.tolist() == [-2.0]


@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, True, "2", np.float64(2.0)], ids=repr)
@pytest.mark.parametrize("way", ["update", "step", "stages", "update_many"])
def test_a_k_that_is_no_whole_number_is_refused_before_anything_is_added(way, value):
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, sgd(net, momentum=0.9), lambda updates: value if updates else 1)
    acc.update([[1.0]], below(1))
    before = net.snapshot() | acc.optimizer.state_dict() | acc._core.get_state()
    with pytest.raises(ValueError, match=r"accumulation_steps\(1\)=.*: expected a whole number, at least 1"):
        if way == "stages":
            list(acc.stages([[1.0]], below(1)))
        elif way == "update_many":
            acc.update_many([[1.0]], below(1), 1)
        else:
            getattr(acc, way)([[1.0]], below(1))
    after = net.snapshot() | acc.optimizer.state_dict() | acc._core.get_state()
    assert all(np.array_equal(before[key], after[key]) for key in before) and net.stage == "clear"
    with pytest.raises(ValueError, match=r"accumulation_steps\(0\)="):
        ga.Accumulator(hand_net(), None, lambda updates: value)


SIZES = {"effective_batch_size": 64, "micro_batch": 16}


@pytest.mark.parametrize("make, text", [
    (lambda: schedules.constant(0), r"steps\[0\]=0: expected a whole number"), (lambda: schedules.milestones({}), "the first key is 0"),
    (lambda: schedules.milestones({1: 2}), "does not say with how many micro-batches update 0 is made"), (lambda: schedules.milestones([1]), "first key is 0"),
    (lambda: schedules.milestones({0: 1, 1.5: 2}), "a key of steps=1.5"), (lambda: schedules.milestones({0: 1, 5: 2.5}), r"steps\[5\]=2.5"),
    (lambda: schedules.milestones({0: 1}, 0), "per_micro_step=0"),
    (lambda: schedules.rampup(16, 32, 9, **SIZES), "64 is not reached from 16 in steps of 32"),
    (lambda: schedules.rampup(80, 16, 9, **SIZES), "64 is not reached from 80"), (lambda: schedules.rampup(8, 16, 9, **SIZES), "start=8: not a multiple"),
    (lambda: schedules.rampup(16, 16, **SIZES), "give samples or updates"), (lambda: schedules.rampup(16, 16, 9, updates=9, **SIZES), "give samples or"),
    (lambda: schedules.rampup(16, 16, -1, **SIZES), "samples=-1"), (lambda: schedules.rampup(16, 16, updates=1.5, **SIZES), "updates=1.5"),
    (lambda: schedules.from_noise_scale(8, 7.0), "scale: got float, expected a function"),
    (lambda: schedules.from_noise_scale(0), "micro_batch=0"), (lambda: schedules.from_noise_scale(8, maximum=1), "minimum=2, maximum=1"),
    (lambda: schedules.from_noise_scale(8, r=0), "r=0: expected a finite number above 0"), (lambda: schedules.from_noise_scale(8, every=0), "every=0"),
])
def test_arguments(make, text):
    with pytest.raises((ValueError, TypeError), match=text):
        make()


# ---- K from the measured noise scale ----

def test_k_from_the_noise_scale_by_hand():
    """Micro-batches of 10, B = scale, rounded: 34 gives 3, 36 gives 4; from 2 to 8; unknown keeps K."""
    scale = [None]
    steps = schedules.from_noise_scale(10, lambda: scale[0], minimum=2, maximum=8, every=1)
    expected = [(None, 2), (34.0, 3), (36.0, 4), (None, 4), (math.nan, 4), (0.0, 2), (1e9, 8), (math.inf, 8), (55.1, 6)]
    for updates, (scale[0], k) in enumerate(expected):
        assert steps(updates) == k, scale
    scale[0] = -1.0
    with pytest.raises(ValueError, match="the scale is -1.0, expected a number of samples"):
        steps(20)
    assert repr(steps) == "accumulation steps noise scale / 10, from 2 to 8, now 6"


def test_the_square_root_rule():
    """r = 40 samples an update, scale 160: B = sqrt(6400) = 80. It minimises (r + B)(1 + scale / B) over whole K."""
    assert schedules.from_noise_scale(10, lambda: 160.0, r=40)(0) == 8
    costs = {k: (40 + 10 * k) * (1 + 160 / (10 * k)) for k in range(2, 99)}
    assert min(costs, key=costs.get) == 8
    assert schedules.from_noise_scale(10, lambda: 160.0, r=160)(0) == 16                              # r = scale: the critical batch
    assert "sqrt(40 noise scale) / 10" in repr(schedules.from_noise_scale(10, r=40))


def test_k_changes_at_most_once_in_so_many_updates_and_never_in_a_window():
    """The scale is 20, 30, 40, ... when looked at. K follows at 1, 4, 7, 10; asked again for the same number of updates it is the same."""
    looks = []

    def scale():
        looks.append(0)
        return 10.0 + 10.0 * len(looks)

    steps = schedules.from_noise_scale(10, scale, every=3)
    seen = [steps(u) for u in range(11) for _ in range(4)]
    assert seen[::4] == [2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6] and seen == [k for k in seen[::4] for _ in range(4)]
    assert len(looks) == 5


def test_a_scale_that_becomes_known_inside_a_window_waits_for_the_next():
    scale = [None]
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), schedules.from_noise_scale(1, lambda: scale[0], minimum=3))
    acc.step([[1.0]], below(1))
    scale[0] = 2.0
    assert [acc.step([[1.0]], below(1)).is_boundary for _ in range(4)] == [False, True, False, False]
    scale[0] = 5.0
    assert [acc.step([[1.0]], below(1)).is_boundary for _ in range(6)] == [True] + [False] * 4 + [True]


def test_k_follows_a_measured_noise_scale():
    """Gradients 10 + noise of variance 900: the scale is 900 / 100 = 9 samples, so with micro-batches of 1 K goes from 4 to about 9."""
    rng = np.random.default_rng(0)
    net = hand_net(micro_batch=1)
    steps = schedules.from_noise_scale(micro_batch=1, minimum=4, maximum=50, every=1000)
    acc = ga.Accumulator(net, sgd(net, lr=0.0), steps, staged=True, noise_scale=0.999)
    sizes, scales = [], []
    while acc.updates < 2200:
        step = acc.step(10 + 30 * rng.normal(size=(1, 1)), below(1))
        if step.update:
            sizes.append(step.update.micro_steps)
            scales.append(acc.noise_scale.scale)
    changes = [u for u in range(1, 2200) if sizes[u] != sizes[u - 1]]
    assert len(changes) >= 2 and min(np.diff(changes)) >= 1000
    assert all(sizes[u] == min(max(round(scales[u - 1]), 4), 50) for u in changes)
    assert 6 <= sizes[-1] <= 12


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="make the Accumulator with noise_scale=True, or give scale="):
        ga.Accumulator(hand_net(), None, schedules.from_noise_scale(8))
    with pytest.raises(ValueError, match="a window of one micro-batch measures no noise scale; take minimum=2"):
        ga.Accumulator(hand_net(), None, schedules.from_noise_scale(8, minimum=1), noise_scale=True)
    steps = schedules.from_noise_scale(8, minimum=2)
    accs = [ga.Accumulator(net := hand_net(), sgd(net), steps, noise_scale=True) for _ in range(2)]
    assert accs[1].accumulation_steps == 2                   # used again, it follows the second


def test_what_was_decided_is_saved_with_the_run(tmp_path):
    """Stopped inside a window: K of that window and the updates until the next change are those of the run that was not stopped."""
    def make(scale):
        net = hand_net()
        return ga.Accumulator(net, sgd(net), schedules.from_noise_scale(10, scale, maximum=8, every=4))

    whole, stopped = (make(lambda acc=[]: acc.append(0) or [None, 30.0][len(acc) > 1]) for _ in range(2))
    for _ in range(7):                                       # windows of 2, 3, and 2 of the 3 of the third
        whole.step([[1.0]], below(1)), stopped.step([[1.0]], below(1))
    stopped.save(tmp_path / "run")
    again = make(lambda: 50.0)                               # another scale: it is looked at 4 updates after the last change
    again.load(tmp_path / "run")
    assert (again.accumulation_steps, again.micro_step, again.updates) == (3, 2, 2)
    sizes = [[u.micro_steps for u in (acc.step([[1.0]], below(1)).update for _ in range(12)) if u] for acc in (whole, again)]
    assert sizes == [[3, 3, 3, 3], [3, 3, 3, 5]]
    plain = ga.Accumulator(net := hand_net(), sgd(net), accumulation_steps=2)
    with pytest.warns(UserWarning, match="accumulation_steps: .* in the file, 2 here"):
        plain.load(tmp_path / "run")                         # another rule may go on
    assert (plain.accumulation_steps, plain.micro_step) == (2, 2)
    with pytest.raises(ValueError, match=r"got the state \['steps'\]"):
        schedules.from_noise_scale(8).load_state_dict({"steps": 3})


# ---- windows and their number ----

def test_d24_d25_d35_windows_by_hand():
    assert list(windows(9, accumulation_steps=4)) == [(4, 4), (4, 4), (1, 1)]                         # D24
    assert list(windows([5, 5, 2], accumulation_steps=8)) == [(3, 12)]                                # D25
    assert list(windows([2, 3])) == [(1, 2), (1, 3)]                                                  # no size: every micro-batch
    for tail, expected in (("drop", [(4, 64)]), ("flush", [(4, 64), (4, 54)]), ("carry", [(4, 64)])):
        assert list(windows([16] * 7 + [6], effective_batch_size=64, tail=tail)) == expected          # D35: 118 samples in micro-batches of 16
        assert ga.planned_updates(samples=118, micro_batch=16, effective_batch_size=64, tail=tail) == len(expected)
        assert ga.planned_updates(samples=112, micro_batch=16, accumulation_steps=4, tail=tail) == len(expected)
        assert ga.planned_updates(samples=118, micro_batch=16, accumulation_steps=4, tail=tail) == 2  # K counts micro-batches, also a short one


def test_d39_windows_that_span_epochs():
    """5 micro-batches of 2 and one of 1, K = 4: carried over, 6 + 6 = 12 micro-batches are 3 windows."""
    made = {tail: list(windows([2] * 5 + [1], accumulation_steps=4, epochs=2, tail=tail)) for tail in schedules.TAILS}
    assert made == {"carry": [(4, 8), (4, 7), (4, 7)], "flush": [(4, 8), (2, 3), (4, 8), (2, 3)], "drop": [(4, 8), (4, 8)]}


@pytest.mark.parametrize("tail, expected", [("flush", 6), ("drop", 4), ("carry", 5)])
def test_d23_d25_d39_planned_updates_for_each_tail(tail, expected):
    """2 epochs of 10 micro-batches, K = 4: 3 + 3, 2 + 2, or 20 // 4."""
    assert ga.planned_updates(micro_batches=10, accumulation_steps=4, epochs=2, tail=tail) == expected


@pytest.mark.parametrize("tail", ["flush", "drop", "carry"])
def test_d23_d39_planned_windows_are_those_that_an_accumulator_makes(tail):
    """Constant K, K by updates, samples per update; equal, short last and arbitrary micro-batches; one to three epochs."""
    rng = np.random.default_rng(11)
    for _ in range(120):
        m, epochs, n = (int(v) for v in rng.integers(1, [6, 4, 40]))
        table = rng.integers(1, 6, 400).tolist()
        kind = rng.integers(4)
        size = [{"accumulation_steps": int(rng.integers(1, 9))}, {"accumulation_steps": table.__getitem__}, {"effective_batch_size": int(rng.integers(1, 20))},
                {"accumulation_steps": schedules.rampup(m, m, 40, effective_batch_size=4 * m, micro_batch=m)}][kind]
        sizes = rng.integers(1, m + 1, n).tolist() if rng.integers(2) else [m] * (n // m) + [n % m] * (n % m > 0)
        net = hand_net(micro_batch=m)
        acc = ga.Accumulator(net, sgd(net), tail=tail, **size)
        planned = list(windows(sizes, epochs=epochs, tail=tail, **size))
        assert run(acc, sizes, epochs) == planned, (size, sizes)
        assert len(planned) == acc.updates == ga.planned_updates(micro_batches=sizes, epochs=epochs, tail=tail, **size)
        assert len(planned) == ga.planned_updates(acc, micro_batches=sizes, epochs=epochs)
        if sizes == [m] * (n // m) + [n % m] * (n % m > 0):
            assert len(planned) == ga.planned_updates(samples=n, micro_batch=m, epochs=epochs, tail=tail, **size)
            assert len(planned) == ga.planned_updates(acc, samples=n, micro_batch=m, epochs=epochs)


def test_the_boundary_of_a_window_in_samples():
    """effective_batch_size 5, micro-batches of 2, of 1 and of 3: 2 + 1 lack 1 more micro-batch."""
    net = hand_net(micro_batch=3)
    acc = ga.Accumulator(net, sgd(net), effective_batch_size=5)
    seen = []
    for n in (2, 1, 3, 1, 1, 3):
        boundary = acc.is_boundary
        seen.append((n, boundary, acc.step(np.ones((n, 1)), below(n)).is_boundary))
    assert seen == [(2, False, False), (1, True, False), (3, True, True), (1, False, False), (1, False, False), (3, True, True)]


def test_a_schedule_ends_where_the_plan_says():
    """Cosine to the planned last update, K from 1 to 4, 3 epochs of 50 samples in micro-batches of 8: the last rate is the one before 0."""
    steps = schedules.milestones({0: 1, 80: 4}, per_micro_step=8)
    planned = ga.planned_updates(samples=50, micro_batch=8, accumulation_steps=steps, epochs=3)
    assert planned == 7 + 3 + 1 + 2                          # 7 micro-batches: 1 each (56 of 80), then 1 + 1 + 1 + 4, then 4 + 3
    net = hand_net(micro_batch=8)
    opt = sgd(net)
    acc = ga.Accumulator(net, opt, steps, schedule=lr_scheduler.CosineAnnealingLR(opt, planned))
    run(acc, [8] * 6 + [2], 3)
    assert acc.updates == planned and opt.lr == (1 + math.cos(math.pi * (planned - 1) / planned)) / 2


def test_planning_goes_from_window_to_window():
    """15 million micro-batches, and K is asked for once a window."""
    asked = []
    assert ga.planned_updates(micro_batches=10**6, accumulation_steps=lambda u: asked.append(u) or 500, epochs=10) == 20_000
    assert asked == list(range(20_000))
    assert ga.planned_updates(samples=32 * 10**6 + 5, micro_batch=32, effective_batch_size=32_000, epochs=5, tail="carry") == 5_000


@pytest.mark.parametrize("options, text", [
    ({"accumulation_steps": 2}, "give either micro_batches, or samples and micro_batch"), ({"micro_batches": 4}, "give either accumulation_steps or effective"),
    ({"micro_batches": 4, "samples": 9, "accumulation_steps": 2}, "give either micro_batches, or samples"),
    ({"samples": 9, "accumulation_steps": 2}, "micro_batch=None: expected a whole number"),
    ({"samples": 0, "micro_batch": 2, "accumulation_steps": 2}, "samples=0"), ({"micro_batches": [2, 0], "accumulation_steps": 2}, "micro_batches=0"),
    ({"micro_batches": 4, "effective_batch_size": 8}, "effective_batch_size counts samples, so give samples and micro_batch"),
    ({"micro_batches": 4, "effective_batch_size": 8, "accumulation_steps": 2}, "give either accumulation_steps or effective_batch_size"),
    ({"micro_batches": [4], "effective_batch_size": 0}, "effective_batch_size=0"),
    ({"micro_batches": 4, "accumulation_steps": 2, "tail": "keep"}, "tail='keep'"),
    ({"micro_batches": 4, "accumulation_steps": lambda u: 0}, r"accumulation_steps\(0\)=0: expected a whole number"),
    ({"micro_batches": 4, "accumulation_steps": schedules.from_noise_scale(8, lambda: 1.0)}, "follows what is measured during the run"),
])
def test_planned_updates_arguments(options, text):
    with pytest.raises(ValueError, match=text):
        ga.planned_updates(**options)


def test_planned_updates_of_an_accumulator_takes_its_options():
    net = hand_net(micro_batch=16)
    acc = ga.Accumulator(net, sgd(net), effective_batch_size=64, tail="drop")
    assert ga.planned_updates(acc, samples=118) == 1 and acc.updates == 0
    with pytest.raises(ValueError, match="are those of the accumulator"):
        ga.planned_updates(acc, samples=118, tail="flush")
    with pytest.raises(TypeError, match="got int, expected an Accumulator, or arguments by name"):
        ga.planned_updates(10, accumulation_steps=4)
