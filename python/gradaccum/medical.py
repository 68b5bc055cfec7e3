"""``python -m gradaccum medical``: a card of "8 GB" (at 1/1024 scale, 8 MiB) cannot run batch 64 of medical images; 16 x 4 gives the same bits.

One head, labels from an algorithm: a teaching set that proves nothing clinical.
"""
from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from . import Accumulator, BudgetError, models, nn, optim, plan
from .data import batches, brain_mri
from .data.brain_mri import CLASSES, volume
from .memory import KINDS, format_bytes

LIMIT, BATCH, SIZE = "8 MiB", 64, 32


def make(micro_batch, seed: int, limit: str | None):
    """The tissue classifier: patches of 32 x 32 voxels, two convolutions with GroupNorm, AdamW; and its window of 64 patches."""
    model = models.cnn(1, len(CLASSES), (16, 32), (SIZE, SIZE), norm="group")
    net = plan(model, input_shape=(1, SIZE, SIZE), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, memory_limit=limit, seed=seed)
    return net, Accumulator(net, optim.AdamW(net, lr=2e-3), effective_batch_size=BATCH)


def train(micro_batch: int, data, epochs: int, seed: int, limit: str | None):
    """(network, losses of all updates, bytes by kind, seconds per update)."""
    net, acc = make(micro_batch, seed, limit)
    losses, seconds = [], 0.0
    for epoch in range(epochs):
        for x, y in batches(data.x_train, data.y_train, BATCH, seed=seed, epoch=epoch, drop_last=True):
            start = time.perf_counter()
            losses.append(acc.update(x, y).loss)
            seconds += time.perf_counter() - start
    return net, losses, net.memory.by_kind(), seconds / len(losses)


def confusion(net, x, y) -> np.ndarray:
    """Rows: true tissue; columns: predicted."""
    table = np.zeros((len(CLASSES), len(CLASSES)), int)
    np.add.at(table, (y, net.predict(x).argmax(axis=1)), 1)
    return table


def predict_slice(net, z: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Image, true and predicted tissue of slice z, each voxel of the brain classified from its own patch; -1 outside."""
    image, tissue = volume()
    scaled = np.pad(image[z].astype(np.float32) / 128, (SIZE // 2, SIZE))
    places = np.argwhere(tissue[z] >= 0)
    patches = np.array([scaled[y:y + SIZE, x:x + SIZE] for y, x in places])[:, None]
    predicted = np.full(tissue[z].shape, -1)
    predicted[places[:, 0], places[:, 1]] = net.predict(patches).argmax(axis=1)
    return image[z], np.where(tissue[z] >= 0, tissue[z], -1), predicted


def write(out: Path, net, results, losses, table, test_slices) -> None:
    """Log as JSON; slice and learning curve as pictures, where matplotlib is installed."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "medical.json").write_text(json.dumps({"runs": results, "losses": losses, "classes": CLASSES, "confusion": table.tolist()}, indent=1))
    z = test_slices[len(test_slices) // 2]
    image, true, predicted = predict_slice(net, z)
    np.savez_compressed(out / "slice.npz", image=image, true=true, predicted=predicted)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(f"Wrote medical.json and slice.npz to {out}; for pictures: pip install matplotlib")
        return
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    colours = np.array([[0.93, 0.93, 0.93], [0.0, 0.45, 0.70], [0.90, 0.62, 0.0], [0.34, 0.71, 0.91]])
    agree = float(np.mean(predicted[true >= 0] == true[true >= 0]))
    for axes, picture, title in zip(figure.subplots(1, 3), (image, colours[true + 1], colours[predicted + 1]),
                                    (f"Slice {z}, not seen in training", "True tissue", f"Predicted: {agree:.0%} of voxels agree")):
        axes.imshow(picture, cmap="gray")
        axes.set_title(title)
        axes.set_axis_off()
    for colour, name in zip(colours[1:], CLASSES):
        figure.axes[1].plot([], [], "s", color=colour, label=name)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(out / "slice.png", dpi=100)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(np.arange(1, len(losses) + 1), losses, color=colours[1])
    axes.set(xlabel="updates of 64 patches", ylabel="loss of the window", title="One curve for 1 x 64, 4 x 16 and 64 x 1: the bits are equal")
    figure.savefig(out / "loss.png", dpi=100)
    print(f"Wrote medical.json, slice.npz, slice.png and loss.png to {out}")


def run(epochs: int = 5, seed: int = 0, out: str | None = None) -> int:
    """Prints everything; returns 0, or 1 if any bits differ."""
    data = brain_mri(size=SIZE)
    print(f"Data: T1 MRI of one head, {len(data.x_train)} patches of {SIZE} x {SIZE} from {len(data.train_slices)} slices to train, {len(data.x_test)} "
          f"from {len(data.test_slices)} other slices to test.\nA teaching set of one head, labelled by an algorithm: it proves nothing clinical.")
    print(f"\nThe card: {LIMIT} (8 GB at 1/1024). A batch of 64:")
    try:
        make(BATCH, seed, LIMIT)
        print("  fits, which it should not")
        return 1
    except BudgetError as error:
        print("  BudgetError: " + str(error).replace("\n", "\n  "))
    net, _ = make("auto", seed, LIMIT)
    print(f"  micro_batch=\"auto\" takes {net.micro_batch}, and the window of {BATCH} is then cut into {-(-BATCH // net.micro_batch)}")

    results, nets, curves, kinds = [], {}, {}, {}
    print(f"\nTraining, {epochs} epochs\n  {'':<10} {'limit':>8} {'bytes':>10} {'s/update':>9} {'first loss':>11} {'last loss':>10} {'accuracy':>9}")
    for micro_batch, limit in ((BATCH, None), (16, LIMIT), (1, LIMIT)):
        name = f"{BATCH // micro_batch} x {micro_batch}"
        nets[name], curves[name], kinds[name], seconds = train(micro_batch, data, epochs, seed, limit)
        table = confusion(nets[name], data.x_test, data.y_test)
        accuracy = float(np.trace(table) / table.sum())
        total, curve = sum(kinds[name].values()), curves[name]
        results.append({"split": name, "limit": limit, "bytes": total, "seconds_per_update": seconds, "accuracy": accuracy})
        print(f"  {name:<10} {limit or 'none':>8} {format_bytes(total):>10} {seconds:9.4f} {curve[0]:11.6f} {curve[-1]:10.6f} {accuracy:9.4f}")
    first = next(iter(nets))
    same = all(np.array_equal(nets[first].params, n.params) and curves[first] == curves[k] for k, n in nets.items())
    print(f"\nsame bits: {'yes' if same else 'NO'} ({nets[first].params.size:,} parameters, and the loss of every update)")
    print(f"\nHeld-out slices {', '.join(map(str, data.test_slices))}; rows are true, columns predicted")
    print(f"  {'':<20} " + " ".join(f"{c.split()[0]:>13}" for c in CLASSES))
    for c, row in zip(CLASSES, table):
        print(f"  {c:<20} " + " ".join(f"{n:>13}" for n in row) + f"   {row.max() and row[CLASSES.index(c)] / row.sum():.1%} right")
    print("\nBytes           " + "".join(f"{name:>12}" for name in nets))
    for kind in kinds[first]:
        print(f"  {KINDS[kind]:<40}" + "".join(f"{format_bytes(kinds[name].get(kind, 0)):>12}" for name in nets))
    if out is not None:
        write(Path(out), nets[first], results, curves[first], table, data.test_slices)
    return 0 if same else 1
