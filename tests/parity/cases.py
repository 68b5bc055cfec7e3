"""Small training runs that PyTorch and gradaccum both make: 50 updates of a 6-8-3 network, in windows of 1 and 4 micro-batches."""
import numpy as np

UPDATES, SAMPLES, FEATURES, HIDDEN, OUTPUTS = 50, 12, 6, 8, 3

OPTIMIZERS = {
    "SGD": ("SGD", {"lr": 0.1}),
    "SGD momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}),
    "SGD dampening decay": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    "SGD nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01}),
    "Adam": ("Adam", {"lr": 0.003}),
    "Adam decay": ("Adam", {"lr": 0.003, "weight_decay": 0.1, "betas": (0.8, 0.99), "eps": 1e-6}),
    "Adam amsgrad": ("Adam", {"lr": 0.003, "amsgrad": True}),
    "AdamW": ("AdamW", {"lr": 0.003, "weight_decay": 0.1}),
    "AdamW amsgrad": ("AdamW", {"lr": 0.003, "amsgrad": True}),
}
LOSSES = {
    "CrossEntropyLoss": ("CrossEntropyLoss", {}),
    "CrossEntropyLoss weight": ("CrossEntropyLoss", {"weight": [1.0, 0.5, 3.0], "ignore_index": 2}),
    "CrossEntropyLoss smoothing": ("CrossEntropyLoss", {"weight": [1.0, 0.5, 3.0], "label_smoothing": 0.1}),
    "MSELoss": ("MSELoss", {}),
    "L1Loss": ("L1Loss", {}),
    "BCEWithLogitsLoss": ("BCEWithLogitsLoss", {"pos_weight": [1.0, 2.0, 0.5]}),
}
CASES = [(name, "CrossEntropyLoss") for name in OPTIMIZERS] + [("SGD momentum", name) for name in LOSSES]
CASES = list(dict.fromkeys(CASES))


def weights():
    rng = np.random.default_rng(0)
    shapes = {"0.weight": (HIDDEN, FEATURES), "0.bias": (HIDDEN,), "2.weight": (OUTPUTS, HIDDEN), "2.bias": (OUTPUTS,)}
    return {name: rng.uniform(-0.4, 0.4, shape).astype("float32") for name, shape in shapes.items()}


def batches(loss):
    """50 batches of 12 samples; of classes, some are ignored where the loss ignores any."""
    rng = np.random.default_rng(1)
    for _ in range(UPDATES):
        x = rng.normal(size=(SAMPLES, FEATURES)).astype("float32")
        if loss.startswith("CrossEntropyLoss"):
            yield x, rng.integers(0, OUTPUTS, SAMPLES)
        else:
            yield x, rng.random((SAMPLES, OUTPUTS)).astype("float32")


def key(optimizer, loss):
    return f"{optimizer}; {loss}"
