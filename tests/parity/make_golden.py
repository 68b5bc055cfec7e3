"""Writes golden.npz: what PyTorch makes of ``cases``. Run with PyTorch installed: python tests/parity/make_golden.py"""
from pathlib import Path

import numpy as np
import torch
from cases import CASES, key
from with_torch import run

arrays = {"torch": np.array(torch.__version__)}
for optimizer, loss in CASES:
    params, losses = run(optimizer, loss)
    arrays[key(optimizer, loss) + "; params"], arrays[key(optimizer, loss) + "; losses"] = params, losses.astype("float32")
target = Path(__file__).with_name("golden.npz")
np.savez_compressed(target, **arrays)
print(f"{target.name}: {len(CASES)} runs, PyTorch {torch.__version__}, {target.stat().st_size:,} bytes")
