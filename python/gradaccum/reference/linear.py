"""Linear: y = x Wᵀ + b.

For row r (a sample, or a token of a sample) and output j:

    y_rj = Σ_k x_rk W_jk + b_j

x_rk occurs in y_rj for every j, W_jk and b_j in y_rj for every r. With dy = dL/dy the chain rule
sums over all places where a number occurs:

    dx_rk = Σ_j dy_rj W_jk           dx = dy W
    dW_jk = Σ_r dy_rj x_rk           dW = dyᵀ x
    db_j  = Σ_r dy_rj

The sums over rows are why gradients of micro-batches can be added: a batch is nothing but more
rows.
"""


def linear_forward(x, *, weight, bias=None):
    """x (n, ..., in), weight (out, in), bias (out,) -> y (n, ..., out)."""
    y = x @ weight.T
    if bias is not None:
        y = y + bias
    return y, (x, weight, bias is not None)


def linear_backward(dy, saved):
    x, weight, has_bias = saved
    x_rows, dy_rows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    dparams = {"weight": dy_rows.T @ x_rows}
    if has_bias:
        dparams["bias"] = dy_rows.sum(axis=0)
    return (dy @ weight,), dparams
