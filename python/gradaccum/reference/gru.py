"""GRU (Cho et al. 2014, in PyTorch's form), gates in PyTorch's order r, z, n, the state starting from 0.

    a_t = W_ih x_t + b_ih,   u_t = W_hh h_(t-1) + b_hh
    r = s(a_r + u_r),  z = s(a_z + u_z),  n = tanh(a_n + r u_n),   h_t = (1 - z) n + z h_(t-1)
"""
import numpy as np

from .lstm import sigmoid


def gru_forward(x, *, weight_ih_l0, weight_hh_l0, bias_ih_l0=None, bias_hh_l0=None):
    """x (n, T, C), weights (3 H, C) and (3 H, H), biases (3 H,) -> all h_t (n, T, H)."""
    n, steps, _ = x.shape
    b_ih, b_hh = (0, 0) if bias_ih_l0 is None else (bias_ih_l0, bias_hh_l0)
    h = np.zeros((n, weight_hh_l0.shape[1]), x.dtype)
    outputs, kept = [], []
    for t in range(steps):
        a_r, a_z, a_n = np.split(x[:, t] @ weight_ih_l0.T + b_ih, 3, axis=1)
        u_r, u_z, u_n = np.split(h @ weight_hh_l0.T + b_hh, 3, axis=1)
        r, z = sigmoid(a_r + u_r), sigmoid(a_z + u_z)
        new = np.tanh(a_n + r * u_n)
        kept.append((h, r, z, new, u_n))
        h = (1 - z) * new + z * h
        outputs.append(h)
    return np.stack(outputs, axis=1), (x, kept, weight_ih_l0, weight_hh_l0, bias_ih_l0 is not None)


def gru_backward(dy, saved):
    x, kept, w_ih, w_hh, biased = saved
    dx, dw_ih, dw_hh = np.zeros_like(x), np.zeros_like(w_ih), np.zeros_like(w_hh)
    db_ih, db_hh = np.zeros((2, len(w_ih)), x.dtype)
    dh = 0
    for t in reversed(range(x.shape[1])):
        h0, r, z, new, u_n = kept[t]
        dh = dy[:, t] + dh
        d_new = dh * (1 - z) * (1 - new**2)
        d_z = dh * (h0 - new) * z * (1 - z)
        d_r = d_new * u_n * r * (1 - r)
        da, du = np.concatenate([d_r, d_z, d_new], axis=1), np.concatenate([d_r, d_z, d_new * r], axis=1)
        dx[:, t] = da @ w_ih
        dw_ih += da.T @ x[:, t]
        dw_hh += du.T @ h0
        db_ih += da.sum(axis=0)
        db_hh += du.sum(axis=0)
        dh = dh * z + du @ w_hh
    gradients = {"weight_ih_l0": dw_ih, "weight_hh_l0": dw_hh}
    return (dx,), gradients | ({"bias_ih_l0": db_ih, "bias_hh_l0": db_hh} if biased else {})
