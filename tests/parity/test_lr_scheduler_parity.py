"""The learning rates of torch.optim.lr_scheduler over 60 updates, where PyTorch is installed."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.optim import lr_scheduler as ours

torch = pytest.importorskip("torch")
theirs = torch.optim.lr_scheduler

UPDATES = 60
RATES = (0.1, 0.02)                                          # of two groups


def decay(updates):
    return 0.9 ** (updates // 4)


def rise(updates):
    return 1 / (1 + updates)


CASES = {
    "ConstantLR": lambda s, opt: s.ConstantLR(opt, factor=0.25, total_iters=20),
    "LinearLR": lambda s, opt: s.LinearLR(opt, start_factor=0.1, total_iters=25),
    "LinearLR down": lambda s, opt: s.LinearLR(opt, start_factor=1.0, end_factor=0.2, total_iters=40),
    "StepLR": lambda s, opt: s.StepLR(opt, 7, gamma=0.5),
    "MultiStepLR": lambda s, opt: s.MultiStepLR(opt, [0, 10, 30, 30, 45], gamma=0.3),
    "ExponentialLR": lambda s, opt: s.ExponentialLR(opt, 0.93),
    "PolynomialLR": lambda s, opt: s.PolynomialLR(opt, total_iters=50, power=1.7),
    "CosineAnnealingLR": lambda s, opt: s.CosineAnnealingLR(opt, T_max=25, eta_min=0.003),
    "CosineAnnealingLR, T_max last": lambda s, opt: s.CosineAnnealingLR(opt, T_max=60),
    "CosineAnnealingWarmRestarts": lambda s, opt: s.CosineAnnealingWarmRestarts(opt, 11, eta_min=0.001),
    "CosineAnnealingWarmRestarts, longer": lambda s, opt: s.CosineAnnealingWarmRestarts(opt, 4, T_mult=3),
    "OneCycleLR": lambda s, opt: s.OneCycleLR(opt, 0.5, total_steps=60),
    "OneCycleLR, linear": lambda s, opt: s.OneCycleLR(opt, [0.5, 0.1], epochs=6, steps_per_epoch=10, anneal_strategy="linear", pct_start=0.25, div_factor=10.0),
    "OneCycleLR, three phases": lambda s, opt: s.OneCycleLR(opt, 0.5, total_steps=60, three_phase=True, pct_start=0.4, base_momentum=[0.7, 0.8]),
    "OneCycleLR, no momentum": lambda s, opt: s.OneCycleLR(opt, 0.5, total_steps=60, pct_start=0.0, cycle_momentum=False, final_div_factor=10.0),
    "LambdaLR": lambda s, opt: s.LambdaLR(opt, decay),
    "LambdaLR, two": lambda s, opt: s.LambdaLR(opt, [decay, rise]),
    "MultiplicativeLR": lambda s, opt: s.MultiplicativeLR(opt, [lambda u: 0.95, lambda u: 1 - 0.1 / (1 + u)]),
    "SequentialLR": lambda s, opt: s.SequentialLR(
        opt, [s.LinearLR(opt, 0.2, total_iters=12), s.CosineAnnealingLR(opt, 30, eta_min=0.001), s.ExponentialLR(opt, 0.9)], [12, 42]),
    "SequentialLR of restarts": lambda s, opt: s.SequentialLR(opt, [s.ConstantLR(opt, 0.1, 5), s.CosineAnnealingWarmRestarts(opt, 10)], [5]),
    "SequentialLR, multiplied first": lambda s, opt: s.SequentialLR(opt, [s.MultiplicativeLR(opt, lambda u: 0.9), s.StepLR(opt, 9)], [20]),
    "ChainedScheduler": lambda s, opt: s.ChainedScheduler([
        s.ConstantLR(opt, 0.1, 20), s.ExponentialLR(opt, 0.95), s.MultiStepLR(opt, [33], 0.5), s.MultiplicativeLR(opt, lambda u: 1.01)]),
    "ChainedScheduler, warm-up and cosine": lambda s, opt: s.ChainedScheduler(
        [s.LinearLR(opt, 0.1, total_iters=10), s.CosineAnnealingLR(opt, 60)], optimizer=opt),
    "ChainedScheduler, polynomial": lambda s, opt: s.ChainedScheduler([s.LinearLR(opt, 0.5, total_iters=15), s.PolynomialLR(opt, 50, 2.0), s.StepLR(opt, 20)]),
}


def our_optimizer(name, rates=RATES, **options):
    net = ga.plan(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), input_shape=(6,), loss=nn.CrossEntropyLoss(), micro_batch=8, dtype="float64",
                  seed=4)
    return getattr(optim, name)(net, lr=rates[0], groups=[{"params": ["*bias"], "lr": rates[1]}], **options)


def their_optimizer(name, net=None, rates=RATES, **options):
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).double()
    if net is not None:
        model.load_state_dict({key: torch.tensor(value) for key, value in net.state_dict().items()})
    parts = dict(model.named_parameters())
    groups = [{"params": [p for key, p in parts.items() if key.endswith("bias") == bias], "lr": lr} for bias, lr in zip((False, True), rates)]
    return model, getattr(torch.optim, name)(groups, **options)


@pytest.mark.parametrize("optimizer, options", [("SGD", {"momentum": 0.9}), ("AdamW", {})], ids=["SGD", "AdamW"])
@pytest.mark.parametrize("case", CASES)
def test_rates_and_momenta_are_those_of_pytorch(case, optimizer, options):
    opt = our_optimizer(optimizer, **options)
    scheduler = CASES[case](ours, opt)
    _, reference = their_optimizer(optimizer, **options)
    stepped = CASES[case](theirs, reference)
    for updates in range(UPDATES):
        rows = scheduler.hyper(updates)
        assert scheduler(updates) == [row["lr"] for row in rows]
        for row, group in zip(rows, reference.param_groups, strict=True):
            expected = {"lr": group["lr"]} | {key: group[key] for key in ("momentum", "betas") if key in row}
            assert {key: np.ravel(value).tolist() for key, value in row.items()} == {
                key: pytest.approx(np.ravel(value).tolist(), rel=1e-11, abs=1e-16) for key, value in expected.items()}, updates
        reference.step()
        if updates < UPDATES - 1:
            stepped.step()
    assert [group["lr"] for group in opt.groups] == list(RATES)      # asking changes nothing


@pytest.mark.parametrize("way", ["update", "step", "update_many"])
@pytest.mark.parametrize("case", ["OneCycleLR", "SequentialLR", "LambdaLR, two"])
@pytest.mark.parametrize("optimizer, options", [("SGD", {"momentum": 0.9, "nesterov": True}), ("Adam", {})], ids=["SGD", "Adam"])
def test_a_run_with_a_scheduler_has_pytorchs_parameters(optimizer, options, case, way):
    """60 updates of 24 samples in 3 micro-batches: rate and momentum (or beta 1) of each update are those of a full batch in PyTorch."""
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(24 * UPDATES, 6)), rng.integers(0, 3, 24 * UPDATES)
    opt = our_optimizer(optimizer, **options)
    model, reference = their_optimizer(optimizer, opt.net, **options)
    acc = ga.Accumulator(opt.net, opt, accumulation_steps=3, schedule=CASES[case](ours, opt))
    if way == "update_many":
        acc.update_many(x, y)
    else:
        size = {"update": 24, "step": 8}[way]
        for i in range(0, len(x), size):
            getattr(acc, way)(x[i:i + size], y[i:i + size])
    scheduler = CASES[case](theirs, reference)
    for i in range(0, len(x), 24):
        reference.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.tensor(x[i:i + 24])), torch.tensor(y[i:i + 24])).backward()
        reference.step()
        if i < len(x) - 24:
            scheduler.step()
    assert acc.updates == UPDATES
    for key, value in model.state_dict().items():
        assert opt.net.state_dict()[key] == pytest.approx(value.numpy(), rel=1e-9, abs=1e-12), key
