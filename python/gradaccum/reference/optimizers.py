"""One step of SGD, Adam and AdamW, as torch.optim's, of AdamA, and gradient clipping.

All are pure functions: ``new_param, new_state = step(param, grad, state, ...)``. ``state`` is a
dict, {} before the first step; nothing is changed in place. ``grad`` is the gradient of the mean
loss: after accumulation, what ``window`` returns, clipped or not.

SGD walks down the slope. With momentum μ it keeps a running sum v of gradients:

    g = grad + λ param                                λ: weight decay, gradient of λ/2 |param|²
    v ← g the first time, then μ v + (1 - dampening) g
    param ← param - lr v                              nesterov: lr (g + μ v), one step ahead

Adam (Kingma, Ba 2015, arXiv:1412.6980, algorithm 1) divides by the usual size of each gradient. In
update t:

    m ← β₁ m + (1 - β₁) g,    v ← β₂ v + (1 - β₂) g²  running means of g and g², from 0
    m̂ = m / (1 - β₁ᵗ),        v̂ = v / (1 - β₂ᵗ)       since Σ (1 - β) βⁱ over i < t is 1 - βᵗ
    param ← param - lr m̂ / (√v̂ + ε)

amsgrad takes the largest v so far instead of v (Reddi, Kale, Kumar 2018). In Adam λ param is part
of g, so it is divided by √v̂ as well. AdamW (Loshchilov, Hutter 2019, arXiv:1711.05101) shrinks the
parameter by itself, param ← (1 - lr λ) param, before the step.

AdamA (Zhang et al. 2023, arXiv:2305.19982) lets m and v take each micro-batch at once, so that no
buffer of the window is needed. Of K micro-batches with mean gradients g_1 ... g_K

    m ← β₁ m + (1 - β₁) Σ g_i / K        as Adam: (Σ g_i) / K is the mean of the window
    v ← β₂ v + (1 - β₂) Σ (g_i / K)²     not Adam's (Σ g_i / K)²: 2 Σ_{i<j} g_i g_j / K² is missing

Gradients +1 and -1 are nothing to Adam: its v gets 0, that of AdamA (1 - β₂) / 2.
"""
import math

import numpy as np


def sgd_step(param, grad, state, *, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0,
             nesterov=False):
    """torch.optim.SGD. State: ``momentum_buffer``."""
    g = grad + weight_decay * param
    if momentum:
        if "momentum_buffer" in state:
            v = momentum * state["momentum_buffer"] + (1 - dampening) * g
        else:
            v = g
        state = {"momentum_buffer": v}
        g = g + momentum * v if nesterov else v
    return param - lr * g, state


def adam_step(param, grad, state, *, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0,
              amsgrad=False):
    """torch.optim.Adam. State: ``step``, ``exp_avg``, ``exp_avg_sq`` (``max_exp_avg_sq``)."""
    return _adam(param, grad + weight_decay * param, state, lr, betas, eps, amsgrad)


def adamw_step(param, grad, state, *, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2,
               amsgrad=False):
    """torch.optim.AdamW. State as Adam's."""
    return _adam(param * (1 - lr * weight_decay), grad, state, lr, betas, eps, amsgrad)


def adama_step(param, grads, state, *, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
    """AdamA from the mean gradients of the K micro-batches of a window. State as Adam's."""
    beta1, beta2 = betas
    zero = np.zeros_like(param)
    t = state.get("step", 0) + 1
    m, v = beta1 * state.get("exp_avg", zero), beta2 * state.get("exp_avg_sq", zero)
    for g in grads:
        m = m + (1 - beta1) * (g / len(grads))
        v = v + (1 - beta2) * (g / len(grads)) ** 2
    m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
    return param - lr * m_hat / (np.sqrt(v_hat) + eps), {"step": t, "exp_avg": m, "exp_avg_sq": v}


def _adam(param, g, state, lr, betas, eps, amsgrad):
    beta1, beta2 = betas
    zero = np.zeros_like(param)
    t = state.get("step", 0) + 1
    m = beta1 * state.get("exp_avg", zero) + (1 - beta1) * g
    v = beta2 * state.get("exp_avg_sq", zero) + (1 - beta2) * g * g
    new = {"step": t, "exp_avg": m, "exp_avg_sq": v}
    if amsgrad:
        v = new["max_exp_avg_sq"] = np.maximum(state.get("max_exp_avg_sq", zero), v)
    m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
    return param - lr * m_hat / (np.sqrt(v_hat) + eps), new


def clip_grad_norm(grads, max_norm):
    """(clipped gradients, norm before): torch.nn.utils.clip_grad_norm_.

    ``grads`` is a list of arrays. The norm is over all of them together, in float64; all are
    multiplied by min(1, max_norm / (norm + 1e-6)), so the direction stays. A nan makes all nan.
    """
    norm = math.sqrt(sum(float(np.square(g, dtype=np.float64).sum()) for g in grads))
    factor = float(np.minimum(1.0, max_norm / (norm + 1e-6)))
    return [g * factor for g in grads], norm
