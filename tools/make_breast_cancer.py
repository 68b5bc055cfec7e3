"""Makes python/gradaccum/data/breast_cancer.npz from scikit-learn's copy of the Wisconsin diagnostic table. Needs scikit-learn."""
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

source = load_breast_cancer()
target = Path(__file__).parent.parent / "python/gradaccum/data/breast_cancer.npz"
np.savez_compressed(target, data=source.data, target=source.target.astype(np.uint8), features=source.feature_names.astype("U"),
                    classes=source.target_names.astype("U"))
print(f"{target.name}: {target.stat().st_size:,} bytes, {source.data.shape}")
