"""Every layer, loss and optimizer once more, in plain NumPy, written to be read.

The oracle of the tests, and a text to learn from. Begin with ``window``, how gradients of
micro-batches become one update; then ``linear``, ``activation`` and ``cross_entropy_loss`` are
enough for a small network. The mathematics stands at the top of each file.

Layers. For a layer called ``word`` there are two functions:

    y, saved = word_forward(x, ..., **parameters_and_options)
    dxs, dparams = word_backward(dy, saved)

- Arrays have PyTorch's shapes, samples first: (n, features), (n, T, features), images (n, C, H, W).
- Parameters go by PyTorch's names, ``weight``, ``bias``, ``weight_ih_l0``; options by the names of
  PyTorch's constructors, ``negative_slope``, ``kernel_size``, ``num_heads``. Where a name has a
  dot, the argument has ``_``: ``out_proj_weight`` for ``out_proj.weight``.
- ``saved`` is whatever backward needs. ``dxs`` is a tuple with one gradient per real input
  (integers have none). ``dparams`` maps PyTorch's name of each parameter to its gradient in this
  micro-batch alone: the caller adds it to a buffer.
- The dtype follows the input. No argument is changed.
- Layers that behave differently in training and evaluation take ``training``. Dropout takes
  ``seed``, ``update``, ``layer`` and ``sample0``, the number of the first sample in the window.
  Batch normalisation returns its new running mean and variance: the last two entries of ``saved``.

Losses return sums, one per sample, in float64. Nobody divides but the window:

    (loss, weight), saved = word_forward(prediction, target, *, sample_weight=None,
                                         per="element", **options)
    dprediction = word_backward(saved)                    the gradient of the sum of ``loss``

- ``sample_weight``: (n,), or one weight a target element.
- ``per="sample"``: a sample's loss is the weighted mean of its elements, and its weight 1.

Optimizers are pure functions, ``new_param, new_state = word_step(param, grad, state, **options)``.
"""
from .activation import (gelu_backward, gelu_forward, leaky_relu_backward, leaky_relu_forward,
                         relu_backward, relu_forward, sigmoid_backward, sigmoid_forward,
                         silu_backward, silu_forward, tanh_backward, tanh_forward)
from .add import add_backward, add_forward
from .batch_norm import (batch_norm_backward, batch_norm_forward, ghost_batch_norm_backward,
                         ghost_batch_norm_forward, pooled_moments)
from .conv2d import (conv2d_backward, conv2d_forward, conv_transpose2d_backward,
                     conv_transpose2d_forward)
from .cross_entropy_loss import cross_entropy_loss_backward, cross_entropy_loss_forward
from .dot_product_loss import dot_product_loss_backward, dot_product_loss_forward
from .dropout import dropout2d_backward, dropout2d_forward, dropout_backward, dropout_forward
from .embedding import embedding_backward, embedding_forward
from .group_norm import (group_norm_backward, group_norm_forward, instance_norm2d_backward,
                         instance_norm2d_forward)
from .gru import gru_backward, gru_forward
from .layer_norm import layer_norm_backward, layer_norm_forward
from .linear import linear_backward, linear_forward
from .lstm import lstm_backward, lstm_forward
from .multihead_attention import multihead_attention_backward, multihead_attention_forward
from .optimizers import adam_step, adama_step, adamw_step, clip_grad_norm, sgd_step
from .pool import (adaptive_avg_pool2d_backward, adaptive_avg_pool2d_forward, avg_pool2d_backward,
                   avg_pool2d_forward, max_pool2d_backward, max_pool2d_forward)
from .position import position_backward, position_forward
from .random import random_elements, random_stream
from .regression_loss import (bce_with_logits_loss_backward, bce_with_logits_loss_forward,
                              l1_loss_backward, l1_loss_forward, mse_loss_backward,
                              mse_loss_forward)
from .reshape import flatten_backward, flatten_forward, identity_backward, identity_forward
from .resize import (cat_backward, cat_forward, upsample_backward, upsample_forward,
                     zero_pad2d_backward, zero_pad2d_forward)
from .rms_norm import rms_norm_backward, rms_norm_forward
from .sam import sam_perturbation, sam_step
from .softmax import softmax_backward, softmax_forward
from .window import mean_of_means, weighted_mean

__all__ = [name for name in dir() if name.endswith(("_forward", "_backward", "_step"))] + [
    "clip_grad_norm", "mean_of_means", "pooled_moments", "random_elements", "random_stream",
    "sam_perturbation", "weighted_mean"]
