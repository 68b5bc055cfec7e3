"""ResNet-20 for 32 x 32 images (He et al. 2016, section 4.2), with the parameter names of torchvision's ResNet."""
from .. import nn
from ._norm import norm_layer


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut, which is a 1 x 1 convolution where the size changes."""

    def __init__(self, in_channels: int, channels: int, stride: int, norm: str):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = norm_layer(norm, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = norm_layer(norm, channels)
        self.downsample = None
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(nn.Conv2d(in_channels, channels, 1, stride=stride, bias=False), norm_layer(norm, channels))

    def forward(self, x):
        h = nn.functional.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return nn.functional.relu(h + (self.downsample(x) if self.downsample is not None else x))


class ResNet20(nn.Module):
    """Three stages of three blocks, 16, 32 and 64 channels."""

    def __init__(self, num_classes: int, in_channels: int, norm: str):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.bn1 = norm_layer(norm, 16)
        for i, (a, b) in enumerate([(16, 16), (16, 32), (32, 64)], start=1):
            blocks = [BasicBlock(a, b, 1 if i == 1 else 2, norm), BasicBlock(b, b, 1, norm), BasicBlock(b, b, 1, norm)]
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
        self.avgpool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.fc = nn.Linear(64, num_classes)

    def forward(self, x):
        x = nn.functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(self.flatten(self.avgpool(x)))


def resnet20(num_classes: int = 10, in_channels: int = 3, norm: str = "batch") -> nn.Module:
    """ResNet-20. norm="batch" as published; "group" has the same bits for every split of a batch."""
    return ResNet20(num_classes, in_channels, norm)
