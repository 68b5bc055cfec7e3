"""Data that ships, and batches."""
import numpy as np
import pytest

from gradaccum.data import batches, digits


def test_digits():
    x, y, x_test, y_test = digits()
    assert x.shape == (1437, 64) and x_test.shape == (360, 64) and x.dtype == np.float32 and y.dtype == np.int64
    assert x.min() == 0 and x.max() == 1 and set(y) == set(y_test) == set(range(10))
    assert digits(flat=False)[0].shape == (1437, 1, 8, 8)
    # the first image of the original: a 0, its first row 0 0 5 13 9 1 0 0
    assert y[0] == 0 and (x[0, :8] * 16).tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


def test_digits_are_those_of_scikit_learn():
    source = pytest.importorskip("sklearn.datasets").load_digits()
    x, y, x_test, y_test = digits(dtype="float64")
    assert np.array_equal(np.concatenate([x, x_test]) * 16, source.data) and np.array_equal(np.concatenate([y, y_test]), source.target)


def test_batches_cover_everything_once():
    x, y = np.arange(20).reshape(10, 2), np.arange(10)
    parts = list(batches(x, y, 4, seed=1))
    assert [len(b) for _, b in parts] == [4, 4, 2]
    assert sorted(np.concatenate([b for _, b in parts])) == list(range(10))
    assert all(np.array_equal(a[:, 0], 2 * b) for a, b in parts)
    assert len(list(batches(x, y, 4, drop_last=True))) == 2
    assert np.array_equal(np.concatenate([b for _, b in batches(x, y, 3, shuffle=False)]), y)


def test_order_is_a_function_of_seed_and_epoch():
    y = np.arange(50)
    order = lambda **k: np.concatenate([b for _, b in batches(y, y, 7, **k)]).tolist()  # noqa: E731
    assert order(seed=1, epoch=2) == order(seed=1, epoch=2)
    assert len({tuple(order(seed=s, epoch=e)) for s in (0, 1) for e in (0, 1)}) == 4


def test_several_inputs():
    x = {"a": np.arange(5), "b": np.arange(10).reshape(5, 2)}
    (first, _), *_ = batches(x, np.arange(5), 2, shuffle=False)
    assert first["b"].tolist() == [[0, 1], [2, 3]]
    (first, _), *_ = batches((x["a"], x["b"]), np.arange(5), 2, shuffle=False)
    assert first[0].tolist() == [0, 1]


@pytest.mark.parametrize("x, y, size, text", [
    (np.ones(3), np.ones(3), 0, "size=0"), (np.ones(3), np.ones(3), 1.5, "size=1.5"), (np.ones(3), np.ones(4), 1, "x has 3 samples and y has 4"),
    (np.ones(0), np.ones(0), 1, "no samples"),
])
def test_batches_that_cannot_be(x, y, size, text):
    with pytest.raises(ValueError, match=text):
        batches(x, y, size)


def test_brain_patches_are_split_by_slice():
    from gradaccum.data import brain_mri

    data = brain_mri(size=12, train=300, test=99)
    assert data.x_train.shape == (300, 1, 12, 12) and data.x_test.shape == (99, 1, 12, 12) and data.x_train.dtype == np.float32
    assert np.bincount(data.y_train).tolist() == [100] * 3 and np.bincount(data.y_test).tolist() == [33] * 3
    assert all(abs(a - b) > 1 for a in data.train_slices for b in data.test_slices)      # not even neighbours
    assert len(data.train_slices) > 30 and len(data.test_slices) == 6
    again = brain_mri(size=12, train=300, test=99)
    assert np.array_equal(data.x_train, again.x_train) and not np.array_equal(data.x_train, brain_mri(size=12, train=300, test=99, seed=1).x_train)


def test_the_label_of_a_patch_is_that_of_its_centre():
    from gradaccum.data.brain_mri import brain_mri, volume

    image, tissue = volume()
    data = brain_mri(size=16, train=60, test=30)
    for patch, label in zip(data.x_test[:, 0], data.y_test):
        centre = round(float(patch[8, 8]) * 128)
        places = [(z, y, x) for z, y, x in np.argwhere((image == centre) & (tissue == label)) if z in data.test_slices]
        assert any(np.array_equal(np.pad(image[z], 16)[y + 8:y + 24, x + 8:x + 24], np.rint(patch * 128)) for z, y, x in places)


def test_brain_segmentation():
    from gradaccum.data import brain_mri

    data = brain_mri("segmentation")
    assert data.x_train.shape[1:] == (1, 80, 72) and data.y_train.shape[1:] == (80, 72) and len(data.x_test) == 6
    assert set(np.unique(data.y_train)) == {-100, 0, 1, 2} and data.classes[2] == "white matter"
    means = [data.x_train[:, 0][data.y_train == c].mean() for c in range(3)]
    assert means[0] < means[1] < means[2]                    # T1: fluid is dark, white matter bright


@pytest.mark.parametrize("options, text", [({"task": "face"}, "task='face'"), ({"size": 1}, "size=1"), ({"train": 10**7}, "has only"),
                                           ({"task": "segmentation", "size": (64, 64)}, "a slice has 74 x 69")])
def test_brain_mri_that_cannot_be(options, text):
    from gradaccum.data import brain_mri

    with pytest.raises(ValueError, match=text):
        brain_mri(**options)


def test_breast_cancer():
    from gradaccum.data import breast_cancer

    t = breast_cancer()
    assert t.x_train.shape == (456, 30) and t.x_test.shape == (113, 30) and t.classes == ["malignant", "benign"] and len(t.features) == 30
    assert np.allclose(t.x_train.mean(axis=0), 0, atol=1e-5) and np.allclose(t.x_train.std(axis=0), 1, atol=1e-5)
    raw = breast_cancer(standardize=False, dtype="float64")
    assert raw.x_train[0, 0] == 17.99 and raw.features[0] == "mean radius"      # the first number of the published table


def idx(shape, values, kind=8):
    return bytes([0, 0, kind, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape) + values


def test_idx_files(tmp_path):
    import gzip

    from gradaccum.data import fashion_mnist, read_idx

    (tmp_path / "a").write_bytes(idx((2, 3), bytes(range(6))))
    assert read_idx(tmp_path / "a").tolist() == [[0, 1, 2], [3, 4, 5]]
    (tmp_path / "b").write_bytes(gzip.compress(idx((2,), b"\1\2\0\5", 11)))
    assert read_idx(tmp_path / "b").tolist() == [258, 5]
    good, packed = idx((2, 3), bytes(range(6))), gzip.compress(idx((2, 3), bytes(range(6))))
    for name, raw, text in [("c", good[:-1], "truncated"), ("d", good + b"x", "too long"), ("e", good[:6], "truncated"), ("f", b"PNG!", "not an idx file"),
                            ("g", b"", "not an idx file"), ("h", packed[:-6], "damaged or truncated"), ("i", packed[:15] + b"zzz", "damaged or truncated"),
                            ("j", idx((2**31, 2**31), b""), "truncated"), ("k", idx((1,), b"1", 99), "not an idx file")]:
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(ValueError, match=text):
            read_idx(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="apt-get install dataset-fashion-mnist"):
        fashion_mnist(tmp_path)
    for part, n in (("train", 4), ("t10k", 2)):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx((n, 28, 28), bytes(n * 784)))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx((n,), bytes(range(n)))))
    x, y, x_test, y_test = fashion_mnist(tmp_path)
    assert x.shape == (4, 1, 28, 28) and y.tolist() == [0, 1, 2, 3] and len(x_test) == len(y_test) == 2
    assert fashion_mnist(tmp_path, flat=True)[0].shape == (4, 784)
