"""GRU: read a sequence token by token, with a state h (Cho et al. 2014, arXiv:1406.1078).

One layer, one direction, batch first, state 0 at the start, PyTorch's order of gates r, z, n; as in
PyTorch and cuDNN, r multiplies after the matrix product. ∘ is the product element by element.

    a_t = W_ih x_t + b_ih,   u_t = W_hh h_{t-1} + b_hh,   both cut into parts r, z, n
    r = σ(a_r + u_r),   z = σ(a_z + u_z),   n = tanh(a_n + r ∘ u_n)
    h_t = (1 - z) ∘ n + z ∘ h_{t-1}

Backward walks from the last step to the first. h_t is used as output y_t and, twice, in step t + 1.
With dh = dy_t + (dh from step t + 1), σ' = σ (1 - σ) and tanh' = 1 - tanh²:

    dn = dh (1-z) (1-n²),   dr = dn u_n r(1-r),   dz = dh (h_{t-1} - n) z(1-z)
    da = [dr, dz, dn],   du = [dr, dz, r ∘ dn]
    to step t - 1:   dh ∘ z + du W_hh

and the parameters, the same in all steps, as in ``lstm``:

    dW_ih = Σ_t da_tᵀ x_t,   db_ih = Σ_t da_t,   dW_hh = Σ_t du_tᵀ h_{t-1},   db_hh = Σ_t du_t
"""
import numpy as np

from .activation import logistic
from .linear import linear_backward, linear_forward
from .lstm import named, one_step_before


def gru_forward(x, *, weight_ih_l0, weight_hh_l0, bias_ih_l0=None, bias_hh_l0=None):
    """x (n, T, I), weights (3 H, I) and (3 H, H), biases (3 H,) -> all h_t, (n, T, H)."""
    a, saved_ih = linear_forward(x, weight=weight_ih_l0, bias=bias_ih_l0)
    n, length, size = len(x), x.shape[1], weight_hh_l0.shape[1]
    h = np.zeros((n, size), dtype=x.dtype)
    hs, steps = [], []
    for t in range(length):
        u, _ = linear_forward(h, weight=weight_hh_l0, bias=bias_hh_l0)
        a_r, a_z, a_n = np.split(a[:, t], 3, axis=-1)
        u_r, u_z, u_n = np.split(u, 3, axis=-1)
        r, z = logistic(a_r + u_r), logistic(a_z + u_z)
        new = np.tanh(a_n + r * u_n)
        h = (1 - z) * new + z * h
        hs.append(h)
        steps.append((r, z, new, u_n))
    y = np.stack(hs, axis=1)
    return y, (saved_ih, y, steps, weight_hh_l0, bias_hh_l0 is not None)


def gru_backward(dy, saved):
    saved_ih, h, steps, weight_hh, has_bias = saved
    h_before = one_step_before(h)
    da = np.zeros((*h.shape[:2], len(weight_hh)), dtype=dy.dtype)
    du = np.zeros_like(da)
    dh = np.zeros_like(h[:, 0])                                      # what step t + 1 sends back
    for t in reversed(range(h.shape[1])):
        r, z, new, u_n = steps[t]
        dh = dy[:, t] + dh
        dn = dh * (1 - z) * (1 - new**2)
        dr = dn * u_n * r * (1 - r)
        dz = dh * (h_before[:, t] - new) * z * (1 - z)
        da[:, t] = np.concatenate([dr, dz, dn], axis=-1)
        du[:, t] = np.concatenate([dr, dz, r * dn], axis=-1)
        dh = dh * z + du[:, t] @ weight_hh
    (dx,), d_ih = linear_backward(da, saved_ih)
    _, d_hh = linear_backward(du, (h_before, weight_hh, has_bias))
    return (dx,), named(d_ih, d_hh)
