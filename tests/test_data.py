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
