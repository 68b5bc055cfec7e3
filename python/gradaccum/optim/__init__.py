"""Optimizers, with PyTorch's names, arguments and formulas; ``optim.lr_scheduler``: learning rates as functions of updates."""
from .optimizers import SGD, Adam, AdamW, Optimizer

_LAZY = {"AdamA": "adama", "SAM": "sam"}                     # loaded when first used
__all__ = ["Adam", "AdamA", "AdamW", "Optimizer", "SAM", "SGD", "lr_scheduler"]


def __getattr__(name):
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    if name == "lr_scheduler":
        return importlib.import_module(f"{__name__}.lr_scheduler")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
