"""Self-attention and the encoder layer made of it."""
from __future__ import annotations

import math

import numpy as np

from .._checks import choice, whole
from .activation import GELU, ReLU
from .dropout import Dropout
from .embedding import require_integers
from .layer_norm import LayerNorm
from .linear import Linear
from .module import Layer, Module, Symbol
from .parameter import Parameter, fan_in_uniform, uniform, zeros


def self_attention(module: Module, x: Symbol, lengths: Symbol | None, parameters, *, num_heads: int, dropout: float, causal: bool) -> Symbol:
    """Adds a ``multihead_attention`` node. parameters: in_proj_weight, in_proj_bias, out_proj.weight, out_proj.bias; None where there is no bias."""
    given = [p for p in parameters if p is not None]
    inputs = [x]
    if lengths is not None:
        require_integers(lengths, f"{type(module).__name__}: lengths")
        inputs.insert(0, lengths)
    options = {"num_heads": num_heads, "dropout": dropout, "bias": len(given) == 4, "causal": causal}
    return x._trace.add_layer("multihead_attention", options, inputs, module, given)


def dropped(layer: Dropout, x: Symbol) -> Symbol:
    """layer(x), without a node where nothing would be dropped."""
    return layer(x) if layer.p > 0 else x


class _Projection(Module):
    """Holds the parameters of the output projection, under PyTorch's names."""

    def __init__(self, features, bias):
        super().__init__()
        self.weight = Parameter((features, features), fan_in_uniform(features))
        self.bias = Parameter((features,), zeros) if bias else None


class MultiheadAttention(Layer):
    """Self-attention over (T, embed_dim) per sample: each step sees the others by softmax(q k / sqrt(head size)) (Vaswani et al. 2017).

    Args:
        embed_dim, num_heads: features, and heads that divide them.
        dropout: probability that a probability is set to zero in training.
        bias: of both projections.
        causal: each step sees itself and earlier ones only.

    Call: ``attention(x)``, or ``attention(x, lengths)`` with lengths an input of the network of shape () per sample, integers from 1 to the
    steps of the batch: keys from there on are padding and not seen. The layer computes exactly, in blocks of queries, and computes them again
    in backward: its memory grows with T, not T².

    Parameters, named and laid out as torch.nn.MultiheadAttention's: ``in_proj_weight`` (3 embed_dim, embed_dim), ``in_proj_bias``,
    ``out_proj.weight`` (embed_dim, embed_dim), ``out_proj.bias``.
    """

    kind = "multihead_attention"

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, causal: bool = False):
        super().__init__()
        self.embed_dim, self.num_heads = whole("MultiheadAttention: embed_dim", embed_dim), whole("MultiheadAttention: num_heads", num_heads)
        if embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: num_heads={num_heads} does not divide embed_dim={embed_dim}")
        if not 0 <= dropout <= 1:
            raise ValueError(f"MultiheadAttention: dropout={dropout}, expected a probability in [0, 1]")
        self.dropout, self.causal = dropout, bool(causal)
        self.in_proj_weight = Parameter((3 * embed_dim, embed_dim), uniform(math.sqrt(6 / (4 * embed_dim))))     # Glorot, Bengio 2010
        self.in_proj_bias = Parameter((3 * embed_dim,), zeros) if bias else None
        self.out_proj = _Projection(embed_dim, bias)

    def forward(self, x: Symbol, lengths: Symbol | None = None):
        if len(x.shape) == 2 and x.shape[1] != self.embed_dim:
            raise ValueError(f"{self!r}: the input has shape {x.shape} per sample, so embed_dim should be {x.shape[1]}")
        parameters = [self.in_proj_weight, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias]
        return self_attention(self, x, lengths, parameters, num_heads=self.num_heads, dropout=self.dropout, causal=self.causal)

    def extra_repr(self):
        return f"{self.embed_dim}, {self.num_heads}, causal={self.causal}"


class TransformerEncoderLayer(Module):
    """Self-attention and a two-layer network, each with a residual connection and a LayerNorm (Vaswani et al. 2017).

    Args:
        d_model, nhead, dim_feedforward, dropout, layer_norm_eps, norm_first, bias: as torch.nn.TransformerEncoderLayer.
        activation: "relu" or "gelu".
        batch_first: always True here: the first axis is the samples.
        causal: see MultiheadAttention.

    Call: ``layer(x)`` or ``layer(x, lengths)``. Parameter names are PyTorch's: self_attn.*, linear1.*, linear2.*, norm1.*, norm2.*.
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: str = "relu",
                 layer_norm_eps: float = 1e-5, batch_first: bool = True, norm_first: bool = False, bias: bool = True, *, causal: bool = False):
        super().__init__()
        choice("TransformerEncoderLayer: activation", activation, ("relu", "gelu"))
        if not batch_first:
            raise ValueError("TransformerEncoderLayer: batch_first=False is not supported: the first axis is always the samples")
        self.norm_first = norm_first
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, causal)
        self.linear1, self.linear2 = Linear(d_model, dim_feedforward, bias), Linear(dim_feedforward, d_model, bias)
        self.norm1, self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias), LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout, self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = ReLU() if activation == "relu" else GELU()

    def _attention(self, x, lengths):
        return dropped(self.dropout1, self.self_attn(x, lengths))

    def _feedforward(self, x):
        return dropped(self.dropout2, self.linear2(dropped(self.dropout, self.activation(self.linear1(x)))))

    def forward(self, x: Symbol, lengths: Symbol | None = None):
        if self.norm_first:
            x = x + self._attention(self.norm1(x), lengths)
            return x + self._feedforward(self.norm2(x))
        x = self.norm1(x + self._attention(x, lengths))
        return self.norm2(x + self._feedforward(x))


def attention_weights(net, name: str) -> np.ndarray:
    """The probabilities (samples, heads, T, T) of an attention node in the last micro-batch, before dropout: row i says what query i sees.

    They are computed anew from the node's input, which must still be readable (plan with keep="all", or call between forward and backward).

    Args:
        net: a Network. name: of a node of kind "multihead_attention".
    """
    node = net.node(name)
    if node.kind != "multihead_attention":
        raise ValueError(f"attention_weights: {name} is a {node.kind}, expected a multihead_attention")
    module = dict(net._module.named_modules())[name.partition(":")[0]]
    parameters = [net.parameters()[p].data for p in node.parameters]
    *lengths, x = [net._core.value(v, False) for v in net._node_info[node.index][2]]
    samples, steps, features = x.shape
    q, k, _ = np.split(x @ parameters[0].T + (parameters[1] if len(parameters) == 4 else 0), 3, axis=-1)
    heads = lambda a: a.reshape(samples, steps, module.num_heads, -1).swapaxes(1, 2)  # noqa: E731
    scores = heads(q) @ heads(k).swapaxes(2, 3) / math.sqrt(features // module.num_heads)
    seen = np.ones((samples, 1, steps, steps), dtype=bool)
    if module.causal:
        seen &= np.tri(steps, dtype=bool)
    if lengths:
        seen &= (np.arange(steps) < lengths[0][:, None])[:, None, None, :]
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
