"""What each feature of the window costs: the 784-512-512-10 network, windows of 128 as 4 x 32, AdamW, against a window without any.

    python benchmarks/overhead.py [--rounds N]

All variants take turns in one process; medians. A feature that is off runs no line of code of its own in the window.
"""
import argparse
import os
import statistics
import tempfile
import time

import numpy as np

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.optim import lr_scheduler

X, Y = np.random.default_rng(0).standard_normal((128, 784), dtype=np.float32), np.random.default_rng(1).integers(0, 10, 128)


def accumulator(make_optimizer=lambda net: optim.AdamW(net, lr=1e-4), schedule=None, **options):
    net = ga.plan(ga.models.mlp(784, 512, 512, 10), input_shape=(784,), loss=nn.CrossEntropyLoss(), micro_batch=32)
    opt = make_optimizer(net)
    return ga.Accumulator(net, opt, accumulation_steps=4, schedule=schedule(opt) if schedule else None, **options)


def variants(folder) -> dict:
    """name: a function that makes one update."""
    def updates(**options):
        acc = accumulator(**options)
        return lambda: acc.update(X, Y)

    def by_stages():
        acc = accumulator()
        return lambda: [event for event in acc.stages(X, Y)]

    def by_steps():
        acc = accumulator()
        return lambda: [acc.step(X[i:i + 32], Y[i:i + 32]) for i in range(0, 128, 32)]

    def fitted(**options):
        acc = accumulator()
        return lambda: ga.fit(acc, [(X, Y)], 1, progress=False, **options)

    def saved():
        acc = accumulator()
        return lambda: (acc.update(X, Y), acc.save(os.path.join(folder, "run")))

    return {
        "nothing": updates(), "nothing, again": updates(), "max_grad_norm": updates(max_grad_norm=1.0), "ema": updates(ema=0.99),
        "schedule (cosine)": updates(schedule=lambda opt: lr_scheduler.CosineAnnealingLR(opt, 10**6)), "loss_scale, static": updates(loss_scale=1024.0),
        "loss_scale, dynamic": updates(loss_scale=ga.DynamicLossScale(1024.0), on_non_finite="skip_update"),
        "skip_update": updates(on_non_finite="skip_update"),
        "noise_scale": updates(noise_scale=True), "staged": updates(staged=True), "staged, noise_scale": updates(staged=True, noise_scale=True),
        "skip_micro_batch (staged)": updates(on_non_finite="skip_micro_batch"), "float64 buffer (staged)": updates(accumulator="float64"),
        "compensated buffer (staged)": updates(accumulator="compensated"), "acc.step, 4 calls": by_steps(), "acc.stages, 18 events": by_stages(),
        "ga.fit": fitted(), "ga.fit, JSON lines": fitted(log=ga.log.JSONLines(os.path.join(folder, "log"))), "acc.save each update": saved(),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        calls = variants(folder)
        times = {name: [] for name in calls}
        for round_ in range(rounds + 2):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                if round_ > 1:
                    times[name].append(time.perf_counter() - start)
    base = statistics.median(times["nothing"])
    print("| feature | ms an update | against none |\n| --- | --- | --- |")
    for name, seconds in times.items():
        print(f"| {name} | {1e3 * statistics.median(seconds):.2f} | {100 * (statistics.median(seconds) / base - 1):+.0f} % |")


if __name__ == "__main__":
    main()
