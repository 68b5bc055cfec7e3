"""Optimizers, with PyTorch's names, arguments and formulas."""
from .optimizers import SGD, Adam, AdamW, Optimizer

__all__ = ["Adam", "AdamW", "Optimizer", "SGD"]
