"""Every layer, loss and optimizer once more, in plain NumPy: the oracle of the tests, and the text to read first.

For a layer called ``word`` there are two functions:

    y, saved = word_forward(x, ..., **parameters_and_options)
    dxs, dparams = word_backward(dy, saved)

Arrays carry PyTorch's shapes with the sample axis first. ``saved`` is whatever backward needs. ``dxs`` is a tuple, one gradient per
input; ``dparams`` a dict under PyTorch's parameter names: the gradients of this micro-batch alone, which the caller adds to a buffer.

A loss returns sums, nobody divides:

    (loss, weight), saved = word_forward(prediction, target, sample_weight=None, per="element", ...)     each (n,), float64
    dprediction = word_backward(saved)                                                  gradient of the sum of ``loss``

``window`` holds the heart of the matter: how gradients of micro-batches become one update.
"""
from .activation import (gelu_backward, gelu_forward, leaky_relu_backward, leaky_relu_forward, relu_backward, relu_forward, sigmoid_backward,
                         sigmoid_forward, silu_backward, silu_forward, tanh_backward, tanh_forward)
from .add import add_backward, add_forward
from .cross_entropy_loss import cross_entropy_loss_backward, cross_entropy_loss_forward
from .dropout import dropout_backward, dropout_forward
from .linear import linear_backward, linear_forward
from .optimizers import adam_step, adamw_step, clip_grad_norm, sgd_step
from .random import random_elements, random_stream
from .regression_loss import (bce_with_logits_loss_backward, bce_with_logits_loss_forward, l1_loss_backward, l1_loss_forward,
                              mse_loss_backward, mse_loss_forward)
from .reshape import flatten_backward, flatten_forward, identity_backward, identity_forward
from .softmax import softmax_backward, softmax_forward
from .window import mean_of_means, weighted_mean

__all__ = [name for name in dir() if name.endswith(("_forward", "_backward", "_step"))] + [
    "clip_grad_norm", "mean_of_means", "random_elements", "random_stream", "weighted_mean"]
