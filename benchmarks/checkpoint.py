"""Bytes and seconds of saving and loading an AdamW run of 10 M parameters, between windows and in the middle of one.

    python benchmarks/checkpoint.py [folder]        folder: where the file is written, by default a temporary one
"""
import os
import statistics
import sys
import tempfile
import time

import numpy as np

import gradaccum as ga
from gradaccum import nn, optim

REPEATS = 5


def make():
    model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048))
    net = ga.plan(model, input_shape=(1024,), loss=nn.MSELoss(), micro_batch=4)
    return ga.Accumulator(net, optim.AdamW(net), accumulation_steps=4)


def seconds(call, path):
    start = time.perf_counter()
    call(path)
    return time.perf_counter() - start


def main(folder):
    path, acc, other = os.path.join(folder, "run.safetensors"), make(), make()
    print(f"{acc.net.params.size:,} parameters; medians of {REPEATS}")
    for name, steps in (("between windows", 4), ("in a window", 2)):
        for _ in range(steps):
            acc.step(np.ones((4, 1024), np.float32), np.zeros((4, 2048), np.float32))
        saving = statistics.median(seconds(acc.save, path) for _ in range(REPEATS))
        loading = statistics.median(seconds(other.load, path) for _ in range(REPEATS))
        assert np.array_equal(acc.net.params, other.net.params) and np.array_equal(acc.net.grads, other.net.grads)
        print(f"{name:>16}: {os.path.getsize(path):,} bytes, save {saving:.2f} s, load {loading:.2f} s")
    os.unlink(path)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(sys.argv[1] if len(sys.argv) > 1 else temporary)
