"""Real data that ships with the package, and batches of it. Nothing is downloaded."""
from .batches import batches
from .brain_mri import brain_mri
from .breast_cancer import breast_cancer
from .digits import digits
from .idx import fashion_mnist, read_idx

__all__ = ["batches", "brain_mri", "breast_cancer", "digits", "fashion_mnist", "read_idx"]
