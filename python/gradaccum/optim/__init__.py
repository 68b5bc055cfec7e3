"""Optimizers, with PyTorch's names, arguments and formulas; ``optim.lr_scheduler``: learning rates as functions of updates."""
from .optimizers import SGD, Adam, AdamW, Optimizer

__all__ = ["Adam", "AdamW", "Optimizer", "SGD", "lr_scheduler"]


def __getattr__(name):
    import importlib

    if name == "lr_scheduler":                               # loaded when first used
        return importlib.import_module(f"{__name__}.lr_scheduler")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
