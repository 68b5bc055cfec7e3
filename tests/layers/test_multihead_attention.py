"""multihead_attention: all promises of a layer; lengths, padding, dropout, memory, probabilities."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim, reference
from gradaccum.testing import check_layer, check_split, gradcheck

CASES = [
    (nn.MultiheadAttention(6, 2), (4, 6)), (nn.MultiheadAttention(6, 3, causal=True), (5, 6)), (nn.MultiheadAttention(4, 1, bias=False), (3, 4)),
    (nn.MultiheadAttention(6, 2, dropout=0.4), (4, 6)), (nn.MultiheadAttention(6, 1, dropout=0.2, causal=True, bias=False), (5, 6)),
    (nn.MultiheadAttention(3, 3), (1, 3)), (nn.MultiheadAttention(10, 2, dropout=1.0), (3, 10)),
]


class WithLengths(nn.Module):
    """Attention whose input has a gradient (a Linear stands before it), with lengths."""

    def __init__(self, features=6, **options):
        super().__init__()
        self.before, self.attention = nn.Linear(features, features), nn.MultiheadAttention(features, 2, **options)

    def forward(self, x, lengths):
        return self.attention(self.before(x), lengths)


def arguments(net, layer, prefix=""):
    p = {name.removeprefix(prefix).replace(".", "_"): value.data for name, value in net.parameters().items() if name.startswith(prefix)}
    return {**p, "num_heads": layer.num_heads, "causal": layer.causal, "dropout": layer.dropout, "training": net.training, "seed": net.seed}


@pytest.mark.parametrize("layer, shape", CASES, ids=repr)
def test_multihead_attention(layer, shape):
    check_layer(layer, shape, against_reference=False)


@pytest.mark.parametrize("engine", ["native", "openblas"])
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("steps, features, heads, options", [
    (4, 6, 2, {}), (70, 10, 2, {"causal": True}), (70, 40, 1, {"bias": False}), (33, 8, 4, {"dropout": 0.3}), (50, 6, 1, {"dropout": 0.3, "causal": True}),
    (7, 6, 2, {"lengths": True}), (60, 40, 2, {"lengths": True, "causal": True, "dropout": 0.2})], ids=str)
def test_against_the_reference(steps, features, heads, options, dtype, tolerance, engine):
    """More steps than a block of queries has, and heads narrower and wider than a vector."""
    options = dict(options)
    lengths = np.array([steps, 1, steps // 2]) if options.pop("lengths", False) else None
    rng, layer = np.random.default_rng(0), nn.MultiheadAttention(features, heads, **options)
    inputs = {"x": (steps, features)} | ({} if lengths is None else {"lengths": ()})
    net = ga.plan(layer, inputs=inputs, loss=nn.MSELoss(), micro_batch=3, dtype=dtype, engine=engine, seed=5)
    x = rng.normal(size=(3, steps, features)).astype(dtype)
    y = net.forward(x if lengths is None else (x, lengths)).copy()
    expected, saved = reference.multihead_attention_forward(x, lengths, **arguments(net, layer))
    net.loss(np.zeros(y.shape))
    net.backward()
    _, gradients = reference.multihead_attention_backward(2 * y, saved)
    assert np.abs(y - expected).max() <= tolerance * np.abs(expected).max()
    for name, gradient in gradients.items():
        assert np.abs(net.parameters()[name].grad - gradient).max() <= tolerance * np.abs(gradient).max(), name
    assert net._core.guards_intact()


def test_lengths_gradient_and_bits():
    rng = np.random.default_rng(0)
    x, y = {"x": rng.normal(size=(7, 5, 6)), "lengths": np.array([5, 1, 3, 2, 5, 4, 1])}, rng.normal(size=(7, 5, 6))
    inputs = {"x": (5, 6), "lengths": ()}
    gradcheck(WithLengths(), inputs=inputs, x={k: a[:3] for k, a in x.items()}, y=y[:3], probe=False)
    gradcheck(WithLengths(causal=True), inputs=inputs, x={k: a[:3] for k, a in x.items()}, y=y[:3], probe=False)
    check_split(WithLengths(dropout=0.3), inputs=inputs, x=x, y=y)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"dropout": 0.3}], ids=str)
def test_padding_changes_no_bit(options):
    """The same sequences padded to 9, to 60, and to 9 in a network planned for 9: same outputs and gradients. What stands in the padding does not
    matter either."""
    rng = np.random.default_rng(0)
    x, lengths = rng.normal(size=(4, 60, 6)).astype("float32"), np.array([9, 3, 1, 7])
    counts = np.arange(60) < lengths[:, None]

    def run(steps, planned, x=x):
        net = ga.plan(WithLengths(**options), inputs={"x": (planned, 6), "lengths": ()}, loss=nn.MSELoss(), micro_batch=4)
        y = net.forward((x[:, :steps], lengths)).copy()
        net.loss(np.zeros(y.shape), np.repeat(counts[:, :steps, None], 6, axis=2).astype(float))
        net.backward()
        return y[:, :9][counts[:, :9]], net.grads.copy()

    first = run(60, 60)
    for other in (run(9, 60), run(9, 9), run(30, 60), run(60, 60, np.where(counts[:, :, None], x, 7).astype("float32"))):
        assert np.array_equal(first[0], other[0]) and np.array_equal(first[1], other[1])


def test_threads_divide_heads():
    before = ga.get_num_threads()
    x, results = np.random.default_rng(0).normal(size=(2, 200, 48)).astype("float32"), []
    try:
        for number in (1, 2):
            ga.set_num_threads(number)
            net = ga.plan(nn.MultiheadAttention(48, 4, dropout=0.1), input_shape=(200, 48), loss=nn.MSELoss(), micro_batch=2)
            y = net.forward(x).copy()
            net.loss(np.zeros(y.shape))
            net.backward()
            results.append((y, net.grads.copy()))
    finally:
        ga.set_num_threads(before)
    assert np.array_equal(results[0][0], results[1][0]) and np.array_equal(results[0][1], results[1][1])


def test_memory_grows_with_the_steps_not_with_their_square():
    """Bytes at 128, 512 and 2,048 steps lie on a line (to the rounding of blocks to 64 bytes)."""
    def size(steps):
        net = ga.plan(nn.MultiheadAttention(64, 4, causal=True), input_shape=(steps, 64), loss=nn.MSELoss(), micro_batch=2)
        return net.memory.bytes()

    small, middle, large = size(128), size(512), size(2048)
    assert abs((large - middle) - 4 * (middle - small)) < 4096
    assert large < 2 * 4 * 2048 * 2048                      # less than the probabilities of one head would take


@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=str)
def test_probabilities(options):
    rng = np.random.default_rng(0)
    x, lengths = rng.normal(size=(3, 5, 6)), np.array([5, 2, 1])
    net = ga.plan(WithLengths(**options), inputs={"x": (5, 6), "lengths": ()}, micro_batch=3, dtype="float64", keep="all")
    net.forward((x, lengths))
    weights = nn.attention_weights(net, "attention")
    expected, saved = reference.multihead_attention_forward(net.node("before").output, lengths, **arguments(net, net._module.attention, "attention."))
    assert np.allclose(weights, saved[4], rtol=0, atol=1e-14) and np.allclose(weights.sum(axis=-1), 1)
    assert not weights[1, :, :, 2:].any() and (weights[2, :, :, 0] == 1).all()
    if options:
        assert not np.triu(weights, 1).any()
    with pytest.raises(ValueError, match="before is a linear"):
        nn.attention_weights(net, "before")


def test_mask_depends_on_sample_update_and_head():
    """With dropout 0.5 and values of one everywhere, an output is the sum of what was kept: all differ."""
    net = ga.plan(nn.MultiheadAttention(8, 8, dropout=0.5), input_shape=(20, 8), loss=nn.MSELoss(), micro_batch=3, dtype="float64")
    zero = {"in_proj_weight": np.zeros((24, 8)), "in_proj_bias": np.repeat([0.0, 0.0, 1.0], 8), "out_proj.weight": np.eye(8), "out_proj.bias": np.zeros(8)}
    net.load_state_dict(zero)
    acc, seen = ga.Accumulator(net, optim.SGD(net, lr=0.0)), []
    for _ in range(2):
        acc.begin()
        seen.append(net.forward(np.zeros((3, 20, 8))).copy())
        net.loss(np.zeros((3, 20, 8)))
        net.backward()
        acc.accumulate()
        acc.normalize()
        acc.optimizer.step()
        acc.clear()
    heads = np.concatenate(seen).swapaxes(1, 2).reshape(-1, 20)
    assert len({row.tobytes() for row in heads}) == 2 * 3 * 8
    assert abs(heads.mean() - 1) < 0.05 and np.allclose(heads * 10, np.rint(heads * 10))      # each kept value counts 1 / 20 * 2
    assert np.allclose(net.predict(np.zeros((1, 20, 8))), 1, rtol=1e-12)


@pytest.mark.parametrize("lengths, text", [
    ([5, 0, 5], "sample 1 has length 0, which hides every key"), ([5, 5, -2], "sample 2 has length -2"),
    ([6, 5, 5], "sample 0 has length 6, but the sequences of this batch have 5 steps"),
])
def test_lengths_that_cannot_be(lengths, text):
    net = ga.plan(WithLengths(), inputs={"x": (5, 6), "lengths": ()}, loss=nn.MSELoss(), micro_batch=3)
    before = net.snapshot()
    for call in (lambda: net.forward((np.zeros((3, 5, 6)), np.array(lengths))), lambda: net.predict((np.zeros((3, 5, 6)), np.array(lengths)))):
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(ValueError, match="but the sequences of this batch have 3 steps"):
        net.forward((np.zeros((3, 3, 6)), np.array([3, 4, 3])))
    with pytest.raises(TypeError, match="lengths: got dtype float64, expected integers"):
        net.forward((np.zeros((3, 5, 6)), np.ones(3)))
    assert all(np.array_equal(a, before[name]) for name, a in net.snapshot().items())


def test_more_steps_than_planned():
    net = ga.plan(nn.MultiheadAttention(6, 2), input_shape=(5, 6), micro_batch=3)
    with pytest.raises(ValueError, match=r"got shape \(3, 6, 6\), expected \(n, up to 5, 6\)"):
        net.forward(np.zeros((3, 6, 6)))


@pytest.mark.parametrize("make, shapes, text", [
    (lambda: nn.MultiheadAttention(6, 4), {"x": (5, 6)}, "num_heads=4 does not divide embed_dim=6"),
    (lambda: nn.MultiheadAttention(6, 0), {"x": (5, 6)}, "num_heads=0"),
    (lambda: nn.MultiheadAttention(6, 2, dropout=1.5), {"x": (5, 6)}, r"dropout=1.5, expected a probability in \[0, 1\]"),
    (lambda: nn.MultiheadAttention(6, 2), {"x": (5, 8)}, "embed_dim should be 8"),
    (lambda: nn.MultiheadAttention(6, 2), {"x": (6,)}, r"shape \(6,\) per sample, expected reals of \(steps, features\)"),
    (lambda: WithLengths(), {"x": (5, 6), "lengths": (5,)}, r"lengths have shape \(5,\) per sample, expected \(\)"),
    (lambda: nn.TransformerEncoderLayer(6, 2, activation="tanh"), {"x": (5, 6)}, "activation='tanh': expected one of 'relu', 'gelu'"),
    (lambda: nn.TransformerEncoderLayer(6, 2, batch_first=False), {"x": (5, 6)}, "batch_first=False is not supported"),
])
def test_what_cannot_be(make, shapes, text):
    with pytest.raises(ValueError, match=text):
        ga.plan(make(), inputs=shapes, micro_batch=2)


@pytest.mark.parametrize("options", [{"norm_first": True, "activation": "gelu"}, {"dropout": 0.2, "causal": True}], ids=str)
def test_encoder_layer(options):
    layer = nn.TransformerEncoderLayer(6, 2, 10, **{"dropout": 0.0} | options)
    names = [name for name, _ in layer.named_parameters()]
    own = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
    assert names == [f"self_attn.{n}" for n in own] + [f"{part}.{n}" for part in ("linear1", "linear2", "norm1", "norm2") for n in ("weight", "bias")]
    if options.get("activation") == "gelu":
        gradcheck(layer, (4, 6))
    check_split(layer, (4, 6))
