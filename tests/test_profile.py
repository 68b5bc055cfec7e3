"""net.profile(): which node took the time, without changing a bit."""
import numpy as np

import gradaccum as ga
from gradaccum import nn, optim

X = np.random.default_rng(0).normal(size=(12, 2, 8, 8)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, 12)


def trained():
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3))
    net = ga.plan(model, input_shape=(2, 8, 8), loss=nn.CrossEntropyLoss(), micro_batch=4)
    return net, ga.Accumulator(net, optim.SGD(net, lr=0.1))


def test_rows_by_hand():
    """3 micro-batches of 4: 12 samples through each node; convolution 2 * 64 * 4 * 18 = 9,216 flops a sample, linear 2 * 256 * 3 = 1,536."""
    net, acc = trained()
    with net.profile() as profile:
        acc.update(X, Y)
    rows = profile.rows
    assert [r["kind"] for r in rows] == ["conv2d", "relu", "flatten", "linear", "cross_entropy_loss", ""]
    assert all(r["samples"] == 12 for r in rows[:-1]) and rows[-1]["node"] == "update"
    assert all(r["forward"] > 0 and r["backward"] > 0 for r in rows[:2]) and rows[-1]["backward"] > 0
    conv, linear = rows[0], rows[3]
    assert np.isclose(conv["gflops_forward"] * conv["forward"], 12 * 9216e-9)
    assert np.isclose(conv["gflops_backward"] * conv["backward"], 12 * 9216e-9)          # the input needs no gradient: one product
    assert np.isclose(linear["gflops_backward"] * linear["backward"], 2 * 12 * 1536e-9)  # two
    assert conv["pack"] > 0 and rows[1]["gflops_forward"] is None
    # relu reads and writes 256 floats a sample
    assert np.isclose(rows[1]["gb_forward"] * rows[1]["forward"], 12 * 2 * 256 * 4e-9)
    assert np.isclose(sum(r["share"] for r in rows), 1)
    assert np.isclose(profile.seconds, sum(r["forward"] + r["backward"] + r["pack"] for r in rows))
    text = repr(profile)
    assert len(text.splitlines()) == 8 and "conv2d" in text and "GFLOP/s" in text


def test_a_profile_changes_no_bit_and_ends_with_its_block():
    net, acc = trained()
    other, plain = trained()
    with net.profile() as profile:
        acc.update(X, Y)
        for event in acc.stages(X, Y):
            pass
    seconds = profile.seconds
    for _ in range(2):
        plain.update(X, Y)
    assert np.array_equal(net.params, other.params)
    acc.update(X, Y)
    assert profile.seconds == seconds and profile.rows[0]["samples"] == 24


def test_recompute_counts_as_backward():
    model = nn.Sequential(nn.Checkpoint(nn.Sequential(nn.Linear(6, 50), nn.Tanh())), nn.Linear(50, 3))
    net = ga.plan(model, input_shape=(6,), loss=nn.CrossEntropyLoss(), micro_batch=4)
    with net.profile() as profile:
        net.forward(X.reshape(-1, 6)[:4])
        net.loss(Y[:4])
        net.backward()
    assert profile.rows[0]["samples"] == 4                   # once, though it ran twice
