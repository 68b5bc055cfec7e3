"""Breast cancer Wisconsin (diagnostic): 569 samples, 30 numbers each, malignant or benign.

Source: W. Wolberg, O. Mangasarian, N. Street, W. Street, UCI Machine Learning Repository 1995 (CC BY 4.0), as scikit-learn distributes it
(BSD-3-Clause, ``sklearn.datasets.load_breast_cancer``). See LICENSES/breast_cancer.txt.
"""
from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np


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
        standardize: shift and scale each feature by mean and standard deviation of the training rows.
    """
    with np.load(Path(__file__).with_name("breast_cancer.npz"), allow_pickle=False) as file:
        data, target = file["data"], file["target"].astype(np.int64)
        classes, features = file["classes"].tolist(), file["features"].tolist()
    test = np.arange(len(data)) % 5 == 4
    if standardize:
        data = (data - data[~test].mean(axis=0)) / data[~test].std(axis=0)
    data = data.astype(dtype)
    return Table(data[~test], target[~test], data[test], target[test], classes, features)
