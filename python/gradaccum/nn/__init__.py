"""Layers, losses and containers, with PyTorch's names and arguments. They describe; ``ga.plan`` makes the numbers."""
from . import functional
from .activation import GELU, LeakyReLU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from .conv import Conv2d, ConvTranspose2d
from .dropout import Dropout
from .embedding import Embedding, LearnedPositions
from .function import Function
from .image import AdaptiveAvgPool2d, AvgPool2d, Cat, Dropout2d, MaxPool2d, Upsample, ZeroPad2d
from .layer_norm import LayerNorm, RMSNorm
from .linear import Flatten, Identity, Linear
from .loss import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss
from .module import Checkpoint, Module, ModuleList, Sequential, Symbol
from .norm import BatchNorm1d, BatchNorm2d, GhostBatchNorm1d, GhostBatchNorm2d, GroupNorm, InstanceNorm2d
from .parameter import Parameter
from .recurrent import GRU, LSTM
from .transformer import MultiheadAttention, TransformerEncoderLayer, attention_weights

__all__ = [
    "AdaptiveAvgPool2d", "AvgPool2d", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "Cat", "Checkpoint", "Conv2d", "ConvTranspose2d",
    "CrossEntropyLoss", "Dropout", "Dropout2d", "Embedding", "Flatten", "Function", "GELU", "GRU", "GhostBatchNorm1d", "GhostBatchNorm2d",
    "GroupNorm", "Identity", "InstanceNorm2d", "L1Loss", "LSTM", "LayerNorm", "LeakyReLU", "LearnedPositions", "Linear", "MSELoss",
    "MaxPool2d", "Module", "ModuleList", "MultiheadAttention", "Parameter", "RMSNorm", "ReLU", "Sequential", "SiLU", "Sigmoid", "Softmax",
    "Symbol", "Tanh", "TransformerEncoderLayer", "Upsample", "ZeroPad2d", "attention_weights", "functional",
]
