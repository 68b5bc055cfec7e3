"""Handwritten digits: 1,797 images of 8 x 8, ten classes.

Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository 1998 (CC BY 4.0), the
test set, as scikit-learn distributes it (BSD-3-Clause, ``sklearn.datasets.load_digits``). See LICENSES/digits.txt.
"""
from __future__ import annotations

from pathlib import Path

import numpy as np

TEST = 360


def digits(flat: bool = True, dtype="float32") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The digits as (x_train, y_train, x_test, y_test).

    The last 360 images are the test set: the file is ordered by writer, so the people who wrote them are (but for one at the
    border) not those of the training set.

    Args:
        flat: True gives images as (n, 64); False as (n, 1, 8, 8), channels first.
        dtype: of the images, scaled to [0, 1].

    Returns:
        1,437 training images and labels, 360 test images and labels; labels are int64, 0 to 9.
    """
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as file:
        images, labels = file["images"], file["labels"].astype(np.int64)
    x = (images / 16).astype(dtype).reshape(len(images), 64)
    if not flat:
        x = x.reshape(len(images), 1, 8, 8)
    return x[:-TEST], labels[:-TEST], x[-TEST:], labels[-TEST:]
