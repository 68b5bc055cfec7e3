"""Exceptions that Python does not have. Everything else is ValueError, TypeError, IndexError, MemoryError, FloatingPointError."""
from __future__ import annotations

from ._core import StageError

__all__ = ["BudgetError", "StageError"]


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
