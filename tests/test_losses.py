"""Losses that couple samples: refused where they would be wrong, exact in two passes."""
import math

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.reference.dropout import dropout_mask

E = math.e


def encoder(model, features, micro_batch, dtype="float64", lr=1.0, net_options=None, **options):
    net = ga.plan(model, input_shape=(features,), loss=nn.DotProductLoss(), micro_batch=micro_batch, dtype=dtype, **(net_options or {}))
    return net, ga.Accumulator(net, optim.SGD(net, lr=lr), reduction="sum", **options)


def linear(features, micro_batch, weight, **options):
    net, acc = encoder(nn.Linear(features, len(weight), bias=False), features, micro_batch, **options)
    net.load_state_dict({"weight": weight})
    return net, acc


def test_d58_two_by_two_is_another_loss_than_one_by_four():
    """Pairs (e_i, e_i) of unit vectors, scores 1 for the right one and 0 else: -log(e / (e + 3)) of 4 pairs, -log(e / (e + 1)) of 2."""
    loss = ga.losses.InfoNCE(temperature=1.0, normalize=False)
    whole, _ = loss(np.eye(4), np.eye(4))
    halves = [loss(np.eye(4)[i:i + 2], np.eye(4)[i:i + 2])[0] for i in (0, 2)]
    assert whole == pytest.approx(math.log(E + 3) - 1, rel=1e-15)
    assert np.mean(halves) == pytest.approx(math.log(E + 1) - 1, rel=1e-15)


@pytest.mark.parametrize("m", [4, 2, 3, 1])
def test_d58_two_passes_give_the_full_batch(m):
    """Identity as encoder of unit vectors. dL/ds = (P - 1) / 4 with P = e / (e + 3) on the diagonal, 1 / (e + 3) else; both towers together
    give dL/dW = 2 dL/ds."""
    net, acc = linear(4, m, np.eye(4))
    update = ga.losses.cached(acc, (np.eye(4), np.eye(4)), loss=ga.losses.InfoNCE(temperature=1.0, normalize=False))
    p = (np.ones((4, 4)) + (E - 1) * np.eye(4)) / (E + 3)
    assert net.parameters()["weight"].data == pytest.approx(np.eye(4) - 2 * (p - np.eye(4)) / 4, rel=1e-14)
    assert update.loss == pytest.approx(math.log(E + 3) - 1, rel=1e-15)
    assert (update.samples, update.micro_steps, update.micro_losses, acc.updates) == (8, 2 * -(-4 // m), [], 1)
    assert update.grad_norm == pytest.approx(np.linalg.norm(p - np.eye(4)) / 2, rel=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_every_split_has_the_same_bits(dtype, symmetric):
    """2 x 2 and 1 x 4, and 24 pairs in pieces of 24, 12, 7 and 1, with dropout, clipping and AdamW."""
    rng = np.random.default_rng(0)
    x1 = rng.normal(size=(24, 6)).astype(dtype)
    x2 = x1 + 0.1 * rng.normal(size=(24, 6)).astype(dtype)
    for n in (4, 24):
        results = []
        for m in sorted({n, n // 2, 7, 1}, reverse=True):
            model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
            net = ga.plan(model, input_shape=(6,), loss=nn.DotProductLoss(), micro_batch=m, dtype=dtype, seed=1)
            acc = ga.Accumulator(net, optim.AdamW(net, lr=1e-2), reduction="sum", max_grad_norm=0.5)
            losses = [ga.losses.cached(acc, (x1[:n], x2[:n]), loss=ga.losses.InfoNCE(0.2, symmetric=symmetric)).loss for _ in range(4)]
            results.append((net.params.copy(), losses, acc.last_update.grad_norm))
        assert all(np.array_equal(a, b) for r in results for a, b in zip(r, results[0])) and losses[-1] != losses[0]


def test_dropout_masks_are_equal_in_both_passes():
    """Embeddings x * mask * w: the gradient of W is (dL/de)ᵀ (x * mask) with the masks of samples 0 to 7, first view then second."""
    rng = np.random.default_rng(3)
    x1, x2, w = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), rng.normal(size=(2, 3))
    loss = ga.losses.InfoNCE(0.5)
    for m in (4, 3):
        net, acc = encoder(nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2, bias=False)), 3, m)
        net.load_state_dict({"1.weight": w})
        masked = np.concatenate([x1, x2]) * dropout_mask((8, 3), 0.5, net.seed, 0, 0, 0)
        e = masked @ w.T + 0.0
        update = ga.losses.cached(acc, (x1, x2), loss=loss)
        value, (da, db) = loss(e[:4], e[4:])
        assert update.loss == pytest.approx(value, rel=1e-13)
        assert net.parameters()["1.weight"].data == pytest.approx(w - np.concatenate([da, db]).T @ masked, rel=1e-12)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_infonce_against_finite_differences(normalize, symmetric):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 5, 3))
    loss = ga.losses.InfoNCE(0.3, normalize, symmetric)
    _, gradients = loss(a, b)
    for e, gradient in zip((a, b), gradients):
        for index in np.ndindex(e.shape):
            kept, h, values = e[index], 1e-5, []
            for sign in (1, -1):
                e[index] = kept + sign * h
                values.append(loss(a, b)[0])
            e[index] = kept
            assert (values[0] - values[1]) / (2 * h) == pytest.approx(gradient[index], rel=1e-6, abs=1e-8)


def test_infonce_by_hand_with_lengths():
    """Rows of any length have the cosine of their direction: (3, 0) and (0, 0.1) are orthogonal."""
    value, (da, _) = ga.losses.InfoNCE(1.0)(np.array([[3.0, 0.0], [0.0, 0.1]]), np.array([[7.0, 0.0], [0.0, 2.0]]))
    assert value == pytest.approx(math.log(E + 1) - 1, rel=1e-15)
    assert da[:, 0] == pytest.approx([0.0, 1 / (E + 1) / 2 / 0.1], abs=1e-15)     # only across the row, over its length
    symmetric = ga.losses.InfoNCE(1.0, symmetric=True)(np.eye(3), np.eye(3))[0]
    assert symmetric == pytest.approx(math.log(E + 2) - 1, rel=1e-15)


def spread(e):
    """A loss of one's own, of one view: |mean of the embeddings|²; gradient 2 mean / n for each."""
    mean = e.mean(axis=0)
    return mean @ mean, np.broadcast_to(2 * mean / len(e), e.shape)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_d11_a_loss_of_ones_own_is_the_same_for_every_k(m):
    """x = 1, 2, 6 with w = 2: mean 6, loss 36; d/dw (3 w)² = 18 w = 36. The mean of the squares, which accumulation would give, is another."""
    net, acc = linear(1, m, [[2.0]])
    assert ga.losses.cached(acc, np.array([[1.0], [2.0], [6.0]]), loss=spread).loss == 36.0
    assert net.params.tolist() == [-34.0]


def test_a_network_of_two_inputs_takes_dicts():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

        def forward(self, p, q):
            return self.a(p) + self.b(q)

    x = {"p": np.array([[1.0], [3.0]]), "q": np.array([[0.0], [4.0]])}
    net = ga.plan(Two(), inputs={"p": (1,), "q": (1,)}, loss=nn.DotProductLoss(), micro_batch=1, dtype="float64")
    net.load_state_dict({"a.weight": [[1.0]], "b.weight": [[1.0]]})
    acc = ga.Accumulator(net, optim.SGD(net, lr=1.0), reduction="sum")
    assert ga.losses.cached(acc, x, loss=spread).loss == 16.0                       # embeddings 1 and 7
    assert net.params.tolist() == [1 - 16.0, 1 - 16.0]                              # 2 * 4 * mean(p), 2 * 4 * mean(q)
    assert ga.losses.cached(acc, (x, x), loss=lambda a, b: (0.0, (0 * a, 0 * b))).samples == 4


@pytest.mark.filterwarnings("ignore:.*batch statistics")
@pytest.mark.parametrize("running_stats", ["micro_batch", "window"])
def test_running_statistics_are_counted_once(running_stats):
    rng = np.random.default_rng(2)
    x, states = rng.normal(size=(8, 3)), []
    for two_passes in (False, True):
        net, acc = encoder(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, running_stats=running_stats)), 3, 4)
        if two_passes:
            ga.losses.cached(acc, x, loss=spread)
        else:
            acc.update(x, np.ones((8, 3)))
        states.append({name: a for name, a in net.state_dict().items() if "running" in name or "num_batches" in name})
    assert states[0] and all(np.array_equal(a, states[1][name]) for name, a in states[0].items())


def test_options_of_the_window_work(batch):
    x = batch[0][:12]
    results = []
    for options in ({}, {"loss_scale": 1024.0}, {"schedule": lambda updates: 0.1}, {"staged": True}):
        model = nn.Sequential(nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 4))
        net, acc = encoder(model, 12, 5, lr=0.1, ema=0.9, **options)
        ga.losses.cached(acc, (x, x[::-1].copy()), loss=ga.losses.InfoNCE())
        results.append((net.params.copy(), acc._core.ema.copy()))
    assert all(np.array_equal(a, b) for r in results[:3] for a, b in zip(r, results[0]))
    assert results[3][0] == pytest.approx(results[0][0], rel=1e-10)


# ---- refused ----

def test_a_loss_that_couples_samples_is_no_loss_of_a_micro_batch():
    with pytest.raises(ValueError, match="no term for two samples in different ones.*ga.losses.cached"):
        ga.plan(nn.Linear(2, 2), input_shape=(2,), loss=ga.losses.InfoNCE(), micro_batch=2)
    assert not hasattr(nn, "InfoNCELoss")


@pytest.mark.parametrize("make, kind, text", [
    (lambda: ga.losses.InfoNCE(temperature=0), ValueError, "temperature=0"),
    (lambda: ga.losses.InfoNCE(temperature=math.nan), ValueError, "temperature=nan"),
    (lambda: ga.losses.InfoNCE()(np.eye(2)), ValueError, "expected pairs"),
    (lambda: ga.losses.InfoNCE()(np.eye(2), np.eye(3)), ValueError, r"\(2, 2\) and \(3, 3\)"),
    (lambda: ga.losses.InfoNCE()(np.zeros((2, 2)), np.eye(2)), ValueError, "has no direction"),
])
def test_wrong_arguments_of_infonce(make, kind, text):
    with pytest.raises(kind, match=text):
        make()


@pytest.mark.parametrize("x, loss, kind, text", [
    ((), spread, ValueError, "x is empty"),
    (np.zeros((0, 1)), spread, ValueError, "at least 1 sample"),
    (np.ones((5, 1)), spread, ValueError, "5 micro-batches, but accumulation_steps is 4"),
    (np.ones((3, 1)), lambda e: 1.0, TypeError, r"loss returned float, expected \(value, gradient\)"),
    (np.ones((3, 1)), lambda e: (1.0, e[:2]), ValueError, r"gradient of view 0 has shape \(2, 1\).*\(3, 1\)"),
    (np.ones((3, 1)), lambda e: (e, e), ValueError, "expected one number"),
    ((np.ones((2, 1)), np.ones((2, 1))), lambda a, b: (1.0, (a,)), ValueError, "one gradient for each of the 2 views"),
    ((np.ones((2, 1)), np.ones((1, 1))), ga.losses.InfoNCE(), ValueError, r"\(2, 1\) and \(1, 1\)"),
    (np.ones((3, 1)), lambda e: (1.0, e * np.nan), FloatingPointError, "NaN"),
    (np.ones((3, 2)), spread, ValueError, "2"),
])
def test_after_an_error_everything_is_as_it_was(x, loss, kind, text):
    net, acc = linear(1, 1, [[2.0]], accumulation_steps=4)
    with pytest.raises(kind, match=text):
        ga.losses.cached(acc, x, loss=loss)
    assert (net.params.tolist(), net.grads.tolist(), acc.micro_step, acc.samples, acc.updates, net.stage) == ([2.0], [0.0], 0, 0, 0, "clear")
    assert ga.losses.cached(acc, np.array([[1.0], [2.0], [6.0]]), loss=spread).loss == 36.0


def test_wrong_accumulators_are_refused():
    x = np.ones((2, 2))
    net = ga.plan(nn.Linear(2, 2), input_shape=(2,), loss=nn.MSELoss(), micro_batch=2)
    with pytest.raises(ValueError, match="loss=MSELoss.*DotProductLoss"):
        ga.losses.cached(ga.Accumulator(net, optim.SGD(net), reduction="sum"), x, loss=spread)
    with pytest.raises(TypeError, match="of type Network"):
        ga.losses.cached(net, x, loss=spread)
    for options, wrap, text in (({"reduction": "mean"}, lambda o: o, "reduction='mean'"), ({}, optim.SAM, "SAM runs windows"),
                                ({"noise_scale": True}, lambda o: o, "noise_scale")):
        net = ga.plan(nn.Linear(2, 2), input_shape=(2,), loss=nn.DotProductLoss(), micro_batch=2)
        acc = ga.Accumulator(net, wrap(optim.SGD(net)), **({"reduction": "sum"} | options))
        with pytest.raises(ValueError, match=text):
            ga.losses.cached(acc, x, loss=spread)
    net, acc = linear(1, 2, [[2.0]], accumulation_steps=2)
    acc.step(np.ones((1, 1)), np.ones((1, 1)))
    with pytest.raises(ga.StageError, match="already holds 1 micro-batches"):
        ga.losses.cached(acc, np.ones((2, 1)), loss=spread)
    assert acc.micro_step == 1
    net, acc = linear(1, 2, [[2.0]], effective_batch_size=3)
    with pytest.raises(ValueError, match="4 samples, but effective_batch_size is 3"):
        ga.losses.cached(acc, (np.ones((2, 1)), np.ones((2, 1))), loss=lambda a, b: (0.0, (a, b)))


def test_training_separates_views_of_different_samples():
    """Two noisy views of 32 digits: after a few updates more of them find their partner among all others."""
    x = ga.data.digits()[0][:32]
    rng = np.random.default_rng(0)
    views = tuple((x + 0.3 * rng.normal(size=x.shape)).astype("float32") for _ in range(2))
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
    net = ga.plan(model, input_shape=(64,), loss=nn.DotProductLoss(), micro_batch=8)
    acc = ga.Accumulator(net, optim.AdamW(net, lr=1e-2), reduction="sum")
    losses = [ga.losses.cached(acc, views, loss=ga.losses.InfoNCE(0.1, symmetric=True)).loss for _ in range(30)]
    a, b = (e / np.linalg.norm(e, axis=1, keepdims=True) for e in map(net.predict, views))
    assert losses[-1] < losses[0] / 2 and ((a @ b.T).argmax(axis=1) == np.arange(32)).mean() > 0.9
