"""Convolutions."""
from __future__ import annotations

import math

from .._checks import choice, whole
from .module import Layer, Symbol
from .parameter import Parameter, fan_in_uniform

_ALGORITHMS = ("direct", "winograd", "auto")     # the core's numbers

def pair(name: str, value, least: int = 1) -> tuple[int, int]:
    """One number for both axes, or (height, width)."""
    items = value if isinstance(value, (tuple, list)) else (value, value)
    if len(items) != 2:
        raise ValueError(f"{name}={value!r}: expected a number or (height, width)")
    return whole(name, items[0], least), whole(name, items[1], least)


class _Conv(Layer):
    parameter_names = ("weight", "bias")

    def __init__(self, in_channels, out_channels, kernel_size, stride, dilation, groups, bias, transposed):
        super().__init__()
        name = type(self).__name__
        self.in_channels, self.out_channels = whole(f"{name}: in_channels", in_channels), whole(f"{name}: out_channels", out_channels)
        self.kernel_size = pair(f"{name}: kernel_size", kernel_size)
        self.stride, self.dilation = pair(f"{name}: stride", stride), pair(f"{name}: dilation", dilation)
        self.groups = whole(f"{name}: groups", groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"{name}: groups={groups} must divide in_channels={in_channels} and out_channels={out_channels}")
        shape = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        fan_in = shape[1] * self.kernel_size[0] * self.kernel_size[1]
        self.weight = Parameter((*shape, *self.kernel_size), fan_in_uniform(fan_in))
        self.bias = Parameter((out_channels,), fan_in_uniform(fan_in)) if bias else None

    def options(self):
        out = {"out_channels": self.out_channels, "groups": self.groups, "bias": self.bias is not None}
        for name, values in (("kernel", self.kernel_size), ("stride", self.stride), ("dilation", self.dilation), ("padding", self._first),
                             ("extra", self._extra)):
            out[f"{name}_h"], out[f"{name}_w"] = values
        return out

    def check(self, x: Symbol):
        if len(x.shape) == 3 and x.shape[0] != self.in_channels:
            raise ValueError(f"{self!r}: the input has shape {x.shape} per sample, so in_channels should be {x.shape[0]}")

    def extra_repr(self):
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class Conv2d(_Conv):
    """Cross-correlation of images (C, H, W) with kernels.

    Args:
        in_channels, out_channels, kernel_size, stride, dilation, groups, bias: as torch.nn.Conv2d; sizes are numbers or (height, width).
        padding: zeros on each side, or "same" (output as large as the input, stride 1) or "valid" (none).
        algorithm: "direct", the sum as it is written; "winograd" (Lavin, Gray 2015, arXiv:1509.09308) for kernel_size 3, stride 1, dilation 1,
            groups 1 and padding 0 to 2: 2.25 times fewer multiplications; or "auto": Winograd where that is possible and its error is the
            smaller one and below 2e-6 of the result (up to 64 channels), else direct. All give the same bits for every split; between them
            rounding differs. Where Winograd would be slower the direct sum stays in any case: in layers with fewer than 16 input or output
            channels, for the weight's gradient below 32 tiles of 2 x 2 outputs, and with ``engine="openblas"``.

    Parameters: ``weight`` (out_channels, in_channels / groups, kh, kw), ``bias`` (out_channels,), uniform in ±1/sqrt(fan in).
    """

    kind = "conv2d"

    def __init__(self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, dilation=1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", algorithm: str = "auto"):
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, bias, False)
        choice("Conv2d: algorithm", algorithm, _ALGORITHMS)
        self.algorithm = algorithm
        if padding_mode != "zeros":
            raise ValueError(f'Conv2d: padding_mode={padding_mode!r}, only "zeros" is supported')
        self.padding, self._extra = padding, (0, 0)
        if padding == "same":
            if self.stride != (1, 1):
                raise ValueError(f'Conv2d: padding="same" needs stride 1, got {self.stride}')
            total = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
            self._first, self._extra = tuple(t // 2 for t in total), tuple(t % 2 for t in total)
        elif isinstance(padding, str) and padding != "valid":
            raise ValueError(f'Conv2d: padding={padding!r}, expected "same", "valid" or numbers')
        else:
            self._first = (0, 0) if padding == "valid" else pair("Conv2d: padding", padding, 0)

    def options(self):
        return super().options() | {"winograd": _ALGORITHMS.index(self.algorithm)}

    def extra_repr(self):
        return super().extra_repr() + ("" if self.algorithm == "auto" else f", algorithm={self.algorithm!r}")


class ConvTranspose2d(_Conv):
    """The gradient of a Conv2d as a layer: enlarges images.

    Args: as torch.nn.ConvTranspose2d. ``weight`` is (in_channels, out_channels / groups, kh, kw).
    """

    kind = "conv_transpose2d"

    def __init__(self, in_channels: int, out_channels: int, kernel_size, stride=1, padding=0, output_padding=0, groups: int = 1, bias: bool = True,
                 dilation=1, padding_mode: str = "zeros"):
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, bias, True)
        if padding_mode != "zeros":
            raise ValueError(f'ConvTranspose2d: padding_mode={padding_mode!r}, only "zeros" is supported')
        self.padding = self._first = pair("ConvTranspose2d: padding", padding, 0)
        self.output_padding = self._extra = pair("ConvTranspose2d: output_padding", output_padding, 0)


def size_of(name, size, scale, shape) -> tuple[int, int]:
    """Output size of an Upsample from its size or scale_factor."""
    if (size is None) == (scale is None):
        raise ValueError(f"{name}: give either size or scale_factor")
    if size is not None:
        return pair(f"{name}: size", size)
    scales = scale if isinstance(scale, (tuple, list)) else (scale, scale)
    sizes = [n * s for n, s in zip(shape[1:], scales)]
    if any(n < 1 or n != math.floor(n) for n in sizes):
        raise ValueError(f"{name}: scale_factor={scale!r} makes {tuple(shape[1:])} pixels {sizes[0]:g} x {sizes[1]:g}; "
                         "give size=(height, width) instead")
    return tuple(int(n) for n in sizes)
