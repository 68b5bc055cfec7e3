"""Checkers of lessons 0 to 2: shapes and counts, the gradient by hand, the gradient checked."""
from __future__ import annotations

import inspect

import numpy as np

from .. import models, nn, plan, testing
from ..data import digits
from .result import NotDone, call, exercise, near, numbers, require

# What the exercise bias_gradient is about: probabilities of two samples over three classes, and their labels.
PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
LABELS = np.array([0, 1])


# ---- lesson 0 ----

@exercise("batch_shape")
def check_batch_shape(answer):
    """``batch_shape``: the shape of the output of a 64-128-10 network for a micro-batch of 20 images."""
    net = plan(models.mlp(64, 128, 10), input_shape=(64,), micro_batch=20)
    shape = net.forward(digits()[0][:20]).shape
    given = tuple(int(n) for n in numbers(answer, (2,), "batch_shape"))
    require(given != (20, 64), "(20, 64) is the shape of what goes in; the last layer makes 10 numbers of each image.")
    require(given != (10, 20), "The samples are the first axis, the classes the second.")
    require(given == shape, f"You say {given}: the first number is the images of the micro-batch, the second the classes.")
    return "One row an image, one column a class."


@exercise("updates_per_epoch")
def check_updates_per_epoch(answer):
    """``updates_per_epoch``: updates in one pass over 1,437 images with micro-batches of 32 and accumulation_steps=4; the tail is flushed."""
    n = numbers(answer, (), "updates_per_epoch")
    require(n != 45, "45 is the number of micro-batches; an update happens after every fourth.")
    require(n != 11, "11 windows are full, and the images that are left over make one more update: acc.flush().")
    require(not near(n, 1437 / 128), "An update happens or does not: round up, because the last, short window counts too.")
    require(n == 12, f"{n:g} updates: count the micro-batches of 32 (the last one is short), then the windows of 4 (the last one may be short).")
    return "45 micro-batches: 11 full windows, and the last one alone is flushed."


# ---- lesson 1 ----

@exercise("bias_gradient")
def check_bias_gradient(answer):
    """``bias_gradient``: gradient of the loss SUM with respect to the three biases of the last layer, for PROBABILITIES and LABELS."""
    right = PROBABILITIES.sum(axis=0) - np.bincount(LABELS, minlength=3)
    given = numbers(answer, (3,), "bias_gradient")
    require(not near(given, PROBABILITIES.sum(axis=0)), "These are the summed probabilities; subtract 1 at the true class of each sample.")
    require(not near(given, -right), "The sign is turned round: probability minus one-hot label, not label minus probability.")
    require(not near(given, right / 2), "You divided by 2, the number of samples. A backward gives the gradient of the loss SUM; the window divides later.")
    require(near(given, right), "For each sample write probability minus 1 at the true class, probability elsewhere; then add the two rows.")
    return "Probability minus one-hot label, summed over the samples. It adds up to 0: what one class gains the others lose."


@exercise("which_stage")
def check_which_stage(answer):
    """``which_stage``: dict from "activations", "net.grads", "parameters" to the stage that fills it."""
    right = {"activations": "forward", "net.grads": "backward", "parameters": "update"}
    require(isinstance(answer, dict) and set(answer) == set(right), f"Keep the three names {', '.join(right)}, each with the name of a stage.")
    if any(stage is ... for stage in answer.values()):
        raise NotDone
    for block, stage in right.items():
        require(answer[block] == stage, f"{block}: not {answer[block]!r}; look for {block!r} in the column \"changed\" of the table.")
    return "Forward fills activations, backward adds gradients, and only the update touches parameters."


# ---- lesson 2 ----

def _probe(module, what):
    """The learner's layer, or Wrong."""
    layer = module() if inspect.isclass(module) else module
    require(isinstance(layer, nn.Function), f"Give the class {what}, a subclass of nn.Function.")
    if layer.forward.__func__ is nn.Function.forward:
        raise NotDone
    return layer


def _gradient_error(layer, features: int) -> str | None:
    try:
        testing.gradcheck(layer, (features,))
    except AssertionError as error:
        return str(error)
    return None


@exercise("SquaredReLU")
def check_squared_relu(answer):
    """``SquaredReLU``: forward max(x, 0)², and a backward that is its derivative."""
    layer = call(_probe, answer, "SquaredReLU")
    x = np.array([[-2.0, -0.5, 0.5, 1.0, 3.0]])
    require(near(call(layer.forward, x), [[0, 0, 0.25, 1, 9]]), "forward shall stay as it is: max(x, 0) squared. The bug is in backward.")
    back = np.asarray(call(layer.backward, np.full_like(x, 10.0)))
    require(back.shape == x.shape, f"backward returned shape {back.shape}, expected that of x, {x.shape}.")
    require(not near(back, [[0, 0, 5, 10, 30]]), "The derivative of r² is 2 r: the factor 2 is missing.")
    require(not near(back, [[0, 0, 1, 2, 6]]), "backward must multiply by grad, what comes back from the layers behind it (chain rule).")
    error = call(_gradient_error, layer, 5)
    require(error is None, error)
    return "Finite differences agree."


@exercise("Scale")
def check_scale(answer):
    """``Scale``: a layer x * scale with one learned scale a feature, whose gradient is added to, not overwritten."""
    layer = call(_probe, answer, "Scale")
    net = call(lambda: plan(nn.Sequential(layer), input_shape=(3,), loss=nn.L1Loss(), micro_batch=2, dtype="float64"))
    x, far = np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]), np.full((2, 3), -1e6)
    seen = []
    for row in (slice(0, 1), slice(1, 2)):
        call(lambda row=row: (net.forward(x[row]), net.loss(far[row]), net.backward()))
        seen.append(net.grads.copy())
    require(seen[0].shape == (3,), "Keep one parameter, self.scale = nn.Parameter((3,)).")
    require(not near(seen[1], x[1]), "After two micro-batches only the second one is left in scale.grad: write += instead of =. A plain gradient check "
            "never notices, because it runs one backward.")
    require(near(seen[0], x[0]) and near(seen[1], x.sum(axis=0)), f"Two micro-batches with gradients {x[0]} and {x[1]} left {seen[1]} in scale.grad, "
            f"expected their sum {x.sum(axis=0)}.")
    error = call(_gradient_error, _probe(answer, "Scale"), 3)
    require(error is None, error)
    return "Two backwards add: this layer can be accumulated."


__all__ = ["LABELS", "PROBABILITIES", *(name for name in list(globals()) if name.startswith("check_"))]
