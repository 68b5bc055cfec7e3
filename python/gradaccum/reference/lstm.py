"""LSTM: read a sequence token by token, with a state h and a memory c.

Hochreiter, Schmidhuber 1997; forget gate f: Gers et al. 2000. One layer, one direction, batch
first, states 0 at the start, PyTorch's order of gates i, f, g, o. ∘ is the product element by
element, σ the sigmoid.

    a_t = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh,   cut into a_i, a_f, a_g, a_o
    i = σ(a_i),   f = σ(a_f),   g = tanh(a_g),   o = σ(a_o)
    c_t = f ∘ c_{t-1} + i ∘ g,   h_t = o ∘ tanh(c_t)

c is a sum: where f ≈ 1, gradients pass through many steps unchanged. Backward walks from the last
step to the first. h_t is used twice, as output y_t and in step t + 1; so is c_t, in h_t and in
step t + 1. With σ' = σ (1 - σ) and tanh' = 1 - tanh²:

    dh = dy_t + (dh from step t + 1),   dc = dh ∘ o ∘ (1 - tanh² c_t) + (dc from step t + 1)
    da = [dc g i(1-i),   dc c_{t-1} f(1-f),   dc i (1-g²),   dh tanh(c_t) o(1-o)]
    to step t - 1:   dc ∘ f   and   da W_hh

a_t is linear in x_t, h_{t-1} and the parameters, the same in all steps. So, as in ``linear``,

    dx_t = da_t W_ih,   db_ih = db_hh = Σ_t da_t
    dW_ih = Σ_t da_tᵀ x_t,   dW_hh = Σ_t da_tᵀ h_{t-1}

A sequence belongs to one sample: micro-batches split between samples, never inside these sums.
"""
import numpy as np

from .activation import logistic
from .linear import linear_backward, linear_forward


def named(d_ih, d_hh):
    """Parameter gradients of the two linear maps under PyTorch's names."""
    return ({f"{name}_ih_l0": gradient for name, gradient in d_ih.items()}
            | {f"{name}_hh_l0": gradient for name, gradient in d_hh.items()})


def one_step_before(h):
    """h_{t-1} for every t: (n, T, H) with a step of zeros in front, the last one gone."""
    return np.concatenate([np.zeros_like(h[:, :1]), h[:, :-1]], axis=1)


def lstm_forward(x, *, weight_ih_l0, weight_hh_l0, bias_ih_l0=None, bias_hh_l0=None):
    """x (n, T, I), weights (4 H, I) and (4 H, H), biases (4 H,) -> all h_t, (n, T, H)."""
    a, saved_ih = linear_forward(x, weight=weight_ih_l0, bias=bias_ih_l0)
    n, length, size = len(x), x.shape[1], weight_hh_l0.shape[1]
    h = c = np.zeros((n, size), dtype=x.dtype)
    hs, cs, gates = [], [], []
    for t in range(length):
        u, _ = linear_forward(h, weight=weight_hh_l0, bias=bias_hh_l0)
        i, f, g, o = np.split(a[:, t] + u, 4, axis=-1)
        i, f, g, o = logistic(i), logistic(f), np.tanh(g), logistic(o)
        c = f * c + i * g
        h = o * np.tanh(c)
        hs.append(h)
        cs.append(c)
        gates.append((i, f, g, o))
    y = np.stack(hs, axis=1)
    return y, (saved_ih, y, np.stack(cs, axis=1), gates, weight_hh_l0, bias_hh_l0 is not None)


def lstm_backward(dy, saved):
    saved_ih, h, c, gates, weight_hh, has_bias = saved
    c_before, h_before = one_step_before(c), one_step_before(h)
    d = np.zeros((*h.shape[:2], len(weight_hh)), dtype=dy.dtype)     # of what is before σ and tanh
    dh, dc = np.zeros_like(h[:, 0]), np.zeros_like(c[:, 0])          # what step t + 1 sends back
    for t in reversed(range(h.shape[1])):
        i, f, g, o = gates[t]
        tanh_c = np.tanh(c[:, t])
        dh = dy[:, t] + dh
        dc = dh * o * (1 - tanh_c**2) + dc
        d[:, t] = np.concatenate([dc * g * i * (1 - i), dc * c_before[:, t] * f * (1 - f),
                                  dc * i * (1 - g**2), dh * tanh_c * o * (1 - o)], axis=-1)
        dc = dc * f
        dh = d[:, t] @ weight_hh
    (dx,), d_ih = linear_backward(d, saved_ih)
    _, d_hh = linear_backward(d, (h_before, weight_hh, has_bias))
    return (dx,), named(d_ih, d_hh)
