"""The demonstration: handwritten digits, trained as 1 x 128 and as 4 x 32 micro-batches, with the same bits."""
from __future__ import annotations

import time

import numpy as np

from . import Accumulator, info, nn, optim, plan
from .data import batches, digits
from .memory import KINDS, format_bytes

BATCH = 128


def make(micro_batch: int, seed: int, steps: int | None = None, reduction: str = "mean"):
    """A digits classifier 64-128-10 with AdamW, and its window."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    net = plan(model, input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, seed=seed)
    optimizer = optim.AdamW(net, lr=3e-3, weight_decay=0.01)
    return net, Accumulator(net, optimizer, steps, reduction=reduction, max_grad_norm=1.0)


def accuracy(net, x, y) -> float:
    return float(np.mean(net.predict(x).argmax(axis=1) == y))


def show_window(x, y, seed: int) -> None:
    print("\nOne window, stage by stage: 128 images as 4 micro-batches of 32")
    print(f"  {'stage':<11} {'micro-batch':<12} {'what it wrote':<38} {'norm':>9} {'weight so far':>14}")
    net, acc = make(32, seed, 4)
    for event in acc.stages(x[:BATCH], y[:BATCH]):
        norm = {"forward": "output", "backward": "net.grads", "normalize": "net.grads", "clip": "net.grads", "update": "net.params",
                "clear": "net.grads"}.get(event.stage)
        size = f"{np.linalg.norm(event.views[norm].astype(np.float64)):9.4f}" if norm else f"{event.values['loss_sum']:9.4f}"
        wrote = ", ".join(event.changed) or "nothing (the norm is below the limit)"
        where = f"{event.micro_step} of 4" if event.micro_step else "boundary"
        print(f"  {event.stage:<11} {where:<12} {wrote:<38} {size} {acc.weight_sum:14.0f}")
    print("  (the norm of a loss or accumulate line is the loss sum; the gradient is divided once, at the boundary, by the weight 128)")


def train(micro_batch: int, data, epochs: int, seed: int):
    """One training run: network, records, test accuracy after each epoch, bytes by kind, samples per second."""
    x_train, y_train, x_test, y_test = data
    net, acc = make(micro_batch, seed, BATCH // micro_batch)
    records, accuracies, seconds = [], [], 0.0
    for epoch in range(epochs):
        pieces = list(batches(x_train, y_train, BATCH, seed=seed, epoch=epoch))
        start = time.perf_counter()
        records.append([acc.update(x, y) for x, y in pieces])
        seconds += time.perf_counter() - start
        accuracies.append(accuracy(net, x_test, y_test))
    return net, records, accuracies, net.memory.by_kind(), acc.samples / seconds


def uneven(x, y, seed: int) -> tuple[bool, float]:
    """A batch of 100 as 32+32+32+4 against 1 x 100: equal bits of the exact window, relative error of the mean of means."""
    gradients = {}
    for name, size, reduction in (("full", 100, "mean"), ("exact", 32, "mean"), ("means", 32, "mean_of_means")):
        net, acc = make(size, seed, reduction=reduction)
        acc.begin()
        for first in range(0, 100, size):
            part = slice(first, min(first + size, 100))
            net.forward(x[part])
            net.loss(y[part])
            net.backward()
            acc.accumulate()
        acc.normalize()
        gradients[name] = net.grads.astype(np.float64)
    error = np.linalg.norm(gradients["means"] - gradients["full"]) / np.linalg.norm(gradients["full"])
    return bool(np.array_equal(gradients["full"], gradients["exact"])), float(error)


def run(epochs: int = 10, seed: int = 0) -> int:
    """Prints everything; returns 0, or 1 if any bits differ."""
    versions = info()
    print("gradaccum {gradaccum} · NumPy {numpy} · OpenBLAS {openblas} · CPU {cpu} · {threads} threads".format(**versions))
    data = digits()
    x_train, y_train, x_test, y_test = data
    print(f"Data: {len(x_train)} handwritten digits (8 x 8) to train, {len(x_test)} to test; model 64-128-10, AdamW")
    show_window(x_train, y_train, seed)

    nets, bytes_of, speed = {}, {}, {}
    runs = {}
    for micro_batch in (BATCH, 32):
        nets[micro_batch], *runs[micro_batch], bytes_of[micro_batch], speed[micro_batch] = train(micro_batch, data, epochs, seed)
    print("\nTraining twice: 1 x 128 on the left, 4 x 32 on the right")
    head = f"{'loss':>9} {'grad norm':>10} {'accuracy':>9}"
    print(f"  {'update':>6} | {head} | {head}")
    for epoch in range(epochs):
        sides = []
        for m in (BATCH, 32):
            last = runs[m][0][epoch][-1]
            sides.append(f"{last.loss:9.6f} {last.grad_norm:10.6f} {runs[m][1][epoch]:9.4f}")
        print(f"  {last.update:>6} | {sides[0]} | {sides[1]}")

    flat = [[r for epoch in runs[m][0] for r in epoch] for m in (BATCH, 32)]
    same = np.array_equal(nets[BATCH].params, nets[32].params) and all(
        (a.loss, a.grad_norm) == (b.loss, b.grad_norm) for a, b in zip(*flat))
    print(f"\nsame bits: {'yes' if same else 'NO'} ({nets[32].params.size:,} parameters, and loss and gradient norm of all "
          f"{len(flat[0])} updates)")
    same_uneven, error = uneven(x_train, y_train, seed)
    print(f"a batch of 100 as 32 + 32 + 32 + 4: same bits: {'yes' if same_uneven else 'NO'}; "
          f"the mean-of-means recipe is off by {100 * error:.1f} %")

    print("\nBytes          1 x 128        4 x 32")
    for kind in bytes_of[BATCH]:
        a, b = bytes_of[BATCH][kind], bytes_of[32].get(kind, 0)
        print(f"  {format_bytes(a):>12}  {format_bytes(b):>12}  {KINDS[kind]}" + (f": {a / b:.1f} times less" if b and a / b > 1.5 else ""))
    total = [sum(bytes_of[m].values()) for m in (BATCH, 32)]
    print(f"  {format_bytes(total[0]):>12}  {format_bytes(total[1]):>12}  in total")
    print(f"\nSamples per second: 1 x 128 {speed[BATCH]:,.0f}, 4 x 32 {speed[32]:,.0f} "
          f"(each update of 4 x 32 takes {speed[BATCH] / speed[32]:.2f} times as long)")
    return 0 if same and same_uneven else 1
