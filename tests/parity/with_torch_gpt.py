"""The run of ``gpt_cases`` in PyTorch: a GPT written with its layers, sums of losses, divided once by the tokens of the window."""
import numpy as np
import torch
from gpt_cases import ADAMW, FEATURES, FIRST, HEADS, LAYERS, STEPS, VOCABULARY, batches, weights
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, nn.Linear(features, 3 * features), nn.Linear(features, features)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(features), Attention(features, heads), nn.LayerNorm(features)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(features, 4 * features), "c_proj": nn.Linear(4 * features, features)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary, steps, layers, heads, features):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, features), "wpe": nn.Embedding(steps, features),
            "h": nn.ModuleList(Block(features, heads) for _ in range(layers)), "ln_f": nn.LayerNorm(features)})
        self.lm_head = nn.Linear(features, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"](torch.arange(tokens.shape[1]))
        for block in t["h"]:
            x = block(x)
        return self.lm_head(t["ln_f"](x))


def run(dtype="float64"):
    """(final parameters by name, loss of each update)."""
    torch.set_num_threads(1)
    model = GPT(VOCABULARY, STEPS, LAYERS, HEADS, FEATURES).to(getattr(torch, dtype))
    model.load_state_dict({name: torch.tensor(value) for name, value in weights().items()})
    opt = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses = []
    for x, y in batches():
        x, y = torch.tensor(x), torch.tensor(y)
        weight, summed = int((y != -100).sum()), 0.0
        opt.zero_grad()
        for part in (slice(0, FIRST), slice(FIRST, None)):
            loss = F.cross_entropy(model(x[part]).flatten(0, 1), y[part].flatten(), reduction="sum")
            (loss / weight).backward()
            summed += loss.item()
        losses.append(summed / weight)
        opt.step()
    return {name: p.detach().numpy().copy() for name, p in model.named_parameters()}, np.array(losses)
