"""The gradient noise scale along a run, and what measuring it costs.

McCandlish et al. 2018, Table 1, has B_simple about 900 for MNIST (run average, a small network), and it rises by an order of magnitude or more from the
start to the end of training. The handwritten digits of this package are smaller (1,437 images of 8 x 8), so the order of magnitude and the rise are what
can be compared. Samples are drawn with replacement: windows out of a shuffled epoch would see |G|² - tr S / (N - 1).

    python benchmarks/noise_scale.py [--updates N] [--folder DIR]    # DIR: MNIST or Fashion-MNIST files
"""
import argparse
import statistics
import time

import numpy as np

import gradaccum as ga
from gradaccum import data, nn, optim

BATCH, PIECE = 128, 4


def network(features, micro_batch=PIECE):
    model = nn.Sequential(nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 10))
    return ga.plan(model, input_shape=(features,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, seed=0)


def along_a_run(x, y, updates):
    """Geometric phases: the scale of each is from its mean |G|² and mean tr S."""
    net = network(x.shape[1])
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.1, momentum=0.9), noise_scale=True, staged=True)
    rng = np.random.default_rng(0)
    print(f"\n{BATCH // PIECE} x {PIECE} samples a window, staged, SGD lr 0.1 momentum 0.9\n"
          "| updates | loss | abs(G)^2 | tr S | scale |\n| --- | --- | --- | --- | --- |")
    edges = sorted({int(e) for e in np.geomspace(10, updates, 9)})
    scales, whole, first = [], [], 1
    for end in edges:
        rows, losses = [], []
        for _ in range(first, end + 1):
            index = rng.integers(0, len(x), BATCH)
            losses.append(acc.update(x[index], y[index]).loss)
            rows.append((acc.noise_scale.last_grad_sq, acc.noise_scale.last_trace))
        whole += rows
        grad_sq, trace = np.mean(rows, axis=0)
        scales.append(trace / grad_sq if grad_sq > 0 else float("nan"))
        print(f"| {first} - {end} | {np.mean(losses):.4f} | {grad_sq:.3g} | {trace:.3g} | {scales[-1]:.0f} |", flush=True)
        first = end + 1
    grad_sq, trace = np.array(whole).T
    averaged = np.average(scales, weights=np.diff([0, *edges]))
    print(f"\nrun average of the phases {averaged:.0f} samples; mean tr S / mean abs(G)^2 of the run {trace.mean() / grad_sq.mean():.0f}; "
          f"last / first phase {scales[-1] / scales[0]:.0f}; accumulator's estimate now {acc.noise_scale.scale or float('nan'):.0f}")


def cost(x, y, rounds=60, repeat=20):
    x, y = x[:BATCH], y[:BATCH]
    print("\n| split | staged | off, us a window | on, us a window | on / off |\n| --- | --- | --- | --- | --- |")
    for piece in (PIECE, 32):
        for staged in (False, True):
            accs = {}
            for on in (False, True):
                net = network(x.shape[1], piece)
                accs[on] = ga.Accumulator(net, optim.SGD(net, lr=0.0), staged=staged, noise_scale=on)
            times = {False: [], True: []}
            for _ in range(rounds):
                for on, acc in accs.items():
                    start = time.perf_counter()
                    for _ in range(repeat):
                        acc.update(x, y)
                    times[on].append((time.perf_counter() - start) / repeat * 1e6)
            off, on = (statistics.median(times[k]) for k in (False, True))
            print(f"| {BATCH // piece} x {piece} | {staged} | {off:.0f} | {on:.0f} | {on / off:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--folder", help="train-images-idx3-ubyte and so on, plain or .gz")
    options = parser.parse_args()
    x, y, *_ = data.digits() if options.folder is None else data.fashion_mnist(options.folder, flat=True)
    print(f"{len(x)} images of {x.shape[1]} numbers; {ga.info()['cpu']}, {ga.get_num_threads()} threads")
    along_a_run(x, y, options.updates)
    cost(x, y)


if __name__ == "__main__":
    main()
