"""A model of the shape of GPT-2 124M: its bytes, and one update of 4 x 256 tokens at micro-batch 1 and 4, whose bits must be equal.

    python benchmarks/gpt2.py [--torch]        --torch: also PyTorch's time for the same update, at the same micro-batch
"""
import argparse
import os
import sys
import time

VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
if any(v in os.environ for v in VARIABLES):
    os.execve(sys.executable, [sys.executable, *sys.argv], {k: v for k, v in os.environ.items() if k not in VARIABLES})

import numpy as np  # noqa: E402

import gradaccum as ga  # noqa: E402
from gradaccum import models, nn, optim  # noqa: E402

VOCABULARY, STEPS, SAMPLES = 50257, 256, 4


def run(micro_batch, tokens, target, repeats):
    model = models.gpt(VOCABULARY, STEPS, 12, 12, 768, dropout=0.0)
    net = ga.plan(model, input_shape=(STEPS,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch)
    acc = ga.Accumulator(net, optim.AdamW(net, lr=1e-4))
    print(net.memory)
    updates = [acc.update(tokens, target) for _ in range(repeats)]
    return net.params.copy(), [u.loss for u in updates], updates[-1].seconds


def peer(micro_batch, tokens, target):
    """The same in PyTorch with random weights: seconds of the third update."""
    import torch
    from torch.nn import functional as f

    torch.set_num_threads(ga.get_num_threads())

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = torch.nn.LayerNorm(768), torch.nn.LayerNorm(768)
            self.attn, self.proj = torch.nn.Linear(768, 3 * 768), torch.nn.Linear(768, 768)
            self.fc, self.out = torch.nn.Linear(768, 4 * 768), torch.nn.Linear(4 * 768, 768)

        def forward(self, x):
            q, k, v = (a.unflatten(-1, (12, 64)).transpose(1, 2) for a in self.attn(self.ln_1(x)).split(768, -1))
            x = x + self.proj(f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            return x + self.out(f.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    wte, wpe = torch.nn.Embedding(VOCABULARY, 768), torch.nn.Embedding(STEPS, 768)
    body = torch.nn.Sequential(*(Block() for _ in range(12)), torch.nn.LayerNorm(768))
    opt = torch.optim.AdamW([*wte.parameters(), *wpe.parameters(), *body.parameters()], lr=1e-4, fused=True)
    x, y = torch.tensor(tokens), torch.tensor(target)
    for _ in range(3):
        start = time.perf_counter()
        opt.zero_grad()
        for i in range(0, SAMPLES, micro_batch):
            logits = body(wte(x[i:i + micro_batch]) + wpe.weight) @ wte.weight.T
            (f.cross_entropy(logits.flatten(0, 1), y[i:i + micro_batch].flatten(), reduction="sum") / y.numel()).backward()
        opt.step()
        seconds = time.perf_counter() - start
    return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--updates", type=int, default=3, help="the last one is timed (default 3)")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCABULARY, (SAMPLES, STEPS + 1))
    results = {}
    for micro_batch in (1, 4):
        params, losses, seconds = results[micro_batch] = run(micro_batch, tokens[:, :-1], tokens[:, 1:], options.updates)
        line = f"micro-batch {micro_batch}: losses {losses}, {seconds:.2f} s an update, {SAMPLES * STEPS / seconds:,.0f} tokens/s"
        if options.torch:
            theirs = peer(micro_batch, tokens[:, :-1], tokens[:, 1:])
            line += f"; PyTorch {SAMPLES * STEPS / theirs:,.0f} tokens/s, ours / PyTorch {theirs / seconds:.2f}"
        print(line, flush=True)
    same = np.array_equal(results[1][0], results[4][0]) and results[1][1] == results[4][1]
    print(f"same bits: {'yes' if same else 'NO'} ({results[1][0].size:,} parameters)")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
