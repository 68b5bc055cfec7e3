"""Reader and writer of the safetensors layout: named arrays in one file, nothing in it is executed.

    8 bytes   n, the length of the header, unsigned, little-endian
    n bytes   the header, JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {text: text}}
    the rest  the arrays, row-major, little-endian, each at its data_offsets

The reader trusts nothing. It refuses, with the reason, a file that is cut off, a header that is no such JSON, unknown types, sizes that do
not fit type and shape, and arrays that overlap, leave a gap, or do not fill the file to its last byte. The layout is that of
https://github.com/huggingface/safetensors.

``save(..., checksum=True)`` puts a SHA-256 over the whole file into the metadata, computed while its own 64 digits are zeros;
``read`` refuses a file in which a single bit differs.
"""
from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from contextlib import suppress
from typing import Iterable, Mapping

import numpy as np

__all__ = ["load", "metadata", "read", "save"]

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
          "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"}
WRITTEN = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
           "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL"}
MAX_HEADER = 100_000_000                                     # bytes; real headers have some thousands
NO_DIGEST = "0" * 64                                         # where the checksum comes
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _pairs(items):
    """A JSON object without repeated keys, which ``json`` would silently drop."""
    out = dict(items)
    if len(out) != len(items):
        names = [name for name, _ in items]
        raise ValueError(f"the name {next(n for n in names if names.count(n) > 1)!r} occurs twice")
    return out


def _constant(text):
    raise ValueError(f"{text} is not JSON")


def _whole(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _entry(name: str, entry, room: int) -> tuple[str, tuple[int, ...], int, int]:
    """(dtype, shape, first byte, last byte + 1) of one array, checked by itself."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name!r}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{name!r}: the type {dtype!r} is not supported; known are {', '.join(DTYPES)}")
    if not isinstance(shape, list) or len(shape) > 32 or not all(_whole(n) for n in shape):
        raise ValueError(f"{name!r}: shape {shape!r}, expected a list of at most 32 sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_whole(n) for n in offsets) or not offsets[0] <= offsets[1] <= room:
        raise ValueError(f"{name!r}: data_offsets {offsets!r}, expected two places in the {room} bytes of data; the file may be cut off")
    size = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
    if offsets[1] - offsets[0] != size:
        raise ValueError(f"{name!r}: {dtype} of shape {tuple(shape)} takes {size} bytes, data_offsets {offsets} hold {offsets[1] - offsets[0]}")
    return dtype, tuple(shape), offsets[0], offsets[1]


def _header(file, size: int) -> tuple[dict, dict, int]:
    """(entries by name, metadata, where the data starts)."""
    if size < 8:
        raise ValueError(f"{size} bytes are too few for the length of a header")
    length = int.from_bytes(file.read(8), "little")
    if length > MAX_HEADER:
        raise ValueError(f"a header of {length} bytes is too long (at most {MAX_HEADER})")
    if length > size - 8:
        raise ValueError(f"the header should have {length} bytes, but only {size - 8} follow: the file is cut off, or no safetensors file")
    try:
        text = file.read(length)
        if not text.startswith(b"{"):
            raise ValueError("it does not begin with {")
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_constant)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"the header is no valid JSON: {error}") from None
    meta = header.pop("__metadata__", {})
    if not isinstance(meta, dict) or not all(isinstance(v, str) for v in meta.values()):
        raise ValueError("__metadata__: expected texts by name")
    room = size - 8 - length
    entries = {name: _entry(name, entry, room) for name, entry in header.items()}
    end, before = 0, "the header"
    for name, (_, _, first, last) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if first != end:
            raise ValueError(f"{name!r} {'overlaps' if first < end else 'leaves a gap after'} {before}: it starts at byte {first}, expected {end}")
        end, before = last, repr(name)
    if end != room:
        raise ValueError(f"the arrays take {end} bytes, but {room} follow the header: the file is cut off or has something else at its end")
    return entries, meta, 8 + length


def _open(path, read):
    with open(path, "rb") as file:
        try:
            return read(file, *_header(file, os.fstat(file.fileno()).st_size))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None


def _array(file, start: int, dtype: str, shape, first: int, last: int, digest=None) -> np.ndarray:
    file.seek(start + first)
    array = np.fromfile(file, DTYPES[dtype], math.prod(shape)).reshape(-1)
    if array.nbytes != last - first:
        raise ValueError("the file ended while it was read")
    if digest is not None:
        digest.update(array)
    if dtype == "BOOL" and np.any(array.view(np.uint8) > 1):
        raise ValueError("a BOOL array has other bytes than 0 and 1")
    array = array.reshape(shape)
    if dtype == "BF16":                                      # the upper half of a float32
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def load(path, names=None) -> dict[str, np.ndarray]:
    """All arrays of a file by name, or those in ``names``. BF16 becomes float32, everything else keeps its type.

    Raises:
        ValueError: the file breaks the layout; the text says how. KeyError: a name that it does not have.
    """
    def read(file, entries, _, start):
        missing = [name for name in names or () if name not in entries]
        if missing:
            raise KeyError(f"{os.fspath(path)} has no array {', '.join(map(repr, missing))}")
        return {name: _array(file, start, *entries[name]) for name in (entries if names is None else names)}

    return _open(path, read)


def metadata(path) -> dict[str, str]:
    """The texts that a file carries beside its arrays."""
    return _open(path, lambda file, entries, meta, start: meta)


def read(path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays, metadata) of a file that was saved with a checksum, from one reading of it.

    Raises:
        ValueError: as ``load``; there is no checksum; or it is that of another content.
    """
    def read_all(file, entries, meta, start):
        given = meta.pop("sha256", "")
        file.seek(0)
        head, mark = file.read(start), b'"sha256":"%b"' % given.encode()
        if len(given) != len(NO_DIGEST) or head.count(mark) != 1:
            raise ValueError("it has no SHA-256 checksum of its content")
        digest = hashlib.sha256(head.replace(mark, b'"sha256":"%b"' % NO_DIGEST.encode()))
        arrays = {name: _array(file, start, *entry, digest) for name, entry in sorted(entries.items(), key=lambda item: item[1][2:])}
        if digest.hexdigest() != given:
            raise ValueError(f"its content has the SHA-256 {digest.hexdigest()}, not {given} as it says: the file was damaged or changed")
        return arrays, meta

    return _open(path, read_all)


def _replace(path: str, parts: Iterable) -> None:
    """A file with these parts, in place of the one that is there. A power loss at any moment leaves the old file or the new one."""
    temporary = f"{path}.part"                               # always the same: what a crash leaves is overwritten next time
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(handle, rest):]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)                                     # the new name, too, survives a power loss
    finally:
        os.close(folder)


def save(arrays: Mapping[str, np.ndarray], path, metadata: Mapping[str, str] | None = None, checksum: bool = False) -> None:
    """Writes arrays under their names. The file appears complete or not at all, also when the power fails.

    Args:
        arrays: float64, float32, float16, integers or bool; written row-major.
        path: an existing file is replaced; until then the new one is ``path`` + ".part".
        metadata: texts by name.
        checksum: add "sha256" to the metadata, for ``read``.

    Raises:
        OSError: it could not be written. The old file is there, or (if only the folder could not be flushed) the whole new one.
    """
    header, ready, at = {}, [], 0
    if metadata is not None or checksum:
        metadata = dict(metadata or {})
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
            raise TypeError("metadata: expected texts by name")
        if checksum and "sha256" in metadata:
            raise ValueError("metadata: sha256 is the name of the checksum")
        header["__metadata__"] = {"sha256": NO_DIGEST} | metadata if checksum else metadata
    named = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in named.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise ValueError(f"{name!r} cannot be the name of an array")
        if array.dtype.name not in WRITTEN:
            raise TypeError(f"{name}: dtype {array.dtype} cannot be written; known are {', '.join(WRITTEN)}")
    for name, array in sorted(named.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):     # widest first: each array lies aligned
        dtype = WRITTEN[array.dtype.name]
        array = np.asarray(array, DTYPES[dtype], order="C")
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        ready.append(array)
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    parts = [len(text).to_bytes(8, "little") + text, *(array.reshape(-1).view(np.uint8) for array in ready)]
    if checksum:
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        parts[0] = parts[0].replace(NO_DIGEST.encode(), digest.hexdigest().encode(), 1)      # ours is the first of the header
    path = os.fsdecode(path)
    try:
        _replace(path, parts)
    except OSError as error:
        advice = f"; it needs {at + len(parts[0])} bytes: free some space, or save to another disk" if error.errno in FULL else ""
        text = f"{path} could not be written: {error.strerror or error}{advice}"
        raise (OSError(text) if error.errno is None else OSError(error.errno, text)) from error
