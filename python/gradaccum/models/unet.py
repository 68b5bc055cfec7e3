"""A small U-Net (Ronneberger, Fischer, Brox 2015): an image in, one class per pixel out."""
from .. import nn
from ._norm import norm_layer


class UNet(nn.Module):
    """Down by pooling, up by transposed convolutions, with the image of each level carried across."""

    def __init__(self, in_channels: int, num_classes: int, channels: tuple[int, ...], norm: str):
        super().__init__()
        two = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), norm_layer(norm, b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1),  # noqa: E731
                                         norm_layer(norm, b), nn.ReLU())
        self.down = nn.ModuleList([two(a, b) for a, b in zip((in_channels, *channels), channels)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(channels, channels[1:])])
        self.merge = nn.ModuleList([two(2 * a, a) for a in channels[:-1]])
        self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(channels[0], num_classes, 1)

    def forward(self, x):
        levels = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else self.pool(x))
            levels.append(x)
        for i in reversed(range(len(self.up))):
            x = self.merge[i](nn.functional.cat([levels[i], self.up[i](x)]))
        return self.head(x)


def unet(in_channels: int = 1, num_classes: int = 3, channels: tuple[int, ...] = (8, 16, 32), norm: str = "group") -> nn.Module:
    """A U-Net; height and width must be divisible by 2 for each level below the first."""
    return UNet(in_channels, num_classes, tuple(channels), norm)
