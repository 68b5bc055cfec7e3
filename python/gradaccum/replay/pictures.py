"""Buffers as small pictures of bytes.

Signed numbers (parameters, gradients, outputs) become 1 ... 255 with zero at 128, on a square-root scale:
``level = 128 + 127 * sign(v) * sqrt(|v| / scale)``, with ``scale`` the largest magnitude, so that a number a hundred times smaller
is still seen; 0 marks NaN and infinity. Images become 0 ... 255 between the smallest and the largest number of the window.
"""
from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Picture:
    """A buffer made small.

    Attributes:
        kind: "signed", pixels (h, w); or "images", pixels (n, h, w) or (n, h, w, 3).
        shape: of the buffer itself.
        scale: of "signed": the magnitude of the levels 1 and 255.
        pixels: uint8; each is the mean of the cells that it stands for.
    """

    kind: str
    shape: tuple[int, ...]
    scale: float
    pixels: np.ndarray

    def to_dict(self) -> dict:
        """For JSON: the pixels as base64 text."""
        return {"kind": self.kind, "shape": list(self.shape), "size": list(self.pixels.shape), "scale": self.scale,
                "pixels": base64.b64encode(self.pixels.tobytes()).decode()}


def flat_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """(rows, columns) in which an array of this shape is drawn: little images (out, in, height, width) side by side, else the last axis across."""
    if len(shape) == 4:
        return shape[1] * shape[2], shape[0] * shape[3]
    if len(shape) < 2:
        return 1, int(np.prod(shape, dtype=np.int64))
    return int(np.prod(shape[:-1], dtype=np.int64)), shape[-1]


def flatten(a: np.ndarray) -> np.ndarray:
    """``a`` as a matrix of ``flat_shape``."""
    return (a.transpose(1, 2, 0, 3) if a.ndim == 4 else a).reshape(flat_shape(a.shape))


def pixel_count(shape: tuple[int, ...], side: int) -> int:
    """Bytes of ``signed`` for this shape."""
    rows, columns = flat_shape(shape)
    return min(rows, side) * min(columns, side)


def signed(a: np.ndarray, side: int) -> Picture:
    """A picture of at most ``side`` x ``side`` pixels of an array of any shape."""
    small = _shrink(flatten(a), side).astype(np.float64)
    finite = np.isfinite(small)
    magnitude = np.abs(np.where(finite, small, 0))
    scale = float(magnitude.max(initial=0.0))
    level = np.sqrt(magnitude / scale) if scale else magnitude
    pixels = np.where(finite, np.rint(128 + 127 * np.sign(np.where(finite, small, 0)) * level), 0).astype(np.uint8)
    return Picture("signed", a.shape, scale, pixels)


def images(a: np.ndarray, low: float, high: float, side: int) -> Picture:
    """Pictures (n, h, w) or (n, h, w, 3) of at most ``side`` x ``side`` pixels each, from (n, channels, h, w); low is black, high is white."""
    span = high - low if high > low else 1.0
    shades = np.nan_to_num((a.astype(np.float64) - low) / span, nan=0.0).clip(0, 1)
    small = np.array([[_shrink(channel, side) for channel in image] for image in shades])
    pixels = np.rint(255 * small).astype(np.uint8)
    pixels = pixels[:, 0] if pixels.shape[1] == 1 else pixels.transpose(0, 2, 3, 1)
    return Picture("images", a.shape, high, np.ascontiguousarray(pixels))


def _shrink(a: np.ndarray, side: int) -> np.ndarray:
    """Means over blocks, at most ``side`` of them along each axis."""
    for axis in (0, 1):
        n = a.shape[axis]
        if n > side:
            edges = np.arange(side + 1) * n // side
            with np.errstate(invalid="ignore", over="ignore"):
                a = np.add.reduceat(a, edges[:-1], axis=axis, dtype=np.float64) / np.diff(edges).reshape((-1, 1) if axis == 0 else (1, -1))
    return a
