"""Logs: one flat record per update, to files and to the tools that teams use.

    log = ga.log.JSONLines("run.jsonl")
    ga.fit(acc, (x, y), epochs=10, log=log)      # or by hand: log.write(ga.log.record(acc, update))

The x axis of a logger is chosen once, ``x="samples"`` by default, so that runs with different accumulation lie over each other, and records must
come in its order: micro-steps and updates are never mixed on one axis.
"""
from .record import AXES, Logger, record

_TARGETS = {"JSONLines": "lines", "CSV": "lines", "TensorBoard": "tensorboard", "MLflow": "mlflow", "WandB": "wandb"}
__all__ = ["AXES", "Logger", "record", *_TARGETS]


def __getattr__(name):
    """Targets are loaded when first used."""
    import importlib

    if name in _TARGETS:
        return getattr(importlib.import_module(f"{__name__}.{_TARGETS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
