"""Random numbers as a function of what they are for (csrc/compute/random.h): no state, so no order.

A dropout mask depends on (seed, update, layer, sample, element) alone. However the samples of a
window are grouped into micro-batches, each sample gets the same mask.

Two steps. A stream, one 64-bit number, is mixed from the four numbers of a sample: xor with itself
shifted, times an odd constant, twice, after which every bit depends on every bit before. Each
element then takes 32 bits mixed from its stream and its own number.
"""
import numpy as np

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def random_substream(stream, number):
    """A stream mixed from another one and a number below 2^64, such as (head << 32 | query)."""
    return _mix(stream + _GOLDEN + number & _MASK)


def random_stream(seed, update, layer, sample):
    """One 64-bit number per sample of a layer (SplitMix64's finaliser, Steele, Lea, Flood 2014)."""
    k = 0
    for value in (seed, update, layer, sample):
        k = random_substream(k, value)
    return k


def random_elements(stream, count):
    """``count`` 32-bit numbers of a stream, elements 0, 1, 2, ..."""
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
        x = x ^ np.uint32(stream & 0xFFFFFFFF)
        x = (x ^ x >> np.uint32(16)) * np.uint32(0x7FEB352D) + np.uint32(stream >> 32)
        x = (x ^ x >> np.uint32(15)) * np.uint32(0x846CA68B)
    return x ^ x >> np.uint32(16)
