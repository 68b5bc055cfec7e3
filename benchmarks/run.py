"""One window of 128 samples through a 64-128-10 net: ours in one C call against NumPy written by hand, as K x (128 / K).

Both run in turns in one process, the medians are compared, and the losses of the first 20 updates must agree before a time counts.
Where OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE are set, the run starts again without them, since they slow NumPy's products.

    python benchmarks/run.py [--rounds N]
"""
import argparse
import os
import statistics
import sys
import time

VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
if any(v in os.environ for v in VARIABLES):
    os.execve(sys.executable, [sys.executable, *sys.argv], {k: v for k, v in os.environ.items() if k not in VARIABLES})

import numpy as np  # noqa: E402

import gradaccum as ga  # noqa: E402
from gradaccum import nn, optim  # noqa: E402


class ByHand:
    """The same training step in NumPy, float32, with accumulation and AdamW."""

    def __init__(self, parameters, micro_batch):
        self.p = [parameters[k].copy() for k in ("0.weight", "0.bias", "2.weight", "2.bias")]
        self.m, self.v = [np.zeros_like(p) for p in self.p], [np.zeros_like(p) for p in self.p]
        self.micro_batch, self.t = micro_batch, 0

    def update(self, x, y):
        w1, b1, w2, b2 = self.p
        grads = [np.zeros_like(p) for p in self.p]
        loss = 0.0
        for i in range(0, len(x), self.micro_batch):
            a, t = x[i:i + self.micro_batch], y[i:i + self.micro_batch]
            h = np.maximum(a @ w1.T + b1, 0)
            z = h @ w2.T + b2
            z -= z.max(axis=1, keepdims=True)
            e = np.exp(z)
            total = e.sum(axis=1, keepdims=True)
            rows = np.arange(len(t))
            loss += float((np.log(total[:, 0]) - z[rows, t]).sum())
            d = e / total
            d[rows, t] -= 1
            grads[2] += d.T @ h
            grads[3] += d.sum(axis=0)
            d = (d @ w2) * (h > 0)
            grads[0] += d.T @ a
            grads[1] += d.sum(axis=0)
        self.t += 1
        c1, c2 = 1 - 0.9**self.t, np.sqrt(1 - 0.999**self.t)
        for p, g, m, v in zip(self.p, grads, self.m, self.v):
            g /= len(x)
            p *= 1 - 1e-3 * 0.01
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            p -= 1e-3 / c1 * m / (np.sqrt(v) / c2 + 1e-8)
        return loss / len(x)


def make(k):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    net = ga.plan(model, input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=128 // k)
    return ga.Accumulator(net, optim.AdamW(net, lr=1e-3, weight_decay=0.01)), ByHand(net.state_dict(), 128 // k)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    info = ga.info()
    print(", ".join(f"{k} {v}" for k, v in info.items()))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(128, 64)).astype("float32"), rng.integers(0, 10, 128)
    print("| K x micro-batch | gradaccum, us a window | NumPy by hand, us | NumPy / gradaccum |\n| --- | --- | --- | --- |")
    for k in (1, 4, 16, 128):
        acc, hand = make(k)
        for step in range(20):
            a, b = acc.update(x, y).loss, hand.update(x, y)
            if abs(a - b) > 1e-4 * abs(b):
                raise SystemExit(f"K = {k}, update {step + 1}: the losses differ, {a} and {b}; the times would mean nothing")
        times = {"ours": [], "hand": []}
        for _ in range(rounds):
            for name, call, repeat in (("ours", acc.update, 20), ("hand", hand.update, 5)):
                start = time.perf_counter()
                for _ in range(repeat):
                    call(x, y)
                times[name].append((time.perf_counter() - start) / repeat * 1e6)
        ours, theirs = statistics.median(times["ours"]), statistics.median(times["hand"])
        print(f"| {k} x {128 // k} | {ours:.0f} | {theirs:.0f} | {theirs / ours:.1f} |", flush=True)


if __name__ == "__main__":
    main()
