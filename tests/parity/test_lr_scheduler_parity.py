"""Learning-rate schedulers against torch.optim.lr_scheduler, over 60 updates."""
import pytest

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.optim import lr_scheduler as ours

torch = pytest.importorskip("torch")
theirs = torch.optim.lr_scheduler

CASES = {
    "ConstantLR": lambda m, o: m.ConstantLR(o, 0.25, 7), "LinearLR": lambda m, o: m.LinearLR(o, 0.1, 0.9, 11), "StepLR": lambda m, o: m.StepLR(o, 7, 0.3),
    "MultiStepLR": lambda m, o: m.MultiStepLR(o, [3, 20, 21], 0.3), "ExponentialLR": lambda m, o: m.ExponentialLR(o, 0.93),
    "PolynomialLR": lambda m, o: m.PolynomialLR(o, 40, 1.7), "CosineAnnealingLR": lambda m, o: m.CosineAnnealingLR(o, 50, 1e-3),
    "CosineAnnealingWarmRestarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 5, 2, 1e-3), "LambdaLR": lambda m, o: m.LambdaLR(o, lambda u: 1 / (u + 1)),
    "MultiplicativeLR": lambda m, o: m.MultiplicativeLR(o, lambda u: 0.9 + 0.001 * u),
    "OneCycleLR": lambda m, o: m.OneCycleLR(o, [0.3, 0.1], total_steps=60), "OneCycleLR linear": lambda m, o: m.OneCycleLR(
        o, [0.3, 0.1], total_steps=61, anneal_strategy="linear", pct_start=0.4, three_phase=True),
    "SequentialLR": lambda m, o: m.SequentialLR(o, [m.LinearLR(o, 0.1, 1.0, 5), m.CosineAnnealingLR(o, 55), m.ExponentialLR(o, 0.9)], [5, 40]),
    "ChainedScheduler": lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.1, 9), m.ExponentialLR(o, 0.9)], o),
}


@pytest.mark.parametrize("name", CASES)
def test_rates_of_60_updates(name):
    a, b = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    opt = torch.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.05}], lr=0.2, momentum=0.9)
    peer = CASES[name](theirs, opt)
    net = ga.plan(nn.Linear(2, 2), input_shape=(2,), loss=nn.MSELoss(), micro_batch=1)
    mine = CASES[name](ours, optim.SGD(net, lr=0.2, momentum=0.9, groups=[{"params": ["bias"], "lr": 0.05}]))
    for updates in range(60):
        assert mine(updates) == pytest.approx([g["lr"] for g in opt.param_groups], rel=1e-12, abs=1e-15), updates
        if hasattr(mine, "hyper"):
            assert [h["momentum"] for h in mine.hyper(updates)] == pytest.approx([g["momentum"] for g in opt.param_groups], rel=1e-12)
        opt.step()
        peer.step()
