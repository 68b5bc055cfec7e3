"""Tissue in a T1-weighted MRI of one head: cerebrospinal fluid, grey matter, white matter.

One head, a teaching set: it proves nothing clinical. The labels are a preliminary K-means
segmentation of the same image, so they are what an algorithm says, not what a radiologist says: a
network that agrees with them has learnt to imitate the algorithm.

Source: the examples of the Insight Toolkit (ITK), Apache-2.0, in Debian's package
insighttoolkit5-examples. Only the voxels inside the brain mask and two around it are kept
(tools/make_brain_mri.py), so no face is in it. See LICENSES/brain_mri.txt.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._checks import choice, sizes, whole
from ._files import arrays

CLASSES = ("cerebrospinal fluid", "grey matter", "white matter")
IGNORE = -100
_FIRST = 4                                                   # the file's number of CLASSES[0]
_SCALE = 128                                                 # white matter is at about 0.8
_ENOUGH = 300                                                # labelled voxels of a useful slice


class BrainMRI(NamedTuple):
    """Images, labels, and the slices that they were taken from.

    x: float32 (n, 1, height, width); about 0.4 in fluid, 0.6 in grey and 0.8 in white matter, 0 two
    voxels away from the brain, and up to 2 in the fat between. y: int64, (n,) tissue of the centre
    for patches, (n, height, width) for segmentation with -100 outside of the brain, which the losses
    ignore. No slice is in both sets, and the neighbours of test slices are in none.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]
    train_slices: list[int]
    test_slices: list[int]


def volume() -> tuple[np.ndarray, np.ndarray]:
    """(image (62, 74, 69) uint8, tissue int64 of the same shape: 0, 1, 2 as in CLASSES, -100 outside
    of the brain).

    Coronal slices from the back of the head to the forehead, 3 mm apart; rows from top to bottom and
    columns from the right side of the patient to the left, 2 mm apart.
    """
    file = arrays("brain_mri.npz")
    tissue = file["tissue"].astype(np.int64)
    return file["image"], np.where(tissue == 0, IGNORE, tissue - _FIRST)


def split(tissue: np.ndarray) -> tuple[list[int], list[int]]:
    """(training, test) slices: 5, 15, 25, ... test, their neighbours do nothing, the others train."""
    useful = np.flatnonzero((tissue >= 0).sum(axis=(1, 2)) > _ENOUGH).tolist()
    test = [z for z in useful if z % 10 == 5]
    return [z for z in useful if all(abs(z - t) > 1 for t in test)], test


def brain_mri(task: str = "patch", size: int | tuple[int, int] | None = None, *,
              train: int = 4096, test: int = 1024, seed: int = 0) -> BrainMRI:
    """The set for one of two tasks. One head, a teaching set: it proves nothing clinical.

    It is split by slice: a random split of patches would put the same tissue on both sides, and the
    test would measure memory. Six slices (5, 15, ..., 55) are for testing, their neighbours for
    nothing, the others for training. Even so, training and test are one person in one scanner.

    Args:
        task: "patch", the tissue of the centre voxel of a square patch; "segmentation", that of every
            voxel of a slice.
        size: of a patch (default 16; the centre is at ``[size // 2, size // 2]``), or (height, width)
            of a slice (default (80, 72), which can be halved three times; zeros are added around; at
            least (74, 69)).
        train, test: patches, drawn with equal numbers per class. seed: of the drawing. These three
            are for patches; a segmentation has all slices.
    """
    choice("task", task, ("patch", "segmentation"))
    image, tissue = volume()
    scaled = image.astype(np.float32) / _SCALE
    if task == "segmentation":
        return _segmentation(scaled, tissue, (80, 72) if size is None else size)
    size = whole("size", 16 if size is None else size, 2)
    train, test = whole("train", train), whole("test", test)
    key = np.array([whole("seed", seed, 0), size], dtype=np.uint64)
    rng = np.random.Generator(np.random.Philox(key=key))
    slices = split(tissue)
    return BrainMRI(*_patches(scaled, tissue, slices[0], size, train, rng),
                    *_patches(scaled, tissue, slices[1], size, test, rng), CLASSES, *slices)


def _patches(image, tissue, slices, size, count, rng):
    """``count`` patches of the slices and the tissue of their centres, in mixed order."""
    padded = np.pad(image, [(0, 0), (size // 2, size), (size // 2, size)])
    patches, labels = [], []
    for c, name in enumerate(CLASSES):
        places = np.argwhere(tissue[slices] == c)
        wanted = count // len(CLASSES) + (c < count % len(CLASSES))
        if wanted > len(places):
            raise ValueError(f"{count} patches: {name} has only {len(places)} voxels in these slices, "
                             f"so {len(CLASSES) * len(places)} patches are the most")
        for z, y, x in places[rng.permutation(len(places))[:wanted]]:
            patches.append(padded[slices[z], y:y + size, x:x + size])
            labels.append(c)
    order = rng.permutation(count)
    return np.array(patches)[order][:, None], np.array(labels, dtype=np.int64)[order]


def _segmentation(image, tissue, size):
    """All slices with zeros around them, in the middle of (height, width)."""
    rows, columns = image.shape[1:]
    size = sizes("size", size)
    if len(size) != 2 or size[0] < rows or size[1] < columns:
        raise ValueError(f"size={size!r}: a slice has {rows} x {columns} voxels, so size must be "
                         "(height, width) of at least that")
    top, left = (size[0] - rows) // 2, (size[1] - columns) // 2
    around = [(0, 0), (top, size[0] - rows - top), (left, size[1] - columns - left)]
    x, y = np.pad(image, around)[:, None], np.pad(tissue, around, constant_values=IGNORE)
    train, test = split(tissue)
    return BrainMRI(x[train], y[train], x[test], y[test], CLASSES, train, test)
