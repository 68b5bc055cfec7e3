"""From a module to a network: trace, plan, check the limit, allocate, initialise."""
from __future__ import annotations

import numpy as np

from ._checks import sizes, whole
from ._core import Net
from .memory import MemoryReport, machine_memory, parse_bytes
from .network import Network
from .nn.loss import Loss
from .nn.module import Module, NeedsIntegers, Symbol, Trace

DTYPES = {"float32": 0, "float64": 1}
RECOMPUTE = {None: 0, "sqrt": 1, "none": 2}
ENGINES = {"native": 0, "auto": 0, "openblas": 1}


def plan(module: Module, *, input_shape=None, inputs=None, loss: Loss | None = None, micro_batch: int | str, memory_limit=None,
         dtype="float32", seed: int = 0, engine: str = "auto", keep: str | None = None, ties: str = "exact",
         recompute: str | None = None) -> Network:
    """Plans a model for micro-batches and allocates everything it will need, once.

    Args:
        module: the model; its ``forward`` is called with symbols.
        input_shape: shape of one sample, without the sample axis, channels first: (features,), (T, C) or (C, H, W).
        inputs: ``{name: shape}`` for models with several inputs, in the order of ``forward``'s arguments; instead of input_shape.
        loss: one of ``nn``'s losses; None for a network that only predicts.
        micro_batch: the most samples of one forward; "auto" takes the largest that fits ``memory_limit``, or half of the
            machine's (container's) memory if there is none; room for Adam's state is left.
        memory_limit: bytes, or a text such as "8 MiB"; a plan above it is refused before anything is allocated. What a plan takes for speed
            alone (a second set of packed weights; room to run small micro-batches of a large network together) is left out first.
        dtype: "float32" or "float64".
        seed: of the initial values and of dropout.
        engine: "native" (default: same bits for every split) or "openblas" (equal to rounding; a check and a comparison).
        keep: "all" keeps every activation and gradient readable, without reuse of their memory.
        ties: "exact" gives each use of a shared parameter its own gradient buffer, so that every split has the same bits;
            "fold" saves those buffers and gives up the bits of that parameter.
        recompute: "sqrt" keeps about the square root of the activations and computes the others again in backward (Chen et al. 2016,
            arXiv:1604.06174): less memory, at most one more forward, the same bits. None: only inside ``nn.Checkpoint``.

    Returns:
        Network.

    Raises:
        BudgetError: over the limit; the text tells which micro-batch fits.
        ValueError, TypeError: shapes or options that do not fit; the text names the node.
    """
    if not isinstance(module, Module):
        raise TypeError(f"module: got {type(module).__name__}, expected an nn.Module")
    if getattr(loss, "couples_samples", False):
        raise ValueError(f"loss={loss!r}: it compares every sample with all others of the batch, and a sum over micro-batches has no term for two samples "
                         "in different ones, so accumulating it is another loss. Plan with loss=nn.DotProductLoss() and use "
                         "ga.losses.cached(acc, (x1, x2), loss=...): two passes, the exact gradient of the full batch")
    if loss is not None and not isinstance(loss, Loss):
        raise TypeError(f"loss: got {type(loss).__name__}, expected a loss such as nn.CrossEntropyLoss()")
    try:
        dtype = np.dtype(dtype).name
    except TypeError:
        pass
    if dtype not in DTYPES:
        raise ValueError(f'dtype={dtype!r}: expected "float32" or "float64"')
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r}: expected one of {', '.join(ENGINES)}")
    if keep not in (None, "all"):
        raise ValueError(f'keep={keep!r}: expected "all" or None')
    if recompute not in RECOMPUTE:
        raise ValueError(f'recompute={recompute!r}: expected "sqrt" or None')
    if ties not in ("exact", "fold"):
        raise ValueError(f'ties={ties!r}: expected "exact" or "fold"')
    if whole("seed", seed, 0) >= 2**64:
        raise ValueError(f"seed={seed}: expected an integer from 0 to 2**64 - 1")
    if (input_shape is None) == (inputs is None):
        raise ValueError("give either input_shape=(...) or inputs={name: shape}")
    if input_shape is not None:
        inputs = {"x": sizes("input_shape", input_shape)}
    else:
        inputs = {name: sizes(f"inputs[{name!r}]", shape) for name, shape in inputs.items()}
    limit = parse_bytes(memory_limit)

    def traced(m: int, lean: bool) -> tuple[Trace, dict]:
        trace, values = _trace(module, inputs, loss, DTYPES[dtype], ENGINES[engine], int(seed))
        trace.net.plan(m, keep == "all", ties == "fold", RECOMPUTE[recompute], lean)
        return trace, values

    def report(trace: Trace, m: int) -> MemoryReport:
        return MemoryReport(trace.net, m, limit, lambda n: node_rows(trace.net, n, 4 if dtype == "float32" else 8))

    if micro_batch == "auto":
        probe = report(traced(1, True)[0], 1)
        reserve = 2 * probe.by_kind().get("parameters", 0)
        budget = limit if limit is not None else machine_memory() // 2
        micro_batch = probe.max_micro_batch(max(budget - reserve, 1)) or probe.max_micro_batch(budget)
        if not micro_batch:
            probe.check(1, budget)
    elif isinstance(micro_batch, bool) or not isinstance(micro_batch, (int, np.integer)) or micro_batch < 1:
        raise ValueError(f'micro_batch={micro_batch!r}: expected a whole number of samples, at least 1, or "auto"')
    micro_batch = int(micro_batch)
    trace, values = traced(micro_batch, False)
    memory = report(trace, micro_batch)
    if limit is not None and memory.bytes() + 2 * memory.by_kind().get("parameters", 0) > limit:     # a limit, and Adam's state, come before speed
        trace, values = traced(micro_batch, True)
        memory = report(trace, micro_batch)
    memory.check(micro_batch, limit)
    trace.net.allocate(micro_batch)
    return Network(trace, module, loss, values, memory, dtype=dtype, engine="native" if engine == "auto" else engine, seed=int(seed),
                   keep=keep)


def _trace(module, inputs, loss, dtype, engine, seed) -> tuple[Trace, dict]:
    """Runs ``forward`` with symbols; again, when an input turns out to hold tokens."""
    integers: set[int] = set()
    while True:
        trace = Trace(Net(dtype, engine, seed), module)
        values = {}
        for i, (name, shape) in enumerate(inputs.items()):
            sequence = len(shape) == 2 or (i in integers and len(shape) == 1)
            values[name] = trace.net.add_input(name, shape, i in integers, sequence)
        try:
            with trace.active():
                output = module(*(Symbol(trace, v) for v in values.values()))
                if not isinstance(output, Symbol):
                    raise TypeError(f"{type(module).__name__}.forward returned {type(output).__name__}, expected the symbol of one output")
                if output._producer < 0:
                    raise ValueError("the model returns its input: it has no layer")
                if loss is not None:
                    loss(output)
                elif (last := trace.net.nodes()[-1])[3] != output._index:
                    raise ValueError(f"{last[0]}: nothing uses it; leave it out")
            return trace, values
        except NeedsIntegers as error:
            integers.add(list(values.values()).index(error.index))


def node_rows(net: Net, m: int, real: int) -> list[dict]:
    values, params = net.values(), net.params()
    size = lambda v: int(np.prod(values[v][0], dtype=np.int64)) * m  # noqa: E731
    rows = []
    for name, kind, inputs, output, own, mixes, saved, *_ in net.nodes():
        rows.append({
            "node": name, "kind": kind,
            "parameters": sum(params[p][3] for p in own) * real,
            "output": size(output) * real if output >= 0 else 0,
            "output_grad": size(output) * real if output >= 0 and values[output][4] else 0,
            "saved": saved,
        })
    return rows
