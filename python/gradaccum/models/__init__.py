"""Small models made of ``gradaccum.nn``: what the examples, tests and benchmarks train."""
from .cnn import cnn
from .gpt import gpt, load_gpt2
from .mlp import mlp
from .resnet import resnet20
from .unet import unet

__all__ = ["cnn", "gpt", "load_gpt2", "mlp", "resnet20", "unet"]
