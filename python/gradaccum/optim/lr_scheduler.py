"""Learning rates as functions of the number of updates, with torch.optim.lr_scheduler's names, arguments and formulas.

    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=ga.planned_updates(samples=len(x), micro_batch=32, accumulation_steps=4))
    acc = ga.Accumulator(net, optimizer, accumulation_steps=4, schedule=scheduler)
    scheduler(0)                                             # [0.1]: one rate per group, of the first update

**Updates, not micro-steps.** ``scheduler(updates)`` is the rate of the update after that many. The Accumulator asks before each update, so K = 4 sees the
list of K = 1, and a skipped window moves nothing. There is no ``step()`` to call too often, no ``last_epoch``, and nothing to save: a scheduler is built from
the rates that the optimizer has (build it before ``acc.load``), and calling it changes nothing.

Numbers are those of PyTorch's schedulers that are stepped once per update. Left out: ReduceLROnPlateau, which follows a measurement and is no function of
updates (write a function that returns a rate you change), and CyclicLR, which is a LambdaLR.

**Momentum when the rate changes.** Goyal et al. 2017 (arXiv:1706.02677, section 3) warn of SGD that folds the rate η into the velocity,

    u' = m u + η' g,        w' = w - u'

When η becomes η', the old u still has the old rate in it. Their correction (equation 10) scales it, u' = m (η'/η) u + η' g. SGD here is
PyTorch's, with the rate outside:

    v' = m v + g,           w' = w - η' v'

Put u = η v: then u' = η' v' = η' m v + η' g = m (η'/η) u + η' g, the corrected form, exactly and at every change of the rate. There is nothing to
switch on, and applying the factor once more would be wrong. To go on from a folded framework's velocity, divide it by the rate, v = u/η. To repeat
a run of such a framework without the correction, ``FoldedMomentum(scheduler)`` takes it out again.
"""
from __future__ import annotations

import math
from bisect import bisect_right
from typing import Callable, Iterable, Sequence

import numpy as np

from .._checks import choice, whole
from .optimizers import SGD, Optimizer

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "FoldedMomentum", "LRScheduler", "LambdaLR",
    "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "SequentialLR", "StepLR", "with_warmup",
]


class LRScheduler:
    """Base class; a scheduler of your own defines ``get_lr``.

    Args:
        optimizer: whose groups' rates, as they are now, are the base rates. It is not changed.

    Attributes:
        base_lrs: rate of each group that the schedule starts from.
    """

    sets_momentum = False

    def __init__(self, optimizer: Optimizer):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__}: got {type(optimizer).__name__}, expected an optimizer of gradaccum.optim")
        self.optimizer = optimizer
        self.base_lrs = [float(group["lr"]) for group in optimizer.groups]

    def __call__(self, updates: int) -> list[float]:
        """Learning rate of each group for the update that follows ``updates`` updates."""
        return self.get_lr(whole("updates", updates, 0))

    def get_lr(self, updates: int) -> list[float]:
        """The formula: a pure function of ``updates``."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_lr(updates)")

    def hyper(self, updates: int) -> list[dict]:
        """All that is set before that update, a dict for each group: {"lr": ...}, and momentum or betas if the scheduler cycles them."""
        return [{"lr": lr} for lr in self(updates)]

    def step(self, *_) -> None:
        """There is no such call."""
        raise TypeError(f"{type(self).__name__}.step: a scheduler is a function of updates and needs no steps; give it to "
                        "ga.Accumulator(..., schedule=scheduler), which asks it before each update")

    def _per_group(self, name: str, value) -> list:
        """One value for all groups, or a list of one each."""
        values = list(value) if isinstance(value, (list, tuple)) else [value] * len(self.base_lrs)
        if len(values) != len(self.base_lrs):
            raise ValueError(f"{name}: got {len(values)} values, but the optimizer has {len(self.base_lrs)} groups; give one for all, or one per group")
        return values

    def __repr__(self):
        options = {name: value for name, value in vars(self).items() if name not in ("optimizer", "base_lrs") and not name.startswith("_")}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in options.items())})"


class _Factor(LRScheduler):
    """Base rates times a factor: what ChainedScheduler can multiply."""

    def get_lr(self, updates):
        return [base * factor for base, factor in zip(self.base_lrs, self._factors(updates))]

    def _factors(self, updates: int) -> list[float]:
        return [self._factor(updates)] * len(self.base_lrs)


class ConstantLR(_Factor):
    """base * factor for the first ``total_iters`` updates, then base."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5):
        super().__init__(optimizer)
        self.factor, self.total_iters = _number("factor", factor, 0, 1), whole("total_iters", total_iters)

    def _factor(self, updates):
        return self.factor if updates < self.total_iters else 1.0


class LinearLR(_Factor):
    """From base * start_factor to base * end_factor in ``total_iters`` updates: a warm-up."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5):
        super().__init__(optimizer)
        self.start_factor, self.end_factor = _number("start_factor", start_factor, 0, 1), _number("end_factor", end_factor, 0, 1)
        if self.start_factor == 0:
            raise ValueError("start_factor=0: expected a number above 0, at most 1; with a rate of 0 the first update does nothing. Try 1 / total_iters")
        self.total_iters = whole("total_iters", total_iters)

    def _factor(self, updates):
        return self.start_factor + (self.end_factor - self.start_factor) * min(self.total_iters, updates) / self.total_iters


class StepLR(_Factor):
    """Times gamma every ``step_size`` updates."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1):
        super().__init__(optimizer)
        self.step_size, self.gamma = whole("step_size", step_size), _number("gamma", gamma)

    def _factor(self, updates):
        return self.gamma ** (updates // self.step_size)


class MultiStepLR(_Factor):
    """Times gamma at each of the ``milestones``, numbers of updates."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1):
        super().__init__(optimizer)
        self.milestones, self.gamma = sorted(whole("milestones", m, 0) for m in milestones), _number("gamma", gamma)

    def _factor(self, updates):
        return self.gamma ** bisect_right(self.milestones, updates)


class ExponentialLR(_Factor):
    """Times gamma every update."""

    def __init__(self, optimizer: Optimizer, gamma: float):
        super().__init__(optimizer)
        self.gamma = _number("gamma", gamma)

    def _factor(self, updates):
        return self.gamma**updates


class PolynomialLR(_Factor):
    """base * (1 - updates / total_iters) ** power, 0 from ``total_iters`` on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0):
        super().__init__(optimizer)
        self.total_iters, self.power = whole("total_iters", total_iters), _number("power", power)

    def _factor(self, updates):
        return (1.0 - min(self.total_iters, updates) / self.total_iters) ** self.power


class CosineAnnealingLR(_Factor):
    """eta_min + (base - eta_min) (1 + cos(π updates / T_max)) / 2 (Loshchilov, Hutter 2017, arXiv:1608.03983, without restarts).

    After ``T_max`` updates it rises again, as PyTorch's does: give the number that ``ga.planned_updates`` says.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0):
        super().__init__(optimizer)
        self.T_max, self.eta_min = whole("T_max", T_max), _number("eta_min", eta_min)

    def get_lr(self, updates):
        return _annealed(self.base_lrs, self.eta_min, updates, self.T_max)

    def _factor(self, updates):
        return (1 + math.cos(math.pi * updates / self.T_max)) / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing over T_0 updates, then from the base rate again over T_0 * T_mult, T_0 * T_mult², ... (arXiv:1608.03983)."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0):
        super().__init__(optimizer)
        self.T_0, self.T_mult, self.eta_min = whole("T_0", T_0), whole("T_mult", T_mult), _number("eta_min", eta_min)

    def get_lr(self, updates):
        if self.T_mult == 1:
            return _annealed(self.base_lrs, self.eta_min, updates % self.T_0, self.T_0)
        length = self.T_0
        while updates >= length:                             # whole numbers: a logarithm could round to the wrong cycle
            updates, length = updates - length, length * self.T_mult
        return _annealed(self.base_lrs, self.eta_min, updates, length)


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to ``max_lr``, then down to max_lr / div_factor / final_div_factor (Smith, Topin 2017, arXiv:1708.07120).

    Args:
        max_lr: peak, for all groups or one per group. The optimizer's own rates do not matter.
        total_steps: updates of the whole cycle, such as ``ga.planned_updates`` says; or epochs * steps_per_epoch.
        pct_start: part of them that goes up. anneal_strategy: "cos" or "linear".
        cycle_momentum: momentum (Adam: the first of betas) runs against the rate, from ``max_momentum`` to ``base_momentum`` and back; it is set
            together with the rate, before each update.
        three_phase: up, down to the first rate in as many updates, then to the last.

    Raises:
        ValueError: also when called for an update beyond ``total_steps``; or cycle_momentum with an SGD that was made without momentum.
    """

    def __init__(self, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
                 base_momentum: float | Sequence[float] = 0.85, max_momentum: float | Sequence[float] = 0.95, div_factor: float = 25.0,
                 final_div_factor: float = 1e4, three_phase: bool = False):
        super().__init__(optimizer)
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("OneCycleLR: give total_steps, the number of updates (see ga.planned_updates), or epochs and steps_per_epoch")
        self.max_lr = [_number("max_lr", lr) for lr in self._per_group("max_lr", max_lr)]
        self.total_steps = whole("total_steps", total_steps) if total_steps is not None else whole("epochs", epochs) * whole("steps_per_epoch", steps_per_epoch)
        choice("anneal_strategy", anneal_strategy, ("cos", "linear"))
        self.pct_start, self.anneal_strategy = _number("pct_start", pct_start, 0, 1), anneal_strategy
        self.cycle_momentum, self.three_phase = bool(cycle_momentum), bool(three_phase)
        self.sets_momentum = self.cycle_momentum
        self.div_factor, self.final_div_factor = _number("div_factor", div_factor), _number("final_div_factor", final_div_factor)
        if not (self.div_factor and self.final_div_factor):
            raise ValueError(f"div_factor={div_factor}, final_div_factor={final_div_factor}: expected numbers above 0; rates are divided by them")
        self.base_lrs = [lr / self.div_factor for lr in self.max_lr]
        if self.cycle_momentum:
            groups = optimizer.groups
            if "betas" not in groups[0] and not any(group.get("momentum") for group in groups):
                raise ValueError(f"cycle_momentum=True: {type(optimizer).__name__} was made without momentum, so it has no velocity; use "
                                 "optim.SGD(net, momentum=0.9), or cycle_momentum=False")
            self.base_momentum, self.max_momentum = ([_number(name, m, 0, 1) for m in self._per_group(name, value)]
                                                     for name, value in (("base_momentum", base_momentum), ("max_momentum", max_momentum)))
            if "betas" in groups[0] and 1 in self.base_momentum + self.max_momentum:
                raise ValueError(f"base_momentum={base_momentum}, max_momentum={max_momentum}: betas are below 1, a mean that would take in nothing")

    def _at(self, updates: int, points: Sequence[float]) -> float:
        """Value between the points that the phases begin and end with."""
        if updates >= self.total_steps:
            raise ValueError(f"OneCycleLR: the cycle has total_steps={self.total_steps} updates, so there is no rate for update {updates + 1}; plan it with "
                             "ga.planned_updates")
        up = self.pct_start * self.total_steps - 1
        ends = [up, 2 * self.pct_start * self.total_steps - 2, self.total_steps - 1] if self.three_phase else [up, self.total_steps - 1]
        start = 0.0
        for i, end in enumerate(ends):
            if updates <= end or i == len(ends) - 1:
                part = (updates - start) / (end - start) if end > start else 1.0
                low, high = points[i], points[i + 1]
                if self.anneal_strategy == "linear":
                    return (high - low) * part + low
                return high + (low - high) / 2.0 * (math.cos(math.pi * part) + 1)
            start = end

    def get_lr(self, updates):
        return [self._at(updates, [first, peak, first, first / self.final_div_factor] if self.three_phase else [first, peak, first / self.final_div_factor])
                for first, peak in zip(self.base_lrs, self.max_lr)]

    def momentum(self, updates: int) -> list[float]:
        """Momentum of each group for that update (Adam: the first of betas)."""
        if not self.cycle_momentum:
            raise ValueError("momentum: this OneCycleLR was made with cycle_momentum=False")
        return [self._at(whole("updates", updates, 0), [high, low, high, high]) for low, high in zip(self.base_momentum, self.max_momentum)]

    def hyper(self, updates):
        found = super().hyper(updates)
        if self.cycle_momentum:
            for row, group, momentum in zip(found, self.optimizer.groups, self.momentum(updates)):
                row |= {"betas": (momentum, group["betas"][1])} if "betas" in group else {"momentum": momentum}
        return found


class LambdaLR(LRScheduler):
    """base * lr_lambda(updates): a function for all groups, or a list of one per group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]):
        super().__init__(optimizer)
        self.lr_lambdas = _functions(self._per_group("lr_lambda", lr_lambda))

    def get_lr(self, updates):
        return [base * function(updates) for base, function in zip(self.base_lrs, self.lr_lambdas)]


class MultiplicativeLR(_Factor):
    """base * lr_lambda(1) * lr_lambda(2) * ... * lr_lambda(updates): what each update multiplies the rate with."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]):
        super().__init__(optimizer)
        self.lr_lambdas = _functions(self._per_group("lr_lambda", lr_lambda))
        self._products = [[1.0] * len(self.base_lrs)]        # remembered, or n updates would cost n² multiplications

    def _factors(self, updates):
        for i in range(len(self._products), updates + 1):
            self._products.append([product * function(i) for product, function in zip(self._products[-1], self.lr_lambdas)])
        return self._products[updates]


class SequentialLR(LRScheduler):
    """One scheduler after the other: number i from ``milestones[i - 1]`` updates on, each counting from its own start."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]):
        super().__init__(optimizer)
        self.schedulers, self.milestones = _same_optimizer(self, schedulers), [whole("milestones", m) for m in milestones]
        if len(self.milestones) != len(self.schedulers) - 1 or sorted(set(self.milestones)) != self.milestones:
            raise ValueError(f"milestones={self.milestones}: expected {len(self.schedulers) - 1} rising numbers of updates, where each scheduler but the first "
                             "begins")
        if any(isinstance(s, MultiplicativeLR) for s in self.schedulers[1:]):
            raise ValueError("schedulers: MultiplicativeLR goes on from the rate before it, so it can only be the first; LambdaLR is a factor of the base rate")

    def get_lr(self, updates):
        i = bisect_right(self.milestones, updates)
        return self.schedulers[i](updates - (self.milestones[i - 1] if i else 0))


class ChainedScheduler(_Factor):
    """All schedulers at once: base rates times the product of their factors.

    For those that are a factor of the base rate: ConstantLR, LinearLR, StepLR, MultiStepLR, ExponentialLR, PolynomialLR, MultiplicativeLR, and
    CosineAnnealingLR with eta_min=0 (until T_max; PyTorch's recursion forgets the other factors there). PyTorch takes the others too, but
    each of them overwrites what was chained before it.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        schedulers = list(schedulers)
        super().__init__(optimizer if optimizer is not None or not schedulers else getattr(schedulers[0], "optimizer", None))
        self.schedulers = _same_optimizer(self, schedulers)
        for scheduler in self.schedulers:
            if not isinstance(scheduler, _Factor) or getattr(scheduler, "eta_min", 0):
                raise ValueError(f"schedulers: {scheduler!r} is no factor of the base rate, so it cannot be multiplied with others; SequentialLR runs one "
                                 "after the other")

    def _factors(self, updates):
        return [math.prod(factors) for factors in zip(*(scheduler._factors(updates) for scheduler in self.schedulers))]


def with_warmup(scheduler: LRScheduler, total_iters: int, start_factor: float = 1.0 / 3) -> SequentialLR:
    """LinearLR for ``total_iters`` updates, then ``scheduler`` from its beginning: a SequentialLR of the two."""
    if not isinstance(scheduler, LRScheduler):
        raise TypeError(f"with_warmup: got {type(scheduler).__name__}, expected a scheduler such as CosineAnnealingLR(optimizer, T_max=planned - total_iters)")
    optimizer = scheduler.optimizer
    return SequentialLR(optimizer, [LinearLR(optimizer, start_factor, total_iters=total_iters), scheduler], [total_iters])


class FoldedMomentum(LRScheduler):
    """``scheduler`` for SGD as frameworks have it that fold the rate into the velocity, u' = m u + η' g and w' = w - u', without correction.

    Written with v = u/η this is v' = m (η/η') v + g, so momentum is set to m η/η' before each update. It is for repeating runs of such frameworks
    (Caffe, Keras) and for seeing what the correction of Goyal et al. 2017, which plain SGD here has in it, does; see the top of this module.

    Raises:
        ValueError: SGD without momentum, or with nesterov (whose look-ahead has the uncorrected m); and a rate of 0 when it comes up, since u
            moves the parameters even then.
    """

    sets_momentum = True

    def __init__(self, scheduler: LRScheduler):
        if not isinstance(scheduler, LRScheduler):
            raise TypeError(f"FoldedMomentum: got {type(scheduler).__name__}, expected a scheduler such as StepLR(optimizer, 30)")
        super().__init__(scheduler.optimizer)
        if scheduler.sets_momentum:
            raise ValueError(f"FoldedMomentum: {scheduler!r} sets the momentum itself; use cycle_momentum=False")
        groups = self.optimizer.groups
        if self.optimizer.kind != SGD.kind or not any(group["momentum"] for group in groups) or any(group["nesterov"] for group in groups):
            raise ValueError(f"FoldedMomentum: {self.optimizer!r} has no velocity of this form; expected optim.SGD(net, momentum=0.9) without nesterov")
        self.scheduler, self.base_lrs = scheduler, scheduler.base_lrs
        self._momentum = [group["momentum"] for group in groups]

    def get_lr(self, updates):
        return self.scheduler(updates)

    def hyper(self, updates):
        rates = self(updates)
        before = self(updates - 1) if updates else rates
        if 0 in rates:
            raise ValueError(f"FoldedMomentum: the rate for update {updates + 1} is 0, where the folded form still moves by the velocity; end the run before "
                             "it, or let the schedule end above 0")
        return [{"lr": new, "momentum": m * (old / new)} for m, old, new in zip(self._momentum, before, rates)]


# ---- checks, and formulas that two schedulers share ----

def _number(name: str, value, least: float = 0.0, most: float = math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not (least <= value <= most and math.isfinite(value)):
        raise ValueError(f"{name}={value!r}: expected a finite number, {f'{least} to {most}' if most < math.inf else f'at least {least:g}'}")
    return float(value)


def _functions(values: list) -> list:
    for value in values:
        if not callable(value):
            raise TypeError(f"lr_lambda: got {type(value).__name__}, expected a function of the number of updates, or a list of one per group")
    return values


def _same_optimizer(scheduler: LRScheduler, schedulers: Sequence[LRScheduler]) -> list[LRScheduler]:
    schedulers = list(schedulers)
    if not schedulers:
        raise ValueError("schedulers: got none, expected at least one")
    for part in schedulers:
        if not isinstance(part, LRScheduler):
            raise TypeError(f"schedulers: got {type(part).__name__}, expected schedulers of gradaccum.optim.lr_scheduler")
        if part.optimizer is not scheduler.optimizer:
            raise ValueError(f"schedulers: {part!r} was built for another optimizer; build all for the same one")
        if part.sets_momentum:
            raise ValueError(f"schedulers: {part!r} sets the momentum, which would be left where it was when another scheduler goes on; use it alone, or "
                             "with cycle_momentum=False")
    return schedulers


def _annealed(base_lrs: list[float], eta_min: float, updates: int, length: int) -> list[float]:
    return [eta_min + (base - eta_min) * (1 + math.cos(math.pi * updates / length)) / 2 for base in base_lrs]
