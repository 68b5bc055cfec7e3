"""Decoder-only transformers in the shape of GPT-2 (Radford et al. 2019), with the names of its state dict."""
from __future__ import annotations

import math
import os

import numpy as np

from .. import nn, safetensors
from .._checks import whole
from ..nn.parameter import normal, zeros
from ..nn.transformer import dropped, self_attention


def _linear(in_features: int, out_features: int, std: float, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(in_features, out_features, bias)
    layer.weight = nn.Parameter((out_features, in_features), normal(std))
    if bias:
        layer.bias = nn.Parameter((out_features,), zeros)
    return layer


class _Attention(nn.Module):
    """Causal self-attention; c_attn and c_proj only hold its parameters, the node computes."""

    causal = True

    def __init__(self, n_embd, n_head, dropout, std):
        super().__init__()
        self.num_heads, self.dropout = n_head, dropout
        self.c_attn, self.c_proj = _linear(n_embd, 3 * n_embd, 0.02), _linear(n_embd, n_embd, std)

    def forward(self, x):
        parameters = [self.c_attn.weight, self.c_attn.bias, self.c_proj.weight, self.c_proj.bias]
        return self_attention(self, x, None, parameters, num_heads=self.num_heads, dropout=self.dropout, causal=True)


class _MLP(nn.Module):
    def __init__(self, n_embd, std):
        super().__init__()
        self.c_fc, self.c_proj, self.act = _linear(n_embd, 4 * n_embd, 0.02), _linear(4 * n_embd, n_embd, std), nn.GELU("tanh")

    def forward(self, x):
        return self.c_proj(self.act(self.c_fc(x)))


class _Block(nn.Module):
    def __init__(self, n_embd, n_head, dropout, std):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(n_embd), _Attention(n_embd, n_head, dropout, std)
        self.ln_2, self.mlp = nn.LayerNorm(n_embd), _MLP(n_embd, std)
        self.attn_drop, self.mlp_drop = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x):
        x = x + dropped(self.attn_drop, self.attn(self.ln_1(x)))
        return x + dropped(self.mlp_drop, self.mlp(self.ln_2(x)))


class _Transformer(nn.Module):
    def __init__(self, vocab_size, block_size, n_layer, n_head, n_embd, dropout):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(vocab_size, n_embd), nn.LearnedPositions(block_size, n_embd), nn.Dropout(dropout)
        self.wte.weight = nn.Parameter((vocab_size, n_embd), normal(0.02))
        std = 0.02 / math.sqrt(2 * n_layer)                  # of what is added to the residual stream, which 2 n_layer layers do
        self.h = nn.ModuleList(_Block(n_embd, n_head, dropout, std) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)

    def forward(self, tokens):
        x = dropped(self.drop, self.wpe(self.wte(tokens)))
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class GPT(nn.Module):
    """See ``gpt``."""

    def __init__(self, vocab_size, block_size, n_layer, n_head, n_embd, dropout):
        super().__init__()
        self.config = {"vocab_size": vocab_size, "block_size": block_size, "n_layer": n_layer, "n_head": n_head, "n_embd": n_embd}
        self.transformer = _Transformer(vocab_size, block_size, n_layer, n_head, n_embd, dropout)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens):
        return self.lm_head(self.transformer(tokens))


def gpt(vocab_size: int, block_size: int, n_layer: int, n_head: int, n_embd: int, dropout: float = 0.1) -> GPT:
    """A causal language model: tokens (T,), T up to ``block_size``, to logits (T, vocab_size) of the next token.

    The shape of GPT-2: learned positions, LayerNorm before each part, GELU (tanh form), a head tied to the embedding; its small model is
    ``gpt(50257, 1024, 12, 12, 768)``, 124 million parameters. Starts as GPT-2: normal with standard deviation 0.02, in what is added to the residual
    stream 0.02 / sqrt(2 n_layer). Plan it with ``input_shape=(block_size,)`` and ``loss=nn.CrossEntropyLoss()``; the target of a step is the next
    token, -100 where there is none.

    Args:
        vocab_size, block_size: tokens, and the longest sequence.
        n_layer, n_head, n_embd: blocks, heads of each, and features, which the heads divide.
        dropout: after the embeddings, on attention probabilities, and on what is added to the residual stream.
    """
    for name, value in (("vocab_size", vocab_size), ("block_size", block_size), ("n_layer", n_layer), ("n_head", n_head), ("n_embd", n_embd)):
        whole(f"gpt: {name}", value)
    if n_embd % n_head:
        raise ValueError(f"gpt: n_head={n_head} does not divide n_embd={n_embd}")
    if not 0 <= dropout <= 1:
        raise ValueError(f"gpt: dropout={dropout}, expected a probability in [0, 1]")
    return GPT(vocab_size, block_size, n_layer, n_head, n_embd, dropout)


def load_gpt2(net, path) -> None:
    """Loads a GPT-2 style state dict from a safetensors file into a network planned from ``gpt``.

    Names may have the prefix "transformer." or not. Linear weights may lie as (in, out), as in the files published with GPT-2, or as (out, in); the
    attention weights, never square, tell which. Attention mask buffers (``attn.bias``, ``attn.masked_bias``) are left out, positions beyond the
    network's ``block_size`` too.

    Raises:
        ValueError: the file is broken, or names or shapes do not fit; lists all of them.
    """
    model = net._module
    if not isinstance(model, GPT):
        raise TypeError(f"load_gpt2: the network's model is a {type(model).__name__}, expected one of ga.models.gpt")
    state = {}
    for name, array in safetensors.load(path).items():
        if name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        state[name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"] = array
    where = f"load_gpt2: {os.fspath(path)}"
    head, table = state.pop("lm_head.weight", None), state.get("transformer.wte.weight")
    if head is not None and table is not None and not np.array_equal(head, table):
        raise ValueError(f"{where}: lm_head.weight differs from transformer.wte.weight, but this network ties them")
    n_embd, positions = model.config["n_embd"], state.get("transformer.wpe.weight")
    if positions is not None and positions.ndim == 2 and len(positions) > model.config["block_size"]:
        state["transformer.wpe.weight"] = positions[:model.config["block_size"]]
    if getattr(state.get("transformer.h.0.attn.c_attn.weight"), "shape", None) == (n_embd, 3 * n_embd):
        for name, array in state.items():
            if name.startswith("transformer.h.") and array.ndim == 2:
                state[name] = array.T
    if table is not None:
        state["lm_head.weight"] = table
    try:
        net.load_state_dict(state)
    except ValueError as error:
        raise ValueError(f"{where}: {str(error).removeprefix('load_state_dict: ').replace('; strict=False loads what fits', '')}") from None
