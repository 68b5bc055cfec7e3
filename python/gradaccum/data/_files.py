"""Reading the files beside this module, and checks that the loaders share."""
from __future__ import annotations

from pathlib import Path

import numpy as np

from .._checks import choice


def path(name: str) -> Path:
    """Where the data file ``name`` is."""
    return Path(__file__).with_name(name)


def arrays(name: str) -> dict[str, np.ndarray]:
    """The arrays of an npz file. Pickles, which could run code, are refused."""
    with np.load(path(name), allow_pickle=False) as file:
        return dict(file)


def real(dtype) -> np.dtype:
    """``dtype`` as one that a network can take."""
    choice("dtype", np.dtype(dtype).name, ("float32", "float64"))
    return np.dtype(dtype)
