"""Recompute (activation checkpointing): fewer bytes, the same bits, at most one more forward."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim


class Counts(nn.Function):
    """x, counting the calls of forward."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x + 0

    def backward(self, grad):
        return grad


def deep(wrap=lambda m: m, batch_norm=True):
    norm = (lambda c: nn.BatchNorm2d(c)) if batch_norm else (lambda c: nn.GroupNorm(2, c))
    block = lambda a, b: wrap(nn.Sequential(nn.Conv2d(a, b, 3, padding=1), norm(b), nn.ReLU(), nn.Dropout(0.3)))  # noqa: E731
    return nn.Sequential(block(2, 4), block(4, 4), nn.MaxPool2d(2), block(4, 6), block(6, 6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


def train(model, **options):
    rng = np.random.default_rng(0)
    net = ga.plan(model, input_shape=(2, 8, 8), loss=nn.CrossEntropyLoss(), micro_batch=4, seed=1, **options)
    acc = ga.Accumulator(net, optim.AdamW(net, lr=0.01))
    for _ in range(4):
        acc.update(rng.normal(size=(4, 2, 8, 8)), rng.integers(0, 3, 4))
    return net


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_bits_with_dropout_and_running_statistics(dtype):
    """Names of parameters do not change either."""
    plain = train(deep(), dtype=dtype)
    for net in (train(deep(nn.Checkpoint), dtype=dtype), train(deep(), dtype=dtype, recompute="sqrt"), train(deep(nn.Checkpoint), keep="all", dtype=dtype)):
        state = net.state_dict()
        assert list(state) == list(plain.state_dict())
        for name, value in plain.state_dict().items():
            assert np.array_equal(value, state[name]), name
    assert plain.memory.recomputed() == 0 < train(deep(nn.Checkpoint), dtype=dtype).memory.recomputed()


def test_fewer_bytes():
    chain = nn.Sequential(*(m for _ in range(25) for m in (nn.Linear(64, 64), nn.GELU())))
    plain, sqrt = (ga.plan(chain, input_shape=(64,), loss=nn.MSELoss(), micro_batch=100, recompute=r).memory for r in (None, "sqrt"))
    activations = [m.by_kind()["activations"] + m.by_kind().get("activation_gradients", 0) for m in (plain, sqrt)]
    # 51 activations of 25,600 bytes are kept; with segments of 8 nodes only 7 between them, and those of one segment
    assert activations[0] > 50 * 25600 and activations[1] < 20 * 25600
    table = plain.table([50, 100], limit="2 MiB")
    assert table.rows[1]["kept"] == table.rows[1]["planned"] == plain.bytes() and table.rows[1]["sqrt"] == sqrt.bytes()
    assert table.rows[0]["kept"] == plain.bytes(50) and "fits" in repr(table)


def test_at_most_one_more_forward():
    functions = [Counts() for _ in range(9)]
    layers = [m for f in functions for m in (nn.Linear(4, 4), f)]
    net = ga.plan(nn.Sequential(*layers), input_shape=(4,), loss=nn.MSELoss(), micro_batch=2, recompute="sqrt")
    for f in functions:
        f.calls = 0
    ga.Accumulator(net, optim.SGD(net, lr=0.1)).update(np.ones((2, 4)), np.ones((2, 4)))
    assert all(1 <= f.calls <= 2 for f in functions) and net.memory.recomputed() <= 18


def test_every_split_has_the_same_bits():
    from gradaccum.testing import check_split

    check_split(deep(nn.Checkpoint, batch_norm=False), (2, 8, 8), loss=nn.CrossEntropyLoss(), samples=5, updates=2)
    check_split(deep(batch_norm=False), (2, 8, 8), loss=nn.CrossEntropyLoss(), samples=5, updates=2, recompute="sqrt")


def test_residual_inside_and_around():
    """A value that is read inside and outside of a segment."""
    class Net(nn.Module):
        def __init__(self, wrap):
            super().__init__()
            self.a, self.b = wrap(nn.Sequential(nn.Linear(5, 5), nn.Tanh())), wrap(nn.Sequential(nn.Linear(5, 5), nn.GELU()))

        def forward(self, x):
            h = self.a(x) + x
            return self.b(h) + h + self.a.forward(x)

    results = []
    for wrap in (lambda m: m, nn.Checkpoint):
        net = ga.plan(Net(wrap), input_shape=(5,), loss=nn.MSELoss(), micro_batch=3, seed=2)
        ga.Accumulator(net, optim.SGD(net, lr=0.1)).update(np.arange(15).reshape(3, 5) / 7, np.ones((3, 5)))
        results.append(net.params.copy())
    assert np.array_equal(*results)


def test_unknown_recompute():
    with pytest.raises(ValueError, match="recompute='all'"):
        ga.plan(nn.Linear(2, 2), input_shape=(2,), micro_batch=1, recompute="all")
