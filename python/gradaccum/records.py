"""What the window tells: records with names."""
from __future__ import annotations

import math

import numpy as np

from ._language import _
from ._stages import following


class Record:
    """Values by name, made, compared and printed as a dataclass does it (whose module would make the import of this package twice as long).

    A subclass annotates its fields in order, those with a default last; ``_uncompared`` fields count for no ==, ``_unprinted`` for no repr.
    """

    _names: tuple = ()
    _uncompared: tuple = ()
    _unprinted: tuple = ()

    def __init_subclass__(cls):
        cls._names = tuple(cls.__dict__["__annotations__"])
        cls._defaults = {name: cls.__dict__[name] for name in cls._names if name in cls.__dict__}
        cls.__match_args__ = cls._names

    def __init__(self, *values, **named):
        given = dict(zip(self._names, values, strict=False)) | named
        fields = self._defaults | given
        if len(values) + len(named) > len(given) or len(values) > len(self._names) or set(fields) != set(self._names):
            raise TypeError(f"{type(self).__name__}: got {', '.join(given)}, expected {', '.join(self._names)}")
        self.__dict__.update((name, fields[name]) for name in self._names)

    def to_dict(self) -> dict:
        """The fields by name; records in them too."""
        return {name: value.to_dict() if isinstance(value, Record) else value for name, value in self.__getstate__().items()}

    def __getstate__(self):                                  # a copy knows the fields alone
        return {name: self.__dict__[name] for name in self._names}

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._names if name not in self._uncompared)

    __hash__ = None

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._names if name not in self._unprinted)})"


def _number(v: float | None) -> str:
    return "none" if v is None else f"{v:.6g}"


class Update(Record):
    """What one window did.

    Attributes:
        update: number of this update, counted from 1; of a skipped window, the number of updates so far.
        loss: sum of losses / sum of weights over the window; nan for a window without weight.
        weight, samples, tokens, micro_steps: of the window; tokens counts target elements with weight.
        micro_losses: mean loss of each micro-batch, in order.
        grad_norm: norm of the divided gradient before clipping; None if skipped before it was known.
        grad_norm_clipped: after clipping.
        clipped: whether clipping changed it.
        lr: learning rate that was used (first group).
        skipped, reason: no update was made, and why. In English; cards and ``print`` show the reason in the language of ``ga.set_language``.
        rejected: micro-batches that were left out (on_non_finite="skip_micro_batch").
        loss_scale: factor of the loss in backward during this window.
        non_finite: of a skipped update or a rejected micro-batch, where the first NaN or infinity came from: "output of 2 (gelu), sample 37 of
            the window", "input x, ...", or "gradient of 0.weight (linear)".
        seconds: from the first micro-batch (or ``begin``) to the end of the update. Not compared by ``==``.
    """

    update: int
    loss: float
    weight: float
    samples: int
    tokens: int
    micro_steps: int
    micro_losses: list[float]
    grad_norm: float | None
    grad_norm_clipped: float | None
    clipped: bool
    lr: float | None
    skipped: bool = False
    reason: str = ""
    rejected: int = 0
    non_finite: str = ""
    loss_scale: float = 1.0
    seconds: float = 0.0
    _uncompared = ("seconds",)

    @property
    def samples_per_second(self) -> float:
        """Samples of the window over its seconds."""
        return self.samples / self.seconds if self.seconds > 0 else math.inf

    @property
    def tokens_per_second(self) -> float:
        """Target elements with weight over the window's seconds."""
        return self.tokens / self.seconds if self.seconds > 0 else math.inf

    @property
    def perplexity(self) -> float:
        """exp(loss): of a language model, when the loss is the token mean of cross entropies."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    def __repr__(self):
        window = f"{self.samples} samples in {self.micro_steps} micro-batches, weight {self.weight:g}"
        if self.skipped:
            return f"Update: none, {self.update} so far; loss {self.loss:.6g}, {window}\n  skipped: {_(self.reason)}"
        clipped = f", clipped to {_number(self.grad_norm_clipped)}" if self.clipped else ""
        rejected = f"; {self.rejected} micro-batches rejected" if self.rejected else ""
        return (f"Update {self.update}: loss {self.loss:.6g}, {window}\n  gradient norm {_number(self.grad_norm)}{clipped}{rejected}; lr {_number(self.lr)}; "
                f"{1e3 * self.seconds:.3g} ms, {self.samples_per_second:.3g} samples/s")

    def _repr_html_(self):
        from .show import cards
        return cards.update(self)


class Step(Record):
    """What one micro-batch did: its mean loss, weight, samples; ``update`` is the window's record at the boundary, else None."""

    loss: float
    weight: float
    samples: int
    is_boundary: bool = False
    update: Update | None = None
    rejected: bool = False


class Event(Record):
    """One stage of a window.

    Attributes:
        stage: forward, loss, backward, accumulate, normalize, clip, update or clear.
        micro_step: micro-batch, from 1; None for the stages at the boundary.
        changed: names of what this stage wrote.
        views: live, read-only arrays by name; ``snapshot()`` copies them.
        values: numbers of this stage, such as loss_sum, weight, grad_norm.
    """

    stage: str
    micro_step: int | None
    changed: tuple[str, ...]
    views: dict[str, np.ndarray]
    values: dict[str, float]
    _accumulator, _moment = None, ()                         # where it came from, and where the window was then

    @property
    def is_now(self) -> bool | None:
        """Whether the window is still where it was, so that the live views hold the numbers of this event; None if that is not known."""
        return None if self._accumulator is None else self._accumulator._moment() == self._moment

    def snapshot(self) -> dict[str, np.ndarray]:
        """Copies of the views as they are now."""
        return {name: view.copy() for name, view in self.views.items()}

    def __repr__(self):
        where = "at the boundary" if self.micro_step is None else f"of micro-batch {self.micro_step}"
        values = "".join(f"; {name} {value:.6g}" for name, value in self.values.items())
        views = ", ".join(f"{name} {view.shape}" for name, view in self.views.items())
        return (f"Event {self.stage!r} {where}: wrote {', '.join(self.changed) or 'nothing'}{values}\n"
                f"  live views {views}; next: {', '.join(following(self.stage))}")

    def _repr_html_(self):
        from .show import cards
        return cards.event(self)
