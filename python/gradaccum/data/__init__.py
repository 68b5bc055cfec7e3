"""Real data that ships with the package, and batches of it. Nothing is downloaded."""
from .batches import batches
from .digits import digits

__all__ = ["batches", "digits"]
