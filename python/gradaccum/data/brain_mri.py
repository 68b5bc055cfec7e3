"""Tissue in a T1-weighted MRI of one head: cerebrospinal fluid, grey matter, white matter.

One head, a teaching set: it proves nothing clinical. The labels are a preliminary K-means segmentation of the same image, so they
are what an algorithm says, not what a radiologist says.

Source: the examples of the Insight Toolkit (ITK), Apache-2.0, in Debian's package insighttoolkit5-examples. Only the voxels inside the brain
mask and two around it are kept (tools/make_brain_mri.py), so no face is in it. See LICENSES/brain_mri.txt.
"""
from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._checks import choice, whole

CLASSES = ("cerebrospinal fluid", "grey matter", "white matter")
IGNORE = -100


class BrainMRI(NamedTuple):
    """Images, labels, and the slices that they were taken from.

    x: float32 (n, 1, height, width), about 0 to 1. y: int64, (n,) tissue of the centre for patches, (n, height, width) for segmentation
    with -100 outside of the brain. No slice is in both sets, and the neighbours of test slices are in none.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]
    train_slices: list[int]
    test_slices: list[int]


def volume() -> tuple[np.ndarray, np.ndarray]:
    """(image (62, 74, 69) uint8, tissue of the same shape: 0, 1, 2 as in CLASSES, -100 outside of the brain)."""
    with np.load(Path(__file__).with_name("brain_mri.npz"), allow_pickle=False) as file:
        image, tissue = file["image"], file["tissue"].astype(np.int64)
    return image, np.where(tissue == 0, IGNORE, tissue - 4)


def brain_mri(task: str = "patch", size: int | tuple[int, int] | None = None, *, train: int = 4096, test: int = 1024, seed: int = 0) -> BrainMRI:
    """The set for one of two tasks, split by slice.

    Slices 5, 15, 25, ... are for testing, their neighbours for nothing, the others for training: a random split of patches would put
    the same tissue on both sides.

    Args:
        task: "patch", the tissue of the centre voxel of a square patch; "segmentation", that of every voxel of a slice.
        size: of a patch (default 16, even: the centre is at size // 2), or (height, width) of a slice (default (80, 72), zeros added
            around; at least (74, 69)).
        train, test: patches, drawn with equal numbers per class. seed: of the drawing.
    """
    choice("task", task, ("patch", "segmentation"))
    image, tissue = volume()
    image = image.astype(np.float32) / 128
    slices = np.flatnonzero((tissue >= 0).reshape(len(image), -1).sum(axis=1) > 300)
    test_slices = [int(z) for z in slices if z % 10 == 5]
    train_slices = [int(z) for z in slices if all(abs(z - t) > 1 for t in test_slices)]
    if task == "segmentation":
        h, w = (80, 72) if size is None else size
        if h < image.shape[1] or w < image.shape[2]:
            raise ValueError(f"size={size!r}: a slice has {image.shape[1]} x {image.shape[2]} voxels, so size must be at least that")
        top, left = (h - image.shape[1]) // 2, (w - image.shape[2]) // 2
        x = np.zeros((len(image), 1, h, w), np.float32)
        y = np.full((len(image), h, w), IGNORE)
        x[:, 0, top:top + image.shape[1], left:left + image.shape[2]] = image
        y[:, top:top + image.shape[1], left:left + image.shape[2]] = tissue
        return BrainMRI(x[train_slices], y[train_slices], x[test_slices], y[test_slices], CLASSES, train_slices, test_slices)
    n = whole("size", 16 if size is None else size, 2)
    padded = np.pad(image, [(0, 0), (n // 2, n), (n // 2, n)])
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, n], dtype=np.uint64)))

    def draw(count, chosen):
        xs, ys = [], []
        for c in range(len(CLASSES)):
            places = np.argwhere(tissue[chosen] == c)
            wanted = whole("train, test", count) // len(CLASSES) + (c < count % len(CLASSES))
            if wanted > len(places):
                raise ValueError(f"{count} patches: {CLASSES[c]} has only {len(places)} voxels in these slices")
            for z, y, x in places[rng.permutation(len(places))[:wanted]]:
                xs.append(padded[chosen[z], y:y + n, x:x + n])
                ys.append(c)
        order = rng.permutation(len(xs))
        return np.array(xs)[order][:, None], np.array(ys)[order]

    return BrainMRI(*draw(train, train_slices), *draw(test, test_slices), CLASSES, train_slices, test_slices)
