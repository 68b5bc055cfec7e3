"""The usual bugs of accumulation loops, as gradients: what each would have given, to be compared with what a loop gave."""
from __future__ import annotations

import math
from typing import Callable, Iterable

import numpy as np

REASONS = {
    "batch statistics": "{layers} normalise over the micro-batch, so a split changes the function itself (nn.GroupNorm does not)",
    "mean of means": "each micro-batch was divided by its own weight, then all by their number; add sums, and divide once by the weight of the window",
    "sum instead of mean": "the sum was not divided; it is {factor:.6g} times the right gradient",
    "divided twice": "the gradient was divided once more; it is {factor:.6g} times the right one",
    "wrong divisor": "the direction is right, the length is {factor:.6g} times the right one",
    "dropped tail": "the last micro-batch is missing",
    "cleared inside the window": "gradients were cleared after the window had begun, so only its end is left; clear once, after the update",
    "only the first micro-batch": "the window ended after its first micro-batch",
    "clip per micro-batch": "each micro-batch was clipped to {max_grad_norm:g}, which changes the direction; clip once, at the boundary",
    "buffer precision": "the buffer holds {precision} numbers, and lost what does not fit",
    "AdamA": "its second moment takes the square of each micro-batch's gradient, so by design the update depends on the split",
    "NaN or infinity": "the result is not finite",
    "rounding": "the same numbers up to rounding: another order of additions, or another library",
}
# relative distances: what is rounding, and what matches a hypothesis; of gradients, and of parameters after an update, whose change is a small part
_ROUNDING = {False: {"float32": 2e-5, "float64": 1e-11}, True: {"float32": 2e-4, "float64": 1e-9}}
_MATCH = {False: {"float32": 1e-4, "float64": 1e-5}, True: {"float32": 1e-3, "float64": 1e-5}}
_MUCH_CLOSER = 0.05                                          # a hypothesis must be that much closer than the truth


class Window:
    """One split: sums over its micro-batches, from which the gradient of every bug follows.

    Args:
        micro_batches: gives (gradient of the loss sum, weight, samples) of each; flat, float64. Called twice where clipping is looked at.
        max_grad_norm: limit that the right loop clips to, once; None for none.
        layers: names of layers that mix samples.
    """

    def __init__(self, micro_batches: Callable[[], Iterable[tuple[np.ndarray, float, int]]], max_grad_norm: float | None, layers: list[str]):
        self.micro_batches, self.max_grad_norm, self.layers = micro_batches, max_grad_norm, layers
        self.k = self.weight = self.samples = 0
        self.sum = self.means = self.squares = 0.0
        for gradient, weight, samples in micro_batches():
            mean = gradient / weight if weight > 0 else 0 * gradient
            if self.k:
                self.without_last = self.sum, self.weight, self.means
            else:
                self.first = gradient, weight, mean
            self.last = gradient, weight, mean
            self.k, self.weight, self.samples = self.k + 1, self.weight + weight, self.samples + samples
            self.sum, self.means, self.squares = self.sum + gradient, self.means + mean, self.squares + mean**2

    def factors(self) -> dict[float, str]:
        """Lengths of the right direction, and the bug that gives them."""
        k, n = self.k, self.weight
        names = {n: "sum instead of mean", k: "sum instead of mean", 1 / k: "divided twice", 1 / n: "divided twice", n / self.samples: "wrong divisor"}
        return {factor: name for factor, name in names.items() if factor != 1}

    def candidates(self):
        """(names, gradient, factor) of every hypothesis, the likelier first."""
        k, n = self.k, self.weight
        right, means = self.sum / n, self.means / k
        if self.layers:
            yield (), right, 1.0
        for factor, name in self.factors().items():
            yield (name,), factor * right, factor
        yield ("mean of means",), means, 1.0
        for factor, name in self.factors().items():
            yield ("mean of means", name), factor * means, factor
        if k > 1:
            total, weight, own = self.without_last
            for gradient in (total / (weight or 1.0), total / n, own / (k - 1), own / k):
                yield ("dropped tail",), gradient, 1.0
            last, first = self.last, self.first
            for gradient in (last[2], last[2] / k, last[0] / n, last[0], (self.sum - first[0]) / n, (self.means - first[2]) / k):
                yield ("cleared inside the window",), gradient, 1.0
            for gradient in (first[2], first[2] / k, first[0] / n, first[0]):
                yield ("only the first micro-batch",), gradient, 1.0

    def clip_candidates(self):
        """Those where clipping is the bug, so that it is not done once more."""
        limit, k, n = self.max_grad_norm, self.k, self.weight
        if limit is None or k == 1:
            return
        each, running, weighted = [0.0] * 3, [0.0] * 3, 0.0
        for gradient, weight, _ in self.micro_batches():
            mean = gradient / (weight or 1.0)
            weighted = weighted + clip(mean, limit) * weight / n
            for i, term in enumerate((mean, mean / k, gradient / n)):
                each[i] = each[i] + clip(term, limit)
                running[i] = clip(running[i] + term, limit)
        for gradient in (each[0] / k, weighted, *each, *running, running[0] / k):
            yield ("clip per micro-batch",), gradient, 1.0
            yield ("clip per micro-batch",), clip(gradient, limit), 1.0

    def adama(self, lr: float, eps: float) -> np.ndarray:
        """Change of parameters in AdamA's first update."""
        return -lr * (self.means / self.k) / (np.sqrt(self.squares) / self.k + eps)


def clip(gradient, max_norm: float | None):
    """torch.nn.utils.clip_grad_norm_."""
    return gradient if max_norm is None else gradient * min(1.0, max_norm / (float(np.linalg.norm(gradient)) + 1e-6))


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """|a - b| over the larger length; 0 for two zeros."""
    size = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)))
    return float(np.linalg.norm(a - b)) / size if size > 0 else 0.0


def suspects(got: np.ndarray, right: np.ndarray, window: Window, dtype: str, effect=None, adama: tuple[float, float] | None = None) -> dict[str, str]:
    """``{name: reason}`` of what made ``got`` differ from ``right``; {} if no usual bug explains it.

    Args:
        got, right: gradients, or with ``effect`` changes of the parameters in one update; flat, float64.
        effect: function from a gradient to that change.
        adama: (lr, eps) of an Adam whose place AdamA may have taken.
    """
    def named(*names, **values):
        names = dict.fromkeys((*names, *["batch statistics"] * bool(window.layers)))
        values |= {"layers": ", ".join(window.layers), "max_grad_norm": window.max_grad_norm or math.inf}
        return {name: REASONS[name].format(**values) for name in names}

    update = effect is not None
    if not np.isfinite(got).all():
        return {"NaN or infinity": REASONS["NaN or infinity"]}
    off = distance(got, right)
    if off <= _ROUNDING[update][dtype]:
        return {"rounding": REASONS["rounding"]}
    if not got.any() and not update:
        return named("cleared inside the window")
    effect = effect or (lambda gradient: gradient)
    hypotheses = [(names, effect(clip(g, window.max_grad_norm)), factor) for names, g, factor in window.candidates()]
    hypotheses += [(names, effect(g), factor) for names, g, factor in window.clip_candidates()]
    if adama is not None and window.k > 1:
        hypotheses.append((("AdamA",), window.adama(*adama), 1.0))
    distances = [distance(got, h[1]) for h in hypotheses]
    limit = min(_MATCH[update][dtype], _MUCH_CLOSER * off)
    if min(distances) <= limit:
        names, _, factor = hypotheses[next(i for i, d in enumerate(distances) if d <= 3 * min(distances))]
        return named(*names, factor=factor)
    if update:
        return {}
    for names, direction in (((), right), (("mean of means",), window.means), ((), window.sum)):
        factor = float(got @ direction) / float(direction @ direction) if direction.any() else 0.0
        if factor != 0 and distance(got, factor * direction) <= min(limit, _MUCH_CLOSER * abs(factor - 1)):
            return named(*names, "wrong divisor", factor=float(got @ right) / float(right @ right))
    precision = low_precision(got, dtype, (1.0, window.k, window.weight, window.samples))
    return named("buffer precision", precision=precision) if precision else {}


def low_precision(values: np.ndarray, dtype: str, factors) -> str:
    """The short format that all values times one of the factors have, within the rounding of a later division; "" if none."""
    values = values[values != 0]
    for name, rounded in (("bfloat16", _bfloat16), ("float16", _float16), *[("float32", _float32)] * (dtype == "float64")):
        close = 2e-13 if dtype == "float64" else 2e-6
        for factor in factors:
            scaled = values * factor
            if len(values) >= 4 and np.mean(np.abs(scaled - rounded(scaled)) <= close * np.abs(scaled)) > 0.99:
                return name
    return ""


def _float32(a):
    with np.errstate(over="ignore", under="ignore"):
        return a.astype(np.float32).astype(np.float64)


def _float16(a):
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.nan_to_num(a.astype(np.float16).astype(np.float64), posinf=0, neginf=0)


def _bfloat16(a):
    """Upper half of a float32, to nearest even."""
    bits = _float32(a).astype(np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)
