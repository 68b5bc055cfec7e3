"""embedding: all promises of a layer; tokens outside the vocabulary."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn
from gradaccum.testing import check_layer


@pytest.mark.parametrize("layer, shape", [
    (nn.Embedding(3, 5), (4,)), (nn.Embedding(7, 40, padding_idx=1), (6,)), (nn.Embedding(4, 3), ()), (nn.Embedding(3, 1, padding_idx=-1), (2,)),
], ids=repr)
def test_embedding(layer, shape):
    check_layer(layer, shape, probe=False, smooth=layer.padding_idx is None)       # a padding row's slope is left out by definition


def net(vocabulary=5, steps=3, micro_batch=4, **options):
    return ga.plan(nn.Embedding(vocabulary, 2, **options), input_shape=(steps,), loss=nn.MSELoss(), micro_batch=micro_batch, dtype="float64")


def test_gradient_worked_by_hand():
    """dL/dy = 2 (y - t) = -2 t with a table of zeros: token 1 stands in three places, token 4 is padding."""
    n = net(padding_idx=4)
    n.load_state_dict({"weight": np.zeros((5, 2))})
    n.forward(np.array([[1, 4, 1], [0, 1, 3]]))
    n.loss(-0.5 * np.arange(12).reshape(2, 3, 2))
    n.backward()
    assert np.array_equal(n.parameters()["weight"].grad, [[6, 7], [0 + 4 + 8, 1 + 5 + 9], [0, 0], [10, 11], [0, 0]])


def test_padding_row_starts_at_zero():
    n = net(padding_idx=2)
    rows = n.parameters()["weight"].data
    assert not rows[2].any() and rows[[0, 1, 3, 4]].all()


@pytest.mark.parametrize("token", [5, -1, 2**40])
def test_token_outside_the_vocabulary(token):
    n = net()
    x = np.zeros((4, 3), dtype=int)
    x[2, 1] = token
    before = n.snapshot()
    for call in (lambda: n.forward(x), lambda: n.predict(x), lambda: ga.Accumulator(n, ga.optim.SGD(n, lr=1.0)).update(x, np.zeros((4, 3, 2)))):
        with pytest.raises(IndexError, match=rf"sample 2 position 1 has the token {token}; the vocabulary has 5, 0 to 4"):
            call()
    assert all(np.array_equal(a, before[name]) for name, a in n.snapshot().items())


def test_token_without_a_position():
    n = ga.plan(nn.Embedding(5, 2), input_shape=(), micro_batch=4)
    with pytest.raises(IndexError, match="sample 3 has the token 9; the vocabulary has 5"):
        n.forward(np.array([0, 1, 2, 9]))


def test_tokens_are_integers():
    with pytest.raises(TypeError, match="expected integers"):
        net().forward(np.zeros((2, 3)))


@pytest.mark.parametrize("make, shape, text", [
    (lambda: nn.Embedding(0, 2), (3,), "num_embeddings=0"),
    (lambda: nn.Embedding(3, 0), (3,), "embedding_dim=0"),
    (lambda: nn.Embedding(3, 2, padding_idx=3), (3,), "padding_idx=3, expected a token of a vocabulary of 3"),
    (lambda: nn.Embedding(3, 2, padding_idx=-4), (3,), "padding_idx=-4"),
    (lambda: nn.Sequential(nn.Linear(3, 3), nn.Embedding(3, 2)), (3,), "comes from a layer"),
    (lambda: nn.Embedding(3, 2), (3, 4), r"shape \(3, 4\) per sample, expected \(\) or \(steps,\)"),
])
def test_what_cannot_be(make, shape, text):
    with pytest.raises(ValueError, match=text):
        ga.plan(make(), input_shape=shape, micro_batch=2)
