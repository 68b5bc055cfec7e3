"""batch_norm, ghost_batch_norm: what accumulation breaks, and what can be kept."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim, reference
from gradaccum.testing import check_layer, check_split

CASES = [
    (nn.BatchNorm2d(3), (3, 4, 2)), (nn.BatchNorm2d(2, affine=False, track_running_stats=False), (2, 3, 3)), (nn.BatchNorm2d(3, eps=0.1), (3, 2, 2)),
    (nn.GhostBatchNorm2d(3, 1), (3, 2, 4)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_batch_norm(layer, shape):
    check_layer(layer, shape, samples=4)


def net_of(layer, shape=(1,), micro_batch=2, **options):
    net = ga.plan(nn.Sequential(layer), input_shape=shape, loss=nn.MSELoss(), micro_batch=micro_batch, dtype="float64", **options)
    return net, ga.Accumulator(net, optim.SGD(net, lr=0.0), accumulation_steps=2)


def run(acc, *pieces):
    return [acc.step(np.array(p, dtype=float)[:, None], np.zeros((len(p), 1))) for p in pieces]


def test_d56_running_statistics_of_the_micro_batches():
    """{0, 2} and {10, 12}: means 1 and 11, unbiased variances 2 and 2, momentum 0.1 applied twice."""
    net, acc = net_of(nn.BatchNorm1d(1))
    with pytest.warns(UserWarning, match="GroupNorm.*GhostBatchNorm2d"):
        run(acc, [0, 2], [10, 12])
    state = net.state_dict()
    assert state["0.running_mean"].item() == pytest.approx(0.9 * 0.1 * 1 + 0.1 * 11, rel=1e-14)
    assert state["0.running_var"].item() == pytest.approx(0.81 + 0.19 * 2, rel=1e-14)
    assert state["0.num_batches_tracked"] == 2


@pytest.mark.filterwarnings("ignore:.*batch statistics")
def test_d57_window_statistics_are_pooled_and_committed_once():
    """Pooled mean 6, variance 26, unbiased 104 / 3: running variance 0.9 + 0.1 * 104 / 3 = 4.3667, once."""
    net, acc = net_of(nn.BatchNorm1d(1, running_stats="window"))
    run(acc, [0, 2])
    assert net.state_dict()["0.running_var"] == 1.0          # nothing is committed inside the window
    run(acc, [10, 12])
    state = net.state_dict()
    assert state["0.running_var"].item() == pytest.approx(4.366666666666667, rel=1e-14)
    assert state["0.running_mean"].item() == pytest.approx(0.6, rel=1e-14) and state["0.num_batches_tracked"] == 1
    assert reference.pooled_moments([(2, 1.0, 2.0), (2, 11.0, 2.0)])[2] / 4 == 26
    run(acc, [0, 2], [10, 12])                               # the next window starts from nothing
    assert net.state_dict()["0.running_mean"].item() == pytest.approx(0.9 * 0.6 + 0.6, rel=1e-14)


@pytest.mark.filterwarnings("ignore:.*batch statistics")
def test_a_discarded_window_leaves_no_statistics():
    net, acc = net_of(nn.BatchNorm1d(1, running_stats="window"))
    run(acc, [100, 200])
    acc.clear(discard=True)
    run(acc, [0, 2], [10, 12])
    assert net.state_dict()["0.running_var"].item() == pytest.approx(4.366666666666667, rel=1e-14)


@pytest.mark.filterwarnings("ignore:.*batch statistics")
def test_a_split_changes_the_result_and_the_check_names_the_layer():
    with pytest.raises(AssertionError, match="1 mix the samples of a micro-batch"):
        check_split(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), (3,), samples=8, splits=[8, 4])
    net = ga.plan(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), input_shape=(3,), loss=nn.MSELoss(), micro_batch=8)
    rng = np.random.default_rng(0)
    report = ga.check_equivalence(net, rng.normal(size=(8, 3)), rng.normal(size=(8, 4)), splits=[4])
    assert not report and report.suspects == ["batch statistics"] and report.layers == ["1"] and "usual suspect: batch statistics: 1" in repr(report)
    assert max(row["relative"] for row in report.rows) > 0.01


def test_ghosts_have_the_same_bits_in_every_split():
    """Full batch and accumulated runs agree, running statistics too, as long as the ghosts are the same."""
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GhostBatchNorm2d(4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    check_split(model, (2, 4, 4), loss=nn.CrossEntropyLoss(), samples=12, splits=[12, 2, 4, 6, [2, 4, 6]])
    states = []
    for m in (12, 2, 6):
        net = ga.plan(model, input_shape=(2, 4, 4), loss=nn.CrossEntropyLoss(), micro_batch=m)
        rng = np.random.default_rng(0)
        for _ in range(3):
            ga.Accumulator(net, optim.SGD(net, lr=0.1)).update(rng.normal(size=(12, 2, 4, 4)), rng.integers(0, 3, 12))
        states.append(net.state_dict())
    for name, value in states[0].items():
        assert all(np.array_equal(value, s[name]) for s in states), name


def test_evaluation_and_frozen_use_the_running_statistics():
    layers = nn.BatchNorm1d(2), nn.BatchNorm1d(2, frozen=True)
    for layer, training in zip(layers, (False, True)):
        net = ga.plan(layer, input_shape=(2,), loss=nn.MSELoss(), micro_batch=3, dtype="float64").train(training)
        net.load_state_dict(net.state_dict() | {"running_mean": [1, 2], "running_var": [4, 9], "weight": [2, 3]})
        x = np.array([[3.0, 5.0], [1.0, 2.0], [0.0, 0.0]])
        y, saved = reference.batch_norm_forward(x, weight=np.array([2.0, 3.0]), bias=np.zeros(2), running_mean=np.array([1.0, 2.0]),
                                                running_var=np.array([4.0, 9.0]), training=False)
        assert np.allclose(net.forward(x), y, rtol=1e-14)
        net.loss(np.zeros((3, 2)))
        net.backward()
        (_,), gradients = reference.batch_norm_backward(2 * y, saved)
        assert np.allclose(net.parameters()["weight"].grad, gradients["weight"], rtol=1e-13)
        assert np.array_equal(net.state_dict()["running_mean"], [1, 2])
    check_split(nn.Sequential(nn.Linear(3, 2), layers[1]), (3,))


def test_running_statistics_equal_the_reference():
    net = ga.plan(nn.BatchNorm2d(3, momentum=0.3), input_shape=(3, 2, 2), loss=nn.MSELoss(), micro_batch=5, dtype="float64")
    rng, mean, var = np.random.default_rng(0), np.zeros(3), np.ones(3)
    for _ in range(3):
        x = rng.normal(2, 3, size=(5, 3, 2, 2))
        net.forward(x)
        _, (*_, mean, var) = reference.batch_norm_forward(x, running_mean=mean, running_var=var, momentum=0.3)
    assert np.allclose(net.state_dict()["running_mean"], mean, rtol=1e-13) and np.allclose(net.state_dict()["running_var"], var, rtol=1e-13)


@pytest.mark.parametrize("make, text", [
    (lambda: nn.BatchNorm1d(3), r"expected \(num_features,\) with num_features=3"), (lambda: nn.BatchNorm1d(2, momentum=None), "momentum=None"),
    (lambda: nn.BatchNorm1d(2, momentum=2.0), "momentum=2"), (lambda: nn.BatchNorm1d(2, running_stats="epoch"), "running_stats='epoch'"),
    (lambda: nn.BatchNorm1d(2, frozen=True, track_running_stats=False), "needs running statistics"),
    (lambda: nn.GhostBatchNorm1d(2, 0), "virtual_batch_size=0"),
])
def test_what_cannot_be(make, text):
    with pytest.raises(ValueError, match=text):
        ga.plan(make(), input_shape=(2,), micro_batch=2)


def test_batch_statistics_of_one_value_are_refused_before_anything_changes():
    net, acc = net_of(nn.BatchNorm1d(1))
    with pytest.raises(ValueError, match="0 .batch_norm.: batch statistics of one value per channel have no variance"):
        acc.step([[1.0]], [[1.0]])
    assert acc.micro_steps == 0 and net.state_dict()["0.num_batches_tracked"] == 0
    net.eval().forward([[1.0]])
    ghosts, acc = net_of(nn.GhostBatchNorm1d(1, 2), micro_batch=4)
    with pytest.raises(ValueError, match="a micro-batch of 3 samples cannot be cut into ghosts of 2"):
        acc.step(np.ones((3, 1)), np.ones((3, 1)))
