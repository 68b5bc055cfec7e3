"""Losses that couple the samples of a batch, and the two-pass way to accumulate them.

A contrastive loss compares every sample with all others of the batch. Accumulation adds the losses of micro-batches, and a sum over micro-batches
has no term for two samples that are in different ones: 2 x 2 is another loss than 1 x 4, with fewer negatives. No divisor repairs that, so such a
loss is refused in ``ga.plan``. What is exact is gradient caching (GradCache; Gao, Zhang, Han, Callan 2021, arXiv:2101.06983):

    1. forward of all micro-batches, keeping their embeddings only: n rows, no activations
    2. the loss of all embeddings, and its gradient with respect to each of them
    3. forward of each micro-batch again, and backward from its rows of that gradient, added up in the window; one update

By the chain rule this is the gradient of the full batch. Example::

    net = ga.plan(encoder, input_shape=(64,), loss=nn.DotProductLoss(), micro_batch=32)
    acc = ga.Accumulator(net, optim.AdamW(net), reduction="sum")
    update = ga.losses.cached(acc, (x1, x2), loss=ga.losses.InfoNCE(temperature=0.1))     # pairs, through one encoder
"""
from __future__ import annotations

import math
import time
from typing import Callable

import numpy as np

from ._undo import Undo, layer_state, set_layer_state
from .accumulator import Accumulator, Update

__all__ = ["InfoNCE", "cached"]


class InfoNCE:
    """Contrastive loss with the other pairs of the batch as negatives (van den Oord, Li, Vinyals 2018, arXiv:1807.03748, eq. 4).

    Called with embeddings a and b, (n, d): row i of both belong together. With s_ij = a_i·b_j / temperature,

        loss = mean over i of -log(exp(s_ii) / Σ_j exp(s_ij))          and if symmetric the mean of this and that of sᵀ

    Args:
        temperature: above 0.
        normalize: rows are divided by their length first, so that a_i·b_j is their cosine. A row of zeros is refused.
        symmetric: also from b to a (CLIP; Radford et al. 2021, arXiv:2103.00020). False is that of DPR and MoCo.

    Returns, when called: (loss, (gradient of a, gradient of b)), in float64.

    It couples samples, so it is no loss for ``ga.plan``: use ``ga.losses.cached``.
    """

    couples_samples = True

    def __init__(self, temperature: float = 0.07, normalize: bool = True, symmetric: bool = False):
        if isinstance(temperature, bool) or not isinstance(temperature, (int, float, np.number)) or not 0 < temperature < math.inf:
            raise ValueError(f"InfoNCE: temperature={temperature!r}, expected a finite number above 0")
        self.temperature, self.normalize, self.symmetric = float(temperature), bool(normalize), bool(symmetric)

    def __call__(self, a, b=None) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
        if b is None:
            raise ValueError("InfoNCE: got one set of embeddings, expected pairs; give cached(acc, (x1, x2), loss=...), two views of the same samples")
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.ndim != 2 or a.shape != b.shape:
            raise ValueError(f"InfoNCE: embeddings have shapes {a.shape} and {b.shape}, expected (n, d) of both")
        if not self.normalize:
            value, da, db = self._of_scores(a, b)
            return value, (da, db)
        sizes = [np.sqrt(np.square(e).sum(axis=1, keepdims=True)) for e in (a, b)]
        if any((size == 0).any() for size in sizes):
            raise ValueError("InfoNCE: an embedding is 0 and has no direction; normalize=False takes the rows as they are")
        a, b = a / sizes[0], b / sizes[1]
        value, da, db = self._of_scores(a, b)
        # of e / |e|: the part of the gradient across e, over its length
        return value, tuple((d - (d * e).sum(axis=1, keepdims=True) * e) / size for d, e, size in ((da, a, sizes[0]), (db, b, sizes[1])))

    def _of_scores(self, a, b):
        s = a @ b.T / self.temperature
        value, ds = _softmax_loss(s)
        if self.symmetric:
            other, dt = _softmax_loss(s.T)
            value, ds = (value + other) / 2, (ds + dt.T) / 2
        return value, ds @ b / self.temperature, ds.T @ a / self.temperature

    def __repr__(self):
        return f"InfoNCE(temperature={self.temperature:g}, normalize={self.normalize}, symmetric={self.symmetric})"


def _softmax_loss(s: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean cross entropy of rows of scores, the right one on the diagonal, and its gradient."""
    n = len(s)
    shifted = s - s.max(axis=1, keepdims=True)
    p = np.exp(shifted)
    total = p.sum(axis=1, keepdims=True)
    value = float((np.log(total[:, 0]) - np.diagonal(shifted)).mean())
    p /= total
    p[np.arange(n), np.arange(n)] -= 1
    return value, p / n


def cached(acc: Accumulator, x, *, loss: Callable) -> Update:
    """One window with a loss that couples its samples: the exact update of the full batch, with the memory of a micro-batch.

    The same bits for every split. Dropout masks are equal in both passes; running statistics are counted once. All options of the Accumulator
    work: clipping, schedule, loss scale, moving average. Beside ``net.memory`` there are the embeddings and their gradient.

    Args:
        acc: made with reduction="sum", on a network planned with loss=nn.DotProductLoss(), whose output are the embeddings.
        x: samples (n, ...), or a tuple of views, such as (x1, x2), which all go through the network and are given to the loss side by side. For a
            network of several inputs a view is a dict.
        loss: a callable ``loss(embeddings) -> (value, gradient)``, of several views ``loss(e1, e2) -> (value, (gradient1, gradient2))``; arrays in
            float64. Nothing is divided afterwards: a mean is the loss's own. ``InfoNCE()``, or your own.

    Returns:
        The record. ``loss`` is the value, ``samples``, ``weight`` and ``micro_steps`` count all views, ``micro_losses`` is empty: a micro-batch has no
        loss of its own.

    Raises:
        ValueError: wrong Accumulator, network, shapes or gradient. StageError: the window holds something. After an error all is as it was.
    """
    net = _checked(acc)
    views = list(x) if isinstance(x, tuple) else [x]
    if not views:
        raise ValueError("cached: x is empty, expected samples or a tuple of views")
    arrays = [np.asarray(net._as_inputs(view)[0]) for view in views]
    micro_batches, ends = [], []                             # of all views, one after the other
    for view, first in zip(views, arrays):
        size = len(first) if first.ndim else 0
        micro_batches += acc._cut("cached", view, np.empty(size), None)
        ends.append(ends[-1] + size if ends else size)
    limit = acc._limit("cached", np.empty(ends[-1]))
    if limit and len(micro_batches) > limit:
        raise ValueError(f"cached: {ends[-1]} samples in micro-batches of {acc.micro_batch} are {len(micro_batches)} micro-batches, but accumulation_steps "
                         f"is {limit}")
    net._before()
    acc._started = time.perf_counter()
    undo = Undo(acc)
    try:
        value, gradient = _embed(acc, undo, micro_batches, ends, loss)
        start = 0
        for inputs, rows, _ in micro_batches:
            acc._core.add(inputs, gradient[start:start + len(rows)], None)
            start += len(rows)
        record = acc._finish()
    except BaseException:
        undo()
        raise
    record.loss = value
    return record


def _checked(acc):
    if not isinstance(acc, Accumulator):
        raise TypeError(f"cached: acc is of type {type(acc).__name__}, expected an Accumulator")
    if acc.optimizer is not None and acc.optimizer._own_update:
        raise ValueError(f"cached: {type(acc.optimizer).__name__} runs windows in its own way; use SGD, Adam or AdamW")
    acc._need_optimizer("cached")
    if acc.net._loss.kind != "dot_product_loss":
        raise ValueError(f"cached: the network was planned with loss={type(acc.net._loss).__name__}; the gradient of the embeddings comes from here, so plan "
                         "it with loss=nn.DotProductLoss()")
    if acc.reduction != "sum":
        raise ValueError(f"cached: reduction={acc.reduction!r}, but the loss over all embeddings has its mean already; make the Accumulator with "
                         'reduction="sum"')
    if acc.noise_scale is not None:
        raise ValueError("cached: noise_scale compares gradients of micro-batches, and here each depends on all others; make the Accumulator without it")
    return acc.net


def _embed(acc, undo: Undo, micro_batches, ends, loss) -> tuple[float, np.ndarray]:
    """First pass: value of the loss, and its gradient for all embeddings, in the network's dtype."""
    net, parts, layers, seen = acc.net, [], layer_state(acc.net), 0
    for inputs, rows, _ in micro_batches:
        undo.next_sample(seen)
        net._core.forward(inputs)
        parts.append(net._prediction().copy())
        seen += len(rows)
    undo.empty()
    set_layer_state(net, layers)
    embeddings = np.concatenate(parts)
    views = np.split(embeddings.astype(np.float64), ends[:-1])
    value, gradients = _called(loss, views)
    gradient = np.concatenate([g.astype(net.dtype) for g in gradients])
    return value, gradient


def _called(loss, views) -> tuple[float, list[np.ndarray]]:
    result = loss(*views)
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"cached: loss returned {type(result).__name__}, expected (value, gradient)")
    value, gradients = result
    gradients = [gradients] if len(views) == 1 and not isinstance(gradients, (tuple, list)) else gradients
    if not isinstance(gradients, (tuple, list)) or len(gradients) != len(views):
        raise ValueError(f"cached: loss must return one gradient for each of the {len(views)} views, (value, (g1, g2))")
    gradients = [np.asarray(g) for g in gradients]
    for i, (g, e) in enumerate(zip(gradients, views)):
        if g.shape != e.shape or g.dtype.kind not in "fiu":
            raise ValueError(f"cached: the gradient of view {i} has shape {g.shape} and dtype {g.dtype}, expected real numbers of the embeddings' shape "
                             f"{e.shape}")
    if np.ndim(value) != 0:
        raise ValueError(f"cached: the loss's value has shape {np.shape(value)}, expected one number")
    return float(value), gradients
