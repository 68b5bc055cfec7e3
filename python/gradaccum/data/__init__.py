"""Real data that ships with the package, batches of it, and text as numbers. Nothing is downloaded.

A set is (x_train, y_train, x_test, y_test), or a named tuple if there is more to say. Images are
float32 in (n, channels, height, width) or flat, labels int64.
"""
from .batches import Loader, batches
from .brain_mri import brain_mri
from .breast_cancer import breast_cancer
from .digits import digits
from .idx import fashion_mnist, read_idx
from .names import names
from .pack import pack, unpack
from .tokenizer import CharTokenizer

__all__ = ["CharTokenizer", "Loader", "batches", "brain_mri", "breast_cancer", "digits", "fashion_mnist",
           "names", "pack", "read_idx", "unpack"]
