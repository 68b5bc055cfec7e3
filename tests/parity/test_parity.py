"""The numbers of PyTorch, to 1e-6 in float32 over 50 updates: stored ones on every machine, live ones where it is installed."""
import sys
from pathlib import Path

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim

sys.path.insert(0, str(Path(__file__).parent))
from cases import CASES, LOSSES, OPTIMIZERS, SAMPLES, batches, key, weights  # noqa: E402

TOLERANCE = 1e-6


def run(optimizer, loss, steps, engine="native"):
    name, options = LOSSES[loss]
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    net = ga.plan(model, input_shape=(6,), loss=getattr(nn, name)(**options), micro_batch=-(-SAMPLES // steps), engine=engine)
    net.load_state_dict(weights())
    name, options = OPTIMIZERS[optimizer]
    acc = ga.Accumulator(net, getattr(optim, name)(net, **options))
    losses = [acc.update(x, y).loss for x, y in batches(loss)]
    return net.params.copy(), np.array(losses)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("optimizer, loss", CASES)
def test_golden(optimizer, loss, steps):
    with np.load(Path(__file__).with_name("golden.npz"), allow_pickle=False) as golden:
        params, losses = golden[key(optimizer, loss) + "; params"], golden[key(optimizer, loss) + "; losses"]
    ours = run(optimizer, loss, steps)
    assert np.abs(ours[0] - params).max() < TOLERANCE and np.abs(ours[1] - losses).max() < TOLERANCE * max(1, losses.max())


@pytest.mark.parametrize("optimizer, loss", CASES)
def test_live(optimizer, loss):
    pytest.importorskip("torch")
    import with_torch

    for steps in (1, 3):
        params, losses = with_torch.run(optimizer, loss, steps)
        ours = run(optimizer, loss, steps)
        assert np.abs(ours[0] - params).max() < TOLERANCE and np.abs(ours[1] - losses).max() < TOLERANCE * max(1, losses.max())


def test_initialisation_has_pytorchs_distribution():
    """Uniform in ±1/sqrt(in_features): the bound is nearly reached and never passed, mean 0, variance bound²/3."""
    net = ga.plan(nn.Linear(100, 400), input_shape=(100,), micro_batch=1, seed=5)
    for name in ("weight", "bias"):
        values = net.parameters()[name].data
        assert np.abs(values).max() <= 0.1 and np.abs(values).max() > 0.099
        assert abs(values.mean()) < 0.01 and values.var() == pytest.approx(0.01 / 3, rel=0.1)
    other = ga.plan(nn.Linear(100, 400), input_shape=(100,), micro_batch=1, seed=6)
    assert not np.array_equal(net.params, other.params)
