"""Whose gradients are in a buffer: two optimizers, two networks, two accumulators, two workers. ``hand_net`` is in conftest."""
import numpy as np
import pytest
from conftest import below, hand_net

import gradaccum as ga
from gradaccum import nn, optim


def weights_of(net):
    return net.params.tolist()


# ---- D65: alternating optimizers ----

def test_d65_two_networks_that_alternate_are_as_two_alone():
    """GAN style: a window of one, a window of the other, and micro-batches of both interleaved; K = 2 and 3."""
    gradients = {"a": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], "b": [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]}
    order = "aabbabababab"

    def train(names):
        accs, left = {}, {name: iter(values) for name, values in gradients.items()}
        for name, k in (("a", 2), ("b", 3)):
            net = hand_net()
            accs[name] = ga.Accumulator(net, optim.Adam(net, lr=0.1), k)
        for name in order:
            if name in names:
                accs[name].step([[next(left[name])]], below(1))
        return {name: (weights_of(accs[name].net), accs[name].updates, accs[name].micro_step) for name in names}

    assert train("ab") == train("a") | train("b")
    assert {name: result[1:] for name, result in train("ab").items()} == {"a": (3, 0), "b": (2, 0)}


def test_d65_a_second_accumulator_is_refused_while_the_first_holds_something():
    net = hand_net()
    first = ga.Accumulator(net, optim.SGD(net, lr=1.0), 2)
    first.step([[1.0]], below(1))
    with pytest.raises(ga.StageError, match="has a window that holds 1 micro-batches; finish or clear it first"):
        ga.Accumulator(net, optim.SGD(net, lr=1.0), 2)
    first.step([[3.0]], below(1))
    assert weights_of(net) == [-2.0]                         # the refused one left no trace


def test_d65_after_a_second_accumulator_the_first_says_that_it_was_replaced():
    net = hand_net()
    first, opt = ga.Accumulator(net, optim.SGD(net, lr=1.0), 2), optim.SGD(net, lr=1.0)
    second = ga.Accumulator(net, opt, 2)
    with pytest.raises(ga.StageError, match="replaced by a newer one on the same network"):
        first.step([[1.0]], below(1))
    with pytest.raises(ga.StageError, match="another optimizer"):
        first.optimizer.step()
    second.step([[1.0]], below(1))
    assert second.buffer.tolist() == [1.0] and weights_of(net) == [0.0]


def test_d65_groups_that_alternate():
    """Features 0 and 1 are two parameters. In A's window only group A moves, and nothing of it is left for B's."""
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

        def forward(self, p, q):
            return self.a(p) + self.b(q)

    net = ga.plan(Two(), inputs={"p": (1,), "q": (1,)}, loss=nn.L1Loss(), micro_batch=1)
    net.load_state_dict({"a.weight": [[0.0]], "b.weight": [[0.0]]})
    opt = optim.SGD(net, lr=1.0, groups=[{"params": ["b.*"]}])
    acc = ga.Accumulator(net, opt, 2)
    seen = []
    for rates, gradients in (((1.0, 0.0), [(1, 10), (3, 30)]), ((0.0, 1.0), [(100, 5), (300, 7)]), ((1.0, 0.0), [(2, 0), (2, 0)])):
        for group, lr in enumerate(rates):
            opt.set(group, lr=lr)
        for a, b in gradients:
            acc.step(([[a]], [[b]]), below(1))
        seen.append(weights_of(net))
        assert not acc.buffer.any()
    assert seen == [[-2.0, 0.0], [-2.0, -6.0], [-4.0, -6.0]]


# ---- D61, D62: two workers ----

def worker(gradients):
    """A worker's part of a window: its buffer is a sum, and its weight says of how many."""
    net = hand_net()
    acc = ga.Accumulator(net, None, accumulation_steps=len(gradients))
    acc.begin()
    for g in gradients:
        net.forward([[g]])
        net.loss(below(1))
        net.backward()
        acc.accumulate()
    return net, acc


@pytest.mark.parametrize("parts, mean", [
    (([1.0, 7.0], [4.0, 10.0]), 5.5),                        # means 4.0 and 7.0: 5.5 on both
    (([4.0], [7.0, 7.0, 7.0]), 6.25),                        # unequal shares: sums and weights, not means
])
def test_d61_d62_workers_agree_after_the_last_micro_batch(parts, mean):
    """All-reduce once, at the boundary: sums of buffers and of weights. Both then hold the gradient of all micro-batches, whoever had which."""
    workers = [worker(p) for p in parts]
    total, weight = sum(acc.buffer.copy() for _, acc in workers), sum(acc.weight_sum for _, acc in workers)
    for net, acc in workers:
        net._core.array(1, 0, net.grads.shape, True)[...] = total / weight * acc.weight_sum     # what normalize divides again
        acc.normalize()
    assert [net.grads.tolist() for net, _ in workers] == [[mean], [mean]]
    _, alone = worker([g for p in parts for g in p])
    assert np.array_equal(alone.buffer, total) and alone.weight_sum == weight


# ---- D67: what an Accumulator needs of an optimizer ----

class OneMethod(optim.Optimizer):
    """Plain SGD: the base class asks for one method only."""

    def _state_count(self):
        return 0


@pytest.mark.parametrize("wrap", [lambda o: o, lambda o: optim.SAM(o, rho=0.0)], ids=["alone", "in SAM"])
def test_d67_a_minimal_optimizer_of_ones_own(wrap):
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, wrap(OneMethod(net, None, lr=1.0)), 2, max_grad_norm=100.0, schedule=lambda updates: 0.5)
    update = acc.update([[1.0], [3.0]], below(2))
    assert (weights_of(net), update.lr, update.grad_norm) == ([-1.0], 0.5, 2.0)
