"""The formula of each stage, once with names and once with the numbers of one element of the window.

Sources: the window, ``csrc/core/window.c``; optimizers, ``gradaccum.reference.optimizers`` (PyTorch's formulas).
"""
from __future__ import annotations

from dataclasses import dataclass, field

LOSSES = {
    "cross_entropy_loss": "loss_sum = Σ −log p(target)",
    "mse_loss": "loss_sum = Σ (output − target)²",
    "l1_loss": "loss_sum = Σ |output − target|",
    "bce_with_logits_loss": "loss_sum = Σ −log p(target)",
}


def number(v: float) -> str:
    """Five digits, with a real minus sign."""
    return f"{v:.5g}".replace("-", "−")


def _term(v: float) -> str:
    """For the second place of a sum: negative numbers in brackets."""
    return number(v) if v >= 0 else f"({number(v)})"


@dataclass
class Element:
    """One element of one parameter, before and after a stage.

    Attributes:
        w, grad, buffer: parameter, ``net.grads``, ``acc.buffer`` (the same as grad unless staged).
        state: of the optimizer, by its names.
    """

    w: float
    grad: float
    buffer: float
    state: dict[str, float] = field(default_factory=dict)


def divisor(acc) -> tuple[str, float]:
    """What the window divides by: its name and number."""
    name, value = {"mean": ("weight_sum", acc.weight_sum), "sum": ("1", 1.0),
                   "mean_of_means": ("micro_batches", float(acc.micro_step - acc._core.get_state()["rejected"]))}[acc.reduction]
    if acc.loss_scale is not None:
        name, value = f"({name} · loss_scale)", value * acc.loss_scale
    return name, value


def loss(kind: str, options: dict, loss_sum: float, weight: float) -> list[tuple[str, str]]:
    """Of the loss layer ``kind``; class weights and smoothing put weights into the sum, which then keeps its general form."""
    plain = kind in LOSSES and not any(options.get(name) for name in ("has_weight", "has_pos_weight", "label_smoothing", "per_sample"))
    mean = number(loss_sum / weight) if weight > 0 else "no weight"
    return [(LOSSES[kind] if plain else "loss_sum = Σ weight · loss(output, target)", f"loss_sum = {number(loss_sum)}"),
            ("mean = loss_sum / weight", f"{number(loss_sum)} / {number(weight)} = {mean}")]


def backward(acc, before: Element, after: Element) -> list[tuple[str, str]]:
    what = "∂(loss_sum / weight)/∂w" if acc.reduction == "mean_of_means" else "∂loss_sum/∂w"
    if acc.loss_scale is not None:
        what = f"loss_scale · {what}"
    if acc.staged:
        return [(f"grad = {what}", f"grad = {number(after.grad)}")]
    return [(f"buffer += {what}", f"{number(before.buffer)} + {_term(after.buffer - before.buffer)} = {number(after.buffer)}")]


def accumulate(acc, before: Element, after: Element, sums_before: tuple[float, float], rejected: bool) -> list[tuple[str, str]]:
    lines = []
    if acc.staged:
        added = 0.0 if rejected else after.grad
        lines.append(("buffer += grad", f"{number(before.buffer)} + {_term(added)} = {number(after.buffer)}"))
    for name, old, new in (("weight", sums_before[1], acc.weight_sum), ("loss", sums_before[0], acc.loss_sum)):
        lines.append((f"{name}_sum += {name if name == 'weight' else 'loss_sum of the micro-batch'}",
                      f"{number(old)} + {_term(new - old)} = {number(new)}"))
    return lines


def normalize(acc, before: Element, after: Element) -> list[tuple[str, str]]:
    name, value = divisor(acc)
    left = "grad = buffer" if acc.staged else "buffer = buffer"
    return [(f"{left} / {name}", f"{number(before.buffer)} / {number(value)} = {number(after.grad)}")]


def clip(acc, before: Element, after: Element, norm: float) -> list[tuple[str, str]]:
    limit, name = acc.max_grad_norm, "grad" if acc.staged else "buffer"
    factor = min(1.0, limit / (norm + 1e-6))                 # torch.nn.utils.clip_grad_norm_
    return [("factor = min(1, max_grad_norm / (norm + 1e-6))", f"min(1, {number(limit)} / {number(norm)}) = {number(factor)}"),
            (f"{name} = factor · {name}", f"{number(factor)} · {_term(before.grad)} = {number(after.grad)}")]


def update(optimizer, group: dict, t: int, before: Element, after: Element) -> list[tuple[str, str]]:
    """Lines of SGD, Adam and AdamW; of any other optimizer what it did to the number."""
    kind, g, n, lr = type(optimizer).__name__, before.grad, number, group["lr"]
    lines = []
    if kind == "SGD":
        decay, momentum = group["weight_decay"], group["momentum"]
        if decay:
            lines.append(("g = grad + weight_decay · w", f"{n(g)} + {n(decay)} · {_term(before.w)} = {n(g + decay * before.w)}"))
            g += decay * before.w
        if momentum:
            old, m, keep = before.state["momentum_buffer"], after.state["momentum_buffer"], 1 - group["dampening"]
            if t == 1:
                lines.append(("m = g", f"m = {n(m)}"))
            else:
                lines.append(("m = momentum · m + (1 − dampening) · g", f"{n(momentum)} · {_term(old)} + {n(keep)} · {_term(g)} = {n(m)}"))
            if group["nesterov"]:
                lines.append(("g = g + momentum · m", f"{n(g)} + {n(momentum)} · {_term(m)} = {n(g + momentum * m)}"))
                g += momentum * m
            else:
                g = m
        name = "m" if momentum and not group["nesterov"] else "g"
        return lines + [(f"w = w − lr · {name}", f"{n(before.w)} − {n(lr)} · {_term(g)} = {n(after.w)}")]
    if kind in ("Adam", "AdamW"):
        decay, (b1, b2), eps, w = group["weight_decay"], group["betas"], group["eps"], before.w
        if decay and kind == "AdamW":
            lines.append(("w = w · (1 − lr · weight_decay)", f"{n(w)} · (1 − {n(lr)} · {n(decay)}) = {n(w * (1 - lr * decay))}"))
            w *= 1 - lr * decay
        elif decay:
            lines.append(("g = grad + weight_decay · w", f"{n(g)} + {n(decay)} · {_term(w)} = {n(g + decay * w)}"))
            g += decay * w
        m, v = after.state["exp_avg"], after.state["exp_avg_sq"]
        lines += [("m = β₁ · m + (1 − β₁) · g", f"{n(b1)} · {_term(before.state['exp_avg'])} + {n(1 - b1)} · {_term(g)} = {n(m)}"),
                  ("v = β₂ · v + (1 − β₂) · g²", f"{n(b2)} · {_term(before.state['exp_avg_sq'])} + {n(1 - b2)} · {_term(g)}² = {n(v)}")]
        if group["amsgrad"]:
            lines.append(("v = largest v so far", f"v = {n(after.state['max_exp_avg_sq'])}"))
            v = after.state["max_exp_avg_sq"]
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        lines += [("m̂ = m / (1 − β₁ᵗ),  v̂ = v / (1 − β₂ᵗ)", f"t = {t}:  m̂ = {n(m_hat)},  v̂ = {n(v_hat)}"),
                  ("w = w − lr · m̂ / (√v̂ + ε)", f"{n(w)} − {n(lr)} · {_term(m_hat)} / (√{n(v_hat)} + {n(eps)}) = {n(after.w)}")]
        return lines
    return [("w = w + change", f"{n(before.w)} + {_term(after.w - before.w)} = {n(after.w)}")]


def clear(before: Element, staged: bool) -> list[tuple[str, str]]:
    return [("buffer = 0", f"{number(before.buffer if staged else before.grad)} → 0")]
