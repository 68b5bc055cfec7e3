"""Breast cancer Wisconsin (diagnostic): 569 samples, 30 numbers each, malignant or benign.

The numbers measure cell nuclei in a picture of a fine needle aspirate: ten properties, of each the
mean, the standard error and the worst. A teaching set: it proves nothing clinical.

Source: W. Wolberg, O. Mangasarian, N. Street, W. Street, UCI Machine Learning Repository 1995
(CC BY 4.0), as scikit-learn distributes it (BSD-3-Clause, ``sklearn.datasets.load_breast_cancer``).
See LICENSES/breast_cancer.txt.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._files import arrays, real


class Table(NamedTuple):
    """x_train, y_train, x_test, y_test, and the names of classes and features."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: list[str]
    features: list[str]


def breast_cancer(standardize: bool = True, dtype="float32") -> Table:
    """The table: every fifth row is for testing (113), the others for training (456).

    Args:
        standardize: shift and scale each feature by mean and standard deviation of the *training*
            rows, which is all that a model may know of them; False leaves the published numbers.
        dtype: of x, "float32" or "float64".

    Returns:
        x (n, 30), y int64 (n,): 0 malignant, 1 benign, as in ``classes``; names in ``features``.
    """
    file, dtype = arrays("breast_cancer.npz"), real(dtype)
    x, y = file["data"], file["target"].astype(np.int64)
    test = np.arange(len(x)) % 5 == 4
    if standardize:
        x = (x - x[~test].mean(axis=0)) / x[~test].std(axis=0)
    x = x.astype(dtype)
    return Table(x[~test], y[~test], x[test], y[test],
                 file["classes"].tolist(), file["features"].tolist())
