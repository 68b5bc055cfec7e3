"""ga.advise: rules with numbers worked by hand, honest answers, and nothing touched. No test depends on how long anything takes."""
import math
import sys

import numpy as np
import pytest
from conftest import below, hand_net, residual_net

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.advice import _copy, adascale_gain, half_life, linear, square_root


def asked(x, y, optimizer=optim.SGD, net=None, steps=None, sizes=(1,), options=None, **arguments):
    net = hand_net(1, 4, "float64") if net is None else net
    acc = ga.Accumulator(net, optimizer(net, lr=0.1), steps, **(options or {}))
    return ga.advise(net, acc, np.asarray(x, dtype=net.dtype), y, micro_batches=list(sizes), repeat=1, **arguments)


def gradients(n, mean=1.0, spread=2.0):
    """Half of the samples have the gradient mean + spread, half mean - spread."""
    return (mean + spread * np.resize([1.0, -1.0, -1.0, 1.0], n))[:, None]


# ---- rules ----

def test_malladi_4_times_the_batch():
    new = square_root(1e-3, 4, (0.9, 0.999), 1e-8)
    assert new["lr"] == 2e-3 and new["eps"] == 5e-9 and new["betas"] == pytest.approx((0.6, 0.996), rel=1e-14)


def test_marek_batch_16_to_1_turns_0_95_into_0_99680():
    assert round(half_life(0.95, 16, 1), 5) == 0.99680
    assert half_life(0.5, 1, 3) == 0.125                     # and the other way


def test_goyal_and_hoffer():
    assert linear(0.1, 8) == pytest.approx(0.8) and square_root(0.1, 4) == {"lr": 0.2}


def test_adascale_gain_lies_between_1_and_kappa():
    assert adascale_gain(4, 100, 0) == 1 and adascale_gain(4, 1, 1e12) == pytest.approx(4)
    assert adascale_gain(4, 100, 100) == 2 / 1.25            # (1 + 1) / (1/4 + 1)


def test_adams_rule_ends_where_a_beta_would_be_negative():
    assert square_root(1, 10, (0.9, 0.999))["betas"][0] == pytest.approx(0, abs=1e-14)
    with pytest.raises(ValueError, match=r"kappa=16: beta 0.9 would become -0.6.*ends at kappa = 1 / \(1 - beta\) = 10"):
        square_root(1, 16, (0.9, 0.999))


@pytest.mark.parametrize("call", [lambda: linear(-1, 2), lambda: linear(1, 0), lambda: square_root(math.nan, 2), lambda: half_life(1.0, 1, 2),
                                  lambda: half_life(0.9, 0, 2), lambda: adascale_gain(2, 1, -1)])
def test_rules_refuse_numbers_that_cannot_be(call):
    with pytest.raises(ValueError, match="expected"):
        call()


def test_rules_start_from_the_optimizer_and_from_lr():
    advice = asked(gradients(8), below(8), effective_batch_size=16, steps=1)
    assert (advice.effective_batch_size, advice.new_effective_batch_size, advice.kappa) == (4, 16, 4)
    assert [(r.name, r.changes["lr"]) for r in advice.rules[:2]] == [("linear", (0.1, 0.4)), ("square root", (0.1, 0.2))]
    assert asked(gradients(8), below(8), effective_batch_size=16, steps=1, lr=1.0).rules[0].changes == {"lr": (1.0, 4.0)}
    assert asked(gradients(8), below(8), steps=2).rules == []


def test_rules_for_adam_name_betas_and_eps_and_tell_where_they_end():
    malladi, marek = asked(gradients(8), below(8), optim.AdamW, effective_batch_size=16, steps=1).rules
    assert malladi.changes["lr"] == (0.1, 0.2) and malladi.changes["eps"] == (1e-8, 5e-9)
    assert malladi.changes["betas"][1] == pytest.approx((0.6, 0.996)) and marek.changes["betas"][1] == pytest.approx((0.9, 0.999**4))
    malladi, marek = asked(gradients(8), below(8), optim.Adam, effective_batch_size=64, steps=1).rules
    assert malladi.changes == {} and "does not reach" in malladi.note and marek.changes["betas"][1] == pytest.approx((0.9, 0.999**16))


# ---- noise ----

def test_the_noise_scale_is_measured_and_held_against_the_window():
    """16 gradients, 8 of 3 and 8 of -1: |G|² from cross products is (16² - 8 * 10) / (256 - 16) = 11/15, tr S the sample variance 64/15."""
    advice = asked(gradients(16), below(16), steps=1)
    assert advice.noise.scale == pytest.approx(64 / 11, rel=1e-12) and not advice.noise.rough and "16 samples" in advice.noise.source
    assert advice.noise.steps_factor == pytest.approx(1 + 64 / 11 / 4) and advice.noise.samples_factor == pytest.approx(1 + 4 * 11 / 64)
    assert "below the noise scale of 5.82" in advice.findings[1].text and "too smooth" not in repr(advice)


def test_the_accumulators_own_measurement_comes_first_and_gives_adascales_gain():
    net = hand_net(1, 4, "float64")
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.1), 1, noise_scale=True)
    for _ in range(10):
        acc.noise_scale.add(2, 3.0, 8, 1.5)                  # scale 4
    advice = ga.advise(net, acc, gradients(8), below(8), effective_batch_size=16, micro_batches=[4], repeat=1)
    assert advice.noise.scale == pytest.approx(4) and "over 10 windows" in advice.noise.source
    assert advice.rules[2].name == "AdaScale" and advice.rules[2].changes["lr"] == (0.1, pytest.approx(0.1 * 2 / 1.25))


def test_a_window_far_above_the_noise_scale_should_be_smaller():
    """32 gradients: |G|² is (32² - 16 * 10) / (32² - 32), tr S 4 * 32 / 31; the window is 6.75 times their ratio."""
    advice = asked(gradients(32), below(32), sizes=(32,))
    assert advice.noise.scale == pytest.approx(4 * 32 / 31 / (864 / 992)) and advice.accumulate == "smaller window"
    assert "too smooth" in advice.findings[0].text and "A window near" in advice.findings[0].text


def test_too_few_samples_are_called_rough_and_decide_nothing():
    advice = asked(gradients(8), below(8), steps=64)
    assert advice.noise.rough and "Rough" in repr(advice) and advice.accumulate != "smaller window"
    assert advice.noise.scale == pytest.approx(32 / 7 / (24 / 56))
    one = asked([[1.0]], below(1))
    assert one.noise is None and "one micro-batch" in one.findings[1].evidence and one.accumulate in ("no", "optional")


# ---- memory, and the answer ----

def test_a_batch_that_does_not_fit_must_be_accumulated():
    net = hand_net(64, 4)
    assert net.memory.bytes(64) > net.memory.bytes(16)
    limit = net.memory.bytes(16) + net.params.nbytes         # room for the buffer of a staged window
    x, y = np.tile(gradients(64), 64), below(64)
    advice = asked(x, y, net=net, sizes=(64, 16, 4), steps=16, memory_limit=limit)
    assert advice.accumulate == "yes" and "does not fit" in advice.findings[0].text and advice.micro_batch in (4, 16)
    assert [(c.split, c.fits, c.bytes) for c in advice.costs] == [(f"{64 // m} x {m}", m < 64, net.memory.bytes(m)) for m in (64, 16, 4)]
    assert advice.costs[0].seconds is None and all(c.seconds > 0 and c.alone > 0 for c in advice.costs[1:])
    assert "1 x 64" in repr(advice) and "no  " in repr(advice)


def test_a_batch_that_fits_needs_no_accumulation():
    advice = asked(gradients(8), below(8), sizes=(8, 2))
    assert advice.accumulate in ("no", "optional") and "fits at once" in advice.findings[0].text
    only = asked(gradients(8), below(8), sizes=(8,))
    assert (only.accumulate, only.micro_batch, only.accumulation_steps) == ("no", 8, 1) and "nothing to accumulate" in only.findings[0].text


def test_the_answer_follows_the_times(monkeypatch):
    """Times are put in: what is decided from them can then be known."""
    def times(window, alone):
        def put(net, acc, batch, costs, limit, repeat):
            for cost in costs:
                cost.seconds, cost.alone = window[cost.micro_batch], alone[cost.micro_batch]
                cost.seconds_per_sample = cost.seconds / len(batch[1])
        monkeypatch.setattr(sys.modules["gradaccum.advice"], "_measure_times", put)
        return asked(gradients(8), below(8), sizes=(8, 2))

    advice = times({8: 1.0, 2: 3.0}, {8: 0.125, 2: 1.0})
    assert (advice.accumulate, advice.micro_batch) == ("no", 8) and "3.00 times as fast as 4 x 2" in advice.findings[0].text
    assert "Here they are slower" in repr(advice)
    advice = times({8: 3.0, 2: 1.5}, {8: 0.3, 2: 0.19})
    assert (advice.accumulate, advice.micro_batch, advice.accumulation_steps) == ("optional", 2, 4) and "2.00 times as fast" in advice.findings[0].text
    assert "an update after every 2, without accumulation" in repr(advice) and "2507.07101" in repr(advice)


def test_layers_that_mix_samples_and_splits_that_they_refuse_are_named():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    net = ga.plan(model, input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=4)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(16, 4)), rng.integers(0, 3, 16)
    advice = asked(x, y, net=net, sizes=(8, 1), steps=2)
    assert "batch statistics" in advice.costs[1].note and advice.costs[1].seconds is None and advice.micro_batch == 8
    assert any(f.text.startswith("1: batch statistics") for f in advice.findings) and advice.noise is not None
    with pytest.raises(ValueError, match="batch statistics of one value"):
        asked(x, y, net=net, sizes=(1,), steps=2)


def test_staged_windows_and_schedules_are_mentioned():
    advice = asked(gradients(8), below(8), options={"staged": True, "schedule": lambda updates: 0.1})
    assert "This window is staged: its buffer of 8 B" in repr(advice) and "scale its rates and its length" in repr(advice)
    assert "Accumulating costs no memory" in repr(asked(gradients(8), below(8)))


# ---- nothing is touched ----

def test_everything_is_as_before_also_inside_a_window(batch):
    x, y, weight = batch
    net, opt = residual_net(32)
    acc = ga.Accumulator(net, opt, accumulation_steps=3, ema=0.9, staged=True, noise_scale=True, max_grad_norm=1.0)
    acc.update(x, y, weight)
    acc.step(x[:32], y[:32], weight[:32])

    def everything():
        arrays = net.snapshot() | opt.state_dict() | {f"ema {k}": v.copy() for k, v in acc.ema.items()}
        arrays |= {"buffer": acc.buffer.copy(), "grads": net.grads.copy(), "output": net._prediction().copy()}
        rest = [acc._core.get_state(), acc.noise_scale.state_dict(), acc.last_update, opt.groups, net.stage, net.training, repr(net.memory)]
        return arrays, repr(rest)

    before, rest = everything()
    advice = ga.advise(net, acc, x, y, weight, effective_batch_size=192, repeat=1)
    after, rest_after = everything()
    assert rest_after == rest and before.keys() == after.keys() and all(np.array_equal(before[k], after[k]) for k in before)
    assert net._accumulator() is acc and {c.micro_batch for c in advice.costs} == {192, 48, 32, 12, 3, 1}
    acc.step(x[32:64], y[32:64], weight[32:64])
    record = acc.step(x[64:], y[64:], weight[64:]).update

    net, opt = residual_net(32)
    other = ga.Accumulator(net, opt, accumulation_steps=3, ema=0.9, staged=True, max_grad_norm=1.0)
    other.update(x, y, weight)
    assert other.update(x, y, weight) == record              # the run goes on as if nobody had asked


@pytest.mark.parametrize("options", [{}, {"recompute": "sqrt"}, {"ties": "fold"}, {"keep": "all"}, {"engine": "openblas"}])
def test_the_copy_that_is_measured_is_planned_as_the_network_is(options):
    net, _ = residual_net(16, **options)
    copy = _copy(net, 64)
    assert copy._core.bytes(16) == net._core.bytes(16) and copy.engine == net.engine and copy.micro_batch == 64
    assert np.array_equal(copy.params, net.params)


# ---- arguments ----

def test_arguments_that_do_not_fit_together():
    net, other, still = hand_net(1, 4), hand_net(1, 4), hand_net(1, 4)
    acc, idle = ga.Accumulator(net, optim.SGD(net, lr=0.1)), ga.Accumulator(still, optim.SGD(still, lr=0.0))
    old = ga.Accumulator(other, optim.SGD(other, lr=0.1))
    new = ga.Accumulator(other)
    x, y = gradients(8), below(8)
    for match, error, call in [
        ("ga.plan", TypeError, lambda: ga.advise("net", acc, x, y)),
        ("Accumulator of this network", TypeError, lambda: ga.advise(net, net, x, y)),
        ("another network", ValueError, lambda: ga.advise(other, acc, x, y)),
        ("newer Accumulator", ValueError, lambda: ga.advise(other, old, x, y)),
        ("optimizer's is 0", ValueError, lambda: ga.advise(still, idle, x, y, effective_batch_size=16)),
        ("without an optimizer", ValueError, lambda: ga.advise(other, new, x, y)),
        ("give effective_batch_size", ValueError, lambda: ga.advise(net, acc, x, y, lr=0.1)),
        ("lr=-1", ValueError, lambda: ga.advise(net, acc, x, y, lr=-1, effective_batch_size=8)),
        ("effective_batch_size=0", ValueError, lambda: ga.advise(net, acc, x, y, effective_batch_size=0)),
        ("same number of samples", ValueError, lambda: ga.advise(net, acc, x, y[:4])),
        ("at least one", ValueError, lambda: ga.advise(net, acc, x[:0], y[:0])),
        ("from 1 to the window, 8", ValueError, lambda: ga.advise(net, acc, x, y, micro_batches=[16])),
        ("micro_batches=", ValueError, lambda: ga.advise(net, acc, x, y, micro_batches=[])),
        ("memory_limit", ValueError, lambda: ga.advise(net, acc, x, y, memory_limit="much")),
        ("Not even one sample fits", ga.BudgetError, lambda: ga.advise(net, acc, x, y, memory_limit=64)),
        ("none fits the limit", ValueError, lambda: ga.advise(net, acc, x, y, micro_batches=[64], effective_batch_size=64,
                                                            memory_limit=net.memory.bytes(64) - 1)),
        ("repeat=0", ValueError, lambda: ga.advise(net, acc, x, y, repeat=0)),
    ]:
        with pytest.raises(error, match=match):
            call()
