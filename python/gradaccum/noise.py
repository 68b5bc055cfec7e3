"""The gradient noise scale: how large a batch still helps, read off the norms that accumulation passes by anyway.

McCandlish, Kaplan, Amodei et al. 2018, "An Empirical Model of Large-Batch Training", arXiv:1812.06162. A sample's gradient has
mean G and covariance S, so a batch of B samples has a gradient with E|G_B|² = |G|² + tr S / B. Two sizes B give two equations for |G|²
and tr S (appendix A.1), and

    scale = tr S / |G|²                          B_simple, equation 2.9, in samples
    steps   = S_min (1 + scale / B)              equation 2.11 with scale for B_crit: updates to reach a loss
    samples = E_min (1 + B / scale)              and samples seen on the way

At B = scale both cost twice their minimum. B_simple predicts B_crit within an order of magnitude (Table 1 there).

**The two sizes.** Sample j has loss weight w_j and adds w_j g_j to the window's sum of gradients, where g_j has mean G and covariance S. The sum V_i
over micro-batch i, with m_i = sum of w_j and r_i = sum of w_j² over its samples, has

    E|V_i|² = m_i² |G|² + r_i tr S,    and of the window,    E|sum of V_i|² = M² |G|² + R tr S,    M = sum of m_i, R = sum of r_i,

so |V|²/m² is the squared norm of a mean gradient, of a batch of m²/r samples (Kish's effective sample size; with weights 1 it is
the number of samples). The large size is the window: g2_big = |sum of V_i|² / M², b_big = M²/R. For the small one there are two ways:

- staged windows hold every V_i apart: g2_small = sum |V_i|² / sum m_i², b_small = sum m_i² / sum r_i. For equal micro-batches that is the mean of
  their squared norms. For unequal ones these weights, m_i², leave |G|² = (|sum V|² - sum |V_i|²) / (M² - sum m_i²), cross products of different
  micro-batches only: unbiased whatever the noise of each of them is; only tr S leans on the model of the noise.
- unstaged windows add V_2 onto V_1, and only prefix sums can be seen: g2_small = |V_1|² / m_1², b_small = m_1² / r_1, read from the buffer after the
  first micro-batch. No array and one norm a window. Both are unbiased; the price is variance. Where noise outweighs G, with K equal micro-batches
  of b samples and Gaussian noise, the variance of tr S is 2 b² tr(S_b²) / (K - 1) staged (S_b = S/b), and K + 1 times that from the first prefix;
  that of |G|² is twice the staged one. All K prefixes at their best weights, 1 / (2k - 1), would give (K - 1) / (sum of 1 / (2k - 1) - 1) times:
  4.4 at K = 4 instead of 5, 11 at K = 16 instead of 17, for K - 1 more norms. Smoothing over a few more windows is cheaper: they are not used.

With reduction="mean_of_means" backward has divided V_i by its weight, so m_i = 1 and r_i is divided by its square; the formulas stay.
The unit is samples: tokens or pixels of one sample count as one draw, and a scale in tokens is this one times the tokens of a sample. Samples should
be independent: within one shuffled epoch of N they are drawn without replacement, cross products have the mean |G|² - tr S / (N - 1), and
a scale near N or above cannot be seen; layers that mix samples (batch statistics) give each micro-batch a function of its own.
"""
from __future__ import annotations

import math
from typing import NamedTuple

DECAY = 0.99


class Pair(NamedTuple):
    """Squared gradient norms of batches of two sizes: the arguments of ``noise_scale``."""

    b_small: float
    g2_small: float
    b_big: float
    g2_big: float


def noise_scale(b_small: float, g2_small: float, b_big: float, g2_big: float) -> tuple[float, float, float]:
    """Unbiased |G|² and tr S, and their ratio, from squared gradient norms at two batch sizes (McCandlish et al. 2018, appendix A.1).

    Args:
        b_small, b_big: batch sizes.
        g2_small, g2_big: expected squared norm of the mean gradient of such a batch. One pair is noisy: average several, or average what is
            returned (not the ratio: the mean of x / y is not the mean of x by the mean of y), as ``NoiseScale`` does.

    Returns:
        (grad_sq, trace, scale): |G|², tr S, and trace / grad_sq in samples, the noise scale B_simple. Unbiased estimates can be negative;
        scale is nan if grad_sq is not above 0.

    Raises:
        ValueError: b_small is not below b_big, or a number is negative or not finite.
    """
    for name, value in (("b_small", b_small), ("g2_small", g2_small), ("b_big", b_big), ("g2_big", g2_big)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value}: expected a finite number, not negative")
    if not 0 < b_small < b_big:
        raise ValueError(f"b_small={b_small}, b_big={b_big}: expected 0 < b_small < b_big; |G|² and tr S are told apart by two sizes, such as the "
                         "micro-batch and the window")
    grad_sq = (b_big * g2_big - b_small * g2_small) / (b_big - b_small)
    trace = (g2_small - g2_big) / (1 / b_small - 1 / b_big)
    return grad_sq, trace, trace / grad_sq if grad_sq > 0 else math.nan


def trade_off(batch: float, scale: float) -> tuple[float, float]:
    """(updates / fewest, samples / fewest) that batches of ``batch`` samples need: 1 + scale/batch and 1 + batch/scale (equation 2.11)."""
    for name, value in (("batch", batch), ("scale", scale)):
        if not value > 0:
            raise ValueError(f"{name}={value}: expected a number of samples above 0")
    return 1 + scale / batch, 1 + batch / scale


class NoiseScale:
    """The noise scale of a run: |G|² and tr S of each window, smoothed apart, then divided.

    ``Accumulator(..., noise_scale=True)`` makes one and feeds it; in a loop of your own call ``add`` after each update.

    Args:
        decay: of the two exponential moving averages, which are corrected for their start as Adam's are; 0.99 averages over about
            100 windows.

    Attributes:
        windows: that gave an estimate.
        last: the raw ``Pair`` of the last window; None if it gave none.
        last_grad_sq, last_trace: unsmoothed estimates of the last window; None likewise.
    """

    def __init__(self, decay: float = DECAY):
        if isinstance(decay, bool) or not 0 <= decay < 1:
            raise ValueError(f"noise_scale={decay!r}: expected True, or the decay of its moving averages in [0, 1), such as {DECAY}")
        self.decay = float(decay)
        self._core = None                                    # the window that it measures, if an Accumulator made it
        self.windows, self.last, self.last_grad_sq, self.last_trace = 0, None, None, None
        self._grad_sq = self._trace = 0.0                    # moving averages, not corrected
        self._reason = "no window was measured yet"

    # ---- what was measured ----

    def _smoothed(self, average: float) -> float | None:
        return average / (1 - self.decay**self.windows) if self.windows else None

    @property
    def grad_sq(self) -> float | None:
        """|G|², smoothed; can be negative while noise hides it. None before the first estimate."""
        return self._smoothed(self._grad_sq)

    @property
    def trace(self) -> float | None:
        """tr S, smoothed."""
        return self._smoothed(self._trace)

    @property
    def scale(self) -> float | None:
        """B_simple = trace / grad_sq in samples; None, with ``reason``, as long as there is no such number."""
        grad_sq, trace = self.grad_sq, self.trace
        return trace / grad_sq if grad_sq is not None and grad_sq > 0 and trace >= 0 else None

    @property
    def reason(self) -> str:
        """Why the last window gave no estimate, or why there is no scale; else ""."""
        if self._reason or self.scale is not None:
            return self._reason
        if self.grad_sq > 0:
            return "the estimate of tr S is negative: the micro-batches differ less than chance would let them"
        return "the estimate of |G|² is not above 0: noise hides the gradient; more windows, a decay nearer to 1 or larger windows show it"

    # ---- measuring ----

    def add(self, b_small: float, g2_small: float, b_big: float, g2_big: float) -> None:
        """One window's pair; see ``noise_scale`` for arguments and errors."""
        grad_sq, trace, _ = noise_scale(b_small, g2_small, b_big, g2_big)
        self.last, self.last_grad_sq, self.last_trace = Pair(b_small, g2_small, b_big, g2_big), grad_sq, trace
        self._grad_sq = self.decay * self._grad_sq + (1 - self.decay) * grad_sq
        self._trace = self.decay * self._trace + (1 - self.decay) * trace
        self.windows += 1
        self._reason = ""

    def skip(self, reason: str) -> None:
        """A window without estimate: the averages stay."""
        self.last = self.last_grad_sq = self.last_trace = None
        self._reason = reason

    def _window(self, update, reduction: str) -> None:
        """After a window of an Accumulator; ``update`` is its record."""
        parts, small, small_means, small_noise, mean, noise = self._core.noise()
        if update.skipped:
            return self.skip(f"the window was skipped: {update.reason}")
        if parts < 2:
            return self.skip("the window had one micro-batch with weight, so there is one size only; a micro_batch of at most half the window gives two")
        divided = {"mean": mean, "mean_of_means": update.micro_steps - update.rejected, "sum": 1}[reduction]
        big = (update.grad_norm * divided / mean)**2
        if not (math.isfinite(big) and math.isfinite(small)):
            return self.skip("the squared norm of a gradient is not finite")
        b_small, b_big = small_means / small_noise, mean**2 / noise
        if not b_small < b_big:
            return self.skip(f"the first micro-batch weighs as much as {b_small:g} equal samples, the window as {b_big:g}: uneven weights left no larger "
                             "size; staged=True looks at every micro-batch")
        self.add(b_small, small / small_means, b_big, big)

    # ---- state ----

    def state_dict(self) -> dict:
        """Plain numbers and texts: the averages, and what was measured in a window that is open."""
        return {"decay": self.decay, "windows": self.windows, "grad_sq": self._grad_sq, "trace": self._trace, "reason": self._reason,
                "last": None if self.last is None else list(self.last), "open": None if self._core is None else list(self._core.noise())}

    def load_state_dict(self, state: dict) -> None:
        """Restores what ``state_dict`` gave, also the decay. Checked before anything is written.

        An open window's numbers go to the Accumulator's window, so restore that one (and its buffer) too.
        """
        mine = self.state_dict()
        if set(state) != set(mine):
            raise ValueError(f"NoiseScale.load_state_dict: got {sorted(state)}, expected {sorted(mine)}")
        fresh = NoiseScale(state["decay"])
        if state["last"] is not None:
            fresh.last = Pair(*map(float, state["last"]))
            fresh.last_grad_sq, fresh.last_trace, _ = noise_scale(*fresh.last)
        fresh.windows, fresh._grad_sq, fresh._trace = int(state["windows"]), float(state["grad_sq"]), float(state["trace"])
        fresh._reason, fresh._core = str(state["reason"]), self._core
        if self._core is not None and state["open"] is not None:
            self._core.noise(tuple(state["open"]))
        self.__dict__.update(fresh.__dict__)

    def __repr__(self):
        if self.scale is None:
            return f"NoiseScale: none, {self.windows} windows; {self.reason}"
        tail = self.reason or "last window: |g|² {1:.4g} at {0:g}, {3:.4g} at {2:g} samples".format(*self.last)
        return (f"NoiseScale: {self.scale:.4g} samples (|G|² {self.grad_sq:.4g}, tr S {self.trace:.4g}; {self.windows} windows, decay {self.decay:g})\n"
                f"  {tail}")
