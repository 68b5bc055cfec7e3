"""Data that ships, batches of it, and text as numbers."""
import gzip
import hashlib
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from gradaccum import data
from gradaccum.data.brain_mri import split, volume
from gradaccum.data.idx import DEBIAN

FOLDER = Path(data.__file__).parent
# SHA-256 of the originals: scikit-learn's arrays, and the ITK volumes cut by other means (nibabel and scipy.ndimage)
ORIGINALS = {
    ("digits.npz", "images"): "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3",
    ("digits.npz", "labels"): "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0",
    ("breast_cancer.npz", "data"): "6b202a2072f9a0385f405a8f8605b1b06f6f36ae6d23d9cd6cbbc0974a416bc7",
    ("breast_cancer.npz", "target"): "9d6ceae78443535169ef00f2c8012032241393c09a9adb2f9e82c55e1ba534bd",
    ("brain_mri.npz", "image"): "4cefc6e6d9b5e11d3c2728678d76198f9a0e938c9e0aaf60122cdfc3eb410243",
    ("brain_mri.npz", "tissue"): "de331a7770d4f36d29aa40e7a192869c58f48bd7f9b64115ec9ea527919dbfd1",
}


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@pytest.mark.parametrize("file, name", ORIGINALS)
def test_files_hold_the_originals(file, name):
    with np.load(FOLDER / file, allow_pickle=False) as arrays:
        assert sha256(arrays[name]) == ORIGINALS[file, name]


def test_scikit_learn_has_the_same_originals():
    sets = pytest.importorskip("sklearn.datasets")
    digits, table = sets.load_digits(), sets.load_breast_cancer()
    assert sha256(digits.images.astype(np.uint8)) == ORIGINALS["digits.npz", "images"]
    assert sha256(digits.target.astype(np.uint8)) == ORIGINALS["digits.npz", "labels"]
    assert sha256(table.data) == ORIGINALS["breast_cancer.npz", "data"]
    assert sha256(table.target.astype(np.uint8)) == ORIGINALS["breast_cancer.npz", "target"]
    x, y, x_test, y_test = data.digits(dtype="float64")
    assert np.array_equal(np.concatenate([x, x_test]) * 16, digits.data) and np.array_equal(np.concatenate([y, y_test]), digits.target)
    t = data.breast_cancer()
    assert t.features == list(table.feature_names) and t.classes == list(table.target_names)


@pytest.mark.parametrize("file, limit", [("digits.npz", 60), ("breast_cancer.npz", 120), ("brain_mri.npz", 400), ("names.txt", 150)])
def test_files_are_small_and_have_a_licence(file, limit):
    root = Path(__file__).parent.parent
    assert (FOLDER / file).stat().st_size <= limit * 1000
    assert file in (root / "LICENSES" / file).with_suffix(".txt").read_text(encoding="utf-8")
    assert file in (root / "tools" / f"make_{file}").with_suffix(".py").read_text(encoding="utf-8")


# ---- digits, breast cancer ----

def test_digits():
    x, y, x_test, y_test = data.digits()
    assert x.shape == (1437, 64) and x_test.shape == (360, 64) and x.dtype == np.float32 and y.dtype == np.int64
    assert x.min() == 0 and x.max() == 1 and set(y) == set(y_test) == set(range(10))
    images = data.digits(flat=False)[0]
    assert images.shape == (1437, 1, 8, 8) and np.array_equal(images.reshape(1437, 64), x)
    # the first image of the original: a 0, its first row 0 0 5 13 9 1 0 0
    assert y[0] == 0 and (x[0, :8] * 16).tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


def test_breast_cancer():
    t = data.breast_cancer()
    assert t.x_train.shape == (456, 30) and t.x_test.shape == (113, 30) and t.classes == ["malignant", "benign"] and len(t.features) == 30
    assert t.x_train.dtype == np.float32 and t.y_train.dtype == np.int64
    assert np.allclose(t.x_train.mean(axis=0), 0, atol=1e-5) and np.allclose(t.x_train.std(axis=0), 1, atol=1e-5)
    raw = data.breast_cancer(standardize=False, dtype="float64")
    assert raw.x_train[0, 0] == 17.99 and raw.features[0] == "mean radius"      # the first number of the published table
    # the scale is that of the training rows, so the test rows are not exactly standardized
    assert np.allclose(t.x_test, (raw.x_test - raw.x_train.mean(axis=0)) / raw.x_train.std(axis=0), atol=1e-5)
    assert abs(t.x_test.mean(axis=0)).max() > 1e-3


@pytest.mark.parametrize("load", [data.digits, data.breast_cancer])
def test_whole_numbers_would_lose_the_data(load):
    with pytest.raises(ValueError, match="dtype='int32': expected one of 'float32', 'float64'"):
        load(dtype="int32")


# ---- batches ----

def test_batches_cover_everything_once():
    x, y = np.arange(20).reshape(10, 2), np.arange(10)
    parts = list(data.batches(x, y, 4, seed=1))
    assert [len(b) for _, b in parts] == [4, 4, 2]
    assert sorted(np.concatenate([b for _, b in parts])) == list(range(10))
    assert all(np.array_equal(a[:, 0], 2 * b) for a, b in parts)
    assert [len(b) for _, b in data.batches(x, y, 4, drop_last=True)] == [4, 4]
    assert [len(b) for _, b in data.batches(x, y, 5, drop_last=True)] == [5, 5]
    assert np.array_equal(np.concatenate([b for _, b in data.batches(x, y, 3, shuffle=False)]), y)


def test_order_is_a_function_of_seed_and_epoch():
    y = np.arange(50)

    def order(**options):
        return tuple(np.concatenate([b for _, b in data.batches(y, y, 7, **options)]).tolist())

    first = order(seed=1, epoch=2)
    np.random.seed(5)                                        # the global generator has no say
    assert order(seed=1, epoch=2) == first
    assert len({order(seed=s, epoch=e) for s in (0, 1) for e in (0, 1)} | {tuple(range(50))}) == 5


def test_several_inputs():
    x = {"a": np.arange(5), "b": np.arange(10).reshape(5, 2)}
    (first, _), *_ = data.batches(x, np.arange(5), 2, shuffle=False)
    assert first["a"].tolist() == [0, 1] and first["b"].tolist() == [[0, 1], [2, 3]]
    (first, _), *_ = data.batches((x["a"], x["b"]), np.arange(5), 2, shuffle=False)
    assert type(first) is tuple and first[0].tolist() == [0, 1] and first[1].tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("x, y, options, text", [
    (np.ones(3), np.ones(3), {"size": 0}, "size=0"),
    (np.ones(3), np.ones(3), {"size": 1.5}, "size=1.5"),
    (np.ones(3), np.ones(3), {"size": 1, "seed": -1}, "seed=-1"),
    (np.ones(3), np.ones(3), {"size": 1, "epoch": 0.5}, "epoch=0.5"),
    (np.ones(3), np.ones(4), {"size": 1}, "x has 3 samples and y has 4"),
    ({"a": np.ones(4), "b": np.ones(3)}, np.ones(4), {"size": 1}, r"x\['b'\] has 3 samples and y has 4"),
    ((np.ones(4), np.ones(3)), np.ones(4), {"size": 1}, r"x\[1\] has 3 samples"),
    (np.ones(0), np.ones(0), {"size": 1}, "no samples"),
    ((), np.ones(2), {"size": 1}, "arrays of samples"),
    ([1.0, 2.0], np.ones(2), {"size": 1}, "np.asarray"),
    (np.ones(3), np.ones(3), {"size": 4, "drop_last": True}, "leaves no batch"),
])
def test_batches_that_cannot_be(x, y, options, text):
    with pytest.raises(ValueError, match=text):              # at the call, before the first batch is asked for
        data.batches(x, y, **options)


# ---- Loader ----

def flat(loader, epochs, batches=None):
    """Targets in the order in which they come."""
    out = []
    while loader.epoch < epochs:
        for _, y in loader:
            out.append(y.tolist())
            if len(out) == batches:
                return out
    return out


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"drop_last": True}, {"seed": 4}], ids=str)
def test_a_loader_gives_epochs_of_batches_and_goes_on_from_every_position(options):
    y = np.arange(10)
    expected = [b.tolist() for epoch in range(3) for _, b in data.batches(y, y, 4, epoch=epoch, **options)]
    whole = data.Loader(y, y, 4, **options)
    assert len(whole) == len(expected) / 3 and flat(whole, 3) == expected
    assert (whole.epoch, whole.position) == (3, 0)
    for n in range(1, len(expected) + 1):
        first, then = data.Loader(y, y, 4, **options), data.Loader(y, y, 4, **options)
        assert flat(first, 3, n) == expected[:n]
        in_epoch = (n - 1) % len(whole) + 1
        assert (first.epoch, first.position) == ((n - 1) // len(whole), min(in_epoch * 4, 10))
        then.load_state_dict(first.state_dict())
        assert flat(then, 3) == expected[n:]
        assert flat(first, 3) == expected[n:]                # a new loop goes on, too


def test_a_loader_goes_on_with_another_batch_size():
    y = np.arange(10)
    loader, order = data.Loader(y, y, 4), np.concatenate([b for _, b in data.batches(y, y, 10)]).tolist()
    assert flat(loader, 1, 1) == [order[:4]]
    other = data.Loader(y, y, 5)
    other.load_state_dict(loader.state_dict())
    assert flat(other, 1) == [order[4:9], order[9:]]
    other = data.Loader(y, y, 5, drop_last=True)
    other.load_state_dict(loader.state_dict())
    assert flat(other, 1) == [order[4:9]]


@pytest.mark.parametrize("change, text", [
    ({"seed": 1}, "seed was 1 and is 0 here"), ({"samples": 9}, "samples was 9 and is 10"), ({"shuffle": False}, "shuffle was False and is True"),
    ({"position": 11}, "position=11, but an epoch has 10"), ({"position": -1}, "position=-1"), ({"epoch": 0.5}, "epoch=0.5"), ({"x": 1}, "got .*'x'"),
])
def test_positions_of_another_order_are_refused(change, text):
    loader = data.Loader(np.arange(10), np.arange(10), 4)
    before = flat(loader, 1, 1) and loader.state_dict()
    with pytest.raises(ValueError, match=text):
        loader.load_state_dict(before | change)
    assert loader.state_dict() == before


def test_a_loader_refuses_what_batches_refuses():
    with pytest.raises(ValueError, match="batch_size|size=0"):
        data.Loader(np.arange(4), np.arange(4), 0)
    with pytest.raises(ValueError, match="they must be equal"):
        data.Loader(np.arange(4), np.arange(5), 2)
    with pytest.raises(ValueError, match="start=-1"):
        data.batches(np.arange(4), np.arange(4), 2, start=-1)


# ---- brain MRI ----

def test_the_volume_is_a_brain_without_a_face():
    image, tissue = volume()
    assert image.shape == tissue.shape == (62, 74, 69) and image.dtype == np.uint8 and tissue.dtype == np.int64
    assert [int((tissue == c).sum()) for c in (0, 1, 2)] == [24061, 57084, 47201]      # as in the ITK file, inside the mask
    # every voxel that is not 0 is at most two steps (and 126 unlabelled voxels of the mask) away from labelled tissue
    near = tissue >= 0
    for _ in range(3):
        wide = np.pad(near, 1)
        near = np.any([np.roll(wide, s, a) for a in range(3) for s in (-1, 0, 1)], axis=0)[1:-1, 1:-1, 1:-1]
    far = (image > 0) & ~near
    assert far.sum() < 300 and set(np.argwhere(far)[:, 0].tolist()) <= {0, 1, 2, 3}    # at the back of the head
    assert (image > 0).mean() < 0.5


def test_the_head_is_the_right_way_up():
    """Rows begin at the top: the convex top of the brain is wide, the brain stem below narrow; slices begin at the back."""
    image, tissue = volume()
    middle = (tissue[30] >= 0).sum(axis=1)                   # labelled voxels by row
    assert middle[20] > 50 and np.flatnonzero(middle)[-1] > 70 and middle[-2] < 15
    # the cerebellum hangs below at the back, nothing does at the forehead
    assert (tissue[15, 45:] >= 0).sum() > 1000 > 100 > (tissue[55, 45:] >= 0).sum()


def test_brain_patches_are_split_by_slice():
    d = data.brain_mri(size=12, train=300, test=99)
    assert d.x_train.shape == (300, 1, 12, 12) and d.x_test.shape == (99, 1, 12, 12) and d.x_train.dtype == np.float32
    assert np.bincount(d.y_train).tolist() == [100] * 3 and np.bincount(d.y_test).tolist() == [33] * 3 and d.y_train.dtype == np.int64
    assert d.test_slices == [5, 15, 25, 35, 45, 55] and len(d.train_slices) == 38
    assert all(abs(a - b) > 1 for a in d.train_slices for b in d.test_slices)      # not even neighbours
    again = data.brain_mri(size=12, train=300, test=99)
    assert all(np.array_equal(a, b) for a, b in zip(d[:4], again[:4]))
    assert not np.array_equal(d.x_train, data.brain_mri(size=12, train=300, test=99, seed=1).x_train)


@pytest.mark.parametrize("size", [16, 9])
def test_patches_come_from_their_slices_with_the_label_of_their_centre(size):
    image, tissue = volume()
    d = data.brain_mri(size=size, train=30, test=30)
    half = size // 2
    for x, y, slices in ((d.x_train, d.y_train, d.train_slices), (d.x_test, d.y_test, d.test_slices)):
        for patch, label in zip(np.rint(x[:, 0] * 128), y):
            found = [z for z, i, j in np.argwhere((image == patch[half, half]) & (tissue == label))
                     if np.array_equal(np.pad(image[z], size)[i + size - half:i + 2 * size - half, j + size - half:j + 2 * size - half], patch)]
            assert len(found) == 1 and found[0] in slices    # a patch is in one place of the head only


def test_brain_segmentation():
    d = data.brain_mri("segmentation")
    image, tissue = volume()
    assert d.x_train.shape == (38, 1, 80, 72) and d.y_train.shape == (38, 80, 72) and d.x_test.shape == (6, 1, 80, 72)
    assert np.array_equal(d.y_test[0, 3:77, 1:70], tissue[5]) and np.array_equal(d.x_test[0, 0, 3:77, 1:70] * 128, image[5])
    assert set(np.unique(d.y_train)) == {-100, 0, 1, 2} and d.classes[2] == "white matter" and d.y_train.dtype == np.int64
    assert (d.train_slices, d.test_slices) == split(tissue)
    assert (d.y_test >= 0).sum() == (tissue[d.test_slices] >= 0).sum()
    means = [d.x_train[:, 0][d.y_train == c].mean() for c in range(3)]
    assert means[0] < means[1] < means[2]                    # T1: fluid is dark, white matter bright
    assert data.brain_mri("segmentation", size=(74, 69)).x_train.shape == (38, 1, 74, 69)


@pytest.mark.parametrize("options, text", [
    ({"task": "face"}, "task='face'"), ({"size": 1}, "size=1"), ({"train": 10**7}, "has only"), ({"test": 0}, "test=0"), ({"seed": -1}, "seed=-1"),
    ({"task": "segmentation", "size": (64, 64)}, "a slice has 74 x 69"), ({"task": "segmentation", "size": 96}, "height, width"),
])
def test_brain_mri_that_cannot_be(options, text):
    with pytest.raises(ValueError, match=text):
        data.brain_mri(**options)


# ---- idx files ----

def idx(shape, values, kind=8):
    return bytes([0, 0, kind, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape) + values


@pytest.mark.parametrize("kind, values, expected, dtype", [
    (8, b"\1\xff", [1, 255], "uint8"), (9, b"\1\xff", [1, -1], "int8"), (11, b"\1\2\xff\xfe", [258, -2], "int16"),
    (12, b"\0\1\0\0\xff\xff\xff\xff", [65536, -1], "int32"), (13, b"\x3f\x80\0\0\xc0\0\0\0", [1, -2], "float32"),
    (14, b"\x3f\xf0" + bytes(6) + b"\xc0" + bytes(7), [1, -2], "float64"),
])
def test_types_of_idx_files(tmp_path, kind, values, expected, dtype):
    for name, raw in (("plain", idx((2,), values, kind)), ("packed.gz", gzip.compress(idx((2,), values, kind)))):
        (tmp_path / name).write_bytes(raw)
        array = data.read_idx(tmp_path / name)
        assert array.tolist() == expected and array.dtype == np.dtype(dtype) and array.flags.writeable


GOOD = idx((2, 3), bytes(range(6)))
PACKED = gzip.compress(GOOD)


@pytest.mark.parametrize("raw, text", [
    (GOOD[:-1], "truncated: shape .2, 3. needs 18 bytes, the file has 17"), (GOOD + b"x", "too long"), (GOOD[:6], "truncated: 2 sizes"),
    (b"PNG!", "not an idx file"), (b"", "not an idx file"), (idx((1,), b"1", 99), "not an idx file"), (idx((), b"1"), "not an idx file"),
    (PACKED[:-6], "damaged or truncated gzip"), (PACKED[:15] + b"zzz", "damaged or truncated gzip"), (PACKED[:-8] + bytes(8), "damaged or truncated gzip"),
    (idx((2**31, 2**31), b""), "truncated"), (idx((2**32 - 1,) * 4, b""), "truncated"),
])
def test_damaged_idx_files(tmp_path, raw, text):
    (tmp_path / "file").write_bytes(raw)
    with pytest.raises(ValueError, match=text):
        data.read_idx(tmp_path / "file")


def test_idx_array(tmp_path):
    (tmp_path / "file").write_bytes(GOOD)
    assert data.read_idx(tmp_path / "file").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert data.read_idx(str(tmp_path / "file")).shape == (2, 3)


def test_fashion_mnist_from_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="apt-get install dataset-fashion-mnist"):
        data.fashion_mnist(tmp_path)
    for part, n in (("train", 4), ("t10k", 2)):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx((n, 28, 28), bytes([255, 51] + [0] * 782) * n))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx((n,), bytes(range(n)))))
    x, y, x_test, y_test = data.fashion_mnist(tmp_path)
    assert x.shape == (4, 1, 28, 28) and y.tolist() == [0, 1, 2, 3] and len(x_test) == len(y_test) == 2
    assert x.dtype == np.float32 and y.dtype == np.int64 and x[3, 0, 0, :3].tolist() == [1, np.float32(0.2), 0]
    assert data.fashion_mnist(tmp_path, flat=True)[0].shape == (4, 784)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(idx((3,), bytes(3)))
    with pytest.raises(ValueError, match=r"t10k has images \(2, 28, 28\) and labels \(3,\)"):
        data.fashion_mnist(tmp_path)


@pytest.mark.skipif(not Path(DEBIAN).exists(), reason="Debian's dataset-fashion-mnist is not installed")
def test_fashion_mnist_of_debian():
    x, y, x_test, y_test = data.fashion_mnist()
    assert x.shape == (60000, 1, 28, 28) and x_test.shape == (10000, 1, 28, 28)
    assert np.bincount(y).tolist() == [6000] * 10 and np.bincount(y_test).tolist() == [1000] * 10


# ---- names ----

def test_names():
    n = data.names()
    assert len(n.text) == len(n.language) == len(n.item) == len(n.category) == 5950 and n.languages == ("en", "vi")
    assert set(n.category) == {"symbol", "language", "currency", "territory", "script"}
    pairs = n.pairs()
    assert {("shark", "cá mập"), ("Hungarian", "Tiếng Hungary"), ("Germany", "Đức"), ("Swiss Franc", "Franc Thụy sĩ")} <= set(pairs)
    assert all(text == unicodedata.normalize("NFC", text).strip() and text for text in n.text)
    assert n.language.tolist() == [0, 1] * 2975 and n.item.tolist() == [i for i in range(2975) for _ in "ab"]
    lengths = [len(text) for text in n.text]
    assert min(lengths) == 2 and max(lengths) == 53          # unequal, as the docstring says
    vietnamese = set("ăâđêôơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ")
    share = [np.mean([bool(vietnamese & set(t.lower())) for t in n.text[k::2]]) for k in (0, 1)]
    assert share[0] < 0.01 and share[1] > 0.85


def test_translations_are_on_the_same_side_and_nothing_is_on_both():
    n = data.names()
    assert sorted([*n.train, *n.test]) == list(range(5950)) and len(n.test) == 1190
    assert not set(n.item[n.train]) & set(n.item[n.test])
    x, y, x_test, y_test = n.split()
    assert not {t.casefold() for t in x} & {t.casefold() for t in x_test}
    assert len({t.casefold() for t in n.text}) == 5950       # no name has two languages
    assert (len(x), len(x_test)) == (len(y), len(y_test)) and y_test.tolist() == [0, 1] * 595


def test_names_of_a_category():
    everything, some = data.names(), data.names(("territory", "script"))
    assert set(some.category) == {"territory", "script"} and set(data.names("script").category) == {"script"}
    tests = {everything.text[i] for i in everything.test}
    assert {some.text[i] for i in some.test} == tests & set(some.text)
    for category in ("symbol", "language", "currency"):      # an item keeps its number, so its side too
        part = data.names(category)
        assert {part.text[i] for i in part.test} == tests & set(part.text) and set(part.item) <= set(everything.item)
    with pytest.raises(ValueError, match="categories='towns'.*'currency'"):
        data.names("towns")
    with pytest.raises(ValueError, match="at least one"):
        data.names([])


# ---- tokenizer ----

def test_tokens_and_back():
    texts = data.names().text
    t = data.CharTokenizer(texts)
    assert len(t) == 3 + len(set("".join(texts))) and (t.pad, t.bos, t.eos) == (0, 1, 2)
    for text in texts:
        tokens = t.encode(text)
        assert tokens.dtype == np.int64 and tokens.min() >= 3 and tokens.max() < len(t) and len(tokens) == len(text)
        assert t.decode(tokens) == text == t.decode(t.encode(text, bos=True, eos=True))
    assert t == data.CharTokenizer(reversed(texts)) and t != data.CharTokenizer("abc")


def test_special_tokens():
    t = data.CharTokenizer("abc")
    assert t.characters == "abc" and t.encode("cab").tolist() == [5, 3, 4]
    assert t.encode("a", bos=True).tolist() == [1, 3] and t.encode("a", eos=True).tolist() == [3, 2]
    assert t.encode("").shape == (0,) and t.decode([]) == "" == t.decode(t.encode("", bos=True, eos=True))
    assert t.decode([1, 3, 2, 0, 0]) == "a" and t.decode([1, 3, 2, 0], special=True) == "<bos>a<eos><pad>"
    assert "6 tokens" in repr(t) and "'abc'" in repr(t)


def test_vietnamese_is_composed():
    """One look, one token, however it was typed."""
    t = data.CharTokenizer(["tiếng Việt"])
    apart = unicodedata.normalize("NFD", "tiếng Việt")
    assert len(apart) == 14 and t.encode(apart).tolist() == t.encode("tiếng Việt").tolist() and len(t.encode(apart)) == 10
    assert t == data.CharTokenizer([apart]) and t.decode(t.encode(apart)) == "tiếng Việt"


def test_characters_that_are_not_there():
    t = data.CharTokenizer("Hà Nội")
    with pytest.raises(ValueError, match=r"'ế' \(U\+1EBF LATIN SMALL LETTER E WITH CIRCUMFLEX AND ACUTE\) at position 4"):
        t.encode("Nội ế")
    with pytest.raises(ValueError, match="position 1"):
        t.encode(unicodedata.normalize("NFD", "ộ") + "x")    # in the composed text
    with pytest.raises(TypeError, match="bytes, expected str; decode it first"):
        t.encode(b"Ha")
    with pytest.raises(TypeError, match="text 1 is int"):
        data.CharTokenizer(["a", 1])
    with pytest.raises(ValueError, match=r"surrogate pair, U\+DCC3, at position 1"):
        data.CharTokenizer([b"H\xc3".decode("ascii", errors="surrogateescape")])
    for nothing in ("", [], ["", ""]):
        with pytest.raises(ValueError, match="no character"):
            data.CharTokenizer(nothing)


@pytest.mark.parametrize("tokens, error, text", [
    ([3, 9], IndexError, "token 9 at position 1: the vocabulary has 0 to 5"), ([-1], IndexError, "token -1"),
    ([[3, 4]], ValueError, r"shape \(1, 2\)"), ([3.0], ValueError, "float64"), (3, ValueError, r"shape \(\)"),
])
def test_tokens_that_are_none(tokens, error, text):
    with pytest.raises(error, match=text):
        data.CharTokenizer("abc").decode(tokens)


def test_saved_tokenizer(tmp_path):
    t = data.CharTokenizer(['a "quoted" \\ Đường\n\t☕😀'])
    t.save(tmp_path / "t.json")
    again = data.CharTokenizer.load(tmp_path / "t.json")
    assert again == t and again.encode("Đường 😀").tolist() == t.encode("Đường 😀").tolist()
    assert "Đ" in (tmp_path / "t.json").read_text(encoding="utf-8")      # can be read by people


@pytest.mark.parametrize("change, text", [
    (lambda raw, d: raw[:-9], "damaged"), (lambda raw, d: b"\xff" + raw, "damaged"), (lambda raw, d: b"[]", "not a file of"),
    (lambda raw, d: json.dumps(d | {"type": "x"}).encode(), "not a file of"),
    (lambda raw, d: json.dumps(d | {"special": ["<pad>"]}).encode(), "special tokens"),
    (lambda raw, d: json.dumps(d | {"characters": "ba"}).encode(), "altered"), (lambda raw, d: json.dumps(d | {"characters": "aab"}).encode(), "altered"),
    (lambda raw, d: json.dumps(d | {"characters": ""}).encode(), "altered"), (lambda raw, d: json.dumps(d | {"characters": ["a", "b"]}).encode(), "altered"),
])
def test_altered_tokenizer(tmp_path, change, text):
    path = tmp_path / "t.json"
    data.CharTokenizer("abc").save(path)
    path.write_bytes(change(path.read_bytes(), json.loads(path.read_text(encoding="utf-8"))))
    with pytest.raises(ValueError, match=text):
        data.CharTokenizer.load(path)


# ---- packing ----

def random_sequences(count=200, longest=30, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 50, rng.integers(1, longest + 1)) for _ in range(count)]


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("max_tokens, width", [(30, None), (64, None), (1000, None), (10**6, None), (30, 30), (100, 32)])
def test_packing_loses_nothing(sort, max_tokens, width):
    sequences = random_sequences()
    goals = [s * 2 for s in sequences]
    packs = data.pack(sequences, goals, max_tokens=max_tokens, sort=sort, width=width, pad=7)
    assert sorted(np.concatenate([p.index for p in packs])) == list(range(200))
    for p in packs:
        n, w = p.tokens.shape
        assert n * w <= max_tokens and w == (width or p.lengths.max()) and p.targets.shape == (n, w) and p.lengths.shape == p.index.shape == (n,)
        assert all(a.dtype == np.int64 for a in p)
        for tokens, targets, length, i in zip(*p):
            assert length == len(sequences[i]) and np.array_equal(tokens[:length], sequences[i]) and np.array_equal(targets[:length], goals[i])
            assert (tokens[length:] == 7).all() and (targets[length:] == -100).all()
    order = np.concatenate([p.index for p in packs])
    lengths = np.concatenate([p.lengths for p in packs])
    if sort:
        assert (np.diff(lengths) >= 0).all() and (np.diff(order)[np.diff(lengths) == 0] > 0).all()
    else:
        assert order.tolist() == list(range(200))
    for p, q in zip(packs, packs[1:]):                       # no batch ends before it must
        assert (len(p.index) + 1) * (width or max(p.lengths.max(), q.lengths[0])) > max_tokens
    assert all(np.array_equal(a, b) for a, b in zip(data.unpack(reversed(packs)), sequences))


def test_packing_by_hand():
    a, b = data.pack([[1], [2, 3, 4], [5, 6]], [[0], [1, 2, 3], [4, 5]], max_tokens=4)
    assert a.tokens.tolist() == [[1, 0], [5, 6]] and a.targets.tolist() == [[0, -100], [4, 5]] and a.index.tolist() == [0, 2] and a.lengths.tolist() == [1, 2]
    assert b.tokens.tolist() == [[2, 3, 4]] and b.index.tolist() == [1]
    a, b = data.pack([[1], [2, 3, 4], [5, 6]], [7, 8, 9], max_tokens=6, sort=False)
    assert a.tokens.tolist() == [[1, 0, 0], [2, 3, 4]] and a.targets.tolist() == [7, 8] and b.targets.tolist() == [9]
    (p,) = data.pack([[1, 5, 2], [1, 2]], "next", max_tokens=4, ignore_index=-1)
    assert p.tokens.tolist() == [[1, 0], [1, 5]] and p.targets.tolist() == [[2, -1], [5, 2]] and p.index.tolist() == [1, 0]
    (p,) = data.pack([[1, 5, 2]], max_tokens=3)
    assert p.targets is None


def test_sorting_saves_padding():
    tokenizer = data.CharTokenizer(data.names().text)
    names = [tokenizer.encode(t, bos=True, eos=True) for t in data.names().split()[0]]
    real = sum(map(len, names))
    share = {sort: real / sum(p.tokens.size for p in data.pack(names, max_tokens=1024, sort=sort)) for sort in (True, False)}
    assert share[True] > 0.97 and share[False] < 0.6


def test_results_return_to_their_samples():
    sequences = random_sequences(50)
    packs = data.pack(sequences, max_tokens=64)
    sums = data.unpack(packs, [p.tokens.sum(axis=1) for p in packs], per="sample")
    assert sums.tolist() == [int(s.sum()) for s in sequences]
    outputs = data.unpack(packs, [np.stack([p.tokens, -p.tokens], axis=2) for p in packs])
    assert all(np.array_equal(o, np.stack([s, -s], axis=1)) for o, s in zip(outputs, sequences))


@pytest.mark.parametrize("sequences, targets, options, text", [
    ([[1], [1, 2, 3]], None, {"max_tokens": 2}, "sequence 1 has 3 tokens, more than max_tokens=2"),
    ([[1], [1, 2, 3]], None, {"max_tokens": 9, "width": 2}, "sequence 1 has 3 tokens, more than width=2"),
    ([[1]], None, {"max_tokens": 3, "width": 4}, "width=4 is more than max_tokens=3"),
    ([[1]], None, {"max_tokens": 0}, "max_tokens=0"),
    ([[1]], None, {"max_tokens": 2, "width": 0}, "width=0"),
    ([], None, {"max_tokens": 2}, "sequences is empty"),
    ([[1], []], None, {"max_tokens": 2}, "sequence 1 has shape"),
    ([[1], [[1]]], None, {"max_tokens": 2}, r"sequence 1 has shape \(1, 1\)"),
    ([[1.5]], None, {"max_tokens": 2}, "float64"),
    (["ab"], None, {"max_tokens": 2}, "encode texts first"),
    ([[1], [2]], [1], {"max_tokens": 2}, "1 targets for 2 sequences"),
    ([[1, 2]], [[1]], {"max_tokens": 2}, "target 0 has 1 numbers and its sequence 2 tokens"),
    ([[1], [2]], [1, [2]], {"max_tokens": 2}, "target 0 has shape"),
    ([[1], [2]], [0.5, 1.5], {"max_tokens": 2}, "targets has shape .2,. and dtype float64"),
    ([[1, 2], [2]], "next", {"max_tokens": 2}, "sequence 1 has one token"),
    ([[1, 2]], "last", {"max_tokens": 2}, "targets='last'"),
])
def test_packing_that_cannot_be(sequences, targets, options, text):
    with pytest.raises(ValueError, match=text):
        data.pack(sequences, targets, **options)


def test_unpacking_that_cannot_be():
    packs = data.pack([[1], [2, 3], [4, 5, 6]], max_tokens=3)
    with pytest.raises(ValueError, match="sequence 0 is in none of them"):
        data.unpack(packs[1:])
    with pytest.raises(ValueError, match="sequence 0 is in more than one of them"):
        data.unpack([*packs, packs[0]])
    with pytest.raises(ValueError, match="2 values for 3 batches"):
        data.unpack(packs, [p.tokens for p in packs[:2]])
    with pytest.raises(ValueError, match=r"values\[0\] has shape \(1,\)"):
        data.unpack(packs, [p.lengths for p in packs])
    with pytest.raises(ValueError, match="per='word'"):
        data.unpack(packs, per="word")
