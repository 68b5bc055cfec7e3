"""Files in the format of MNIST (idx), plain or gzipped, and Fashion-MNIST from Debian's package.

The format is described on the MNIST page of Y. LeCun, C. Cortes and C. Burges.
"""
from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from ._files import real

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
DEBIAN = "/usr/share/datasets/fashion-mnist"
FASHION_CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt",
                   "Sneaker", "Bag", "Ankle boot")


def read_idx(path) -> np.ndarray:
    """The array in an idx file: two zero bytes, type, number of dimensions, sizes (big-endian),
    elements. A new array in the machine's byte order.

    Raises:
        ValueError: no idx file, damaged, truncated, or longer than its sizes say; tells which.
    """
    raw = Path(path).read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: damaged or truncated gzip file ({error}); "
                             "copy or download it again") from None
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _TYPES or not raw[3]:
        raise ValueError(f"{path}: not an idx file; it must begin with two zero bytes, a type (8, 9, "
                         f"11 to 14) and the number of dimensions, and begins with {list(raw[:4])}")
    head = 4 + 4 * raw[3]
    if len(raw) < head:
        raise ValueError(f"{path}: truncated: {raw[3]} sizes are announced, the file ends before them")
    shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", raw[3], 4))
    dtype = np.dtype(_TYPES[raw[2]])
    want = head + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if len(raw) != want:
        raise ValueError(f"{path}: {'truncated' if len(raw) < want else 'too long'}: shape {shape} "
                         f"needs {want} bytes, the file has {len(raw)}")
    return np.frombuffer(raw, dtype, offset=head).reshape(shape).astype(dtype.newbyteorder("="))


def fashion_mnist(folder=None, flat: bool = False, dtype="float32") -> tuple[np.ndarray, ...]:
    """(x_train, y_train, x_test, y_test) of Fashion-MNIST (Xiao, Rasul, Vollgraf 2017), or of MNIST
    in a folder of yours: the file names are the same.

    Args:
        folder: with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-..., each possibly .gz;
            None is where Debian's package dataset-fashion-mnist puts them.
        flat: (n, 784) instead of (n, 1, 28, 28).
        dtype: of the images, scaled to [0, 1].

    Returns:
        60,000 training and 10,000 test images; labels int64, for names see ``idx.FASHION_CLASSES``.

    Raises:
        FileNotFoundError: tells how to install them. ValueError: damaged files.
    """
    folder, dtype = Path(DEBIAN if folder is None else folder), real(dtype)

    def find(name):
        for path in (folder / name, folder / f"{name}.gz"):
            if path.exists():
                return read_idx(path)
        raise FileNotFoundError(f"{folder / name}(.gz): not found. Fashion-MNIST comes with Debian's "
                                "package: apt-get install dataset-fashion-mnist")

    out = []
    for part in ("train", "t10k"):
        x, y = find(f"{part}-images-idx3-ubyte"), find(f"{part}-labels-idx1-ubyte").astype(np.int64)
        if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
            raise ValueError(f"{folder}: {part} has images {x.shape} and labels {y.shape}; "
                             "expected (n, height, width) and (n,)")
        x = np.divide(x, 255, dtype=dtype)
        out += [x.reshape(len(x), -1) if flat else x[:, None], y]
    return tuple(out)
