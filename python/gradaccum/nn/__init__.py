"""Layers, losses and containers, with PyTorch's names and arguments. They describe; ``ga.plan`` makes the numbers."""
from . import functional
from .activation import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from .conv import Conv2d, ConvTranspose2d
from .dropout import Dropout
from .function import Function
from .image import AdaptiveAvgPool2d, AvgPool2d, Cat, Dropout2d, MaxPool2d, Upsample, ZeroPad2d
from .linear import Flatten, Identity, Linear
from .loss import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss
from .module import Checkpoint, Module, ModuleList, Sequential, Symbol
from .norm import BatchNorm1d, BatchNorm2d, GhostBatchNorm1d, GhostBatchNorm2d, GroupNorm, InstanceNorm2d
from .parameter import Parameter

__all__ = [
    "AdaptiveAvgPool2d", "AvgPool2d", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "Cat", "Checkpoint", "Conv2d", "ConvTranspose2d", "CrossEntropyLoss",
    "Dropout", "Dropout2d", "Flatten", "Function", "GELU", "GhostBatchNorm1d", "GhostBatchNorm2d", "GroupNorm", "Identity", "InstanceNorm2d",
    "L1Loss", "LeakyReLU", "Linear", "MSELoss", "MaxPool2d", "Module", "ModuleList", "Parameter", "ReLU", "Sequential", "SiLU", "Sigmoid",
    "Softmax", "Symbol", "Tanh", "Upsample", "ZeroPad2d", "functional",
]
