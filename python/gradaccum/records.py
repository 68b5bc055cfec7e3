"""What the window tells: records with names."""
from __future__ import annotations

import math

import numpy as np


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
        return {name: value.to_dict() if isinstance(value, Record) else value for name, value in self.__dict__.items()}

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._names if name not in self._uncompared)

    __hash__ = None

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._names if name not in self._unprinted)})"


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
        skipped, reason: no update was made, and why.
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
    _unprinted = ("views",)

    def snapshot(self) -> dict[str, np.ndarray]:
        """Copies of the views as they are now."""
        return {name: view.copy() for name, view in self.views.items()}
