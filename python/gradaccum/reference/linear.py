"""Linear: y = x Wᵀ + b.

With L the loss and dy = dL/dy, the chain rule gives

    y_rj = Σ_k x_rk W_jk + b_j      dx_rk = Σ_j dy_rj W_jk,   dW_jk = Σ_r dy_rj x_rk,   db_j = Σ_r dy_rj

The sums over rows r are why gradients of micro-batches can be added: a batch is nothing but more rows.
"""


def linear_forward(x, *, weight, bias=None):
    """x (..., in), weight (out, in), bias (out,) -> y (..., out)."""
    y = x @ weight.T
    if bias is not None:
        y = y + bias
    return y, (x, weight, bias is not None)


def linear_backward(dy, saved):
    x, weight, has_bias = saved
    rows, dy_rows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    gradients = {"weight": dy_rows.T @ rows}
    if has_bias:
        gradients["bias"] = dy_rows.sum(axis=0)
    return (dy @ weight,), gradients
