"""The models train, have the parameters that their papers count, and the memory that can be worked out by hand."""
import gc

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import models, nn, optim
from gradaccum.testing import check_split

MODELS = [
    (models.mlp(6, 8, 3, dropout=0.2), (6,), nn.CrossEntropyLoss()),
    (models.cnn(2, 3, (4, 6), (8, 8), norm="group"), (2, 8, 8), nn.CrossEntropyLoss()),
    (models.resnet20(norm="group"), (3, 8, 8), nn.CrossEntropyLoss()),
    (models.unet(1, 3, (4, 8)), (1, 8, 12), nn.CrossEntropyLoss()),
]


@pytest.mark.parametrize("model, shape, loss", MODELS, ids=["mlp", "cnn", "resnet20", "unet"])
def test_a_model_trains_and_every_split_has_the_same_bits(model, shape, loss):
    rng = np.random.default_rng(0)
    net = ga.plan(model, input_shape=shape, loss=loss, micro_batch=4)
    acc = ga.Accumulator(net, optim.AdamW(net, lr=3e-3))
    target = net._core.target()[0]
    x, y = rng.normal(size=(8, *shape)), rng.integers(0, 3, (8, *target))
    losses = [acc.update(x, y).loss for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0]
    check_split(model, shape, loss=loss, samples=4, updates=2, dtypes=("float32",), splits=[4, 1, [3, 1]])


def count(model):
    return sum(int(np.prod(p.shape)) for _, p in model.named_parameters())


def test_numbers_of_parameters():
    assert count(models.mlp(64, 128, 10)) == 64 * 128 + 128 + 128 * 10 + 10 == 9610
    assert count(models.cnn()) == 160 + 4640 + 15690 == 20490
    # He et al. 2016 count 0.27 M with shortcuts that have no parameters; the two 1 x 1 shortcuts add 16*32 + 32*64 and their norms
    assert count(models.resnet20()) == 269722 + 16 * 32 + 64 + 32 * 64 + 128 == 272474
    names = [name for name, _ in models.resnet20().named_parameters()]
    assert names[:2] == ["conv1.weight", "bn1.weight"] and "layer2.0.downsample.0.weight" in names and names[-1] == "fc.bias"


def test_wrong_models():
    for make, text in [(lambda: models.mlp(3), "at least two sizes"), (lambda: models.cnn(image_size=(3, 3)), "cannot be halved"),
                       (lambda: models.cnn(norm="layer"), "norm='layer'")]:
        with pytest.raises(ValueError, match=text):
            make()


# ---- memory ----

@pytest.fixture
def baseline(monkeypatch):
    """Panels are two vectors wide, so packed weights depend on the CPU level; workspace depends on threads."""
    monkeypatch.setenv("GRADACCUM_CPU", "baseline")
    before = ga.get_num_threads()
    ga.set_num_threads(1)
    yield
    ga.set_num_threads(before)


def test_the_worked_example_byte_by_byte(baseline):
    """28 x 28 images, conv 16, pool, conv 32, pool, linear 10; float32; worked out by hand.

    Kept for backward, per sample: input 784, relu 12,544 (over its convolution), pool 3,136, relu 6,272, pool 1,568, flatten 1,568, logits 10,
    and 48 bytes for the loss: target, weight, loss, its weight (8 each), two of the layer.
    Gradients: at the first pool, 12,544 + 3,136 numbers are needed when 6,272 + 1,568 + 1,568 of the above are free, and
    the 16 bytes of the loss layer: 6,272 numbers less 16 bytes more.
    """
    net = ga.plan(models.cnn(), input_shape=(1, 28, 28), loss=nn.CrossEntropyLoss(), micro_batch=64)
    kept = 784 + 12544 + 3136 + 6272 + 1568 + 1568 + 10
    # Panels of 8, forward and backward; the second convolution keeps 16 transformed weights instead of 9 (Winograd).
    packed = 4 * ((2 * 9 * 8 + 9 * 16 * 8) + (4 * 16 * 16 * 8 + 2 * 16 * 32 * 8) + 2 * 1568 * 8)
    # The most that a layer needs: the gradient of the second one's weights. Of each of 16 points: 64 tiles of 16 + 8 channels, 4 panels of
    # 16 x 8 sums with a gap of 4, and a gap of 4 behind each of the first two; then a row of 32 + 16.
    workspace = 4 * (16 * (64 * (16 + 8) + 2 * 4 + 4 * (16 * 8 + 4)) + 32 + 16)
    assert net.memory.by_kind() == {
        "parameters": 4 * 20490, "gradient_buffer": 4 * 20490, "activations": 64 * (4 * kept + 48), "activation_gradients": 64 * (4 * 6272 - 16),
        "packed_weights": packed, "workspace": workspace,
    }
    everything = ga.plan(models.cnn(), input_shape=(1, 28, 28), loss=nn.CrossEntropyLoss(), micro_batch=64, keep="all")
    values = 784 + 2 * 12544 + 3136 + 2 * 6272 + 2 * 1568 + 10
    kinds = everything.memory.by_kind()
    assert kinds["activations"] == 64 * (4 * values + 48) and kinds["activation_gradients"] == 64 * 4 * (values - 784)
    assert everything.memory.bytes() - net.memory.bytes() == net.memory.reuse_saved()


def test_64_is_refused_and_32_and_16_fit(baseline):
    options = dict(input_shape=(1, 28, 28), loss=nn.CrossEntropyLoss(), memory_limit="8 MiB")
    with pytest.raises(ga.BudgetError, match="a micro-batch of 64 needs 8.30 MiB, the limit is 8.00 MiB") as error:
        ga.plan(models.cnn(), micro_batch=64, **options)
    assert error.value.max_micro_batch == 61 and error.value.splits[:2] == [(32, 2), (16, 4)] and "try 32 x 2 or 16 x 4" in str(error.value)
    for m in (32, 16):
        assert ga.plan(models.cnn(), micro_batch=m, **options).memory.bytes() < 2**23
    auto = ga.plan(models.cnn(), micro_batch="auto", **options)
    acc = ga.Accumulator(auto, optim.AdamW(auto), effective_batch_size=64)
    assert 32 < auto.micro_batch <= 61 and (acc.accumulation_steps, acc.micro_batch) == (2, 32) and auto.memory.bytes() <= 2**23
    with pytest.raises(ga.BudgetError, match="Not even one sample fits: the smallest plan needs"):
        ga.plan(models.cnn(), micro_batch=1, **(options | {"memory_limit": "100 KiB"}))


def test_the_price_of_accumulation():
    """Direct: nothing, however large K is. Staged: one buffer of the size of the parameters, however large K is."""
    def bytes_of(k, **options):
        net = ga.plan(models.cnn(), input_shape=(1, 28, 28), loss=nn.CrossEntropyLoss(), micro_batch=2)
        acc = ga.Accumulator(net, optim.SGD(net), accumulation_steps=k, **options)
        return net.memory.bytes(), acc
    one = bytes_of(1)[0]
    assert [bytes_of(k)[0] for k in (2, 64)] == [one, one]
    assert [bytes_of(k, staged=True)[0] for k in (2, 64)] == [one + 4 * 20490] * 2


@pytest.mark.resident
def test_the_ledger_against_resident_memory():
    """A net of 200 MB: what the process grows by is what was counted, within 2 % and 4 MB for Python and the pool of threads."""
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    model = models.cnn(3, 10, (32, 64), (64, 64), norm="group")
    small = ga.plan(model, input_shape=(3, 64, 64), loss=nn.CrossEntropyLoss(), micro_batch=1)
    ga.Accumulator(small, optim.AdamW(small)).update(np.zeros((1, 3, 64, 64)), [0])                # threads and code are in memory now
    x, y = np.zeros((96, 3, 64, 64), np.float32), np.zeros(96, int)
    gc.collect()
    before = resident()
    net = ga.plan(model, input_shape=(3, 64, 64), loss=nn.CrossEntropyLoss(), micro_batch=96)
    acc = ga.Accumulator(net, optim.AdamW(net))
    acc.update(x, y)
    grown, counted = resident() - before, net.memory.bytes()
    assert counted > 150e6
    assert abs(grown - counted) < 0.02 * counted + 4e6
