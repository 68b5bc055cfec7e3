"""One step of SGD, Adam and AdamW, as in torch.optim. ``state`` is a dict, {} before the first step; a new one is returned."""
import numpy as np


def sgd_step(param, grad, state, *, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):
    """g += λ p;  v ← μ v + (1 - dampening) g (first time v = g);  p ← p - lr v, or with nesterov p - lr (g + μ v)."""
    grad = grad + weight_decay * param
    if momentum:
        v = state["momentum_buffer"] * momentum + (1 - dampening) * grad if state else grad
        state = {"momentum_buffer": v}
        grad = grad + momentum * v if nesterov else v
    return param - lr * grad, state


def adam_step(param, grad, state, *, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False):
    """Kingma, Ba 2015, algorithm 1; amsgrad: Reddi, Kale, Kumar 2018. The decay is part of the gradient."""
    return _adam(param, grad + weight_decay * param, state, lr, betas, eps, amsgrad)


def adamw_step(param, grad, state, *, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False):
    """Loshchilov, Hutter 2019: the decay shrinks the parameter instead."""
    return _adam(param * (1 - lr * weight_decay), grad, state, lr, betas, eps, amsgrad)


def _adam(param, grad, state, lr, betas, eps, amsgrad):
    zero = np.zeros_like(param)
    t = state.get("step", 0) + 1
    m = betas[0] * state.get("exp_avg", zero) + (1 - betas[0]) * grad
    v = betas[1] * state.get("exp_avg_sq", zero) + (1 - betas[1]) * grad * grad
    new = {"step": t, "exp_avg": m, "exp_avg_sq": v}
    second = v
    if amsgrad:
        second = new["max_exp_avg_sq"] = np.maximum(state.get("max_exp_avg_sq", zero), v)
    m_hat, v_hat = m / (1 - betas[0] ** t), second / (1 - betas[1] ** t)
    return param - lr * m_hat / (np.sqrt(v_hat) + eps), new


def clip_grad_norm(grads, max_norm):
    """All gradients times min(1, max_norm / (norm + 1e-6)), with the norm over all of them together (torch.nn.utils)."""
    norm = float(np.sqrt(sum(np.square(g, dtype=np.float64).sum() for g in grads)))
    factor = min(1.0, max_norm / (norm + 1e-6))
    return [g * factor for g in grads], norm
