"""Image layers against PyTorch where it is installed: outputs, gradients, running statistics, from PyTorch's own state dict."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn

torch = pytest.importorskip("torch")

LAYERS = [
    (nn.Conv2d(4, 6, 3, stride=2, padding=1), (4, 7, 6)), (nn.Conv2d(4, 6, (3, 2), padding=(2, 1), dilation=(2, 1), groups=2, bias=False), (4, 7, 6)),
    (nn.Conv2d(4, 4, 3, padding="same", groups=4), (4, 5, 6)), (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (4, 3, 4)),
    (nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), (4, 3, 4)), (nn.MaxPool2d(3, 2, 1), (3, 7, 6)), (nn.AvgPool2d(3, 2, 1), (3, 7, 6)),
    (nn.AvgPool2d(2, count_include_pad=False), (3, 7, 6)), (nn.AdaptiveAvgPool2d((3, 2)), (3, 7, 5)), (nn.Upsample(scale_factor=2), (2, 3, 4)),
    (nn.Upsample(size=(5, 7), mode="bilinear"), (2, 3, 4)), (nn.Upsample(size=(5, 7), mode="bilinear", align_corners=True), (2, 3, 4)),
    (nn.BatchNorm2d(3), (3, 4, 5)), (nn.GroupNorm(2, 4), (4, 3, 5)), (nn.InstanceNorm2d(3, affine=True), (3, 4, 5)), (nn.ZeroPad2d((1, 2, 0, 3)), (2, 3, 4)),
]
ARGUMENTS = [
    lambda: torch.nn.Conv2d(4, 6, 3, stride=2, padding=1), lambda: torch.nn.Conv2d(4, 6, (3, 2), padding=(2, 1), dilation=(2, 1), groups=2, bias=False),
    lambda: torch.nn.Conv2d(4, 4, 3, padding="same", groups=4), lambda: torch.nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
    lambda: torch.nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), lambda: torch.nn.MaxPool2d(3, 2, 1), lambda: torch.nn.AvgPool2d(3, 2, 1),
    lambda: torch.nn.AvgPool2d(2, count_include_pad=False), lambda: torch.nn.AdaptiveAvgPool2d((3, 2)), lambda: torch.nn.Upsample(scale_factor=2),
    lambda: torch.nn.Upsample(size=(5, 7), mode="bilinear"), lambda: torch.nn.Upsample(size=(5, 7), mode="bilinear", align_corners=True),
    lambda: torch.nn.BatchNorm2d(3), lambda: torch.nn.GroupNorm(2, 4), lambda: torch.nn.InstanceNorm2d(3, affine=True),
    lambda: torch.nn.ZeroPad2d((1, 2, 0, 3)),
]


@pytest.mark.parametrize("case", range(len(LAYERS)), ids=[repr(layer) for layer, _ in LAYERS])
def test_layer(case):
    (layer, shape), theirs = LAYERS[case], ARGUMENTS[case]().double()
    probe = nn.Sequential(nn.Conv2d(shape[0], shape[0], 1), layer)                       # a layer before it shows the input's gradient
    net = ga.plan(probe, input_shape=shape, loss=nn.MSELoss(), micro_batch=3, dtype="float64", keep="all")
    identity = {"0.weight": np.eye(shape[0])[:, :, None, None], "0.bias": np.zeros(shape[0])}
    net.load_state_dict(identity | {f"1.{name}": value.numpy() for name, value in theirs.state_dict().items()})
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, *shape))
    tensor = torch.tensor(x, requires_grad=True)
    y, out = net.forward(x), theirs(tensor)
    assert np.abs(y - out.detach().numpy()).max() < 1e-12
    target = rng.normal(size=y.shape)
    net.loss(target)
    net.backward()
    ((out - torch.tensor(target)) ** 2).sum().backward()
    assert np.abs(net.node("0").output_grad - tensor.grad.numpy()).max() < 1e-11
    for name, p in theirs.named_parameters():
        assert np.abs(net.parameters()[f"1.{name}"].grad - p.grad.numpy()).max() < 1e-11, name
    for name, value in theirs.state_dict().items():                                       # running statistics after one forward
        assert np.abs(net.state_dict()[f"1.{name}"] - value.numpy()).max() < 1e-12, name
