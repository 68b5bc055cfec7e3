"""How much of the gradient a window's buffer keeps: relative error against a float64 sum, for each buffer and 16 to 65,536 micro-batches.

    python benchmarks/precision.py

The gradient of each micro-batch is known: the loss is |w x + 1,000,000| of one sample, so it is x itself, 256 normal numbers with the mean in the
head of the table. After one SGD step of rate 1 from 0 the parameters are minus the window's mean, in float32.
"""
import numpy as np

import gradaccum as ga
from gradaccum import nn, optim

BUFFERS = ("float32", "float64", "compensated", "bfloat16", "float16")
COUNTS = (16, 1024, 65536)


def relative_error(buffer: str, count: int, mean: float, width: int = 256) -> float:
    """|found - true| / |true| of the mean gradient of a window of ``count`` micro-batches of one sample."""
    x = np.random.default_rng(0).normal(mean, 1.0, (count, width)).astype(np.float32)
    net = ga.plan(nn.Linear(width, 1, bias=False), input_shape=(width,), loss=nn.L1Loss(), micro_batch=1)
    net.load_state_dict({"weight": np.zeros((1, width))})
    acc = ga.Accumulator(net, optim.SGD(net, lr=1.0), accumulator=buffer, on_non_finite="skip_update")
    update = acc.update(x, np.full((count, 1), -1e6, np.float32))
    if update.skipped:
        return float("inf")                                  # the buffer overflowed
    true = x.mean(axis=0, dtype=np.float64)
    return float(np.linalg.norm(-net.params - true) / np.linalg.norm(true))


def main():
    for mean in (0.1, 1.0):
        print(f"\nmean {mean}, deviation 1\n\n| micro-batches | " + " | ".join(BUFFERS) + " |\n| --- |" + " --- |" * len(BUFFERS))
        for count in COUNTS:
            print(f"| {count:,} | " + " | ".join(f"{relative_error(b, count, mean):.1e}" for b in BUFFERS) + " |", flush=True)


if __name__ == "__main__":
    main()
