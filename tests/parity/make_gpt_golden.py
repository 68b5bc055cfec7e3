"""Writes gpt_golden.npz: what PyTorch makes of ``gpt_cases``. Run with PyTorch installed: python tests/parity/make_gpt_golden.py"""
from pathlib import Path

import numpy as np
import torch
from with_torch_gpt import run

parameters, losses = run()
target = Path(__file__).with_name("gpt_golden.npz")
np.savez_compressed(target, torch=np.array(torch.__version__), losses=losses, **parameters)
print(f"{target.name}: PyTorch {torch.__version__}, {target.stat().st_size:,} bytes")
