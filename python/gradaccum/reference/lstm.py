"""LSTM (Hochreiter, Schmidhuber 1997; forget gate of Gers et al. 2000), gates in PyTorch's order i, f, g, o, states starting from 0.

    a_t = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh,   i = s(a_i), f = s(a_f), g = tanh(a_g), o = s(a_o)
    c_t = f c_(t-1) + i g,   h_t = o tanh(c_t)

Backward walks from the last step to the first: the gradient of h_t is dy_t plus what step t + 1 gives back.
"""
import numpy as np


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def lstm_forward(x, *, weight_ih_l0, weight_hh_l0, bias_ih_l0=None, bias_hh_l0=None):
    """x (n, T, C), weights (4 H, C) and (4 H, H), biases (4 H,) -> all h_t (n, T, H)."""
    n, steps, _ = x.shape
    h = c = np.zeros((n, weight_hh_l0.shape[1]), x.dtype)
    outputs, kept = [], []
    for t in range(steps):
        a = x[:, t] @ weight_ih_l0.T + h @ weight_hh_l0.T
        if bias_ih_l0 is not None:
            a = a + bias_ih_l0 + bias_hh_l0
        i, f, g, o = np.split(a, 4, axis=1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        before = h, c
        c = f * c + i * g
        h = o * np.tanh(c)
        outputs.append(h)
        kept.append((before, i, f, g, o, c))
    return np.stack(outputs, axis=1), (x, kept, weight_ih_l0, weight_hh_l0, bias_ih_l0 is not None)


def lstm_backward(dy, saved):
    x, kept, w_ih, w_hh, biased = saved
    dx, dw_ih, dw_hh, db = np.zeros_like(x), np.zeros_like(w_ih), np.zeros_like(w_hh), np.zeros(len(w_ih), x.dtype)
    dh = dc = 0
    for t in reversed(range(x.shape[1])):
        (h0, c0), i, f, g, o, c = kept[t]
        dh = dy[:, t] + dh
        dc = dc + dh * o * (1 - np.tanh(c) ** 2)
        da = np.concatenate([dc * g * i * (1 - i), dc * c0 * f * (1 - f), dc * i * (1 - g * g), dh * np.tanh(c) * o * (1 - o)], axis=1)
        dx[:, t] = da @ w_ih
        dw_ih += da.T @ x[:, t]
        dw_hh += da.T @ h0
        db += da.sum(axis=0)
        dh, dc = da @ w_hh, dc * f
    gradients = {"weight_ih_l0": dw_ih, "weight_hh_l0": dw_hh}
    return (dx,), gradients | ({"bias_ih_l0": db, "bias_hh_l0": db} if biased else {})
