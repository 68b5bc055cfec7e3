"""Text layers against PyTorch where it is installed: a GPT with tied weights over 50 AdamW updates, and each layer's output and gradients."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import models, nn, optim

torch = pytest.importorskip("torch")


class TorchGPT(torch.nn.Module):
    """GPT-2's computation in PyTorch's own functions, reading the state dict of ``models.gpt``."""

    def __init__(self, state, n_layer, n_head):
        super().__init__()
        self.n_layer, self.n_head = n_layer, n_head
        self.p = torch.nn.ParameterDict({k.replace(".", "|"): torch.nn.Parameter(torch.tensor(v)) for k, v in state.items() if k != "lm_head.weight"})

    def forward(self, tokens):
        f, p = torch.nn.functional, lambda name: self.p[("transformer." + name).replace(".", "|")]
        x = p("wte.weight")[tokens] + p("wpe.weight")[:tokens.shape[1]]
        c = x.shape[-1]
        for i in range(self.n_layer):
            h = f.layer_norm(x, (c,), p(f"h.{i}.ln_1.weight"), p(f"h.{i}.ln_1.bias"))
            q, k, v = (a.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for a in f.linear(h, p(f"h.{i}.attn.c_attn.weight"),
                                                                                             p(f"h.{i}.attn.c_attn.bias")).split(c, -1))
            h = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + f.linear(h, p(f"h.{i}.attn.c_proj.weight"), p(f"h.{i}.attn.c_proj.bias"))
            h = f.layer_norm(x, (c,), p(f"h.{i}.ln_2.weight"), p(f"h.{i}.ln_2.bias"))
            h = f.gelu(f.linear(h, p(f"h.{i}.mlp.c_fc.weight"), p(f"h.{i}.mlp.c_fc.bias")), approximate="tanh")
            x = x + f.linear(h, p(f"h.{i}.mlp.c_proj.weight"), p(f"h.{i}.mlp.c_proj.bias"))
        return f.layer_norm(x, (c,), p("ln_f.weight"), p("ln_f.bias")) @ p("wte.weight").T


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 2e-4)])
def test_gpt_over_50_updates(dtype, tolerance):
    torch.set_num_threads(1)
    net = ga.plan(models.gpt(13, 9, 2, 2, 8, dropout=0.0), input_shape=(9,), loss=nn.CrossEntropyLoss(), micro_batch=3, dtype=dtype, seed=1)
    acc = ga.Accumulator(net, optim.AdamW(net, lr=3e-3, weight_decay=0.1))
    peer = TorchGPT(net.state_dict(), 2, 2)
    opt = torch.optim.AdamW(peer.parameters(), lr=3e-3, weight_decay=0.1)
    rng = np.random.default_rng(0)
    for _ in range(50):
        tokens, target = rng.integers(0, 13, (6, 7)), rng.integers(0, 13, (6, 7))
        target[rng.random((6, 7)) < 0.3] = -100
        loss = acc.update(tokens, target).loss
        opt.zero_grad()
        theirs = torch.nn.functional.cross_entropy(peer(torch.tensor(tokens)).flatten(0, 1), torch.tensor(target).flatten())
        theirs.backward()
        opt.step()
        assert abs(loss - theirs.item()) < tolerance
    for name, value in peer.p.items():
        ours = net.parameters()[name.replace("|", ".")].data
        assert np.abs(ours - value.detach().numpy()).max() < tolerance, name


LAYERS = [
    (nn.LayerNorm(6), torch.nn.LayerNorm(6), (5, 6)), (nn.RMSNorm(6), torch.nn.RMSNorm(6), (5, 6)),
    (nn.MultiheadAttention(6, 3), torch.nn.MultiheadAttention(6, 3, batch_first=True), (5, 6)),
    (nn.LSTM(4, 6), torch.nn.LSTM(4, 6, batch_first=True), (5, 4)), (nn.GRU(4, 6), torch.nn.GRU(4, 6, batch_first=True), (5, 4)),
    (nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0), torch.nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), (5, 6)),
    (nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, activation="gelu", norm_first=True),
     torch.nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, activation="gelu", norm_first=True, batch_first=True), (5, 6)),
]


@pytest.mark.parametrize("ours, theirs, shape", LAYERS, ids=[type(a).__name__ + str(i) for i, (a, _, _) in enumerate(LAYERS)])
def test_layer_loads_pytorchs_state_dict_and_gives_its_numbers(ours, theirs, shape):
    theirs = theirs.double()
    net = ga.plan(ours, input_shape=shape, loss=nn.MSELoss(), micro_batch=3, dtype="float64")
    net.load_state_dict({name: p.detach().numpy() for name, p in theirs.named_parameters()})
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, *shape))
    y = net.forward(x).copy()
    target = rng.normal(size=y.shape)
    net.loss(target)
    net.backward()
    tensor = torch.tensor(x)
    out = theirs(tensor, tensor, tensor) if isinstance(theirs, torch.nn.MultiheadAttention) else theirs(tensor)
    out = out[0] if isinstance(out, tuple) else out
    assert np.abs(y - out.detach().numpy()).max() < 1e-12
    ((out - torch.tensor(target)) ** 2).sum().backward()
    for name, p in theirs.named_parameters():
        assert np.abs(net.parameters()[name].grad - p.grad.numpy()).max() < 1e-11, name
