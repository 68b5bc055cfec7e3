"""Layers on images without parameters: pooling, upsampling, padding, concatenation, Dropout2d."""
from __future__ import annotations

from .conv import pair, size_of
from .dropout import Dropout
from .module import Layer, Symbol


class _Pool(Layer):
    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, count_include_pad=True):
        super().__init__()
        name = type(self).__name__
        if ceil_mode:
            raise ValueError(f"{name}: ceil_mode=True is not supported; pad the image instead, with ZeroPad2d or padding=")
        self.kernel_size = pair(f"{name}: kernel_size", kernel_size)
        self.stride = self.kernel_size if stride is None else pair(f"{name}: stride", stride)
        self.padding, self.dilation = pair(f"{name}: padding", padding, 0), pair(f"{name}: dilation", dilation)
        self.count_include_pad = count_include_pad

    def options(self):
        out = {"count_include_pad": self.count_include_pad}
        for name, values in (("kernel", self.kernel_size), ("stride", self.stride), ("padding", self.padding), ("dilation", self.dilation)):
            out[f"{name}_h"], out[f"{name}_w"] = values
        return out

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool2d(_Pool):
    """The largest value of each window of pixels; stride is the kernel size by default."""

    kind = "max_pool2d"

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode: bool = False):
        super().__init__(kernel_size, stride, padding, dilation, ceil_mode)


class AvgPool2d(_Pool):
    """The mean of each window of pixels; padded zeros count unless count_include_pad=False."""

    kind = "avg_pool2d"

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode: bool = False, count_include_pad: bool = True):
        super().__init__(kernel_size, stride, padding, 1, ceil_mode, count_include_pad)


class AdaptiveAvgPool2d(Layer):
    """The mean of windows that cover the image so that the output has ``output_size``; 1 is the mean of each channel."""

    kind = "adaptive_avg_pool2d"

    def __init__(self, output_size):
        super().__init__()
        self.output_size = pair("AdaptiveAvgPool2d: output_size", output_size)

    def options(self):
        return {"output_h": self.output_size[0], "output_w": self.output_size[1]}

    def extra_repr(self):
        return f"{self.output_size}"


class Upsample(Layer):
    """Enlarges images by repeating pixels ("nearest") or by linear interpolation along both axes ("bilinear").

    Args:
        size: (height, width) of the output, or scale_factor: of both axes. mode, align_corners: as torch.nn.Upsample.
    """

    kind = "upsample"

    def __init__(self, size=None, scale_factor=None, mode: str = "nearest", align_corners: bool | None = None):
        super().__init__()
        if mode not in ("nearest", "bilinear"):
            raise ValueError(f'Upsample: mode={mode!r}, expected "nearest" or "bilinear"')
        if align_corners is not None and mode == "nearest":
            raise ValueError('Upsample: align_corners belongs to mode="bilinear"')
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners
        self._output = (1, 1)

    def check(self, x: Symbol):
        if len(x.shape) == 3:
            self._output = size_of("Upsample", self.size, self.scale_factor, x.shape)

    def options(self):
        return {"output_h": self._output[0], "output_w": self._output[1], "bilinear": self.mode == "bilinear",
                "align_corners": bool(self.align_corners)}

    def extra_repr(self):
        return f"size={self.size}, scale_factor={self.scale_factor}, mode={self.mode!r}"


class ZeroPad2d(Layer):
    """Zeros around images: one number for all sides, or (left, right, top, bottom); negative numbers cut off."""

    kind = "zero_pad2d"

    def __init__(self, padding):
        super().__init__()
        sides = padding if isinstance(padding, (tuple, list)) else (padding,) * 4
        if len(sides) != 4 or any(isinstance(n, bool) or not isinstance(n, int) for n in sides):
            raise ValueError(f"ZeroPad2d: padding={padding!r}, expected a number or (left, right, top, bottom)")
        self.padding = tuple(sides)

    def options(self):
        return dict(zip(("left", "right", "top", "bottom"), self.padding))

    def extra_repr(self):
        return f"{self.padding}"


class Cat(Layer):
    """Inputs one after the other along the channels (features): ``nn.Cat()(a, b)``, at most 8."""

    kind = "cat"


class Dropout2d(Dropout):
    """Dropout of whole channels of an image (Tompson et al. 2015)."""

    kind = "dropout2d"
