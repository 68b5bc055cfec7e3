"""Learning rates as functions of updates, with PyTorch's names and arguments: ``Accumulator(..., schedule=CosineAnnealingLR(opt, 100))``.

A scheduler is called with the number of updates so far and gives one rate a group: a pure function, so nothing counts micro-steps, nothing has
to be stepped, and a run that is resumed needs no state. Base rates are those of the optimizer's groups when the scheduler is made.

Momentum and a changing rate. Our SGD, as PyTorch's, keeps the rate outside of the velocity, v = m v + g, w = w - lr v: the step is linear in the
rate of the moment, whatever it was before. Where the rate is folded in, v = m v + lr g, w = w - v, a new rate must also scale the old velocity by
lr_new / lr_old, or the momentum goes on at the old rate ("momentum correction", Goyal et al. 2017, arXiv:1706.02677, section 3, remark 2). With that
correction both are the same; here there is nothing to correct.
"""
from __future__ import annotations

import math
from bisect import bisect_right
from typing import Callable, Sequence

from .._checks import choice, whole
from .optimizers import Optimizer

__all__ = ["ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR",
           "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "SequentialLR", "StepLR"]


class LRScheduler:
    """Base class: subclasses give ``lr_of(base, updates)``, or override ``__call__``."""

    def __init__(self, optimizer: Optimizer):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__}: optimizer: got {type(optimizer).__name__}, expected one of gradaccum.optim")
        self.optimizer, self.base_lrs = optimizer, [float(group["lr"]) for group in optimizer.groups]

    def lr_of(self, base: float, updates: int) -> float:
        """The rate of a group whose base rate is ``base``."""
        raise NotImplementedError

    def __call__(self, updates: int) -> list[float]:
        """Rates of all groups for the update after ``updates`` updates."""
        return [self.lr_of(base, updates) for base in self.base_lrs]


def _number(name: str, value, low: float = -math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < low:
        raise ValueError(f"{name}={value!r}: expected a finite number{'' if low == -math.inf else f' of at least {low:g}'}")
    return float(value)


class ConstantLR(LRScheduler):
    """base * factor for ``total_iters`` updates, then base."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5):
        super().__init__(optimizer)
        self.factor, self.total_iters = _number("factor", factor, 0), whole("total_iters", total_iters, 0)
        if factor > 1:
            raise ValueError(f"factor={factor}: expected a number from 0 to 1")

    def lr_of(self, base, updates):
        return base * (self.factor if updates < self.total_iters else 1.0)


class LinearLR(LRScheduler):
    """From base * start_factor to base * end_factor in ``total_iters`` updates: a warm-up, before another one in ``SequentialLR``."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5):
        super().__init__(optimizer)
        self.start_factor, self.end_factor = _number("start_factor", start_factor, 0), _number("end_factor", end_factor, 0)
        self.total_iters = whole("total_iters", total_iters)
        if not 0 < start_factor <= 1 or end_factor > 1:
            raise ValueError(f"start_factor={start_factor}, end_factor={end_factor}: expected 0 < start_factor <= 1 and end_factor from 0 to 1")

    def lr_of(self, base, updates):
        return base * (self.start_factor + (self.end_factor - self.start_factor) * min(updates, self.total_iters) / self.total_iters)


class StepLR(LRScheduler):
    """base * gamma^(updates // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1):
        super().__init__(optimizer)
        self.step_size, self.gamma = whole("step_size", step_size), _number("gamma", gamma, 0)

    def lr_of(self, base, updates):
        return base * self.gamma ** (updates // self.step_size)


class MultiStepLR(LRScheduler):
    """base * gamma^(number of milestones reached); milestones count updates."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1):
        super().__init__(optimizer)
        self.milestones, self.gamma = sorted(whole("milestones", m, 0) for m in milestones), _number("gamma", gamma, 0)

    def lr_of(self, base, updates):
        return base * self.gamma ** bisect_right(self.milestones, updates)


class ExponentialLR(LRScheduler):
    """base * gamma^updates."""

    def __init__(self, optimizer: Optimizer, gamma: float):
        super().__init__(optimizer)
        self.gamma = _number("gamma", gamma, 0)

    def lr_of(self, base, updates):
        return base * self.gamma**updates


class PolynomialLR(LRScheduler):
    """base * (1 - updates / total_iters)^power, then 0."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0):
        super().__init__(optimizer)
        self.total_iters, self.power = whole("total_iters", total_iters), _number("power", power, 0)

    def lr_of(self, base, updates):
        return base * (1 - min(updates, self.total_iters) / self.total_iters) ** self.power


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base - eta_min) (1 + cos(pi updates / T_max)) / 2; past T_max it rises again, as PyTorch's (Loshchilov, Hutter 2017, eq. 5)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0):
        super().__init__(optimizer)
        self.T_max, self.eta_min = whole("T_max", T_max), _number("eta_min", eta_min, 0)

    def lr_of(self, base, updates):
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * updates / self.T_max)) / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosines of T_0, T_0 T_mult, T_0 T_mult^2, ... updates, each from base to eta_min (Loshchilov, Hutter 2017, arXiv:1608.03983)."""

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0):
        super().__init__(optimizer)
        self.T_0, self.T_mult, self.eta_min = whole("T_0", T_0), whole("T_mult", T_mult), _number("eta_min", eta_min, 0)

    def lr_of(self, base, updates):
        length, at = self.T_0, updates
        if self.T_mult == 1:
            at %= length
        while at >= length:
            at -= length
            length *= self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * at / length)) / 2


class LambdaLR(LRScheduler):
    """base * lr_lambda(updates); a list gives one function a group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]):
        super().__init__(optimizer)
        self.lr_lambdas = _per_group("lr_lambda", lr_lambda, len(self.base_lrs))

    def __call__(self, updates):
        return [base * f(updates) for base, f in zip(self.base_lrs, self.lr_lambdas)]


class MultiplicativeLR(LRScheduler):
    """base * lr_lambda(1) * ... * lr_lambda(updates); a list gives one function a group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]):
        super().__init__(optimizer)
        self.lr_lambdas = _per_group("lr_lambda", lr_lambda, len(self.base_lrs))
        self._products = [[base] for base in self.base_lrs]  # after 0, 1, ... updates: each factor is asked for once

    def __call__(self, updates):
        for products, f in zip(self._products, self.lr_lambdas):
            while len(products) <= updates:
                products.append(products[-1] * f(len(products)))
        return [products[updates] for products in self._products]


def _per_group(name: str, given, groups: int) -> list:
    given = list(given) if isinstance(given, (list, tuple)) else [given] * groups
    if len(given) != groups or not all(callable(f) for f in given):
        raise ValueError(f"{name}: expected a function of updates, or a list of {groups}, one for each group of the optimizer")
    return given


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to max_lr, then down to max_lr / (div_factor final_div_factor) (Smith, Topin 2019, arXiv:1708.07120).

    Arguments as in PyTorch; the number of updates is total_steps, or epochs * steps_per_epoch, where a step is an update (``ga.planned_updates``).
    With cycle_momentum, momentum (or beta1) goes the other way: from max_momentum to base_momentum and back. Past the end it is refused.
    """

    def __init__(self, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
                 base_momentum: float = 0.85, max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
                 three_phase: bool = False):
        super().__init__(optimizer)
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = whole("epochs", epochs) * whole("steps_per_epoch", steps_per_epoch)
        self.total_steps = whole("total_steps", total_steps)
        if not 0 <= pct_start <= 1:
            raise ValueError(f"pct_start={pct_start}: expected a number from 0 to 1")
        choice("anneal_strategy", anneal_strategy, ("cos", "linear"))
        self._linear = anneal_strategy == "linear"
        groups = optimizer.groups
        peaks = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * len(groups)
        if len(peaks) != len(groups):
            raise ValueError(f"max_lr: {len(peaks)} rates for {len(groups)} groups")
        self._momentum = None
        if cycle_momentum:
            self._momentum = "betas" if "betas" in groups[0] else "momentum"
            if self._momentum == "momentum" and not all(g["momentum"] for g in groups):
                raise ValueError("OneCycleLR: cycle_momentum=True needs an optimizer with momentum above 0; give momentum, or cycle_momentum=False")
        self._betas2 = [g["betas"][1] for g in groups] if self._momentum == "betas" else None
        lows = [_number("max_lr", p, 0) / div_factor for p in peaks]
        ends = [low / final_div_factor for low in lows]
        high, low = max_momentum, base_momentum
        turn = pct_start * self.total_steps - 1
        if three_phase:                                      # (last step, rates at its end, momentum at its end)
            back = 2 * pct_start * self.total_steps - 2
            self._phases = [(turn, peaks, low), (back, lows, high), (self.total_steps - 1, ends, high)]
        else:
            self._phases = [(turn, peaks, low), (self.total_steps - 1, ends, high)]
        self._start = (lows, high)

    def _at(self, updates: int) -> tuple[list[float], float]:
        if updates > self.total_steps:
            raise ValueError(f"OneCycleLR: update {updates + 1}, but the cycle was planned for total_steps={self.total_steps}")
        first, (rates, momentum) = 0.0, self._start
        for last, next_rates, next_momentum in self._phases:
            if updates <= last or last == self._phases[-1][0]:
                part = (updates - first) / (last - first) if last > first else 1.0
                return [self._between(a, b, part) for a, b in zip(rates, next_rates)], self._between(momentum, next_momentum, part)
            first, rates, momentum = last, next_rates, next_momentum
        raise AssertionError("a cycle has a last phase")

    def _between(self, a: float, b: float, part: float) -> float:
        return a + (b - a) * part if self._linear else b + (a - b) / 2 * (1 + math.cos(math.pi * part))

    def __call__(self, updates):
        return self._at(updates)[0]

    def hyper(self, updates: int) -> list[dict]:
        """Hyper-parameters of all groups: the rate, and with cycle_momentum the momentum or the betas."""
        rates, momentum = self._at(updates)
        if self._momentum is None:
            return [{"lr": lr} for lr in rates]
        if self._momentum == "momentum":
            return [{"lr": lr, "momentum": momentum} for lr in rates]
        return [{"lr": lr, "betas": (momentum, second)} for lr, second in zip(rates, self._betas2)]


class SequentialLR(LRScheduler):
    """One scheduler after another: schedulers[i] from milestones[i - 1] on, counted from 0 there. Milestones are updates."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]):
        super().__init__(optimizer)
        self.schedulers, self.milestones = _of(self, schedulers), [whole("milestones", m) for m in milestones]
        if len(self.milestones) != len(self.schedulers) - 1 or sorted(set(self.milestones)) != self.milestones:
            raise ValueError(f"milestones={list(milestones)}: expected {len(self.schedulers) - 1} rising numbers of updates, one between each two schedulers")

    def __call__(self, updates):
        i = bisect_right(self.milestones, updates)
        return self.schedulers[i](updates - (self.milestones[i - 1] if i else 0))


class ChainedScheduler(LRScheduler):
    """All at once: base times the factor of each."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if not schedulers:
            raise ValueError("schedulers: give at least one")
        super().__init__(optimizer or schedulers[0].optimizer)
        self.schedulers = _of(self, schedulers)

    def __call__(self, updates):
        rates = list(self.base_lrs)
        for scheduler in self.schedulers:
            rates = [lr * (new / base if base else 0.0) for lr, new, base in zip(rates, scheduler(updates), scheduler.base_lrs)]
        return rates


def _of(owner: LRScheduler, schedulers) -> list[LRScheduler]:
    schedulers = list(schedulers)
    if not schedulers or not all(isinstance(s, LRScheduler) for s in schedulers):
        raise TypeError(f"{type(owner).__name__}: schedulers: expected a list of schedulers of gradaccum.optim.lr_scheduler")
    if any(s.optimizer is not owner.optimizer for s in schedulers):
        raise ValueError(f"{type(owner).__name__}: the schedulers belong to different optimizers")
    if any(hasattr(s, "hyper") for s in schedulers):
        raise ValueError(f"{type(owner).__name__}: OneCycleLR has a beginning and an end of its own and cannot be combined")
    return schedulers
