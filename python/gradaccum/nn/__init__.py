"""Layers, losses and containers, with PyTorch's names and arguments. They describe; ``ga.plan`` makes the numbers.

A file is loaded when one of its names is first used.
"""
_FILES = {
    "activation": ("GELU", "LeakyReLU", "ReLU", "SiLU", "Sigmoid", "Softmax", "Tanh"),
    "conv": ("Conv2d", "ConvTranspose2d"),
    "dropout": ("Dropout",),
    "embedding": ("Embedding", "LearnedPositions"),
    "function": ("Function",),
    "image": ("AdaptiveAvgPool2d", "AvgPool2d", "Cat", "Dropout2d", "MaxPool2d", "Upsample", "ZeroPad2d"),
    "layer_norm": ("LayerNorm", "RMSNorm"),
    "linear": ("Flatten", "Identity", "Linear"),
    "loss": ("BCEWithLogitsLoss", "CrossEntropyLoss", "DotProductLoss", "L1Loss", "MSELoss"),
    "module": ("Checkpoint", "Module", "ModuleList", "Sequential", "Symbol"),
    "norm": ("BatchNorm1d", "BatchNorm2d", "GhostBatchNorm1d", "GhostBatchNorm2d", "GroupNorm", "InstanceNorm2d"),
    "parameter": ("Parameter",),
    "recurrent": ("GRU", "LSTM"),
    "transformer": ("MultiheadAttention", "TransformerEncoderLayer", "attention_weights"),
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names}
__all__ = sorted([*_FILE_OF, "functional"])


def __getattr__(name):
    import importlib

    if name in _FILE_OF:
        globals()[name] = getattr(importlib.import_module(f"{__name__}.{_FILE_OF[name]}"), name)
        return globals()[name]
    if name == "functional":
        return importlib.import_module(f"{__name__}.functional")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; there are {', '.join(__all__)}")


def __dir__():
    return __all__
