"""The theorems of the window, with numbers worked by hand.

``hand_net`` is y = w x with w = 0 and the loss |y - t|; with targets far below, the gradient of a sample is its x.
"""
import numpy as np
import pytest
from conftest import below, hand_net, residual_net

import gradaccum as ga
from gradaccum import nn, optim


def sgd(net, lr=1.0, **options):
    return optim.SGD(net, lr=lr, **options)


def weight_of(net):
    return net.parameters()["0.weight"].data.ravel().tolist()


def steps(acc, gradients):
    """One micro-batch of one sample for each gradient; the records."""
    return [acc.step([[g]], below(1)) for g in gradients]


def by_hand(acc, batches, clip=False):
    """A window stage by stage; batches: (x, y) or (x, y, weight)."""
    net = acc.net
    acc.begin()
    for x, y, *weight in batches:
        net.forward(x)
        net.loss(y, *weight)
        net.backward()
        acc.accumulate()
    acc.normalize()
    if clip:
        acc.clip()
    acc.optimizer.step()
    record = acc.last_update
    acc.clear()
    return record


# ---- the divisor ----

def test_d01_losses_2_on_4_tokens_and_1_on_60_give_1_0625_never_1_5():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2)
    first = acc.step(np.ones((4, 1)), np.full((4, 1), 2.0))
    second = acc.step(np.ones((60, 1)), np.full((60, 1), -1.0))
    assert (first.loss, first.weight, first.is_boundary, first.update) == (2.0, 4.0, False, None)
    assert second.is_boundary and second.update.loss == 1.0625 and second.update.weight == 64
    assert second.update.micro_losses == [2.0, 1.0]
    # gradients: -1 on 4 samples, +1 on 60: (60 - 4) / 64
    assert weight_of(net) == [-0.875]


def test_mean_of_means_is_another_number_and_can_be_chosen():
    net = hand_net(dtype="float64")
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2, reduction="mean_of_means")
    acc.step(np.ones((4, 1)), np.full((4, 1), 2.0))
    acc.step(np.ones((60, 1)), np.full((60, 1), -1.0))
    assert weight_of(net) == pytest.approx([0.0], abs=1e-14)         # (-1 + 1) / 2


def test_sum_divides_by_nothing():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2, reduction="sum")
    acc.step(np.ones((4, 1)), np.full((4, 1), 2.0))
    acc.step(np.ones((60, 1)), np.full((60, 1), -1.0))
    assert weight_of(net) == [-56.0]


@pytest.mark.parametrize("staged", [False, True])
def test_d05_d29_gradients_1_2_4_give_7_thirds(staged):
    net = hand_net(dtype="float64")
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=3, staged=staged)
    seen = []
    for g in (1.0, 2.0, 4.0):
        acc.step(np.full((1, 1), g), below(1))
        seen.append(acc.buffer[0])
    assert seen == [1.0, 3.0, 0.0]                       # cleared after the update, not before
    assert weight_of(net) == [-7 / 3]


def test_d17_doubling_k_on_duplicated_data_changes_nothing():
    results = []
    for repeat in (1, 2, 4):
        net = hand_net()
        ga.Accumulator(net, sgd(net)).update(np.tile([[1.0], [3.0]], (repeat, 1)), below(2 * repeat))
        results.append(weight_of(net))
    assert results == [[-2.0]] * 3


def test_d02_sequences_of_random_lengths():
    """16 sequences of 1 to 9 tokens, padded with ignored labels: softmax regression, every split, against NumPy."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(16, 9, 3)), rng.integers(0, 4, (16, 9))
    for i, length in enumerate(rng.integers(1, 10, 16)):
        y[i, length:] = -100
    results = []
    for m in (16, 8, 4, 2, 1):
        net = ga.plan(nn.Linear(3, 4, bias=False), input_shape=(9, 3), loss=nn.CrossEntropyLoss(), micro_batch=m, dtype="float64", seed=5)
        w = net.params.reshape(4, 3).copy()
        ga.Accumulator(net, sgd(net)).update(x, y)
        results.append(net.params.copy())
    assert all(np.array_equal(r, results[0]) for r in results)
    tokens, labels = x[y >= 0], y[y >= 0]
    p = np.exp(tokens @ w.T)
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    assert results[0].reshape(4, 3) == pytest.approx(w - p.T @ tokens / len(labels), rel=1e-13, abs=1e-15)


def test_d04_the_order_of_samples_in_a_window_matters_to_rounding_only(batch):
    x, y, weight = batch
    results = []
    for order in (np.arange(96), np.arange(96)[::-1], np.random.default_rng(0).permutation(96)):
        net = ga.plan(nn.Linear(12, 5), input_shape=(12,), loss=nn.CrossEntropyLoss(), micro_batch=20)
        ga.Accumulator(net, sgd(net)).update(x[order], y[order], weight[order])
        results.append(net.params.copy())
    for r in results[1:]:
        assert np.linalg.norm(r - results[0]) <= 1e-6 * np.linalg.norm(results[0])


class Auxiliary(nn.Function):
    """Adds the term factor * y to the loss of each sample: to its gradient, factor."""

    factor = 0.5

    def forward(self, x):
        return x

    def backward(self, grad):
        return grad + self.factor


@pytest.mark.parametrize("pieces", [[4], [2, 2], [1, 3], [3, 1], [1, 1, 1, 1]], ids=str)
def test_d06_d16_an_auxiliary_term_has_the_same_denominator(pieces):
    """x = 1, 2, 3, 6: the loss's part of the gradient is 3, the term's 0.5 * 3, for every split."""
    net = ga.plan(nn.Sequential(nn.Linear(1, 1, bias=False), Auxiliary()), input_shape=(1,), loss=nn.L1Loss(), micro_batch=4)
    net.load_state_dict({"0.weight": [[0.0]]})
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=len(pieces))
    x = np.array([[1.0], [2.0], [3.0], [6.0]])
    for part in np.split(x, np.cumsum(pieces)[:-1]):
        acc.step(part, below(len(part)))
    assert acc.updates == 1 and weight_of(net) == [-4.5]


@pytest.mark.parametrize("lengths, values, per, gradient", [
    ((1, 9), (10.0, 0.0), "element", 1.0), ((1, 9), (10.0, 0.0), "sample", 5.0),
    ((2, 6), (8.0, 0.0), "element", 2.0), ((2, 6), (8.0, 0.0), "sample", 4.0),
])
@pytest.mark.parametrize("m", [1, 2])
def test_d07_d22_tokens_or_sentences(lengths, values, per, gradient, m):
    """The unit that was chosen is the unit of the window, however the sentences are split."""
    net = ga.plan(nn.Sequential(nn.Linear(1, 1, bias=False)), input_shape=(9, 1), loss=nn.L1Loss(per=per), micro_batch=m, dtype="float64")
    net.load_state_dict({"0.weight": [[0.0]]})
    x = np.repeat(np.array(values)[:, None, None], 9, axis=1)
    weight = (np.arange(9) < np.array(lengths)[:, None]).astype(float)[:, :, None]
    ga.Accumulator(net, sgd(net)).update(x, np.full((2, 9, 1), -1000.0), weight)
    assert weight_of(net) == pytest.approx([-gradient], rel=1e-15)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 8, 24])
@pytest.mark.parametrize("loss_scale", [None, 1024.0])
def test_d08_d10_d12_d13_one_owner_of_the_divisor(k, loss_scale):
    """24 samples with gradient 1: the update is 1 and the norm 1 for every K; neither K nor 1/K nor 1/K^2."""
    net = hand_net(micro_batch=24 // k)
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=k, loss_scale=loss_scale)
    update = acc.update(np.ones((24, 1)), below(24))
    assert (update.micro_steps, update.grad_norm, update.loss, weight_of(net)) == (k, 1.0, 1000.0, [-1.0])


def test_d18_a_sum_is_not_harmless_under_adam():
    """Gradient g = 1e-9 and eps = 1e-8: Adam's first step is g / (g + eps); eight times the gradient is another step."""
    for reduction, g in (("mean", 1e-9), ("sum", 8e-9)):
        net = hand_net(dtype="float64")
        acc = ga.Accumulator(net, optim.Adam(net, lr=1.0, eps=1e-8), reduction=reduction)
        acc.update(np.full((8, 1), 1e-9), below(8))
        assert weight_of(net) == pytest.approx([-g / (g + 1e-8)], rel=1e-12)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("loss_scale", [None, 8.0])
@pytest.mark.parametrize("accumulator", [None, "float64", "compensated", "bfloat16", "float16"])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_d21_every_combination_of_options_gives_the_same_gradient(staged, loss_scale, accumulator, m):
    net = hand_net(micro_batch=m)
    acc = ga.Accumulator(net, sgd(net), staged=staged, loss_scale=loss_scale, accumulator=accumulator)
    acc.update([[1.0], [2.0], [4.0], [5.0]], below(4))
    assert weight_of(net) == [-3.0]


def test_equal_pieces_make_all_means_equal():
    for reduction in ("mean", "mean_of_means"):
        net = hand_net(micro_batch=2)
        ga.Accumulator(net, sgd(net), reduction=reduction).update([[1.0], [3.0], [5.0], [7.0]], below(4))
        assert weight_of(net) == [-4.0]


def test_weights_of_samples_and_of_elements():
    """Outputs 1 and 2 of two samples: weights choose and scale what counts, in the sum and in the divisor."""
    def update(weight):
        net = ga.plan(nn.Sequential(nn.Linear(1, 2, bias=False)), input_shape=(1,), loss=nn.L1Loss(), micro_batch=1)
        net.load_state_dict({"0.weight": np.zeros((2, 1))})
        record = ga.Accumulator(net, sgd(net)).update([[1.0], [4.0]], np.full((2, 2), -1000.0), weight)
        return record.weight, record.tokens, weight_of(net)

    assert update(None) == (4.0, 4, [-5 / 4, -5 / 4])
    assert update([3.0, 1.0]) == (8.0, 4, [-7 / 8, -7 / 8])              # (3 * 1 + 4) / (2 * (3 + 1))
    assert update([[1.0, 0.0], [1.0, 2.0]]) == (4.0, 3, [-5 / 4, -2.0])  # (1 + 4) / 4 and 2 * 4 / 4


def test_d20_the_running_mean_of_every_prefix_is_its_weighted_mean():
    net = hand_net(dtype="float64")
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=10)
    total = 0.0
    for n, g in ((1, 5.0), (3, 2.0), (2, -1.0)):
        acc.step(np.full((n, 1), g), below(n))
        total += n * g
        assert acc.buffer[0] / acc.weight_sum == total / acc.weight_sum


def test_d40_the_window_loss_is_logged_and_each_micro_loss():
    """Micro losses 1 and 3 with weights 1 and 3: 10 / 4 = 2.5."""
    net = hand_net()
    update = ga.Accumulator(net, sgd(net)).update(np.zeros((4, 1)), np.array([[1.0], [3.0], [3.0], [3.0]]))
    assert update.loss == 2.5
    net = hand_net(micro_batch=3)
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2)
    acc.step(np.zeros((1, 1)), [[1.0]])
    update = acc.step(np.zeros((3, 1)), np.full((3, 1), 3.0)).update
    assert (update.loss, update.micro_losses) == (2.5, [1.0, 3.0])


def test_d14_reductions_name_their_level():
    """Sentences of 1 and 3 tokens with losses 4 and 1, 1, 1: token mean 7/4, sentence mean (4 + 1) / 2."""
    for per, loss in (("element", 7 / 4), ("sample", 5 / 2)):
        for m in (1, 2):
            net = ga.plan(nn.Linear(1, 1, bias=False), input_shape=(3, 1), loss=nn.L1Loss(per=per), micro_batch=m, dtype="float64")
            acc = ga.Accumulator(net, sgd(net))
            x = np.zeros((2, 3, 1))
            weight = np.array([[1, 0, 0], [1, 1, 1]], dtype=float)[:, :, None]
            assert acc.update(x, np.array([[4, 9, 9], [1, 1, 1]], dtype=float)[:, :, None], weight).loss == loss


# ---- boundaries and counters ----

def test_d24_windows_of_9_micro_batches_with_k_4():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=4)
    sizes, boundary = [], []
    for _ in range(9):
        boundary.append(acc.is_boundary)
        step = acc.step(np.ones((1, 1)), below(1))
        if step.update:
            sizes.append(step.update.micro_steps)
    sizes.append(acc.flush().micro_steps)
    assert sizes == [4, 4, 1]
    assert boundary == [False, False, False, True] * 2 + [False]


def test_d27_d28_updates_come_after_the_kth_micro_batch():
    net = hand_net()
    records = steps(ga.Accumulator(net, sgd(net), accumulation_steps=5), [1.0] * 12)
    assert [i for i, step in enumerate(records, start=1) if step.update] == [5, 10]


def test_d30_the_buffer_after_each_of_7_micro_batches_with_k_3():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=3)
    seen = []
    for _ in range(7):
        steps(acc, [1.0])
        seen.append(acc.buffer[0])
    assert seen == [1, 2, 0, 1, 2, 0, 1]


def test_d32_d33_one_predicate_also_around_a_forced_tail():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=3)
    seen, boundaries = [], []
    for i in range(8):
        seen.append(acc.is_boundary)
        boundaries += [step.is_boundary for step in steps(acc, [1.0])]
        if i == 3:
            assert acc.flush().micro_steps == 1              # a tail of one; the count starts anew
    assert seen == boundaries == [False, False, True, False, False, False, True, False]


def test_d35_dropping_is_a_matter_of_windows():
    """118 samples in micro-batches of 16, 64 a window: one full window is used, and there is no half-sized update."""
    for tail, sizes in (("drop", [64]), ("flush", [64, 54])):
        net = hand_net(micro_batch=16)
        acc = ga.Accumulator(net, sgd(net), effective_batch_size=64, tail=tail)
        records = [acc.step(np.ones((n, 1)), below(n)).update for n in [16] * 7 + [6]] + [acc.flush()]
        assert [r.samples for r in records if r] == sizes and acc.updates == len(sizes) and not acc.buffer.any()


def test_a_carried_window_goes_on_in_the_next_epoch():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=4, tail="carry")
    steps(acc, [1.0] * 3)
    assert acc.flush() is None and (acc.micro_step, acc.buffer[0]) == (3, 3.0)
    assert steps(acc, [5.0])[0].update.weight == 4 and weight_of(net) == [-2.0]


@pytest.mark.parametrize("tail, updates, carried", [("flush", 3, 0), ("drop", 2, 0), ("carry", 2, 2)])
def test_d23_d26_ten_micro_batches_with_k_4(tail, updates, carried):
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=4, tail=tail)
    applied = [u.weight for u in (acc.step(np.ones((1, 1)), below(1)).update for _ in range(10)) if u]
    last = acc.flush()
    applied += [last.weight] if last else []
    assert (acc.updates, acc.micro_step, sum(applied)) == (updates, carried, 10 if tail == "flush" else 8)
    assert ga.planned_updates(micro_batches=10, accumulation_steps=4, tail=tail) == updates
    assert acc.flush() is None


def test_d39_planned_updates_over_two_epochs():
    planned = {tail: ga.planned_updates(micro_batches=5, accumulation_steps=4, epochs=2, tail=tail) for tail in ("flush", "drop", "carry")}
    assert planned == {"flush": 4, "drop": 2, "carry": 2}
    for tail, expected in planned.items():
        net = hand_net()
        acc = ga.Accumulator(net, sgd(net), accumulation_steps=4, tail=tail)
        for _ in range(2):
            for _ in range(5):
                acc.step(np.ones((1, 1)), below(1))
            acc.flush()
        assert acc.updates == expected


@pytest.mark.parametrize("tail", ["flush", "drop", "carry"])
def test_planned_updates_are_those_that_happen(tail):
    rng = np.random.default_rng(7)
    for _ in range(25):
        n, k, epochs = (int(v) for v in rng.integers(1, 9, 3))
        net = hand_net(micro_batch=1)
        acc = ga.Accumulator(net, sgd(net), accumulation_steps=k, tail=tail)
        for _ in range(epochs):
            steps(acc, [1.0] * n)
            acc.flush()
        assert acc.updates == ga.planned_updates(micro_batches=n, accumulation_steps=k, epochs=epochs, tail=tail)


def test_d25_an_epoch_shorter_than_k_is_one_update():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=8)
    steps(acc, [1.0, 2.0, 6.0])
    assert acc.flush().weight == 3 and acc.updates == 1 and weight_of(net) == [-3.0]


def test_a_last_window_of_2_of_4_equal_micro_batches_gives_the_same_update():
    changes = []
    for n in (4, 2):
        net = hand_net()
        acc = ga.Accumulator(net, sgd(net), accumulation_steps=4)
        for _ in range(n):
            acc.step(np.full((2, 1), 3.0), below(2))
        acc.flush()
        changes.append(weight_of(net))
    assert changes == [[-3.0], [-3.0]]


def test_d25_d34_k_larger_than_the_batch():
    net = hand_net(micro_batch=1)
    update = ga.Accumulator(net, sgd(net), accumulation_steps=8).update([[1.0], [3.0]], below(2))
    assert (update.micro_steps, update.samples, weight_of(net)) == (2, 2, [-2.0])


def test_d38_counters():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=4)
    for _ in range(14):
        acc.step(np.ones((3, 1)), below(3))
    assert (acc.micro_steps, acc.updates, acc.micro_step, acc.samples, acc.weight, acc.tokens) == (14, 3, 2, 42, 42.0, 42)
    assert acc.weight_sum == 6 and not acc.is_boundary


def test_d36_a_schedule_counts_updates():
    rates = []
    for k in (1, 4):
        net = hand_net()
        acc = ga.Accumulator(net, sgd(net), accumulation_steps=k, schedule=lambda update: 1 / (1 + update))
        rates.append([u.lr for u in (acc.step(np.ones((1, 1)), below(1)).update for _ in range(3 * k)) if u])
    assert rates == [[1.0, 1 / 2, 1 / 3]] * 2


def test_d36_d37_a_cosine_over_10_updates_is_the_same_for_k_1_and_4():
    def cosine(update):
        return 0.5 * (1 + np.cos(np.pi * update / 10))

    seen = []
    for k in (1, 4):
        net = hand_net()
        acc = ga.Accumulator(net, sgd(net), accumulation_steps=k)
        acc.schedule = lambda update: cosine(acc.updates)    # noqa: B023  reads the counter of the accumulator itself
        seen.append([step.update.lr for step in steps(acc, [1.0] * 10 * k) if step.update])
    assert seen[0] == seen[1] == [cosine(u) for u in range(10)]


def test_d42_the_schedule_follows_updates_when_k_changes():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=lambda update: (1, 3, 2)[update], schedule=lambda update: 2.0**-update)
    rates = [step.update and (step.update.micro_steps, step.update.lr, step.update.update) for step in steps(acc, [1.0] * 6)]
    assert rates == [(1, 1.0, 1), None, None, (3, 0.5, 2), None, (2, 0.25, 3)]


def test_the_alias_gradient_accumulation_steps():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), gradient_accumulation_steps=3)
    assert acc.accumulation_steps == 3 and [s.is_boundary for s in steps(acc, [1.0] * 3)] == [False, False, True]


def test_k_as_a_function_of_updates():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=lambda update: 1 + update)
    sizes = [u.micro_steps for u in (acc.step(np.ones((1, 1)), below(1)).update for _ in range(10)) if u]
    assert sizes == [1, 2, 3, 4]


def test_effective_batch_size_gives_equal_pieces():
    net = hand_net(micro_batch=46)
    acc = ga.Accumulator(net, sgd(net), effective_batch_size=64)
    assert (acc.accumulation_steps, acc.micro_batch) == (2, 32)
    assert acc.update(np.ones((64, 1)), below(64)).micro_steps == 2
    steps = [acc.step(np.ones((32, 1)), below(32)).is_boundary for _ in range(4)]
    assert steps == [False, True, False, True]


def test_update_refuses_more_pieces_than_k():
    net = hand_net(micro_batch=2)
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2)
    with pytest.raises(ValueError, match="5 samples in micro-batches of 2 are 3 micro-batches, but accumulation_steps is 2"):
        acc.update(np.ones((5, 1)), below(5))
    assert acc.update(np.ones((3, 1)), below(3)).micro_steps == 2


# ---- clip, decay, clocks ----

def test_d43_clip_once_at_the_boundary():
    """Gradients (2, 0) then (0, 2): mean (1, 1), norm sqrt 2; limit 1: (0.7071, 0.7071). Clipping each would give (0.4472, 0.8944)."""
    net = hand_net(features=2, dtype="float64")
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2, max_grad_norm=1.0)
    acc.step([[2.0, 0.0]], below(1))
    update = acc.step([[0.0, 2.0]], below(1)).update
    assert update.grad_norm == pytest.approx(np.sqrt(2), rel=1e-15) and update.clipped
    assert weight_of(net) == pytest.approx([-np.sqrt(0.5)] * 2, rel=1e-6)
    assert update.grad_norm_clipped <= 1.0


def test_d45_normalize_before_clip():
    """Four micro-gradients of norm 1, limit 2: the mean has norm 1 and is not clipped."""
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=4, max_grad_norm=2.0)
    update = [acc.step([[1.0]], below(1)).update for _ in range(4)][-1]
    assert (update.clipped, update.grad_norm, weight_of(net)) == (False, 1.0, [-1.0])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_d44_d46_no_update_is_longer_than_the_limit(reduction):
    """SGD with rate 1: the change of the parameters is the clipped gradient."""
    rng = np.random.default_rng(3)
    net = hand_net(features=5, dtype="float64")
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=3, max_grad_norm=0.25, reduction=reduction)
    for _ in range(8):
        before = net.params.copy()
        for _ in range(3):
            step = acc.step(rng.normal(size=(4, 5)), below(4))
        length = np.linalg.norm(net.params - before)
        assert length <= 0.25 * (1 + 1e-12) and step.update.grad_norm_clipped == pytest.approx(length, rel=1e-6)
        assert step.update.clipped == (step.update.grad_norm > 0.25)


def test_d47_the_loss_scale_cannot_change_inside_a_window():
    """Scale 4, gradients 1 and 1: whatever is set in between, the sum is 2, not 6."""
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2, reduction="sum", loss_scale=4.0)
    steps(acc, [1.0])
    try:
        acc.loss_scale = 2.0
    except AttributeError:
        pass
    steps(acc, [1.0])
    assert weight_of(net) == [-2.0]


def test_a_limit_that_is_set_later_is_the_same_for_every_way():
    changes = []
    for way in ("update", "step", "stages", "by hand"):
        net = hand_net()
        acc = ga.Accumulator(net, sgd(net))
        try:
            acc.max_grad_norm = 1.0
        except AttributeError:                               # fixed for the life of the window: also an answer
            return
        if way == "update":
            acc.update([[8.0]], below(1))
        elif way == "step":
            acc.step([[8.0]], below(1))
        elif way == "stages":
            list(acc.stages([[8.0]], below(1)))
        else:
            by_hand(acc, [([[8.0]], below(1))], clip=True)
        changes.append(weight_of(net))
    assert changes == [changes[0]] * 4 and changes[0] == pytest.approx([-1.0], rel=1e-6)


def test_adam_after_two_windows_worked_by_hand():
    """Gradients 1 then 3 with b1 = 0.5, b2 = 0.75: the clock is 1 and 2, not 4 and 8."""
    net = hand_net(dtype="float64")
    opt = optim.Adam(net, lr=1.0, betas=(0.5, 0.75), eps=0.0)
    acc = ga.Accumulator(net, opt, accumulation_steps=4)
    steps(acc, [1.0] * 4 + [3.0] * 4)
    # update 1: m = 1/2, v = 1/4: step 1.  update 2: m = 7/4, v = 3/16 + 9/4 = 39/16; m / (1 - 1/4) = 7/3, v / (1 - 9/16) = 39/7
    assert weight_of(net) == pytest.approx([-1 - (7 / 3) / np.sqrt(39 / 7)], rel=1e-15)
    assert opt.updates == 2 and opt.state["0.weight"]["exp_avg"].item() == 7 / 4


def test_decay_and_adams_clock_once_per_update():
    net = hand_net()
    net.load_state_dict({"0.weight": [[1.0]]})
    opt = optim.AdamW(net, lr=0.5, weight_decay=0.5)
    acc = ga.Accumulator(net, opt, accumulation_steps=4)
    for _ in range(4):
        acc.step([[0.0]], below(1))
    assert opt.updates == 1
    assert weight_of(net) == [0.75]                      # 1 * (1 - 0.5 * 0.5), once; the gradient is 0


def test_frozen_parameters_stay():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    model[0].requires_grad_(False)
    net = ga.plan(model, input_shape=(1,), loss=nn.MSELoss(), micro_batch=2)
    before = net.snapshot()
    ga.Accumulator(net, optim.AdamW(net, lr=0.1)).update([[1.0], [2.0]], [[5.0], [6.0]])
    assert np.array_equal(net.parameters()["0.weight"].data, before["0.weight"]) and net.parameters()["0.weight"].grad is None
    assert not np.array_equal(net.parameters()["1.weight"].data, before["1.weight"])


def test_groups_have_their_own_hyper_parameters():
    net = ga.plan(nn.Linear(1, 1), input_shape=(1,), loss=nn.L1Loss(), micro_batch=1)
    net.load_state_dict({"weight": [[1.0]], "bias": [1.0]})
    opt = sgd(net, weight_decay=0.5, groups=[{"params": ["bias"], "weight_decay": 0.0}])
    ga.Accumulator(net, opt).update([[0.0]], [[1.0]])    # gradient 0: only the decay acts
    assert (net.parameters()["weight"].data.item(), net.parameters()["bias"].data.item()) == (0.5, 1.0)


# ---- nothing to divide by ----

def test_a_zero_weight_micro_batch_adds_nothing():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2)
    acc.step([[2.0]], below(1))
    step = acc.step([[np.inf]], below(1), weight=[0.0])  # not even 0 * infinity
    assert np.isnan(step.loss) and step.update.loss == 1000.0 and step.update.weight == 1
    assert weight_of(net) == [-2.0]


def test_a_zero_weight_window_changes_nothing():
    net = ga.plan(nn.Linear(3, 2), input_shape=(3,), loss=nn.CrossEntropyLoss(), micro_batch=4)
    opt = optim.AdamW(net, lr=0.1, weight_decay=0.5)
    acc = ga.Accumulator(net, opt, accumulation_steps=2, ema=0.5)
    before = net.snapshot() | {"ema": acc.ema["weight"].copy()}
    acc.step(np.ones((4, 3)), [-100] * 4)
    update = acc.step(np.ones((4, 3)), [-100] * 4).update
    assert update.skipped and "no weight" in update.reason and np.isnan(update.loss) and update.grad_norm is None
    assert (acc.updates, opt.updates, acc.micro_step) == (0, 0, 0)
    after = net.snapshot() | {"ema": acc.ema["weight"]}
    assert all(np.array_equal(before[k], after[k]) for k in before)
    assert acc.update(np.ones((4, 3)), [-100] * 4).skipped
    assert [e.stage for e in acc.stages(np.ones((4, 3)), [-100] * 4)][-1] == "clear"
    assert not acc.update(np.ones((4, 3)), [0, 1, 0, 1]).skipped


def test_a_skipped_window_moves_no_clock():
    net = hand_net()
    rates = []
    acc = ga.Accumulator(net, sgd(net, momentum=0.5), accumulation_steps=1, schedule=lambda update: rates.append(update) or 1.0)
    acc.step([[2.0]], below(1))
    assert acc.step([[2.0]], below(1), [0.0]).update.skipped
    record = acc.step([[2.0]], below(1)).update
    assert sorted(set(rates)) == [0, 1] and record.update == acc.updates == 2 and acc.micro_steps == 3
    assert weight_of(net) == [-5.0]                          # -2, then the velocity 0.5 * 2 + 2


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_zero_weight_micro_batches_leave_the_same_update(reduction):
    results = []
    for empty in (0, 2):
        net = hand_net()
        acc = ga.Accumulator(net, sgd(net), accumulation_steps=2 + empty, reduction=reduction)
        for _ in range(empty):
            acc.step([[9.0]], below(1), [0.0])
        steps(acc, [1.0, 4.0])
        results.append(weight_of(net))
    assert results == [[-2.5] if reduction == "mean" else [-5.0]] * 2


def test_clear_asks_before_it_throws_away():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=4)
    steps(acc, [1.0, 1.0])
    with pytest.raises(ga.StageError, match=r"clear: the window holds 2 micro-batches .*clear\(discard=True\)"):
        acc.clear()
    assert acc.micro_step == 2 and acc.buffer[0] == 2.0
    acc.clear(discard=True)
    assert (acc.micro_step, acc.weight_sum, acc.loss_sum, acc.buffer[0], acc.updates) == (0, 0.0, 0.0, 0.0, 0)
    steps(acc, [3.0] * 4)
    assert weight_of(net) == [-3.0] and acc.last_update.micro_losses == [1000.0] * 4


# ---- staged windows and buffers ----

def test_staged_buffer_after_is_buffer_before_plus_grads_bit_for_bit(batch):
    x, y, weight = batch
    net = ga.plan(nn.Linear(12, 5), input_shape=(12,), loss=nn.CrossEntropyLoss(), micro_batch=7)
    acc = ga.Accumulator(net, sgd(net), staged=True)
    before = acc.buffer.copy()
    seen = 0
    for event in acc.stages(x, y, weight):
        if event.stage == "accumulate":
            assert np.array_equal(acc.buffer, before + net.grads)
            before = acc.buffer.copy()
            seen += 1
    assert seen == 14


def test_d48_compensation_keeps_what_rounding_loses():
    """1 + 4,096 x 2^-25 in float32 stays 1; compensated and float64 give 1 + 2^-13. bfloat16: 1 + 1,000 x 2^-9 stays 1."""
    def total(buffer, small, n):
        net = hand_net()
        acc = ga.Accumulator(net, sgd(net), reduction="sum", accumulator=buffer, staged=True)
        acc.begin()
        for g in [1.0] + [small] * n:
            net.forward([[g]])
            net.loss(below(1))
            net.backward()
            acc.accumulate()
        acc.normalize()
        return float(net.grads[0])

    assert total(None, 2.0**-25, 4096) == 1.0
    assert total("compensated", 2.0**-25, 4096) == total("float64", 2.0**-25, 4096) == 1 + 2.0**-13
    assert total("bfloat16", 2.0**-9, 1000) == 1.0
    assert total(None, 2.0**-9, 1000) == 2.953125
    assert total("float16", 2.0**-12, 1000) == 1.0


def test_d49_bfloat16_cannot_hold_257():
    for buffer, expected in ((None, 257.0), ("bfloat16", 256.0), ("float16", 257.0)):
        net = hand_net()
        acc = ga.Accumulator(net, sgd(net), accumulation_steps=2, reduction="sum", accumulator=buffer)
        acc.step([[256.0]], below(1))
        acc.step([[1.0]], below(1))
        assert weight_of(net) == [-expected]


def test_d50_every_buffer_keeps_its_type():
    kept = {None: "float32", "float64": "float64", "compensated": "float32", "bfloat16": "uint16", "float16": "float16"}
    for accumulator, dtype in kept.items():
        net = hand_net()
        acc = ga.Accumulator(net, sgd(net), accumulation_steps=2, accumulator=accumulator, staged=True)
        address = acc.buffer.ctypes.data
        steps(acc, [1.0] * 20)
        assert (acc.updates, acc.buffer.dtype, net.grads.dtype, net.params.dtype) == (10, np.dtype(dtype), np.float32, np.float32)
        assert acc.buffer.ctypes.data == address and not acc.buffer.any()


def test_d51_small_buffers_are_fine_where_nothing_is_swamped(batch):
    """8 micro-batches of equal size: bfloat16 keeps 8 bits of each sum."""
    x, y, _ = batch
    updates = {}
    for accumulator in (None, "bfloat16", "float16"):
        net = ga.plan(nn.Linear(12, 5), input_shape=(12,), loss=nn.CrossEntropyLoss(), micro_batch=12)
        before = net.params.copy()
        ga.Accumulator(net, sgd(net), accumulator=accumulator, staged=True).update(x, y)
        updates[accumulator] = net.params - before
    size = np.linalg.norm(updates[None])
    assert 0 < np.linalg.norm(updates["bfloat16"] - updates[None]) < 0.01 * size
    assert 0 < np.linalg.norm(updates["float16"] - updates[None]) < 0.001 * size


def test_d52_an_overflow_in_update_3_touches_update_3_only():
    """A float16 buffer with loss scale 2^13 cannot hold a sum of 8; that window is skipped and leaves nothing behind."""
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=4, accumulator="float16", loss_scale=2.0**13, on_non_finite="skip_update")
    records = [s.update for s in steps(acc, [1.0] * 4 + [1.0] * 4 + [1.0, 1.0, 100.0, 1.0] + [1.0] * 4) if s.update]
    assert [r.skipped for r in records] == [False, False, True, False]
    assert acc.updates == 3 and weight_of(net) == [-3.0]


def test_the_compensation_is_the_part_that_the_buffer_cannot_hold():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=100, accumulator="compensated")
    steps(acc, [1.0] + [2.0**-25] * 3)
    assert (acc.buffer[0], acc.compensation[0]) == (1.0, 3 * 2.0**-25)
    acc.clear(discard=True)
    assert not acc.buffer.any() and not acc.compensation.any()


def test_compensated_bfloat16_is_not_offered():
    with pytest.raises(ValueError, match="accumulator='compensated_bfloat16': expected one of"):
        ga.Accumulator(hand_net(), accumulator="compensated_bfloat16")


def test_d64_the_same_call_five_times_adds_five_times():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=6, staged=True)
    seen = []
    for _ in range(5):
        steps(acc, [1.0])
        seen.append((acc.buffer[0], net.grads[0]))
    assert seen == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]


def test_loss_scale_is_taken_out_once():
    for scale in (None, 2.0**16, 3.0):
        net = hand_net(dtype="float64")
        acc = ga.Accumulator(net, sgd(net), accumulation_steps=2, loss_scale=scale, max_grad_norm=100.0)
        acc.step([[1.0]], below(1))
        assert acc.buffer[0] == (scale or 1.0)
        update = acc.step([[2.0]], below(1)).update
        assert update.loss == 1000.0                     # D41: the logged loss is not scaled
        assert weight_of(net) == [-1.5] and update.grad_norm == 1.5


def test_ema_once_per_update():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2, ema=0.5)
    for _ in range(4):
        acc.step([[1.0]], below(1))
    assert weight_of(net) == [-2.0] and acc.ema["0.weight"].item() == -1.25      # 0 -> -0.5 -> -1.25


@pytest.mark.parametrize("decay, expected", [(0.0, -2.0), (1.0, 0.0), (0.75, -0.25 * 2 - 0.75 * 0.25)])
def test_ema_decays(decay, expected):
    """Parameters 0, -1, -2: with 0 the average is the parameter, with 1 it stays where it began."""
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), ema=decay)
    steps(acc, [1.0, 1.0])
    assert acc.ema["0.weight"].item() == expected and not acc.ema["0.weight"].flags.writeable


# ---- NaN and infinity ----

def test_non_finite_raise_keeps_everything_until_discarded():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2)
    acc.step([[1.0]], below(1))
    with pytest.raises(FloatingPointError, match="NaN or infinity, first in the .*nothing was updated"):
        acc.step([[np.inf]], below(1))
    assert weight_of(net) == [0.0] and acc.updates == 0
    with pytest.raises(ga.StageError):
        acc.step([[1.0]], below(1))
    acc.clear(discard=True)
    acc.step([[1.0]], below(1))
    assert acc.step([[1.0]], below(1)).update.loss == 1000.0 and weight_of(net) == [-1.0]


def test_non_finite_skip_update_leaks_nothing():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net, momentum=0.9), accumulation_steps=2, on_non_finite="skip_update")
    acc.step([[1.0]], below(1))
    update = acc.step([[np.nan]], below(1)).update
    assert update.skipped and "NaN" in update.reason and acc.updates == 0 and acc.optimizer.updates == 0
    acc.step([[3.0]], below(1))
    acc.step([[3.0]], below(1))
    assert weight_of(net) == [-3.0]


def test_non_finite_skip_micro_batch_divides_by_what_is_left():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=3, on_non_finite="skip_micro_batch")
    acc.step([[1.0]], below(1))
    assert acc.step([[np.inf]], below(1)).rejected
    update = acc.step([[4.0]], below(1)).update
    assert (update.rejected, update.micro_steps, update.weight, update.samples) == (1, 3, 2.0, 3)
    assert weight_of(net) == [-2.5]


def test_non_finite_raise_in_update_leaves_the_window_empty():
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, sgd(net))
    acc.update([[1.0]], below(1))
    before = acc._core.get_state()
    with pytest.raises(FloatingPointError):
        acc.update([[1.0], [np.nan], [2.0]], below(3))
    assert acc._core.get_state() == before and not net.grads.any()
    acc.update([[1.0]], below(1))
    assert weight_of(net) == [-2.0]


def test_skip_micro_batch_in_every_reduction_and_way():
    for reduction, expected in (("mean", -2.5), ("mean_of_means", -2.5), ("sum", -5.0)):
        for way in ("update", "step"):
            net = hand_net(micro_batch=1)
            acc = ga.Accumulator(net, sgd(net), accumulation_steps=3, reduction=reduction, on_non_finite="skip_micro_batch")
            if way == "update":
                record = acc.update([[1.0], [np.nan], [4.0]], below(3))
            else:
                record = steps(acc, [1.0, np.nan, 4.0])[-1].update
            assert weight_of(net) == [expected] and (record.rejected, record.weight, record.samples) == (1, 2.0, 3)


def test_a_window_of_rejected_micro_batches():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2, on_non_finite="skip_micro_batch")
    record = steps(acc, [np.nan, np.inf])[-1].update
    assert record.skipped and "NaN" in record.reason and acc.updates == 0 and weight_of(net) == [0.0]
    assert record.grad_norm is None


def test_non_finite_skip_update_in_stages():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), on_non_finite="skip_update")
    events = list(acc.stages([[np.nan]], below(1)))
    assert events[-1].stage == "clear" and acc.last_update.skipped and acc.updates == 0
    acc.update([[1.0]], below(1))
    assert weight_of(net) == [-1.0]


# ---- stages ----

def test_the_stages_of_a_window():
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, sgd(net), max_grad_norm=10.0)
    events = list(acc.stages([[1.0], [3.0]], below(2)))
    one = ["forward", "loss", "backward", "accumulate"]
    assert [e.stage for e in events] == one * 2 + ["normalize", "clip", "update", "clear"]
    assert [e.micro_step for e in events] == [1] * 4 + [2] * 4 + [None] * 4
    assert events[7].values == {"loss_sum": 2000.0, "weight": 2.0, "buffer_norm": 4.0}
    assert acc.last_update.loss == 1000.0 and weight_of(net) == [-2.0]
    assert not events[0].views["net.grads"].flags.writeable


def test_events_say_what_changed_and_snapshots_stay():
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, sgd(net), staged=True)
    seen = {}
    for event in acc.stages([[1.0], [3.0]], below(2)):
        seen[event.stage, event.micro_step] = event, event.snapshot()
    backward, copy = seen["backward", 2]
    assert "net.grads" in backward.changed and "acc.buffer" not in backward.changed
    assert copy["net.grads"].tolist() == [3.0] and copy["acc.buffer"].tolist() == [1.0]
    assert seen["accumulate", 2][1]["acc.buffer"].tolist() == [4.0]
    assert "acc.buffer" in seen["accumulate", 2][0].changed
    assert seen["normalize", None][1]["net.grads"].tolist() == [2.0]
    assert seen["update", None][1]["net.params"].tolist() == [-2.0]
    assert backward.views["net.grads"].tolist() == [0.0]     # live: cleared by now
    for event, _ in seen.values():
        assert not any(view.flags.writeable for view in event.views.values())


def test_stages_that_stop_early_leave_the_window_open():
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2)
    for event in acc.stages([[1.0], [3.0]], below(2)):
        if event.stage == "accumulate":
            break
    assert (net.stage, acc.micro_step, acc.buffer[0]) == ("accumulate", 1, 1.0)
    assert steps(acc, [5.0])[0].update.weight == 2 and weight_of(net) == [-3.0]


WAYS = ("update", "step", "stages", "by hand")


def records(batch, **options):
    """The record and the parameters of one window of 96 samples in pieces of 40, in each way."""
    x, y, weight = batch
    pieces = [slice(i, i + 40) for i in range(0, 96, 40)]
    out = {}
    for way in WAYS:
        net, opt = residual_net(40)
        acc = ga.Accumulator(net, opt, 3, **options)
        if way == "update":
            acc.update(x, y, weight)
        elif way == "step":
            for part in pieces:
                acc.step(x[part], y[part], weight[part])
        elif way == "stages":
            list(acc.stages(x, y, weight))
        else:
            by_hand(acc, [(x[p], y[p], weight[p]) for p in pieces], clip="max_grad_norm" in options)
        out[way] = acc.last_update, net.params.copy(), acc._core.get_state()["counters"]
    return out


@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.1}, {"staged": True}, {"accumulator": "float64", "loss_scale": 3.0},
                                     {"reduction": "mean_of_means"}, {"reduction": "sum", "max_grad_norm": 1.0}], ids=str)
def test_all_ways_are_the_same_window(options, batch):
    out = records(batch, **options)
    for record, params, counters in out.values():
        assert np.array_equal(params, out["update"][1]) and counters == out["update"][2]
        for name in ("update", "loss", "weight", "samples", "tokens", "micro_steps", "grad_norm", "clipped", "lr", "skipped", "reason",
                     "rejected"):
            assert getattr(record, name) == getattr(out["update"][0], name), name


def test_all_ways_give_the_same_record(batch):
    out = records(batch, max_grad_norm=0.1)
    assert all(record == out["update"][0] for record, _, _ in out.values())


def test_d31_a_window_by_hand_counts_as_one():
    net = hand_net()
    opt = sgd(net)
    acc = ga.Accumulator(net, opt)
    acc.begin()
    for g in (1.0, 2.0, 6.0):
        net.forward([[g]])
        net.loss(below(1))
        net.backward()
        acc.accumulate()
    assert acc.normalize() == 3.0
    assert acc.clip(2.0) == 3.0
    opt.step()
    assert acc.last_update.clipped and acc.last_update.micro_losses == [1000.0] * 3
    acc.clear()
    assert acc.updates == 1 and weight_of(net) == pytest.approx([-2.0], rel=1e-6) and net.stage == "clear"


def test_a_window_without_an_optimizer_gives_the_gradient():
    net = hand_net()
    acc = ga.Accumulator(net)
    acc.begin()
    for g in (1.0, 2.0, 6.0):
        net.forward([[g]])
        net.loss(below(1))
        net.backward()
        acc.accumulate()
    assert acc.normalize() == 3.0 and net.grads.tolist() == [3.0]
    acc.clear(discard=True)
    for call in (lambda: acc.update([[1.0]], below(1)), lambda: acc.step([[1.0]], below(1)), lambda: next(acc.stages([[1.0]], below(1)))):
        with pytest.raises(ValueError, match="was made without an optimizer"):
            call()
    assert acc.micro_step == 0


def test_the_record_of_an_update():
    net = hand_net(micro_batch=2)
    record = ga.Accumulator(net, sgd(net, lr=0.5)).update(np.zeros((3, 1)), [[1.0], [1.0], [4.0]])
    assert record == ga.Update(update=1, loss=2.0, weight=3.0, samples=3, tokens=3, micro_steps=2, micro_losses=[1.0, 4.0], grad_norm=0.0,
                               grad_norm_clipped=0.0, clipped=False, lr=0.5)
    assert record.perplexity == pytest.approx(np.exp(2.0), rel=1e-15)


def test_without_an_accumulator_backward_adds_and_step_applies():
    net = hand_net()
    opt = sgd(net)
    for g in (1.0, 2.0):
        net.forward([[g]])
        net.loss(below(1))
        net.backward()
    assert net.grads[0] == 3.0
    opt.step()
    assert weight_of(net) == [-3.0]
    net.zero_grad()
    assert net.grads[0] == 0.0


def test_d65_two_networks_do_not_share_buffers():
    a, b = hand_net(), hand_net()
    acc_a, acc_b = ga.Accumulator(a, sgd(a), 2), ga.Accumulator(b, sgd(b), 2)
    acc_a.step([[1.0]], below(1))
    acc_b.step([[5.0]], below(1))
    assert (acc_a.buffer[0], acc_b.buffer[0]) == (1.0, 5.0)
    acc_a.step([[1.0]], below(1))
    assert acc_b.buffer[0] == 5.0 and weight_of(b) == [0.0]


def test_evaluation_between_micro_batches_changes_nothing():
    net = hand_net()
    acc = ga.Accumulator(net, sgd(net), accumulation_steps=2)
    acc.step([[1.0]], below(1))
    assert net.predict(np.ones((200, 1))).shape == (200, 1)
    assert net.evaluate(np.ones((200, 1)), np.full((200, 1), 2.0)) == 2.0
    acc.step([[3.0]], below(1))
    assert weight_of(net) == [-2.0]
