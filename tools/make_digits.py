"""Makes python/gradaccum/data/digits.npz from scikit-learn's copy of the UCI handwritten digits. Needs scikit-learn."""
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

source = load_digits()
target = Path(__file__).parent.parent / "python/gradaccum/data/digits.npz"
np.savez_compressed(target, images=source.images.astype(np.uint8), labels=source.target.astype(np.uint8))
print(f"{target}: {target.stat().st_size:,} bytes, {source.images.shape[0]} images, values 0 to {source.images.max():.0f}")
