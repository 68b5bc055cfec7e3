"""Large networks run small micro-batches together inside acc.update: more speed, a few more bytes, the same bits."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim

X = np.random.default_rng(0).normal(size=(37, 96)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 20, 37)


def model():
    """512 x 512 and more: gradients of above 1 MiB, the cache of a core."""
    return nn.Sequential(nn.Linear(96, 512), nn.ReLU(), nn.Dropout(0.3), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 20))


def run(micro_batch, way="update", memory_limit=None, **options):
    net = ga.plan(model(), input_shape=(96,), loss=nn.CrossEntropyLoss(ignore_index=3), micro_batch=micro_batch, seed=5, memory_limit=memory_limit)
    acc = ga.Accumulator(net, optim.AdamW(net, lr=1e-2), **options)
    updates = []
    for _ in range(3):
        if way == "update":
            updates.append(acc.update(X, Y))
        else:
            for i in range(0, len(X), micro_batch):
                acc.step(X[i:i + micro_batch], Y[i:i + micro_batch])
            updates.append(acc.last_update)
    return net, acc, updates


@pytest.mark.parametrize("micro_batch", [1, 3, 8, 37])
def test_grouped_micro_batches_have_the_bits_of_single_ones(micro_batch):
    grouped, acc, updates = run(micro_batch)
    alone, by_step, steps = run(micro_batch, "step", accumulation_steps=-(-len(X) // micro_batch))
    assert np.array_equal(grouped.params, alone.params)
    assert updates == steps                                  # losses of each micro-batch, norms, counts
    assert acc.micro_steps == by_step.micro_steps == 3 * -(-len(X) // micro_batch) and acc.tokens == by_step.tokens


def test_the_group_is_in_the_ledger_and_costs_less_than_a_quarter_of_the_gradients():
    net, *_ = run(2)
    raw, lean = net._core.bytes(2), net._core.bytes(2, -1, 1)
    assert raw["rows"] > 2 and lean["rows"] == 2
    extra = sum(raw[k] - lean[k] for k in ("activations", "activation_gradients", "workspace"))
    assert 0 < extra <= net.memory.by_kind()["gradient_buffer"] / 4
    assert net.memory.bytes() == sum(net.memory.by_kind().values())


def test_a_limit_comes_before_speed_and_changes_no_bit():
    free, kept, _ = run(2)
    needed = free.memory._lean(2) + free.params.nbytes // 8  # Adam's state is in it
    tight, also_kept, _ = run(2, memory_limit=needed)
    assert tight._core.bytes(2)["rows"] == 2 and tight.memory.bytes() < free.memory.bytes() and np.array_equal(tight.params, free.params)


def test_views_show_the_last_micro_batch():
    net, _, updates = run(8)                                 # 37 = 8 + 8 + 8 + 8 + 5
    assert net.node("5").output.shape == (5, 20)
    other, *_ = run(8, "step", accumulation_steps=5)
    assert np.array_equal(net.node("5").output, other.node("5").output)


@pytest.mark.parametrize("options", [dict(staged=True), dict(reduction="mean_of_means")])
def test_where_a_micro_batch_counts_on_its_own_nothing_is_grouped(options):
    net, _, updates = run(8, **options)
    other, _, steps = run(8, "step", accumulation_steps=5, **options)
    assert np.array_equal(net.params, other.params) and updates == steps


def test_small_networks_and_those_that_mix_samples_are_not_grouped():
    small = ga.plan(nn.Linear(96, 20), input_shape=(96,), loss=nn.CrossEntropyLoss(), micro_batch=2)
    mixing = ga.plan(nn.Sequential(nn.Linear(96, 1024), nn.BatchNorm1d(1024), nn.Linear(1024, 512)), input_shape=(96,), loss=nn.MSELoss(), micro_batch=2)
    assert small._core.bytes(2)["rows"] == mixing._core.bytes(2)["rows"] == 2
