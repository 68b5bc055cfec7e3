"""Exceptions that Python does not have. Everything else is ValueError, TypeError, IndexError, MemoryError, FloatingPointError.

The first line of a message is English, so that it can be searched; the lines after it explain, in the language of ``ga.set_language``.
"""
from __future__ import annotations

import re

from ._stages import MEANINGS, explain

__all__ = ["BudgetError", "StageError"]


class StageError(RuntimeError):
    """A stage of the accumulation window was called out of order, or a network is in use elsewhere; nothing was changed.

    The text names the stage, the call, and the calls that are allowed now.
    """

    def __str__(self):
        text = super().__str__()
        stage = re.search(r'stage "(\w+)"', text)
        return f"{text}\n{explain(stage[1])}" if stage and stage[1] in MEANINGS else text


class BudgetError(MemoryError):
    """A plan needs more bytes than its ``memory_limit``; nothing was allocated.

    Attributes:
        asked: bytes that the plan needs.
        limit: bytes that it may have.
        by_kind: ``{kind: bytes}`` of what was asked.
        max_micro_batch: largest micro-batch that fits, 0 if none does.
        splits: ``[(micro_batch, accumulation_steps), ...]`` that keep the effective batch and fit.
    """

    def __init__(self, message: str, asked: int, limit: int, by_kind: dict, max_micro_batch: int, splits: list):
        super().__init__(message)
        self.asked = asked
        self.limit = limit
        self.by_kind = by_kind
        self.max_micro_batch = max_micro_batch
        self.splits = splits
