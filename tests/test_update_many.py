"""acc.update_many: the same as calls of update, in one C call."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim

X = np.random.default_rng(0).normal(size=(103, 6)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 4, 103)


def accumulator(**options):
    model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Dropout(0.2), nn.Linear(9, 4))
    net = ga.plan(model, input_shape=(6,), loss=nn.CrossEntropyLoss(ignore_index=3), micro_batch=8, seed=1)
    return ga.Accumulator(net, optim.AdamW(net, lr=0.01, groups=[{"params": ["*bias"], "weight_decay": 0.0}]), **options)


def by_hand(acc, size, x=X, y=Y, weight=None):
    return [acc.update(x[i:i + size], y[i:i + size], None if weight is None else weight[i:i + size]) for i in range(0, len(y), size)]


@pytest.mark.parametrize("options", [{}, dict(max_grad_norm=0.1, ema=0.9), dict(staged=True), dict(schedule=lambda u: 0.1 / (1 + u)),
                                     dict(effective_batch_size=20), dict(on_non_finite="skip_micro_batch")], ids=lambda o: "-".join(o) or "plain")
def test_the_bits_and_records_of_single_calls(options):
    many, one = accumulator(**options), accumulator(**options)
    size = options.get("effective_batch_size", 24)
    updates = many.update_many(X, Y, None if "effective_batch_size" in options else size)
    assert list(updates) == by_hand(one, size)               # 103 = 4 * 24 + 7
    assert np.array_equal(many.net.params, one.net.params)
    assert many.updates == one.updates and many.samples == one.samples == 103 and many.last_update == one.last_update
    assert many.optimizer.lr == one.optimizer.lr
    assert updates[-1] == updates[len(updates) - 1] and updates[1:3] == list(updates)[1:3]
    assert np.array_equal(updates.loss, [u.loss for u in updates]) and updates.samples.sum() == 103
    assert by_hand(many, size) == by_hand(one, size)         # and they go on alike


def test_a_skipped_window_moves_no_schedule():
    """Windows of 10: the second has no weight, so the third is update 2 and takes schedule(1)."""
    weight = np.ones(103)
    weight[10:20] = 0
    many, one = (accumulator(schedule=lambda u: 0.1 / (1 + u)) for _ in range(2))
    updates = many.update_many(X, Y, 10, weight)
    assert [u.update for u in updates] == [1, 1, *range(2, 11)] and updates[1].skipped
    assert updates.lr[[0, 2, 3]].tolist() == [0.1, 0.05, 0.1 / 3]
    records = by_hand(one, 10, weight=weight)
    assert np.array_equal(many.net.params, one.net.params)
    assert [u.loss for u in updates if not u.skipped] == [u.loss for u in records if not u.skipped]


def test_an_error_keeps_the_windows_before_it():
    bad = Y.copy()
    bad[50] = 9
    many, one = accumulator(), accumulator()
    with pytest.raises(IndexError, match="label 9"):
        many.update_many(X, bad, 20)
    by_hand(one, 20, X[:40], Y[:40])
    assert many.updates == 2 and np.array_equal(many.net.params, one.net.params) and many.last_update == one.last_update
    many.update(X[:8], Y[:8])                                # the window is empty and works


@pytest.mark.parametrize("call, error, text", [
    (lambda a: a.update_many(X, Y), ValueError, "give batch_size"),
    (lambda a: a.update_many(X, Y, 0), ValueError, "batch_size"),
    (lambda a: a.update_many(X, Y, 2.5), ValueError, "batch_size"),
    (lambda a: a.update_many(X[:50], Y, 10), ValueError, "samples"),
])
def test_bad_input(call, error, text):
    acc = accumulator()
    before = acc.net.params.copy()
    with pytest.raises(error, match=text):
        call(acc)
    assert np.array_equal(acc.net.params, before) and acc.updates == 0


def test_windows_that_do_not_fit_the_accumulator():
    with pytest.raises(ValueError, match="accumulation_steps is 2"):
        accumulator(accumulation_steps=2).update_many(X, Y, 24)
    with pytest.raises(ValueError, match="function of updates"):
        accumulator(accumulation_steps=lambda u: 2).update_many(X, Y)
    with pytest.raises(ValueError, match="schedule"):
        accumulator(schedule=lambda u: -1.0).update_many(X, Y, 24)
    assert len(accumulator(accumulation_steps=2).update_many(X, Y)) == 7     # 2 * 8 a window
