"""A run in one file: ``acc.save(path)`` and ``acc.load(path)`` go on with the same bits, in the middle of a window too.

The file has the safetensors layout. Parameters and layer state are there under PyTorch's names, so that
``net.load_state_dict(safetensors.load(path), strict=False)`` takes the model alone; then

    optimizer/exp_avg/0.weight        state arrays of the optimizer, by parameter
    ema/0.weight                      the moving average
    window/gradient/0.weight          of an open window: net.grads, the buffer and its compensation; "window/uses" are the gradients
    window/buffer/0.weight            of the further uses of shared parameters
    objects/<name>/<key>              arrays of registered objects

and as JSON texts in the metadata: gradaccum (version), checkpoint (version of this format), fingerprint, settings, window, counters,
optimizer, objects, last_update, extra; and sha256, over everything.

What must be the same when it is loaded is the fingerprint: what gives the numbers their meaning. Settings may be changed on purpose:
those of the new Accumulator hold, and a warning names the changes. Hyper-parameters of the optimizer come from the file, as with
torch.optim's load_state_dict; set them afterwards to change them.
"""
from __future__ import annotations

import json
import os
import time
import types
import warnings
from contextlib import ExitStack

import numpy as np

from . import safetensors
from ._checks import whole
from ._core import StageError
from ._version import __version__
from .loss_scale import DynamicLossScale
from .nn.module import Layer

FORMAT = 1
_PARAMETERS, _GRADIENTS = 0, 1                               # blocks of the core
_OWN = ("loss_scale", "noise_scale", "schedule", "_accumulation_steps")     # attributes of an Accumulator that may have a state of their own
_CHANGEABLE = ("schedule", "_accumulation_steps")            # of these: may be others when the run goes on, then without that state
_RESTING = ("clear", "accumulate", "normalize", "clip", "update")
_NORMS = ("loss_sum", "weight_sum", "grad_norm", "grad_norm_clipped")
_COUNTS = ("micro_step", "samples", "elements", "rejected")
_TOTALS = ("micro_steps", "updates", "samples", "elements")


# ---- what a run consists of ----

def _arrays(acc, writable: bool = False) -> tuple[dict, dict]:
    """Views by name: those of every run, and those of an open window, which are zero when it is clear."""
    net = acc.net

    def by_parameter(prefix, flat):
        return {prefix + name: p.of(flat) for name, p in net._parameters.items()}

    run = {name: p._array(_PARAMETERS, writable) for name, p in net._parameters.items()}
    run |= {name: net._state_view(name, writable) for name in (*net._buffers, *net._private)}
    for key, flat in (acc.optimizer._core.states(writable) if acc.optimizer else {}).items():
        run |= by_parameter(f"optimizer/{key}/", flat)
    own = acc._core.arrays(writable)
    if "ema" in own:
        run |= by_parameter("ema/", own.pop("ema"))
    count = net.params.size
    window = by_parameter("window/gradient/", net._core.array(_GRADIENTS, 0, (count,), writable))
    if uses := _gradient_reals(net) - count:
        window["window/uses"] = net._core.array(_GRADIENTS, count, (uses,), writable)
    for key, flat in own.items():
        window |= by_parameter(f"window/{key}/", flat)
    return run, window


def _gradient_reals(net) -> int:
    return net._core.bytes(net.micro_batch)["gradients"] // net.dtype.itemsize


def _objects(acc, data) -> dict:
    """Objects with a state of their own, by name."""
    own = {name: getattr(acc, name, None) for name in _OWN}
    found = {name: value for name, value in own.items() if hasattr(value, "state_dict")} | acc._registered
    return found if data is None else found | {"data": data}


def _fingerprint(acc, objects: dict) -> dict:
    """What must be the same when a run goes on."""
    net, opt = acc.net, acc.optimizer
    options = {name: module.options() for name, module in net._module.named_modules() if isinstance(module, Layer)}
    groups = opt and [[name for name, i in zip(net._param_names, opt._indices) if i == k] for k in range(len(opt.groups))]
    return {
        "network": {
            "dtype": str(net.dtype), "engine": net.engine, "seed": net.seed, "gradients": _gradient_reals(net),
            "parameters": {name: list(p.shape) for name, p in net._parameters.items()},
            "frozen": [name for name, p in net._parameters.items() if p.frozen],
            "nodes": {node.name: [node.kind, *node.inputs] for node in net.nodes}, "options": options,
            "loss": net._loss.options() | {name: np.asarray(values).tolist() for name, values in net._loss.state()}},
        "optimizer": opt and {"class": type(opt).__name__, "groups": groups, "state": sorted(opt._core.states())},
        "accumulator": {"reduction": acc.reduction, "staged": acc.staged, "accumulator": acc.accumulator, "loss_scale": _word(acc.loss_scale),
                        "ema": acc._ema_decay >= 0},
        "objects": sorted(name for name in objects if name not in _CHANGEABLE),
    }


def _settings(acc) -> dict:
    """What may be changed from one part of a run to the next."""
    return {"accumulation_steps": _word(acc._accumulation_steps), "effective_batch_size": acc.effective_batch_size, "tail": acc.tail,
            "max_grad_norm": acc.max_grad_norm, "on_non_finite": acc.on_non_finite, "schedule": _word(acc.schedule),
            "ema": acc._ema_decay if acc._ema_decay >= 0 else None}


def _word(value):
    if value is None or isinstance(value, int | float | np.number):
        return value
    return "a function" if isinstance(value, types.FunctionType | types.MethodType) else f"a {type(value).__name__}"


def _json(name: str, value) -> str:
    def number(item):
        if isinstance(item, np.generic):
            return item.item()
        raise TypeError(f"a {type(item).__name__}")

    try:
        return json.dumps(value, default=number)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: what is saved must be made of numbers, texts, lists and dicts (JSON); it holds {error}") from None


def register(acc, name: str, item) -> None:
    """See ``Accumulator.register``."""
    if not (callable(getattr(item, "state_dict", None)) and callable(getattr(item, "load_state_dict", None))):
        raise TypeError(f"register: {type(item).__name__} has no state_dict and load_state_dict")
    if not isinstance(name, str) or not name or "/" in name or name in (*_OWN, "data"):
        raise ValueError(f"register: name={name!r}, expected a text without / that is not data, {', '.join(_OWN)}")
    acc._registered[name] = item


# ---- save ----

def _attached(acc, call: str) -> None:
    if acc.net._accumulator is None or acc.net._accumulator() is not acc:
        raise StageError(f"{call}: this Accumulator was replaced by a newer one on the same network; use that one")


def _stage(acc) -> str:
    """The stage to save: between forward and accumulate that before the micro-batch. StageError if it has changed something."""
    net = acc.net
    if net.stage in _RESTING:
        return net.stage
    if net.stage == "backward" and not acc.staged:
        raise StageError("save: backward has added the micro-batch to the gradient buffer, but it is not part of the window yet; call accumulate() "
                         "and save then")
    if net._buffers:
        raise StageError(f"save: forward may have moved the running statistics ({next(iter(net._buffers))}), so this micro-batch could not be repeated "
                         "exactly; finish it (loss, backward, accumulate) and save then, or save before forward")
    return "accumulate" if acc.micro_step else "clear"


def save(acc, path, *, data=None, extra=None) -> None:
    """See ``Accumulator.save``."""
    _attached(acc, "save")
    stage = _stage(acc)
    objects = _objects(acc, data)
    arrays, window = _arrays(acc)
    if stage != "clear":
        arrays |= window
    plain = {}
    for name, item in objects.items():
        state = item.state_dict()
        arrays |= {f"objects/{name}/{key}": value for key, value in state.items() if isinstance(value, np.ndarray)}
        plain[name] = {key: value for key, value in state.items() if not isinstance(value, np.ndarray)}
    numbers = acc._core.get_state()
    counters = numbers.pop("counters")
    seconds = time.perf_counter() - acc._started if stage != "clear" else 0.0
    texts = {
        "fingerprint": _fingerprint(acc, objects), "settings": _settings(acc), "counters": counters, "objects": plain, "extra": extra,
        "window": numbers | {"stage": stage, "micro_losses": acc._micro_losses, "seconds": seconds, "training": acc.net.training},
        "optimizer": acc.optimizer and {"updates": acc.optimizer.updates, "groups": acc.optimizer.groups},
        "last_update": acc.last_update and acc.last_update.to_dict(),
    }
    metadata = {"gradaccum": __version__, "checkpoint": str(FORMAT)} | {name: _json(name, value) for name, value in texts.items()}
    safetensors.save(arrays, path, metadata, checksum=True)


# ---- load ----

def _differences(name: str, file, here) -> list[str]:
    if isinstance(file, dict) and isinstance(here, dict):
        return [line for key in file | here for line in _differences(f"{name}.{key}" if name else key, file.get(key), here.get(key))]
    return [] if file == here else [f"{name}: {json.dumps(file)} in the file, {json.dumps(here)} here"]


def _same(file: dict, here: dict) -> None:
    lines = _differences("", file, json.loads(_json("fingerprint", here)))
    if lines:
        more = f"; and {len(lines) - 5} more" if len(lines) > 5 else ""
        raise ValueError(f"the file is of another run: {'; '.join(lines[:5])}{more}. Make the network, the optimizer and the Accumulator as they were, and "
                         "give data= and register() what was saved")


def _fitting(arrays: dict, run: dict, window: dict) -> None:
    """The arrays of the file must be those of the run, in name, shape and type."""
    wanted = run | window
    wrong = [f"{name} is missing" for name in wanted if name not in arrays]
    wrong += [f"{name} is not part of it" for name in arrays if name not in wanted]
    wrong += [f"{name}: {arrays[name].dtype} of shape {arrays[name].shape}, expected {a.dtype} of shape {a.shape}" for name, a in wanted.items()
              if name in arrays and (arrays[name].shape, arrays[name].dtype) != (a.shape, a.dtype)]
    if wrong:
        raise ValueError(f"its arrays do not fit the run: {'; '.join(wrong[:5])}")


def _count(name: str, value) -> int:
    if whole(name, value, 0) >= 2**63:
        raise ValueError(f"{name}={value}: too large")
    return value


def _window_state(window: dict, counters: dict) -> tuple:
    """Arguments of the core's set_state, checked here because that call comes when everything else is written."""
    counts = tuple(_count(name, window[name]) for name in _COUNTS)
    norms = tuple(float(window[name]) for name in _NORMS)
    totals = tuple(_count(name, counters[name]) for name in _TOTALS)
    if window["stage"] not in _RESTING or (window["stage"] == "clear") != (counts[0] == 0):
        raise ValueError(f"a window cannot rest in stage {window['stage']!r} with {counts[0]} micro-batches")
    return window["stage"], counts, (*norms, bool(window["clipped"])), (*totals, float(counters["weight"]))


def load(acc, path, *, data=None):
    """See ``Accumulator.load``."""
    _attached(acc, "load")
    arrays, metadata = safetensors.read(path)
    try:
        return _load(acc, arrays, metadata, data)
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)}: {f'it has no {error}' if isinstance(error, KeyError) else error}; nothing was changed") from error


def _load(acc, arrays, metadata, data):
    from .records import Update

    if "checkpoint" not in metadata:
        raise ValueError("it was not written by acc.save; arrays alone are read by gradaccum.safetensors.load")
    if metadata["checkpoint"] != str(FORMAT):
        raise ValueError(f"it has format {metadata['checkpoint']}, written by gradaccum {metadata.get('gradaccum')}; gradaccum {__version__} reads "
                         f"format {FORMAT}")
    read = {name: json.loads(metadata[name]) for name in (
        "fingerprint", "settings", "window", "counters", "optimizer", "objects", "last_update", "extra")}
    objects = _objects(acc, data)
    _same(read["fingerprint"], _fingerprint(acc, objects))
    window = read["window"]
    state = _window_state(window, read["counters"])
    losses = [float(loss) for loss in window["micro_losses"]]
    started = time.perf_counter() - float(window["seconds"])
    last = None if read["last_update"] is None else Update(**read["last_update"])
    states = {name: dict(read["objects"][name]) for name in objects if name in read["objects"]}
    for name, array in list(arrays.items()):
        kind, _, rest = name.partition("/")
        owner, _, key = rest.partition("/")
        if kind == "objects" and owner in read["objects"]:
            states.setdefault(owner, {})[key] = arrays.pop(name)
    run, open_window = _arrays(acc, writable=True)
    _fitting(arrays, run, open_window if window["stage"] != "clear" else {})

    with ExitStack() as undo:                                # what is not pop_all-ed is undone
        if acc.optimizer is not None:
            _load_optimizer(acc.optimizer, read["optimizer"], undo)
        for name, item in objects.items():
            if name in states:
                undo.callback(item.load_state_dict, item.state_dict())
                item.load_state_dict(states[name])
        if changed := _differences("", read["settings"], json.loads(_json("settings", _settings(acc)))):
            warnings.warn(f"load: the run goes on with other settings: {'; '.join(changed)}", UserWarning, stacklevel=4)
        undo.pop_all()
    if isinstance(acc.loss_scale, DynamicLossScale):         # from here on nothing can fail
        acc._core.clear(True)
        acc._core.set(*acc._options())
    for name, view in (run | open_window).items():
        view[...] = arrays.get(name, 0)
    acc._core.set_state(*state)
    acc.net._filled_by = "acc.load"
    acc._micro_losses, acc._started, acc.last_update = losses, started, last
    acc.net.train(bool(window["training"]))
    acc.net._core.touch()
    return read["extra"]


def _load_optimizer(opt, state: dict, undo: ExitStack) -> None:
    updates = _count("updates", state["updates"])
    before, clock = [dict(group) for group in opt.groups], opt.updates

    def back():
        for i, group in enumerate(before):
            opt.set(i, **group)
        opt._core.clock = clock

    undo.callback(back)
    for i, (group, mine) in enumerate(zip(state["groups"], before, strict=True)):
        if set(group) != set(mine):
            raise ValueError(f"optimizer: group {i} has {', '.join(group)}, expected {', '.join(mine)}")
        opt.set(i, **{key: tuple(value) if isinstance(value, list) else value for key, value in group.items()})
    opt._core.clock = updates
