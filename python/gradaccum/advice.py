"""``ga.advise``: should I accumulate, how, and what changes when the effective batch does? Every answer with its evidence.

The rules for the learning rate are functions of their own; ``advise`` applies them to an Accumulator, counts bytes, measures times and the
gradient noise on a copy of the network, and weighs it all.
"""
from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np

from . import _core
from ._checks import whole
from .accumulator import Accumulator
from .memory import format_bytes, machine_memory, parse_bytes
from .network import Network
from .noise import trade_off
from .optim import SGD, Adam
from .plan import plan

FAR = 4.0                                                    # times the noise scale: 1.25 times the fewest updates, 5 times the fewest samples
SLACK = 1.1                                                  # times within 10 % count as equal

GOYAL = "Goyal et al. 2017, arXiv:1706.02677"
HOFFER = "Hoffer et al. 2017, arXiv:1705.08741"
MALLADI = "Malladi et al. 2022, arXiv:2205.10287"
MAREK = "Marek et al. 2025, arXiv:2507.07101"
ADASCALE = "Johnson et al. 2020, arXiv:2007.05105"
MCCANDLISH = "McCandlish et al. 2018, arXiv:1812.06162"
TIMED = "times measured here, now"


# ---- rules: from a batch of B samples to kappa B ----

def _positive(**numbers) -> None:
    for name, value in numbers.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name}={value}: expected a finite number above 0")


def linear(lr: float, kappa: float) -> float:
    """kappa lr, for SGD (Goyal et al. 2017): kappa small steps go as far as one large one while the gradient hardly changes."""
    _positive(lr=lr, kappa=kappa)
    return kappa * lr


def square_root(lr: float, kappa: float, betas: tuple[float, float] | None = None, eps: float = 0.0) -> dict:
    """sqrt(kappa) lr: keeps the covariance of the noise of an update (Hoffer et al. 2017, SGD). With ``betas`` Adam's rule (Malladi et al. 2022).

    Returns:
        {"lr"}; with betas also {"betas", "eps"}: 1 - kappa (1 - beta) each, and eps / sqrt(kappa).

    Raises:
        ValueError: kappa (1 - beta) is above 1, so that beta would be negative: there the rule ends.
    """
    _positive(lr=lr, kappa=kappa)
    out = {"lr": math.sqrt(kappa) * lr}
    if betas is None:
        return out
    beta = max(1 - b for b in betas)
    if kappa * beta > 1:
        raise ValueError(f"kappa={kappa:g}: beta {1 - beta:g} would become {1 - kappa * beta:.3g}; Adam's square root rule ends at "
                         f"kappa = 1 / (1 - beta) = {1 / beta:.4g}")
    return out | {"betas": tuple(1 - kappa * (1 - b) for b in betas), "eps": eps / math.sqrt(kappa)}


def half_life(beta: float, batch: float, new_batch: float) -> float:
    """beta**(new_batch / batch): keeps the half-life of a moving average in samples (Marek et al. 2025, for Adam's beta2)."""
    _positive(batch=batch, new_batch=new_batch)
    if not 0 <= beta < 1:
        raise ValueError(f"beta={beta}: expected a number in [0, 1)")
    return beta**(new_batch / batch)


def adascale_gain(kappa: float, batch: float, scale: float) -> float:
    """(s + m) / (s / kappa + m), the factor of SGD's rate (AdaScale, Johnson et al. 2020): s = tr S / batch is the variance of the gradient of the old
    batch, m = |G|², and s / m = scale / batch. Between 1 (no noise) and kappa (noise only)."""
    _positive(kappa=kappa, batch=batch)
    if not scale >= 0:
        raise ValueError(f"scale={scale}: expected a noise scale in samples, not negative")
    ratio = scale / batch
    return (ratio + 1) / (ratio / kappa + 1)


# ---- what advise returns ----

@dataclass
class Rule:
    """A rule for the new effective batch: ``changes`` is {hyper-parameter: (now, then)}; empty, with a ``note``, if it does not apply."""

    name: str
    source: str
    changes: dict[str, tuple] = field(default_factory=dict)
    note: str = ""


@dataclass
class Cost:
    """One split of the window, with measured times; None where it does not fit or run.

    Attributes:
        bytes, fits: of the whole plan with this micro-batch, against the limit.
        seconds, seconds_per_sample: one update of the window in micro-batches of this size.
        alone: seconds a sample if every micro-batch were an update of its own: no accumulation.
        note: why the network refused this split.
    """

    micro_batch: int
    accumulation_steps: int
    bytes: int
    fits: bool
    seconds: float | None = None
    seconds_per_sample: float | None = None
    alone: float | None = None
    note: str = ""

    @property
    def split(self) -> str:
        """As "4 x 32": micro-batches x samples."""
        return f"{self.accumulation_steps} x {self.micro_batch}"


@dataclass
class Noise:
    """The noise scale against the window: ``steps_factor`` = S/S_min, ``samples_factor`` = E/E_min; ``rough``: from too few samples to rely on."""

    scale: float
    steps_factor: float
    samples_factor: float
    source: str
    rough: bool


@dataclass
class Finding:
    """A piece of advice and what it rests on."""

    text: str
    evidence: str


@dataclass
class Advice:
    """What ``advise`` found. Prints as a page.

    Attributes:
        accumulate: "yes", "no", "optional" (it fits, but a split is faster here) or "smaller window".
        findings: the reasons, each with its evidence; the first one decided.
        micro_batch, accumulation_steps: the split to use for that window.
        effective_batch_size, new_effective_batch_size, kappa: now, then (the same if none was given), and their ratio.
        rules: for learning rate and betas, one a paper.
        costs: one a split.
        noise: None if it could not be measured; a finding tells why.
    """

    accumulate: str
    findings: list[Finding]
    micro_batch: int
    accumulation_steps: int
    effective_batch_size: int
    new_effective_batch_size: int
    kappa: float
    rules: list[Rule]
    costs: list[Cost]
    noise: Noise | None

    def __repr__(self):
        window, now = self.new_effective_batch_size, self.effective_batch_size
        lines = [f"Advice for an effective batch of {window}" + ("" if window == now else f" (now {now}, x {self.kappa:g})"),
                 f"  Should I accumulate? {self.accumulate}; split for {window}: {self.accumulation_steps} x {self.micro_batch}"]
        for finding in self.findings:
            lines += [f"  - {finding.text}", f"      [{finding.evidence}]"]
        if self.rules:
            lines.append(f"  Hyper-parameters for {self.kappa:g} times the batch: try one, then tune")
            for rule in self.rules:
                changes = ", ".join(f"{name} {_short(a)} -> {_short(b)}" for name, (a, b) in rule.changes.items())
                lines.append(f"    {rule.name:<12} {'; '.join(t for t in (changes, rule.note) if t)}  [{rule.source}]")
        lines += [f"  A window of {window}, measured on this machine",
                  f"    {'split':<12} {'memory':>11}       {'an update':>11} {'a sample':>11}   a sample if each micro-batch is an update"]
        for c in self.costs:
            times = f" {c.note}" if c.seconds is None else f" {c.seconds * 1e3:8.3f} ms {c.seconds_per_sample * 1e6:8.2f} us   {c.alone * 1e6:8.2f} us"
            lines.append(f"    {c.split:<12} {format_bytes(c.bytes):>11} {'fits' if c.fits else 'no  '}{times}")
        return "\n".join(lines)


def _short(value) -> str:
    return f"({', '.join(_short(v) for v in value)})" if isinstance(value, tuple) else f"{value:.6g}"


# ---- measuring on a copy ----

def _copy(net: Network, micro_batch: int, limit: int | None = None) -> Network:
    """The same network, planned for another micro-batch; nothing is shared but the model's description."""
    raw = net._core.bytes(net.micro_batch)
    shapes = {name: net._value_info[v][0] for name, v in net._inputs.items()}
    copy = plan(net._module, inputs=shapes, loss=net._loss, micro_batch=micro_batch, memory_limit=limit, dtype=net.dtype.name, seed=net.seed,
                engine=net.engine, keep=net.keep, ties="exact" if raw["gradients"] > net.params.nbytes else "fold",
                recompute="sqrt" if raw["recomputed"] and net._core.bytes(net.micro_batch, 1) == raw else None)
    copy.load_state_dict(net.state_dict())
    copy.train(net.training)
    copy._warned = True                                      # of batch statistics: advise says it itself
    return copy


def _measure_times(net: Network, acc: Accumulator, batch: tuple, costs: list[Cost], limit: int, repeat: int) -> None:
    """Fills in the times, each split on a copy planned for it: a larger plan would run small micro-batches in groups. The rate is 0."""
    inputs, y, weight = batch
    optimizer = acc.optimizer
    for cost in costs:
        copy = _copy(net, cost.micro_batch, limit)
        core = _core.Optimizer(copy._core, optimizer.kind, [{**g, "lr": 0.0} for g in optimizer._groups], optimizer._indices)
        window = _core.Window(copy._core, core, *acc._options()[2:])

        def seconds(samples: int) -> float:
            data = tuple(a[:samples] for a in inputs), y[:samples], None if weight is None else weight[:samples]
            loops, best = 1, math.inf
            for turn in range(repeat + 1):                   # the first warms up, and tells how often 2 ms hold the call
                start = time.perf_counter()
                for _ in range(loops):
                    window.update(*data, cost.micro_batch, 0)
                took = (time.perf_counter() - start) / loops
                if turn:
                    best = min(best, took)
                loops = max(1, min(100, int(2e-3 / max(took, 1e-6))))
            return best

        try:
            whole_window, alone = seconds(len(y)), seconds(cost.micro_batch) / cost.micro_batch
        except ValueError as error:                          # batch statistics of one sample
            cost.note = str(error)
        else:
            cost.seconds, cost.seconds_per_sample, cost.alone = whole_window, whole_window / len(y), alone


def _measure_noise(net: Network, acc: Accumulator, inputs: tuple, y, weight, largest: int) -> tuple[float | None, str]:
    """Noise scale of these samples at these parameters: one staged window of 32 micro-batches, or more if they do not fit. (scale, reason for none)."""
    mixing = any(node.mixes_samples for node in net.nodes)                       # there the micro-batch is part of the function
    copy = _copy(net, min(largest, acc.micro_batch if mixing else -(-len(y) // 32)))
    measuring = Accumulator(copy, SGD(copy, lr=0.0), staged=True, on_non_finite="skip_update", noise_scale=True)
    try:
        measuring.update(dict(zip(copy._inputs, inputs)), y, weight)
    except ValueError as error:
        return None, str(error)
    return measuring.noise_scale.scale, measuring.noise_scale.reason


def _noise(net: Network, acc: Accumulator, samples: tuple, window: int, largest: int) -> tuple[Noise | None, str]:
    run, n = acc.noise_scale, len(samples[1])
    if run is not None and run.scale is not None:
        scale, reason, seen = run.scale, "", min(run.windows, 1 / (1 - run.decay)) * (run.last.b_big if run.last else window)
        source = f"measured by the Accumulator over {run.windows} windows"
    else:
        scale, reason = _measure_noise(net, acc, *samples, largest)
        seen, source = n, f"measured on {n} samples at the present parameters"
    if not scale:
        return None, reason or "the samples' gradients do not differ"
    return Noise(scale, *trade_off(window, scale), source, seen < 2 * scale), ""


# ---- the advice ----

def advise(net: Network, acc: Accumulator, x, y, weight=None, *, effective_batch_size: int | None = None, lr: float | None = None,
           memory_limit: int | str | None = None, micro_batches: list[int] | None = None, repeat: int = 5) -> Advice:
    """Should I accumulate, in which split, and what becomes of the learning rate?

    Measures on copies of the network, one at a time: parameters, optimizer, window and counters of yours are not touched. A copy needs
    memory of its own while it is there.

    Args:
        net, acc: a network and its Accumulator, with an optimizer. The present window is the Accumulator's; if that takes any, the samples given.
        x, y, weight: samples as for ``acc.update``; any number. The more, the better the noise scale is known; times use as many as the window has (some
            twice if there are fewer).
        effective_batch_size: the window to go to; None looks at the present one.
        lr: rate that the rules start from, the optimizer's by default; only with ``effective_batch_size``.
        memory_limit: bytes or a text such as "8 MiB"; by default the plan's limit, else half of the machine's (container's) memory.
        micro_batches: sizes to measure; by default the whole window, quarters of it, and the planned one.
        repeat: measurements of each time; the fastest counts, since all that disturbs one makes it slower.

    Returns:
        Advice.

    Raises:
        TypeError, ValueError: arguments that do not fit together. BudgetError: not one sample fits the limit.
    """
    _check(net, acc, effective_batch_size, lr)
    inputs, y, weight = _samples(net, x, y, weight)
    repeat = whole("repeat", repeat)
    now = acc.effective_batch_size or (acc.accumulation_steps * net.micro_batch if acc.accumulation_steps else len(y))
    window = now if effective_batch_size is None else whole("effective_batch_size", effective_batch_size)
    limit = parse_bytes(memory_limit)
    limit, whose = (limit, "given") if limit else (net.memory.limit, "of the plan") if net.memory.limit else (machine_memory() // 2, "half of this machine")
    largest = min(window, net.memory.max_micro_batch(limit))
    if not largest:
        net.memory.check(1, limit)                           # says what is needed
    costs = _costs(net, window, limit, largest, micro_batches)
    fitting = [c for c in costs if c.fits]
    if not fitting:
        raise ValueError(f"micro_batches={list(micro_batches)}: none fits the limit of {format_bytes(limit)}; the largest that does is {largest}")
    noise, no_noise = _noise(net, acc, (inputs, y, weight), window, largest)
    index = np.arange(window) % len(y)
    _measure_times(net, acc, (tuple(a[index] for a in inputs), y[index], None if weight is None else weight[index]), fitting, limit, repeat)
    measured = [c for c in fitting if not c.note]
    if not measured:
        raise ValueError(f"no split of {window} samples runs, of those that fit: {fitting[0].note}")
    counted = f"bytes counted by net.memory; limit {format_bytes(limit)}, {whose}"
    accumulate, best, findings = _by_memory_and_time(_bytes(net, window, limit), window, measured, largest, counted)
    far = noise is not None and window >= FAR * noise.scale and not noise.rough
    if far:
        accumulate = "smaller window"
    findings.insert(0 if far else 1, _about_noise(window, noise, far, no_noise))
    findings += [_small_batches(window, measured), *_about_the_network(net, acc)]
    rules = [] if window == now else _rules(acc.optimizer, now, window, lr, noise)
    return Advice(accumulate, findings, best.micro_batch, best.accumulation_steps, now, window, window / now, rules, costs, noise)


def _check(net, acc, effective_batch_size, lr) -> None:
    if not isinstance(net, Network):
        raise TypeError(f"net: got {type(net).__name__}, expected a network from ga.plan(...)")
    if not isinstance(acc, Accumulator):
        raise TypeError(f"acc: got {type(acc).__name__}, expected the ga.Accumulator of this network")
    if acc.net is not net:
        raise ValueError("acc: it belongs to another network; give the network and its own Accumulator")
    if net._accumulator() is not acc:
        raise ValueError("acc: a newer Accumulator has taken its place on this network; give that one")
    if acc.optimizer is None:
        raise ValueError("acc: it was made without an optimizer, so there is no update to advise on; ga.Accumulator(net, optimizer, ...)")
    if acc.optimizer._own_update:
        raise ValueError(f"acc: {type(acc.optimizer).__name__} runs windows in its own way, which is not measured; give an Accumulator with SGD, Adam or AdamW")
    if lr is not None:
        if effective_batch_size is None:
            raise ValueError(f"lr={lr}: it is converted to a new window; give effective_batch_size= too")
        _positive(lr=lr)


def _samples(net: Network, x, y, weight) -> tuple:
    inputs, y = tuple(np.asarray(a) for a in net._as_inputs(x)), np.asarray(y)
    weight = None if weight is None else np.asarray(weight)
    if any(a.ndim == 0 or len(a) != len(y) for a in (*inputs, *(() if weight is None else (weight,)))) or not len(y):
        shapes = ", ".join(str(a.shape) for a in (*inputs, y, *(() if weight is None else (weight,))))
        raise ValueError(f"x, y, weight: got shapes {shapes}; expected the same number of samples in each, at least one")
    return inputs, y, weight


def _costs(net: Network, window: int, limit: int, largest: int, micro_batches) -> list[Cost]:
    if micro_batches is None:
        quarters = [-(-window // 4**i) for i in range(5)]
        chosen = {m for m in quarters if m <= 64 * largest} | {min(net.micro_batch, window), largest}
    else:
        chosen = {whole("micro_batches", m) for m in micro_batches}
        if not chosen or max(chosen) > window:
            raise ValueError(f"micro_batches={list(micro_batches)}: expected sizes from 1 to the window, {window} samples")
    return [Cost(m, -(-window // m), _bytes(net, m, limit), m <= largest) for m in sorted(chosen, reverse=True)]


def _bytes(net: Network, micro_batch: int, limit: int) -> int:
    """Bytes of a plan, without what is for speed alone where the limit leaves no room for it."""
    size = net.memory.bytes(micro_batch)
    return size if size <= limit else net.memory._lean(micro_batch)


def _by_memory_and_time(size: int, window: int, measured: list[Cost], largest: int, counted: str) -> tuple[str, Cost, list[Finding]]:
    """The answer, the split, and the finding that decided."""
    fastest, slowest = min(measured, key=lambda c: c.seconds), max(measured, key=lambda c: c.seconds)
    full = next((c for c in measured if c.micro_batch == window), None)
    fits = f"A batch of {window} fits at once ({format_bytes(size)})"
    if largest < window:
        return "yes", fastest, [Finding(
            f"A batch of {window} does not fit: it needs {format_bytes(size)}, and at most {largest} samples fit. Accumulation is what it takes; "
            f"{fastest.split} is the fastest split measured.", f"{counted}; {TIMED}")]
    if full is None:
        return "no", fastest, [Finding(f"{fits}, so memory asks for no accumulation; 1 x {window} was not among the sizes measured.", counted)]
    if full.seconds > SLACK * fastest.seconds:
        return "optional", fastest, [Finding(
            f"{fits}, so nothing forces you; but {fastest.split} is {full.seconds / fastest.seconds:.2f} times as fast here, with the same update.",
            f"{counted}; {TIMED}")]
    gain = f", {slowest.seconds / full.seconds:.2f} times as fast as {slowest.split}" if slowest is not full else ""
    return "no", full, [Finding(f"{fits}, and 1 x {window} is as fast as any split{gain}: there is nothing to accumulate.", f"{counted}; {TIMED}")]


def _about_noise(window: int, noise: Noise | None, far: bool, no_noise: str) -> Finding:
    if noise is None:
        return Finding("The noise scale is not known, so neither is how much a larger window would help.", no_noise)
    steps, samples = trade_off(2 * window, noise.scale)
    numbers = (f"S/S_min = 1 + {noise.scale:.3g}/{window} = {noise.steps_factor:.3g}; twice the window would save {1 - steps / noise.steps_factor:.0%} of the "
               f"updates for {samples / noise.samples_factor - 1:.0%} more samples.")
    if window > noise.scale:
        text = f"The window is {window / noise.scale:.3g} times the noise scale of {noise.scale:.3g} samples{', too smooth' if far else ''}: {numbers}"
    else:
        text = f"The window is below the noise scale of {noise.scale:.3g} samples: {numbers}"
    if far:
        text += (f" A window near {math.ceil(noise.scale)} would need {2 / noise.samples_factor:.0%} of the samples. The scale rises as the loss falls: "
                 "ask again later in the run.")
    if noise.rough:
        text += " Rough: fewer than twice that many samples were seen; give more, or train with noise_scale=True."
    return Finding(text, f"{noise.source}; {MCCANDLISH}, equation 2.11 with B_simple for B_crit, right within an order of magnitude (Table 1)")


def _small_batches(window: int, measured: list[Cost]) -> Finding:
    """The smallest batch that keeps the throughput, as Marek et al. recommend instead of accumulating."""
    least = min(min(c.seconds_per_sample, c.alone) for c in measured)
    small = min((c for c in measured if c.alone <= SLACK * least), key=lambda c: c.micro_batch, default=None)
    smallest = min(measured, key=lambda c: c.micro_batch)
    told = "Small batches were found to train as well per sample, and accumulation wasteful where neither memory nor communication forces it."
    if small is not None and small.micro_batch < window:
        text = (f"{told} Here an update after every {small.micro_batch}, without accumulation, is as fast a sample as the fastest split: try that, with "
                "beta2's half-life kept in samples.")
    else:
        text = (f"{told} Here they are slower: {smallest.alone * 1e6:.3g} us a sample with an update after every {smallest.micro_batch}, "
                f"{least * 1e6:.3g} us with the fastest split.")
    return Finding(text, f"{TIMED}; {MAREK}, language models of 30M to 4B parameters")


def _about_the_network(net: Network, acc: Accumulator) -> list[Finding]:
    if acc.staged:
        size = format_bytes(acc.buffer.nbytes)
        text = f"This window is staged: its buffer of {size} stands beside the gradient of the micro-batch, and plain training has only one of them."
    else:
        text = "Accumulating costs no memory in this window: backward adds into the one gradient buffer that plain training has too."
    findings = [Finding(text, "bytes counted by net.memory")]
    mixing = [node.name for node in net.nodes if node.mixes_samples]
    if mixing:
        findings.append(Finding(
            f"{', '.join(mixing)}: batch statistics are those of a micro-batch, so each split is another function; GroupNorm or GhostBatchNorm2d make "
            "them one.", "what the layers declare; ga.check_equivalence(net, x, y) shows it"))
    if acc.schedule is not None:
        findings.append(Finding("The schedule sets the rate and counts updates: with another window, scale its rates and its length.", "acc.schedule"))
    return findings


def _rules(optimizer, now: int, window: int, lr: float | None, noise: Noise | None) -> list[Rule]:
    group = optimizer.groups[0]
    lr, kappa = group["lr"] if lr is None else lr, window / now
    if not lr > 0:
        raise ValueError(f"lr: the optimizer's is {lr}, from which no rule leads anywhere; give lr=, the rate you train with")
    several = "" if len({g["lr"] for g in optimizer.groups}) == 1 else "first group; the others by the same factor"
    change = lambda new: {name: (lr if name == "lr" else group[name], value) for name, value in new.items()}  # noqa: E731
    if isinstance(optimizer, SGD):
        rules = [Rule("linear", GOYAL, change({"lr": linear(lr, kappa)}), "with gradual warm-up; too bold near and above the noise scale" if kappa > 1 else ""),
                 Rule("square root", HOFFER, change(square_root(lr, kappa)), "more careful; train as many updates as before")]
        if noise is not None and kappa > 1:
            gain = adascale_gain(kappa, now, noise.scale)
            rules.append(Rule("AdaScale", ADASCALE, change({"lr": gain * lr}), f"gain {gain:.4g} of at most {kappa:g}, at a noise scale of {noise.scale:.3g}"))
    elif isinstance(optimizer, Adam):
        try:
            rules = [Rule("square root", MALLADI, change(square_root(lr, kappa, group["betas"], group["eps"])))]
        except ValueError as error:
            rules = [Rule("square root", MALLADI, note=f"does not reach this far: {error}")]
        beta1, beta2 = group["betas"]
        rules.append(Rule("half-life", MAREK, change({"betas": (beta1, half_life(beta2, now, window))}),
                          "the rate changes less than by the square root: tune it (about x 3 from batch 1 to 1,024)"))
    else:
        return [Rule("none", "rules are known for SGD and Adam", note=f"tune the rate of {type(optimizer).__name__} by trial")]
    for rule in rules:
        rule.note = "; ".join(t for t in (rule.note, several) if t)
    return rules
