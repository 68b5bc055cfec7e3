"""Layers, losses and containers, with PyTorch's names and arguments. They describe; ``ga.plan`` makes the numbers."""
from . import functional
from .activation import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from .dropout import Dropout
from .function import Function
from .linear import Flatten, Identity, Linear
from .loss import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss
from .module import Module, ModuleList, Sequential, Symbol
from .parameter import Parameter

__all__ = [
    "BCEWithLogitsLoss", "CrossEntropyLoss", "Dropout", "Flatten", "Function", "GELU", "Identity", "L1Loss", "LeakyReLU", "Linear",
    "MSELoss", "Module", "ModuleList", "Parameter", "ReLU", "Sequential", "SiLU", "Sigmoid", "Softmax", "Symbol", "Tanh", "functional",
]
