"""Fully connected networks."""
from .. import nn


def mlp(*sizes: int, dropout: float = 0.0) -> nn.Sequential:
    """Linear layers with ReLU between them: ``mlp(64, 128, 10)``. Dropout, if any, stands after each ReLU."""
    if len(sizes) < 2:
        raise ValueError(f"mlp{sizes}: give at least two sizes, such as mlp(64, 10)")
    layers = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers.append(nn.ReLU())
            if dropout:
                layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)
