"""dropout: all promises of a layer."""
import pytest

from gradaccum import nn
from gradaccum.testing import check_layer

CASES = [
    (nn.Dropout(0.0), (9,)),
    (nn.Dropout(0.3), (9,)),
    (nn.Dropout(0.3), (3, 2, 4)),
    (nn.Dropout(1.0), (9,)),
    (nn.Dropout(0.5), (4, 3)),
]


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_dropout(layer, shape):
    check_layer(layer, shape)


def test_mask_depends_on_update_and_sample_not_on_the_split():
    """The same sample in another place of the window, or in the next update, has another mask."""
    import numpy as np

    import gradaccum as ga
    from gradaccum import optim

    net = ga.plan(nn.Sequential(nn.Linear(50, 50), nn.Dropout(0.5)), input_shape=(50,), loss=nn.MSELoss(), micro_batch=2, keep="all")
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.0), accumulation_steps=2)
    x, masks = np.ones((2, 50)), []
    for _ in range(4):
        acc.step(x, np.zeros((2, 50)))
        masks.append(net.node("1").output != 0)
    rows = np.concatenate(masks)
    assert len({row.tobytes() for row in rows}) == 8
    assert 0.4 < rows.mean() < 0.6


def test_evaluation_passes_through():
    import numpy as np

    import gradaccum as ga

    net = ga.plan(nn.Dropout(0.9), input_shape=(50,), loss=None, micro_batch=3)
    x = np.arange(150, dtype=np.float32).reshape(3, 50)
    assert np.array_equal(net.predict(x), x)
    assert np.array_equal(net.eval().forward(x), x)
    assert not np.array_equal(net.train().forward(x), x)


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_probability_outside_its_range(p):
    with pytest.raises(ValueError, match=r"p=.*expected a probability in \[0, 1\]"):
        nn.Dropout(p)


def test_dropout2d_drops_whole_channels():
    import numpy as np

    import gradaccum as ga

    check_layer(nn.Dropout2d(0.4), (5, 3, 2))
    net = ga.plan(nn.Dropout2d(0.5), input_shape=(40, 3, 3), loss=None, micro_batch=2)
    y = net.forward(np.ones((2, 40, 3, 3)))
    channels = y.reshape(2, 40, 9)
    assert ((channels == 0).all(axis=2) | (channels == 2).all(axis=2)).all() and 20 < (channels[:, :, 0] == 0).sum() < 60
