"""gradaccum: gradient accumulation that is exact, visible and fast.

    import gradaccum as ga
    from gradaccum import nn, optim

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    net = ga.plan(model, input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=32)
    opt = optim.AdamW(net, lr=1e-3)
    acc = ga.Accumulator(net, opt, accumulation_steps=4)
    update = acc.update(x, y)            # 128 samples: 4 micro-batches, one update
"""
from ._core import get_num_threads, set_num_threads
from ._language import get_language, set_language
from ._library import __version__, info
from .accumulator import Accumulator
from .errors import BudgetError, StageError
from .loss_scale import DynamicLossScale
from .memory import MemoryReport
from .network import Network
from .noise import noise_scale
from .plan import plan
from .records import Event, Step, Update
from .schedules import planned_updates

__all__ = [
    "Accumulator", "BudgetError", "Comparison", "DynamicLossScale", "Event", "MemoryReport", "Network", "StageError", "Step", "Update", "__version__",
    "advise", "check_equivalence", "compare", "get_language", "get_num_threads", "info", "noise_scale", "plan", "planned_updates", "set_language",
    "set_num_threads",
]

_LAZY = {"EarlyStopping": "training", "History": "training", "fit": "training", "advise": "advice", "check_equivalence": "equivalence", "compare": "comparison",
         "Comparison": "comparison"}


def __getattr__(name):
    """Submodules that are loaded when first used: ``ga.data``, ``ga.reference``, ``ga.testing``, ..."""
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    if name in ("data", "exercises", "log", "losses", "models", "nn", "optim", "reference", "replay", "schedules", "show", "testing"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
