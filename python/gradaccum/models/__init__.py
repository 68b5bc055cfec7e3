"""Small models made of ``gradaccum.nn``: what the examples, tests and benchmarks train."""
from .cnn import cnn
from .mlp import mlp
from .resnet import resnet20
from .unet import unet

__all__ = ["cnn", "mlp", "resnet20", "unet"]
