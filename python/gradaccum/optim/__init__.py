"""Optimizers, with PyTorch's names, arguments and formulas."""
from . import lr_scheduler
from .optimizers import SGD, Adam, AdamW, Optimizer

__all__ = ["Adam", "AdamW", "Optimizer", "SGD", "lr_scheduler"]
