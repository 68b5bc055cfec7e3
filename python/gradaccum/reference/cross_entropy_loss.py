"""Cross entropy of logits x with the class y: how surprised the model is by the right answer.

For each target element, with p = softmax(x):

    p_c = exp(x_c) / Σ_j exp(x_j)                 -log p_c = log Σ_j exp(x_j) - x_c
    l   = (1 - e) w_y (-log p_y) + e / C Σ_c w_c (-log p_c)              weight of the element: w_y

w: class weights; e: label smoothing, which takes the share e from the right class and divides it
among all C (Szegedy et al. 2016). Targets equal to ``ignore_index`` have loss 0 and weight 0.

Backward: d(-log p_c)/dx_k = p_k - [k = c], since d/dx_k of log Σ_j exp(x_j) is p_k. So

    dl/dx_k = (1 - e) w_y (p_k - [k = y]) + e / C (p_k Σ_c w_c - w_k)

and without weights and smoothing simply p - one-hot(y): what was said minus what is true.

As torch.nn.CrossEntropyLoss with reduction="sum", per sample. Its mean is Σ l / Σ w_y, which only
the window can take: the mean of several micro-batches' means is not the mean of all (see
``window``).
"""
import numpy as np

from ._losses import element_weights, first_index, per_element, per_sample_sums


def cross_entropy_loss_forward(x, target, *, sample_weight=None, per="element", weight=None,
                               ignore_index=-100, label_smoothing=0.0):
    """x (n, C), (n, T, C) or (n, C, H, W); target of integers (n,), (n, T) or (n, H, W).

    Classes are the last axis; of images, axis 1. ``weight`` is (C,). Returns losses and weights
    (n,) in float64. IndexError for a target that is neither a class nor ``ignore_index``.
    """
    axis = 1 if x.ndim == 4 else -1
    logits = np.moveaxis(x, axis, -1).astype(np.float64)
    classes = logits.shape[-1]
    target = np.asarray(target)
    if target.shape != logits.shape[:-1]:
        raise ValueError(f"cross_entropy_loss: logits {x.shape} have targets of shape "
                         f"{logits.shape[:-1]}, got {target.shape}")
    counted = target != ignore_index
    wrong = counted & ((target < 0) | (target >= classes))
    if wrong.any():
        raise IndexError(f"cross_entropy_loss: target {target[wrong][0]} at {first_index(wrong)}, "
                         f"expected 0 to {classes - 1}, or ignore_index={ignore_index}")
    y = np.where(counted, target, 0)
    class_weight = np.ones(classes) if weight is None else np.asarray(weight, dtype=np.float64)

    shifted = logits - logits.max(axis=-1, keepdims=True)    # exp cannot overflow now
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    log_p_y = np.take_along_axis(log_p, y[..., None], axis=-1)[..., 0]
    right = class_weight[y] * -log_p_y
    smooth = (class_weight * -log_p).sum(axis=-1) / classes

    given, factors = element_weights(sample_weight, target.shape)
    given = given * counted
    losses = given * ((1 - label_smoothing) * right + label_smoothing * smooth)
    loss, total, scale = per_sample_sums(losses, given * class_weight[y], factors, per)
    element_scale = given * per_element(scale, given.ndim)
    return (loss, total), (x.dtype, axis, log_p, y, class_weight, label_smoothing, element_scale)


def cross_entropy_loss_backward(saved):
    dtype, axis, log_p, y, class_weight, e, element_scale = saved
    classes = log_p.shape[-1]
    p, one_hot = np.exp(log_p), np.eye(classes)[y]
    right = class_weight[y][..., None] * (p - one_hot)
    smooth = (p * class_weight.sum() - class_weight) / classes
    d = ((1 - e) * right + e * smooth) * element_scale[..., None]
    return np.moveaxis(d, -1, axis).astype(dtype)
