"""Checks that anyone can call on their own layers and networks: finite differences, the NumPy reference, equal bits for every split.

    gradcheck(module, input_shape)          backward against finite differences in float64
    check_layer(module, input_shape)        everything a layer promises (csrc/compute/layer.h)
    check_split(module, input_shape, ...)   the same parameters, bit for bit, for every split of a batch and every way to run it
    check_equivalence(net, x, y)            a table: gradient of each split against the full batch
"""
from __future__ import annotations

import inspect

import numpy as np

from . import _core, nn, optim, reference
from ._splits import accumulate, default_splits, pieces_of
from .accumulator import Accumulator
from .equivalence import Equivalence, check_equivalence
from .network import Network
from .nn.loss import Loss
from .nn.module import Layer, Module
from .plan import plan

__all__ = ["Equivalence", "check_equivalence", "check_layer", "check_loss", "check_split", "gradcheck"]


class _Probe(nn.Function):
    """x + offset: makes the gradient of an input visible, as the gradient of this node's output."""

    def __init__(self, shape):
        super().__init__()
        self.offset = nn.Parameter(tuple(shape))

    def forward(self, x):
        return x + self.offset.data

    def backward(self, grad):
        if self.offset.grad is not None:
            for row in grad:                                 # sample after sample: grad.sum(axis=0) would depend on the split
                self.offset.grad[...] += row
        return grad


class _Probed(Module):
    def __init__(self, module, shapes, probe):
        super().__init__()
        self.module = module
        for i, shape in enumerate(shapes if probe else []):
            setattr(self, f"input{i}", _Probe(shape))
        self.probe = probe

    def forward(self, *xs):
        if self.probe:
            xs = [getattr(self, f"input{i}")(x) for i, x in enumerate(xs)]
        return self.module(*xs)


def _shapes(input_shape, inputs) -> dict[str, tuple]:
    if (input_shape is None) == (inputs is None):
        raise ValueError("give either input_shape=(...) or inputs={name: shape}")
    items = {"x": input_shape} if inputs is None else inputs
    return {name: (shape,) if isinstance(shape, int) else tuple(shape) for name, shape in items.items()}


def _draw(net: Network, samples: int, rng) -> dict[str, np.ndarray]:
    """Random inputs; integers where the network wants them."""
    out = {}
    for name, v in net._inputs.items():
        shape, _, integer, _, _ = net._value_info[v]
        out[name] = rng.integers(0, 3, (samples, *shape)) if integer else rng.normal(size=(samples, *shape))
    return out


def _target(net: Network, samples: int, rng):
    """A random target that the network's loss accepts."""
    shape, integer, _ = net._core.target()
    last = net.nodes[-1].index
    prediction = net._value_info[net._node_info[last][2][0]][0]
    classes = prediction[0] if len(prediction) == 3 else prediction[-1]
    if integer:
        return rng.integers(0, classes, (samples, *shape))
    return rng.random((samples, *shape)) if net._node_info[last][1] == "bce_with_logits_loss" else rng.normal(size=(samples, *shape))


def _relative(a, b) -> float:
    """Largest difference over the largest value."""
    scale = max(float(np.abs(b).max(initial=0)), 1e-30)
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max(initial=0)) / max(scale, 1e-3)


def gradcheck(module: Module, input_shape=None, *, inputs=None, loss: Loss | None = None, samples: int = 3, seed: int = 0, step: float = 1e-4,
              tolerance: float = 1e-7, x=None, y=None, weight=None, probe: bool = True, most: int = 60) -> float:
    """Backward against five-point differences in float64, for parameters and inputs.

    The derivative at v is (f(v - 2h) - 8 f(v - h) + 8 f(v + h) - f(v + 2h)) / 12h, up to h^4 (Abramowitz, Stegun 25.3.6).

    Args:
        module, input_shape, inputs: as for ``ga.plan``.
        loss: MSELoss against a random target by default.
        x, y, weight: the batch; random if not given.
        probe: False leaves inputs alone (integer inputs have no gradient).
        most: elements of each array that are tried.

    Returns:
        The largest error found, relative to the largest gradient of its array.

    Raises:
        AssertionError: above ``tolerance``; tells the array, the element, what was expected and what backward gave.
    """
    shapes = _shapes(input_shape, inputs)
    rng = np.random.default_rng(seed)
    net = plan(_Probed(module, shapes.values(), probe), inputs=shapes, loss=loss or nn.MSELoss(), micro_batch=samples, dtype="float64", seed=seed,
               keep="all")
    x = _draw(net, samples, rng) if x is None else {name: np.array(a) for name, a in zip(net._inputs, net._as_inputs(x))}
    y = _target(net, samples, rng) if y is None else y

    def loss_sum() -> float:
        net.forward(x)
        return net.loss(y, weight)[0]

    loss_sum()
    net.backward()
    arrays = {name: (p.writable(), p.grad.copy()) for name, p in net.parameters().items() if p.grad is not None and not name.startswith("input")}
    if probe:
        for i, name in enumerate(shapes):
            x[name] = np.array(x[name], dtype=np.float64)
            arrays[f"input {name}"] = (x[name], net.node(f"input{i}").output_grad.copy())
    net.zero_grad()
    worst = 0.0
    for name, (values, gradient) in arrays.items():
        scale = max(float(np.abs(gradient).max(initial=0)), 1e-3)
        for i in rng.permutation(values.size)[:most]:
            index = tuple(int(k) for k in np.unravel_index(i, values.shape))
            kept, difference = values[index], 0.0
            for steps, factor in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
                values[index] = kept + steps * step
                difference += factor * loss_sum() / (12 * step)
            values[index] = kept
            error = abs(difference - gradient[index]) / scale
            worst = max(worst, error)
            if not error <= tolerance:
                raise AssertionError(f"gradcheck {module!r}: {name}{list(index)}: finite differences give {difference:.12g}, backward gives "
                                     f"{gradient[index]:.12g}; relative error {error:.3g}, allowed {tolerance:g}")
    return worst


def _reference_arguments(function, module, net, prefix, node) -> dict:
    """Keyword arguments of a reference function: parameters by name, options from the module's attributes."""
    arguments = {}
    for name in inspect.signature(function).parameters.values():
        if name.kind is not name.KEYWORD_ONLY:
            continue
        value = getattr(module, name.name, None)
        if isinstance(value, nn.Parameter):
            arguments[name.name] = net.parameters()[f"{prefix}{name.name}"].data.copy()
        elif name.name in ("seed", "layer", "update", "sample0", "training"):
            arguments[name.name] = {"seed": net.seed, "layer": node.index, "update": 0, "sample0": 0, "training": net.training}[name.name]
        elif hasattr(module, name.name) and value is not None:
            arguments[name.name] = value
    return arguments


def _against_reference(layer: Layer, shapes, dtype, engine, samples, seed, tolerance, probe):
    """Forward and backward of one layer against its NumPy twin."""
    rng = np.random.default_rng(seed)
    net = plan(_Probed(layer, shapes.values(), probe), inputs=shapes, loss=nn.MSELoss(), micro_batch=samples, dtype=dtype, engine=engine, seed=seed,
               keep="all")
    x = _draw(net, samples, rng)
    x = {name: a if a.dtype.kind == "i" else a.astype(dtype) for name, a in x.items()}
    before = {name: a.copy() for name, a in x.items()}
    y = net.forward(x).copy()
    net.loss(rng.normal(size=y.shape))
    net.backward()
    node = net.node("module")
    forward, backward = getattr(reference, f"{layer.kind}_forward"), getattr(reference, f"{layer.kind}_backward")
    expected, saved = forward(*x.values(), **_reference_arguments(forward, layer, net, "module.", node))
    error = _relative(y, expected)
    assert error <= tolerance, f"{layer!r} {dtype} {engine}: forward differs from the reference by {error:.3g}, allowed {tolerance:g}"
    dxs, dparams = backward(node.output_grad.copy(), saved)
    for i, dx in enumerate(dxs):
        if probe:
            error = _relative(net.node(f"input{i}").output_grad, dx)
            assert error <= tolerance, f"{layer!r} {dtype} {engine}: gradient of input {i} differs from the reference by {error:.3g}"
    for name, gradient in dparams.items():
        error = _relative(net.parameters()[f"module.{name}"].grad, gradient)
        assert error <= tolerance, f"{layer!r} {dtype} {engine}: gradient of {name} differs from the reference by {error:.3g}"
    for name, a in x.items():
        assert np.array_equal(a, before[name]), f"{layer!r}: the input {name} was changed"
    once = net.grads.copy()
    net.forward(x)
    net.loss(rng.normal(size=y.shape))
    net.backward()
    second = net.grads - once
    net.zero_grad()
    if once.size:
        net.forward(x)
        net.loss(np.random.default_rng(seed).normal(size=y.shape))
    assert np.any(second != 0) or not np.any(once != 0), f"{layer!r}: a second backward did not add to the gradients"


def _window_gradient(net: Network, x, y, weight, pieces) -> tuple[np.ndarray, float]:
    acc = Accumulator(net)
    accumulate(acc, x, y, weight, pieces)
    loss = acc.loss_sum
    acc.normalize()
    return net.grads.copy(), loss


def check_split(module: Module, input_shape=None, *, inputs=None, loss: Loss | None = None, x=None, y=None, weight=None, samples: int = 7,
                splits=None, updates: int = 3, dtypes=("float32", "float64"), threads=(1, 2), seed: int = 0, **plan_options) -> None:
    """Trains with AdamW for a few updates with every split, way (update, stages, by hand) and thread count: all parameters, losses and
    gradient norms must be equal, bit for bit.

    Raises:
        AssertionError: names the split, the way, the parameter, and how far it is off; for a network with layers that mix samples, that
            they cannot keep the promise, and their names.
    """
    shapes = _shapes(input_shape, inputs)
    before = _core.get_num_threads()
    try:
        for dtype in dtypes:
            rng, first = np.random.default_rng(seed), None
            for number in threads:
                _core.set_num_threads(number)
                for i, split in enumerate(splits or default_splits(samples, seed)):
                    way = ("update", "stages", "by hand")[i % 3]
                    net = plan(module, inputs=shapes, loss=loss or nn.MSELoss(), micro_batch=max(pieces_of(samples, split)), dtype=dtype, seed=seed,
                               **plan_options)
                    if x is None:
                        x = _draw(net, samples, rng)
                    if y is None:
                        y = _target(net, samples, rng)
                    named = {name: np.asarray(a) for name, a in zip(net._inputs, net._as_inputs(x))}
                    result = _train(net, named, np.asarray(y), weight, pieces_of(samples, split), way if isinstance(split, int) else "by hand", updates)
                    if first is None:
                        first = result
                        continue
                    for name, value in result.items():
                        if not np.array_equal(value, first[name]):
                            mixing = [n.name for n in net.nodes if n.mixes_samples]
                            why = f"; {', '.join(mixing)} mix the samples of a micro-batch and cannot keep this promise" if mixing else ""
                            raise AssertionError(f"{dtype}, {number} threads, split {split}, {way}: {name} differs by "
                                                 f"{np.abs(np.asarray(value) - first[name]).max():.3g}{why}")
    finally:
        _core.set_num_threads(before)


def _train(net, x, y, weight, pieces, way, updates) -> dict:
    opt = optim.AdamW(net, lr=1e-2, weight_decay=0.1)
    acc = Accumulator(net, opt, max_grad_norm=0.5)
    for k in range(updates):
        if way == "update":
            acc.update(x, y, weight)
        elif way == "stages":
            for _ in acc.stages(x, y, weight):
                pass
        else:
            accumulate(acc, x, y, weight, pieces)
            acc.normalize()
            acc.clip()
            opt.step()
            acc.clear()
    return {"loss": acc.last_update.loss, "grad_norm": acc.last_update.grad_norm, **{n: p.data.copy() for n, p in net.parameters().items()}}


def check_layer(layer: Module, input_shape=None, *, inputs=None, samples: int = 5, seed: int = 0, probe: bool = True,
                against_reference: bool = True, smooth: bool = True) -> None:
    """Everything a layer promises.

    1. forward and backward equal the NumPy reference (float64 to 1e-12, float32 to 1e-5, both engines), and change no input
    2. finite differences in float64 (below 1e-7) for all parameters and inputs
    3. a second backward adds
    4. every split gives the same bits, on 1 and 2 threads (unless the layer says that it mixes samples)
    5. samples of weight 0 leave the gradients as they are, bit for bit
    6. nothing is written beyond the planned memory

    Args:
        layer, input_shape, inputs: as for ``ga.plan``.
        probe: False if the inputs are integers.
        against_reference: False for layers without a NumPy twin (an ``nn.Function`` is its own).
        smooth: False leaves finite differences out (functions with jumps in their slope at the drawn points).
    """
    shapes = _shapes(input_shape, inputs)
    if against_reference:
        for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
            for engine in ("native", "openblas") if _core.blas_name() else ("native",):
                _against_reference(layer, shapes, dtype, engine, samples, seed, tolerance, probe)
                _against_reference(layer, shapes, dtype, engine, 1, seed + 1, tolerance, probe)
    if smooth:
        gradcheck(layer, inputs=shapes, seed=seed, probe=probe)
    body = nn.Sequential(_Probe(next(iter(shapes.values()))), layer) if probe and len(shapes) == 1 else layer
    net = plan(body, inputs=shapes, loss=nn.MSELoss(), micro_batch=samples, seed=seed)
    rng = np.random.default_rng(seed)
    x, y = _draw(net, samples, rng), _target(net, samples, rng)
    if not any(node.mixes_samples for node in net.nodes):
        if net.params.size:
            check_split(body, inputs=shapes, samples=samples, seed=seed)
        weight = np.ones(samples)
        weight[-2:] = 0
        if samples > 2:
            kept = {name: a[:-2] for name, a in x.items()}
            full, _ = _window_gradient(net, x, y, weight, [samples])
            part, _ = _window_gradient(net, kept, y[:-2], None, [samples - 2])
            assert np.array_equal(full, part), f"{layer!r}: samples of weight 0 changed the gradients"
    assert net._core.guards_intact(), f"{layer!r}: memory beyond the plan was written"


def check_loss(loss: Loss, prediction_shape, *, samples: int = 5, seed: int = 0, target=None, weights=True) -> None:
    """A loss against its NumPy reference (sums, weights and gradient; both precisions), finite differences, and splits.

    Args:
        loss, prediction_shape: the loss, and the shape of one prediction.
        target: ``target(rng, shape, classes)`` instead of a random one.
        weights: also with weights per sample and per element.
    """
    shape = tuple(prediction_shape)
    forward, backward = getattr(reference, f"{loss.kind}_forward"), getattr(reference, f"{loss.kind}_backward")
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5)):
        for n in (samples, 1):
            rng = np.random.default_rng(seed)
            net = plan(_Probed(nn.Identity(), [shape], True), inputs={"x": shape}, loss=loss, micro_batch=n, dtype=dtype, keep="all")
            x = rng.normal(size=(n, *shape)).astype(dtype)
            y = _target(net, n, rng) if target is None else target(rng, (n, *net._core.target()[0]))
            y = y if y.dtype.kind == "i" else y.astype(dtype)
            for weight in [None, rng.random(n), rng.random(y.shape)] if weights else [None]:
                if weight is not None:
                    weight.reshape(-1)[0] = 0
                arguments = {k: v for k, v in vars(loss).items() if k in inspect.signature(forward).parameters and v is not None}
                (losses, totals), saved = forward(x, y, sample_weight=weight, **arguments)
                net.forward(x)
                net.loss(y, weight)
                got = net.sample_losses()
                assert _relative(got[0], losses) <= tolerance, f"{loss!r} {dtype}: the losses differ from the reference"
                assert _relative(got[1], totals) <= tolerance, f"{loss!r} {dtype}: the weights differ from the reference"
                if totals.sum() > 0:
                    net.backward()
                    error = _relative(net.node("module").output_grad, backward(saved))
                    assert error <= tolerance, f"{loss!r} {dtype}: the gradient differs from the reference by {error:.3g}"
                    net.zero_grad()
                if dtype == "float64" and n > 1:
                    gradcheck(nn.Identity(), shape, loss=loss, samples=n, x=x, y=y, weight=weight)
    module = nn.Sequential(nn.Linear(4, shape[-1])) if len(shape) == 1 else _Probe(shape)
    inputs = (4,) if len(shape) == 1 else shape
    rng = np.random.default_rng(seed)
    net = plan(module, input_shape=inputs, loss=loss, micro_batch=7)
    y = _target(net, 7, rng) if target is None else target(rng, (7, *net._core.target()[0]))
    check_split(module, inputs, loss=loss, y=y, weight=rng.random(7))
