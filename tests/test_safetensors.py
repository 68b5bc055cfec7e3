"""The safetensors layout, written and read by hand: what fits is read exactly, everything else is refused with the reason."""
import hashlib
import json
import os
import struct

import numpy as np
import pytest

from gradaccum import safetensors


def file(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_a_file_made_by_hand(tmp_path):
    data = np.array([1.5, -2], "<f4").tobytes() + np.array([[7], [8]], "<i8").tobytes() + np.array([0x3FC0, 0xC000], "<u2").tobytes()
    header = {"__metadata__": {"format": "pt"}, "b": entry("I64", (2, 1), (8, 24)), "a": entry(), "half": entry("BF16", (2,), (24, 28))}
    path = file(tmp_path / "x", header, data)
    arrays = safetensors.load(path)
    assert {name: (a.dtype.name, a.tolist()) for name, a in arrays.items()} == {
        "a": ("float32", [1.5, -2]), "b": ("int64", [[7], [8]]), "half": ("float32", [1.5, -2])}
    assert safetensors.metadata(path) == {"format": "pt"} and list(safetensors.load(path, ["b"])) == ["b"]
    with pytest.raises(KeyError, match="has no array 'c'"):
        safetensors.load(path, ["a", "c"])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"])
def test_what_is_written_is_read(dtype, tmp_path):
    rng = np.random.default_rng(0)
    arrays = {name: (rng.random(shape) * 100).astype(dtype) for name, shape in {"a": (3, 4), "tên": (), "empty": (0, 2), "b.c": (5,)}.items()}
    arrays["turned"] = arrays["a"].T
    safetensors.save(arrays | {"wide": np.arange(3.0)}, tmp_path / "x", {"k": "v"})
    read = safetensors.load(tmp_path / "x")
    assert set(read) == set(arrays) | {"wide"} and read["a"].flags.writeable
    for name, a in arrays.items():
        assert read[name].dtype == a.dtype and np.array_equal(read[name], a) and read[name].shape == a.shape
    raw = (tmp_path / "x").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    starts = {name: row["data_offsets"][0] for name, row in json.loads(raw[8:8 + length]).items() if name != "__metadata__"}
    assert length % 8 == 0 and all(start % read[name].itemsize == 0 for name, start in starts.items()), "every array lies aligned"


def test_existing_files_are_replaced_only_by_complete_ones(tmp_path, monkeypatch):
    path = tmp_path / "x"
    safetensors.save({"a": np.arange(3)}, path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        safetensors.save({"a": np.arange(4)}, path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x"]


def test_a_checksum_is_that_of_the_file_with_zeros_in_its_place(tmp_path):
    path, arrays = tmp_path / "x", {"a": np.arange(3.0), "b": np.zeros((0, 2), np.int8), "c": np.array(True)}
    safetensors.save(arrays, path, {"k": '"sha256":"' + "0" * 64 + '"'}, checksum=True)
    read, metadata = safetensors.read(path)
    assert all(np.array_equal(read[name], a) and read[name].dtype == a.dtype for name, a in arrays.items()) and set(metadata) == {"k"}
    content, digest = path.read_bytes(), safetensors.metadata(path)["sha256"]
    assert digest == hashlib.sha256(content.replace(digest.encode(), b"0" * 64)).hexdigest()
    path.write_bytes(content[:-1] + b"\0")                    # True becomes False: a valid file of other content
    assert not safetensors.load(path)["c"]
    with pytest.raises(ValueError, match=f"not {digest} as it says: the file was damaged or changed"):
        safetensors.read(path)
    safetensors.save(arrays, path)
    with pytest.raises(ValueError, match="no SHA-256 checksum"):
        safetensors.read(path)
    with pytest.raises(ValueError, match="sha256 is the name of the checksum"):
        safetensors.save(arrays, path, {"sha256": "x"}, checksum=True)


@pytest.mark.parametrize("arrays, metadata, text", [
    ({"a": np.zeros(2, complex)}, None, "a: dtype complex128 cannot be written"), ({"a": np.array(["x"])}, None, "cannot be written"),
    ({"__metadata__": np.zeros(2)}, None, "cannot be the name"), ({1: np.zeros(2)}, None, "1 cannot be the name"), ({}, {"a": 1}, "expected texts by name"),
])
def test_what_cannot_be_written(arrays, metadata, text, tmp_path):
    with pytest.raises((TypeError, ValueError), match=text):
        safetensors.save(arrays, tmp_path / "x", metadata)
    assert not os.listdir(tmp_path)


EIGHT = b"\0" * 8
BROKEN = {
    "overlap": ({"a": entry(), "b": entry(offsets=(4, 12))}, b"\0" * 12, "'b' overlaps 'a': it starts at byte 4, expected 8"),
    "same place": ({"a": entry(), "b": entry()}, EIGHT, "'b' overlaps 'a'"),
    "gap": ({"a": entry(), "b": entry(offsets=(12, 20))}, b"\0" * 20, "'b' leaves a gap after 'a'"),
    "gap at the start": ({"a": entry(offsets=(4, 12))}, b"\0" * 12, "'a' leaves a gap after the header"),
    "cut off": ({"a": entry()}, b"\0" * 7, r"data_offsets \[0, 8\], expected two places in the 7 bytes"),
    "more at the end": ({"a": entry()}, b"\0" * 9, "the arrays take 8 bytes, but 9 follow the header"),
    "no arrays, but data": ({}, EIGHT, "the arrays take 0 bytes, but 8 follow"),
    "size": ({"a": entry(shape=(3,))}, EIGHT, r"F32 of shape \(3,\) takes 12 bytes, data_offsets \[0, 8\] hold 8"),
    "huge size": ({"a": entry(shape=(2**62, 2**62))}, EIGHT, "takes .* bytes"),
    "backwards": ({"a": entry(offsets=(8, 0))}, EIGHT, "expected two places"),
    "negative": ({"a": entry(offsets=(-8, 0))}, EIGHT, "expected two places"),
    "negative size": ({"a": entry(shape=(-2,))}, EIGHT, r"shape \[-2\], expected a list"),
    "size not whole": ({"a": entry(shape=(2.0,))}, EIGHT, r"shape \[2.0\], expected a list"),
    "size true": ({"a": entry(shape=(True,), offsets=(0, 4))}, b"\0" * 4, "expected a list"),
    "rank": ({"a": entry(shape=(1,) * 33, offsets=(0, 4))}, b"\0" * 4, "at most 32 sizes"),
    "type": ({"a": entry("F8_E4M3", (8,), (0, 8))}, EIGHT, "the type 'F8_E4M3' is not supported"),
    "type no text": ({"a": entry(["F32"])}, EIGHT, "is not supported"),
    "field missing": ({"a": {"dtype": "F32", "shape": [2]}}, EIGHT, "'a': expected dtype, shape and data_offsets"),
    "field too many": ({"a": entry() | {"x": 1}}, EIGHT, "'a': expected dtype, shape and data_offsets"),
    "no object": ({"a": [1]}, EIGHT, "'a': expected dtype, shape and data_offsets"),
    "metadata": ({"__metadata__": {"a": 1}}, b"", "__metadata__: expected texts by name"),
    "twice": (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{}}', EIGHT, "the name 'a' occurs twice"),
    "twice inside": (b'{"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}', EIGHT, "the name 'shape' occurs twice"),
    "no JSON": (b"{nonsense", b"", "the header is no valid JSON"),
    "pickle": (b"\x80\x04}q\0.", b"", "it does not begin with {"),
    "a list": (b"[]", b"", "it does not begin with {"),
    "NaN": (b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}', EIGHT, "NaN is not JSON"),
    "no UTF-8": (b'{"\xff":1}', b"", "the header is no valid JSON"),
    "deep": (b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}", b"", "the header is no valid JSON"),
    "bool": ({"a": entry("BOOL", (8,))}, b"\0\1\0\1\0\2\0\0", "other bytes than 0 and 1"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name, tmp_path):
    header, data, text = BROKEN[name]
    path = file(tmp_path / "model.safetensors", header, data)
    with pytest.raises(ValueError, match=text) as error:
        safetensors.load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("length, text", [(2**63, "too long"), (10**8 + 1, "too long"), (10**6, "should have 1000000 bytes, but only"), (0, "begin with {")])
def test_length_of_the_header(length, text, tmp_path):
    with pytest.raises(ValueError, match=text):
        safetensors.load(file(tmp_path / "x", {"a": entry()}, EIGHT, length))


def test_every_cut_and_every_changed_byte_of_the_header(tmp_path):
    """A file cut anywhere is refused; a file with one byte changed is refused or still a valid file, and nothing else is ever raised."""
    path = tmp_path / "x"
    safetensors.save({"a": np.arange(4.0), "b": np.arange(3)}, path)
    whole = path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError):
            safetensors.load(path)
    rng, refused = np.random.default_rng(0), 0
    for n in range(length):
        path.write_bytes(whole[:n] + bytes([whole[n] ^ int(rng.integers(1, 256))]) + whole[n + 1:])
        try:
            safetensors.load(path)
        except ValueError:
            refused += 1
    assert refused > length // 2
