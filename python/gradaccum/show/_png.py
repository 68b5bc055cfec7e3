"""Arrays as small PNG pictures, with the standard library alone."""
from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from ..replay.pictures import signed

NEGATIVE, ZERO, POSITIVE, BROKEN = (0, 114, 178), (255, 255, 255), (213, 94, 0), (0, 0, 0)      # blue, white, vermillion; black: NaN or infinity


def png(pixels: np.ndarray) -> bytes:
    """Pixels (height, width, 3) of uint8 as a PNG file (ISO/IEC 15948): 8 bits, RGB, no filter."""
    height, width, _ = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, 3 * width)], axis=1)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
            + chunk(b"IEND", b""))


def _palette() -> np.ndarray:
    """Colours of the levels of ``replay.pictures``: 1 ... 255 from negative over 0 at 128 to positive, 0 for what is no number."""
    share = np.linspace(-1, 1, 255)[:, None]
    ends = np.where(share < 0, NEGATIVE, POSITIVE)
    return np.vstack([[BROKEN], np.rint(ZERO + np.abs(share) * (ends - np.array(ZERO)))]).astype(np.uint8)


PALETTE = _palette()


def picture(a: np.ndarray, side: int = 64) -> tuple[bytes, int, int]:
    """(PNG, height, width) of at most ``side`` x ``side`` pixels: blue is negative, vermillion positive, white zero, on a square-root scale."""
    pixels = PALETTE[signed(a, side).pixels]
    return png(pixels), *pixels.shape[:2]


def data_uri(data: bytes) -> str:
    """For the src of an image."""
    return "data:image/png;base64," + base64.b64encode(data).decode()
