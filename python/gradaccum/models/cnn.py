"""A small convolutional network."""
from .. import nn
from .._checks import whole
from ._norm import norm_layer


def cnn(in_channels: int = 1, num_classes: int = 10, channels: tuple[int, ...] = (16, 32), image_size: tuple[int, int] = (28, 28),
        norm: str | None = None) -> nn.Sequential:
    """For each number of channels: 3 x 3 convolution, normalisation if wanted, ReLU, 2 x 2 pooling; then one linear layer.

    The default, for 28 x 28 images, has 160 + 4,640 + 15,690 = 20,490 parameters.
    """
    layers, (h, w) = [], image_size
    for out_channels in channels:
        layers.append(nn.Conv2d(in_channels, whole("channels", out_channels), 3, padding=1))
        if norm is not None:
            layers.append(norm_layer(norm, out_channels))
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        in_channels, h, w = out_channels, h // 2, w // 2
    if h < 1 or w < 1:
        raise ValueError(f"cnn: an image of {image_size} cannot be halved {len(channels)} times")
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(in_channels * h * w, num_classes))
