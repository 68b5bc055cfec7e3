"""The NumPy reference against what does not depend on it.

Finite differences, direct loops over the definition, numbers worked by hand, and PyTorch where it
is installed. One table of cases serves all checks of layers, and one all checks of losses.
"""
import inspect
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from gradaccum import reference

WORDS = """linear relu leaky_relu gelu silu tanh sigmoid softmax dropout flatten add identity
    conv2d conv_transpose2d max_pool2d avg_pool2d adaptive_avg_pool2d upsample cat batch_norm
    ghost_batch_norm group_norm instance_norm2d dropout2d zero_pad2d
    embedding position layer_norm rms_norm multihead_attention lstm gru""".split()
LOSS_WORDS = "cross_entropy_loss mse_loss l1_loss bce_with_logits_loss".split()
TOLERANCE = 1e-12
RNG = np.random.default_rng(20)


def some(*shape):
    return RNG.normal(size=shape)


def error(got, expected):
    """Largest difference, relative to the largest number (at least 1)."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, f"shapes {got.shape} and {expected.shape}"
    return np.abs(got - expected).max(initial=0) / max(1.0, np.abs(expected).max(initial=0))


# ---- layers: the table ----

CASES = []


def case(word, *inputs, params=None, **options):
    """One row: inputs of (n, ...), parameters, options."""
    params = {name: array for name, array in (params or {}).items() if array is not None}
    number = sum(c.word == word for c in CASES)
    CASES.append(SimpleNamespace(word=word, inputs=inputs, params=params, options=options,
                                 id=f"{word}-{number}"))


def affine(*shape):
    return {"weight": some(*shape), "bias": some(*shape)}


case("linear", some(4, 5), params={"weight": some(3, 5), "bias": some(3)})
case("linear", some(2, 3, 5), params={"weight": some(1, 5)})
case("linear", some(1, 1), params={"weight": some(2, 1), "bias": some(2)})
for _word in ("relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "flatten", "identity"):
    case(_word, some(3, 7))
    case(_word, some(1, 2, 3, 2) * 3)
case("leaky_relu", some(3, 7), negative_slope=0.3)
case("gelu", some(3, 7) * 2, approximate="tanh")
case("softmax", some(3, 5))
case("softmax", some(2, 3, 4) * 5, dim=-1)
case("softmax", some(2, 4, 3, 2))
case("softmax", some(2, 4, 3), dim=1)
case("softmax", some(3, 1))
case("add", some(3, 4), some(3, 4))
case("cat", some(2, 3, 2, 2), some(2, 1, 2, 2), some(2, 2, 2, 2))
case("cat", some(3, 2), some(3, 5))
case("cat", some(2, 2, 3), some(2, 4, 3), dim=1)

for _word in ("dropout", "dropout2d"):
    case(_word, some(3, 4, 3, 2), p=0.4, seed=3, update=2, layer=1, sample0=5)
    case(_word, some(2, 3, 1, 2), training=False)
case("dropout", some(2, 3, 4), p=0.3, seed=1)


def conv(word, x, out, kernel, groups=1, bias=True, **options):
    transposed = word == "conv_transpose2d"
    channels = (x[1], out // groups) if transposed else (out, x[1] // groups)
    params = {"weight": some(*channels, *kernel), "bias": some(out) if bias else None}
    case(word, some(*x), params=params, groups=groups, **options)


conv("conv2d", (2, 3, 5, 6), 4, (3, 3))
conv("conv2d", (2, 2, 7, 6), 3, (3, 2), stride=(2, 3), padding=(1, 0), dilation=(2, 1))
conv("conv2d", (3, 4, 5, 4), 6, (2, 3), groups=2, padding=1, bias=False)
conv("conv2d", (1, 3, 4, 4), 3, (3, 3), groups=3, stride=2, padding=1)
conv("conv2d", (2, 2, 5, 5), 2, (4, 3), padding="same", dilation=(1, 2))
conv("conv2d", (1, 1, 1, 1), 1, (1, 1), padding="valid")
conv("conv2d", (1, 2, 6, 6), 2, (2, 2), stride=3)            # the last row and column are unused
conv("conv_transpose2d", (2, 3, 3, 4), 2, (3, 3))
conv("conv_transpose2d", (2, 2, 3, 2), 3, (3, 2), stride=(2, 3), padding=(1, 0), dilation=(2, 1),
     output_padding=(1, 2))
conv("conv_transpose2d", (2, 4, 3, 3), 6, (2, 2), groups=2, stride=2, bias=False)
conv("conv_transpose2d", (1, 1, 1, 1), 1, (2, 2), stride=2, padding=1, output_padding=1)
conv("conv_transpose2d", (1, 2, 2, 3), 2, (1, 1), dilation=2, output_padding=1)

case("max_pool2d", some(2, 3, 6, 5), kernel_size=2)
case("max_pool2d", some(2, 2, 7, 6), kernel_size=3, stride=2, padding=1)
case("max_pool2d", some(1, 2, 5, 7) - 9, kernel_size=(2, 3), stride=(1, 2), padding=(1, 1))
case("max_pool2d", some(2, 1, 6, 5), kernel_size=2, dilation=(3, 2), stride=1)
case("avg_pool2d", some(2, 3, 6, 5), kernel_size=2)
case("avg_pool2d", some(2, 2, 7, 6), kernel_size=(3, 2), stride=(2, 1), padding=1)
case("avg_pool2d", some(2, 2, 7, 6), kernel_size=3, stride=2, padding=1, count_include_pad=False)
case("avg_pool2d", some(1, 2, 3, 5), kernel_size=(3, 5))     # one window, the whole image
case("adaptive_avg_pool2d", some(2, 3, 5, 4), output_size=1)
case("adaptive_avg_pool2d", some(2, 2, 7, 5), output_size=(3, 2))
case("adaptive_avg_pool2d", some(1, 2, 3, 3), output_size=(4, 5))
case("upsample", some(2, 3, 3, 4), scale_factor=2)
case("upsample", some(2, 2, 3, 5), scale_factor=(2.5, 1.5))
case("upsample", some(1, 2, 5, 4), size=(7, 3))
case("upsample", some(1, 2, 3, 2), scale_factor=(1.2, 2.3))  # to 3 x 4: copied, and doubled exactly
case("upsample", some(2, 2, 3, 4), scale_factor=2, mode="bilinear")
case("upsample", some(2, 2, 3, 5), scale_factor=2.5, mode="bilinear", align_corners=False)
case("upsample", some(2, 2, 3, 5), scale_factor=2.5, mode="bilinear", align_corners=True)
case("upsample", some(1, 2, 3, 2), scale_factor=(1.2, 2.3), mode="bilinear")
case("upsample", some(1, 2, 5, 4), size=(3, 9), mode="bilinear", align_corners=False)
case("upsample", some(1, 2, 3, 4), size=(1, 6), mode="bilinear", align_corners=True)
case("upsample", some(1, 1, 1, 1), size=3, mode="bilinear")
case("zero_pad2d", some(2, 2, 3, 4), padding=2)
case("zero_pad2d", some(2, 2, 3, 4), padding=(1, 0, 2, 3))
case("zero_pad2d", some(2, 2, 4, 5), padding=(-1, 2, 1, -2))


def running(c):
    return {"running_mean": some(c), "running_var": RNG.random(c) + 0.5}


case("batch_norm", some(5, 3) * 2 + 1, params=affine(3), **running(3))
case("batch_norm", some(3, 2, 4, 3), params=affine(2), momentum=0.3, eps=1e-3, **running(2))
case("batch_norm", some(1, 2, 3, 2))
case("batch_norm", some(3, 2, 3, 2), params=affine(2), training=False, **running(2))
case("batch_norm", some(1, 4), params=affine(4), training=False, **running(4))
case("ghost_batch_norm", some(6, 3), params=affine(3), virtual_batch_size=2, **running(3))
case("ghost_batch_norm", some(4, 2, 3, 3), virtual_batch_size=1)
case("ghost_batch_norm", some(3, 2), params=affine(2), virtual_batch_size=2, training=False,
     **running(2))
case("group_norm", some(3, 6, 2, 3), params=affine(6), num_groups=2)
case("group_norm", some(2, 6), params=affine(6), num_groups=3, eps=1e-3)
case("group_norm", some(1, 4, 2, 2), num_groups=1)
case("instance_norm2d", some(2, 3, 4, 3), params=affine(3))
case("instance_norm2d", some(1, 2, 2, 3), eps=1e-2)
case("layer_norm", some(4, 5), params=affine(5))
case("layer_norm", some(2, 3, 4), params={"weight": some(4)}, eps=1e-3)
case("layer_norm", some(2, 3, 4), params=affine(3, 4))
case("layer_norm", some(2, 3, 4), normalized_shape=(3, 4))
case("rms_norm", some(4, 5), params={"weight": some(5)})
case("rms_norm", some(2, 3, 4), params={"weight": some(3, 4)}, eps=1e-2)
case("rms_norm", some(1, 3, 4) / 100, eps=1e-6)

case("position", some(3, 4, 2), params={"weight": some(4, 2)})
case("position", some(2, 2, 3), params={"weight": some(5, 3)})
case("embedding", RNG.integers(0, 5, (4, 3)), params={"weight": some(5, 2)})
case("embedding", np.array([0, 2, 2, 0]), params={"weight": some(4, 3)}, padding_idx=2)
case("embedding", np.array([[0, 2], [2, 1]]), params={"weight": some(3, 2)}, padding_idx=-1)


def attention(n, length, width, *lengths, bias=True, **options):
    case("multihead_attention", some(n, length, width), *lengths, params={
        "in_proj_weight": some(3 * width, width), "in_proj_bias": some(3 * width) if bias else None,
        "out_proj_weight": some(width, width), "out_proj_bias": some(width) if bias else None},
        **options)


PADDING = np.array([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 0, 1]], dtype=bool)
attention(2, 4, 6, num_heads=3)
attention(3, 5, 4, num_heads=2, key_padding_mask=PADDING)
attention(3, 5, 4, num_heads=1, causal=True, key_padding_mask=PADDING)
attention(3, 5, 4, np.array([5, 1, 3]), num_heads=2)
attention(3, 5, 4, np.array([4, 1, 5]), num_heads=2, causal=True, key_padding_mask=PADDING)
attention(2, 4, 4, num_heads=4, causal=True, bias=False)
attention(1, 1, 2, num_heads=1)
attention(2, 3, 4, num_heads=2, causal=True, dropout=0.4, seed=5, update=1, layer=2, sample0=3)
attention(2, 3, 4, num_heads=2, dropout=0.4, training=False)
attention(2, 3, 4, num_heads=2, causal=True,
          key_padding_mask=np.array([[1, 1, 1], [1, 0, 0]], dtype=bool))


def recurrent(word, n, length, inputs, size, bias=True):
    rows = size * {"lstm": 4, "gru": 3}[word]
    case(word, some(n, length, inputs), params={
        "weight_ih_l0": some(rows, inputs), "weight_hh_l0": some(rows, size),
        "bias_ih_l0": some(rows) if bias else None, "bias_hh_l0": some(rows) if bias else None})


for _word in ("lstm", "gru"):
    recurrent(_word, 3, 4, 2, 3)
    recurrent(_word, 1, 1, 3, 2)
    recurrent(_word, 2, 3, 1, 1, bias=False)

each_layer = pytest.mark.parametrize("c", CASES, ids=lambda c: c.id)


def forward(c, inputs=None, params=None, **changed):
    function = getattr(reference, f"{c.word}_forward")
    return function(*(inputs or c.inputs), **(params or c.params), **{**c.options, **changed})


def backward(c, dy, saved):
    """Gradients of real inputs and of parameters, these under the names of the arguments."""
    dxs, dparams = getattr(reference, f"{c.word}_backward")(dy, saved)
    assert isinstance(dxs, tuple) and len(dxs) == sum(map(is_real, c.inputs))
    return dxs, {name.replace(".", "_"): gradient for name, gradient in dparams.items()}


def is_real(a):
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def test_every_word_is_there_and_in_a_table():
    assert {c.word for c in CASES} == set(WORDS) and {c.word for c in LOSSES} == set(LOSS_WORDS)
    for word in WORDS + LOSS_WORDS:
        assert {f"{word}_forward", f"{word}_backward"} <= set(reference.__all__)


# ---- layers: finite differences, dtype, splits ----

def check_differences(function, array, gradient, step=1e-4, most=60):
    """gradient against central differences (fourth order) of ``function()`` in ``array``."""
    assert gradient.shape == array.shape
    scale = max(1.0, np.abs(gradient).max(initial=0))
    places = np.random.default_rng(0).permutation(array.size)[:most]
    for i in places:
        index = np.unravel_index(i, array.shape)
        kept, slope = array[index], 0.0
        for steps, factor in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
            array[index] = kept + steps * step
            slope += factor * function() / (12 * step)
        array[index] = kept
        difference = abs(slope - gradient[index])
        assert difference < 1e-8 * scale, f"at {index}: {gradient[index]}, not {slope}"


@each_layer
def test_layer_against_finite_differences(c):
    inputs = tuple(a.copy() for a in c.inputs)
    params = {name: a.copy() for name, a in c.params.items()}
    y, saved = forward(c, inputs, params)
    dy = np.random.default_rng(1).normal(size=y.shape)
    dxs, dparams = backward(c, dy, saved)
    assert set(dparams) == set(params)

    def loss():
        return (forward(c, inputs, params)[0] * dy).sum()

    for x, dx in zip(filter(is_real, inputs), dxs):
        check_differences(loss, x, dx)
    for name, array in params.items():
        if c.word == "embedding" and c.options.get("padding_idx") is not None:
            row = c.options["padding_idx"]
            assert (dparams[name][row] == 0).all() and (c.inputs[0] == row % len(array)).any()
            dparams[name][row] = sum(dy[c.inputs[0] == row % len(array)])       # what it would be
        check_differences(loss, array, dparams[name])


@each_layer
def test_layer_keeps_the_dtype_and_its_arguments(c):
    def single(a):
        return a.astype(np.float32) if is_real(a) else a

    narrow = SimpleNamespace(word=c.word, inputs=tuple(map(single, c.inputs)), id=c.id,
                             params={k: single(a) for k, a in c.params.items()},
                             options={k: single(a) for k, a in c.options.items()})
    before = [a.copy() for a in narrow.inputs] + [a.copy() for a in narrow.params.values()]
    y, saved = forward(narrow)
    dy = np.random.default_rng(1).normal(size=y.shape).astype(np.float32)
    dxs, dparams = backward(narrow, dy.copy(), saved)
    wide_y, wide_saved = forward(c)
    wide_dxs, wide_dparams = backward(c, dy.astype(np.float64), wide_saved)
    pairs = [(y, wide_y), *zip(dxs, wide_dxs),
             *((dparams[name], wide_dparams[name]) for name in dparams)]
    for got, expected in pairs:
        assert got.dtype == np.float32 and error(got, expected) < 1e-4
    for array, kept in zip([*narrow.inputs, *narrow.params.values()], before):
        assert np.array_equal(array, kept)


def can_be_split(c):
    mixes_samples = c.word.endswith("batch_norm") and c.options.get("training", True)
    return len(c.inputs[0]) > 1 and not mixes_samples


@pytest.mark.parametrize("c", [c for c in CASES if can_be_split(c)], ids=lambda c: c.id)
def test_gradients_of_micro_batches_add_up(c):
    """What accumulation rests on. Batch statistics of the micro-batch are the exception."""
    n = len(c.inputs[0])
    y, saved = forward(c)
    dy = np.random.default_rng(1).normal(size=y.shape)
    dxs, dparams = backward(c, dy, saved)
    parts, sums, changed = [], {}, {}
    for rows in (slice(0, 1), slice(1, n)):
        if "sample0" in c.options:
            changed = {"sample0": c.options["sample0"] + rows.start}
        elif "seed" in c.options:
            changed = {"sample0": rows.start}
        if "key_padding_mask" in c.options:
            changed = {"key_padding_mask": c.options["key_padding_mask"][rows]}
        part, saved = forward(c, tuple(a[rows] for a in c.inputs), **changed)
        part_dxs, part_dparams = backward(c, dy[rows], saved)
        parts.append((part, part_dxs))
        for name, gradient in part_dparams.items():
            sums[name] = sums.get(name, 0) + gradient
    assert error(np.concatenate([part for part, _ in parts]), y) < TOLERANCE
    for i, dx in enumerate(dxs):
        assert error(np.concatenate([part_dxs[i] for _, part_dxs in parts]), dx) < TOLERANCE
    for name in dparams:
        assert error(sums[name], dparams[name]) < TOLERANCE


# ---- layers: PyTorch ----

def hidden_tokens(c):
    """(n, T) of bool from lengths and mask of an attention, or None."""
    hidden = c.options.get("key_padding_mask")
    if len(c.inputs) > 1:
        beyond = np.arange(c.inputs[0].shape[1]) >= c.inputs[1][:, None]
        hidden = beyond if hidden is None else hidden | beyond
    return hidden


def pytorch(torch, word, xs, p, o, hidden):
    """The output of PyTorch's own layer."""
    f = torch.nn.functional
    x = xs[0]
    if word in ("relu", "tanh", "sigmoid"):
        return getattr(torch, word)(x)
    if word in ("leaky_relu", "gelu", "silu", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"):
        return getattr(f, word)(x, **o)
    if word in ("linear", "conv2d", "conv_transpose2d"):
        return getattr(f, word)(x, **p, **o)
    if word == "softmax":
        return f.softmax(x, dim=o.get("dim", 1 if x.ndim == 4 else -1))
    if word == "flatten":
        return torch.nn.Flatten()(x)
    if word == "identity":
        return torch.nn.Identity()(x)
    if word == "add":
        return xs[0] + xs[1]
    if word == "cat":
        return torch.cat(xs, dim=o.get("dim", 1 if x.ndim == 4 else -1))
    if word == "upsample":
        return torch.nn.Upsample(**o)(x)
    if word == "zero_pad2d":
        return torch.nn.ZeroPad2d(o["padding"])(x)
    if word == "group_norm":
        return f.group_norm(x, **p, **o)
    if word == "instance_norm2d":
        return f.instance_norm(x, **p, **o)
    if word in ("layer_norm", "rms_norm"):
        shape = p["weight"].shape if p else o.get("normalized_shape", x.shape[-1:])
        eps = o.get("eps", 1e-5 if word == "layer_norm" else None)
        return getattr(f, word)(x, list(shape), **p, eps=eps)
    if word == "position":
        return x + f.embedding(torch.arange(x.shape[1]), p["weight"])
    if word == "embedding":
        return f.embedding(x, p["weight"], padding_idx=o.get("padding_idx"))
    if word == "multihead_attention":
        length = x.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).triu(1) if o.get("causal") else None
        query = x.transpose(0, 1)
        y, _ = f.multi_head_attention_forward(
            query, query, query, x.shape[-1], o["num_heads"], p["in_proj_weight"],
            p.get("in_proj_bias"), None, None, False, 0.0, p["out_proj_weight"],
            p.get("out_proj_bias"), attn_mask=causal,
            key_padding_mask=None if hidden is None else torch.tensor(hidden))
        return y.transpose(0, 1)
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[word](
        x.shape[-1], p["weight_hh_l0"].shape[1], bias="bias_ih_l0" in p, batch_first=True).double()
    return torch.func.functional_call(layer, p, (x,))[0]


def pytorch_batch_norm(torch, word, x, p, o):
    """The same for batch normalisation, with the new running statistics."""
    o = dict(o)
    size = o.pop("virtual_batch_size", len(x))
    stats = [o.pop(name, None) for name in ("running_mean", "running_var")]
    stats = [None if a is None else torch.tensor(a) for a in stats]
    o.setdefault("training", True)
    batch_norm = torch.nn.functional.batch_norm
    y = torch.cat([batch_norm(part, *stats, **p, **o) for part in x.split(size)])
    return y, [None if a is None else a.numpy() for a in stats]


def has_pytorch_twin(c):
    """Random masks are our own; a token that sees nothing is nan in some of PyTorch's kernels."""
    if c.options.get("key_padding_mask", PADDING).all(axis=1).any():
        return False
    masked = c.options.get("dropout") and c.options.get("training", True)
    return not masked and "dropout" not in c.word


@pytest.mark.parametrize("c", [c for c in CASES if has_pytorch_twin(c)], ids=lambda c: c.id)
@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
def test_layer_against_pytorch(c):
    torch = pytest.importorskip("torch")
    xs = [torch.tensor(a, requires_grad=is_real(a)) for a in c.inputs]
    p = {name: torch.tensor(a, requires_grad=True) for name, a in c.params.items()}
    if c.word.endswith("batch_norm"):
        expected, stats = pytorch_batch_norm(torch, c.word, xs[0], p, c.options)
    else:
        hidden = hidden_tokens(c) if c.word == "multihead_attention" else None
        expected, stats = pytorch(torch, c.word, xs, p, c.options, hidden), None
    y, saved = forward(c)
    assert error(y, expected.detach().numpy()) < TOLERANCE
    if stats:
        for got, new in zip(saved[-2:], stats):
            assert (got is None) == (new is None) and (got is None or error(got, new) < TOLERANCE)
    dy = np.random.default_rng(1).normal(size=y.shape)
    expected.backward(torch.tensor(dy))
    dxs, dparams = backward(c, dy, saved)
    for x, dx in zip((x for x in xs if x.requires_grad), dxs):
        assert error(dx, x.grad.numpy()) < TOLERANCE
    for name, gradient in dparams.items():
        assert error(gradient, p[name].grad.numpy()) < TOLERANCE, name


# ---- layers: the definition in loops, and numbers by hand ----

def each_case_of(*words):
    return pytest.mark.parametrize("c", [c for c in CASES if c.word in words], ids=lambda c: c.id)


def pairs(value):
    return value if isinstance(value, tuple) else (value, value)


@each_case_of("conv2d")
def test_convolution_is_its_definition(c):
    x, w, b = c.inputs[0], c.params["weight"], c.params.get("bias")
    padding = c.options.get("padding", 0)
    (sy, sx), (dy, dx) = pairs(c.options.get("stride", 1)), pairs(c.options.get("dilation", 1))
    y, _ = forward(c)
    (height, width), (out, per_group, kh, kw) = x.shape[2:], w.shape
    if padding == "same":
        py, px = dy * (kh - 1) // 2, dx * (kw - 1) // 2
        assert y.shape[2:] == x.shape[2:]
    else:
        py, px = pairs(0 if padding == "valid" else padding)
        assert y.shape[2:] == ((height + 2 * py - dy * (kh - 1) - 1) // sy + 1,
                               (width + 2 * px - dx * (kw - 1) - 1) // sx + 1)
    for s, o, i, j in np.ndindex(*y.shape):
        first = o // (out // c.options["groups"]) * per_group
        total = 0.0 if b is None else b[o]
        for k, u, v in np.ndindex(per_group, kh, kw):
            row, column = i * sy + u * dy - py, j * sx + v * dx - px
            if 0 <= row < height and 0 <= column < width:
                total += w[o, k, u, v] * x[s, first + k, row, column]
        assert y[s, o, i, j] == pytest.approx(total, abs=1e-12)


@each_case_of("conv_transpose2d")
def test_transposed_convolution_is_the_transpose(c):
    """<convolution of z, x> = <z, transposed convolution of x> for all x and z."""
    options = {k: v for k, v in c.options.items() if k != "output_padding"}
    x, weight = c.inputs[0], c.params["weight"]
    y, _ = reference.conv_transpose2d_forward(x, weight=weight, **c.options)
    for axis in (0, 1):
        stride, padding, dilation, extra = (
            pairs(c.options.get(name, default))[axis] for name, default in
            (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0)))
        assert y.shape[2 + axis] == ((x.shape[2 + axis] - 1) * stride - 2 * padding + 1 + extra
                                     + dilation * (weight.shape[2 + axis] - 1))
    z = np.random.default_rng(2).normal(size=y.shape)
    there, _ = reference.conv2d_forward(z, weight=weight, **options)
    there = there[:, :, :x.shape[2], :x.shape[3]]
    assert (there * x).sum() == pytest.approx((z * y).sum(), rel=1e-12)


@each_case_of("max_pool2d", "avg_pool2d")
def test_pooling_is_its_definition(c):
    x, o = c.inputs[0], c.options
    kernel = pairs(o["kernel_size"])
    (sy, sx), (dy, dx) = pairs(o.get("stride", kernel)), pairs(o.get("dilation", 1))
    py, px = pairs(o.get("padding", 0))
    y, _ = forward(c)
    assert y.shape[2:] == ((x.shape[2] + 2 * py - dy * (kernel[0] - 1) - 1) // sy + 1,
                           (x.shape[3] + 2 * px - dx * (kernel[1] - 1) - 1) // sx + 1)
    for s, k, i, j in np.ndindex(*y.shape):
        places = [(i * sy + u * dy - py, j * sx + v * dx - px) for u, v in np.ndindex(*kernel)]
        seen = [x[s, k, row, column] for row, column in places
                if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]]
        if c.word == "max_pool2d":
            expected = max(seen)
        else:
            count = len(places) if o.get("count_include_pad", True) else len(seen)
            expected = sum(seen) / count
        assert y[s, k, i, j] == pytest.approx(expected, rel=1e-13)


def test_of_equal_pixels_the_first_gets_the_gradient():
    _, saved = reference.max_pool2d_forward(np.ones((1, 1, 2, 2)), kernel_size=2)
    (dx,), _ = reference.max_pool2d_backward(np.full((1, 1, 1, 1), 5.0), saved)
    assert dx.ravel().tolist() == [5, 0, 0, 0]


@each_case_of("multihead_attention")
def test_attention_is_its_definition(c):
    """Token by token and head by head, with masks of dropout from the definition below."""
    x, heads, o = c.inputs[0], c.options["num_heads"], c.options
    n, length, width = x.shape
    size = width // heads
    in_bias = c.params.get("in_proj_bias", np.zeros(3 * width))
    out_bias = c.params.get("out_proj_bias", np.zeros(width))
    p = o["dropout"] if "dropout" in o and o.get("training", True) else 0
    hidden = hidden_tokens(c)
    y, _ = forward(c)
    for s in range(n):
        q, k, v = np.split(x[s] @ c.params["in_proj_weight"].T + in_bias, 3, axis=1)
        for i in range(length):
            joined = np.zeros(width)
            for h in range(heads):
                part = slice(h * size, (h + 1) * size)
                seen = [j for j in range(length) if not (o.get("causal") and j > i)
                        and not (hidden is not None and hidden[s, j])]
                shares = [math.exp(q[i, part] @ k[j, part] / math.sqrt(size)) for j in seen]
                for j, share in zip(seen, shares):
                    kept = 1.0
                    if p:
                        kept = scalar_mask(p, o["seed"], o["update"], o["layer"],
                                           o["sample0"] + s, j, h << 32 | i)
                    joined[part] += kept * share / sum(shares) * v[j, part]
            assert error(y[s, i], c.params["out_proj_weight"] @ joined + out_bias) < TOLERANCE


def test_a_token_that_sees_nothing_gets_the_bias_and_no_gradient():
    c = CASES[[c.word for c in CASES].index("multihead_attention")]
    everything = np.ones((2, 4), dtype=bool)
    y, saved = forward(c, key_padding_mask=everything)
    assert (forward(c, (c.inputs[0], np.zeros(2, dtype=int)))[0] == y).all()
    assert (y == c.params["out_proj_bias"]).all()
    (dx,), dparams = reference.multihead_attention_backward(np.ones_like(y), saved)
    assert (dx == 0).all() and (dparams["in_proj_weight"] == 0).all()
    assert (dparams["out_proj.bias"] == 8).all()             # 2 samples of 4 tokens


def test_recurrent_layers_by_hand():
    """All weights 0 except the biases: gates of 1/2, and candidates tanh(b)."""
    b, x = math.atanh(0.5), np.zeros((1, 3, 1))
    zero = {"weight_ih_l0": np.zeros((4, 1)), "weight_hh_l0": np.zeros((4, 1))}
    y, _ = reference.lstm_forward(x, **zero, bias_ih_l0=np.array([0, 0, b, 0]),
                                  bias_hh_l0=np.zeros(4))
    cells = [0.25, 0.375, 0.4375]                            # c = c / 2 + 1/2 · 1/2
    assert y.ravel() == pytest.approx([math.tanh(c) / 2 for c in cells], rel=1e-14)
    zero = {"weight_ih_l0": np.zeros((3, 1)), "weight_hh_l0": np.zeros((3, 1))}
    y, _ = reference.gru_forward(x, **zero, bias_ih_l0=np.array([0, 0, b]), bias_hh_l0=np.zeros(3))
    assert y.ravel() == pytest.approx([0.25, 0.375, 0.4375], rel=1e-14)     # h / 2 + 1/2 · 1/2
    y, _ = reference.gru_forward(x, **zero, bias_ih_l0=np.zeros(3),
                                 bias_hh_l0=np.array([0, 0, 2 * b]))
    assert y.ravel() == pytest.approx([0.25, 0.375, 0.4375], rel=1e-14)     # r = 1/2 halves 2 b


def test_activations_by_hand():
    log2, log3 = math.log(2), math.log(3)
    for word, x, expected in [
            ("relu", -2, 0), ("relu", 3, 3), ("leaky_relu", -2, -0.02), ("sigmoid", 0, 0.5),
            ("silu", log3, 0.75 * log3), ("tanh", log2, 0.6), ("gelu", 1, 0.8413447460685429),
            ("sigmoid", -1000, 0), ("sigmoid", 1000, 1), ("silu", -1000, 0), ("silu", 1000, 1000)]:
        y, _ = getattr(reference, f"{word}_forward")(np.array([[x]], dtype=float))
        assert y == pytest.approx(expected, rel=1e-14)       # Φ(1) = 0.8413447460685429
    for word in ("relu", "leaky_relu"):              # at 0, PyTorch takes the slope of the left
        _, saved = getattr(reference, f"{word}_forward")(np.zeros((1, 1)))
        slope = getattr(reference, f"{word}_backward")(np.ones((1, 1)), saved)[0][0].item()
        assert slope == {"relu": 0, "leaky_relu": 0.01}[word]
    y, _ = reference.gelu_forward(np.ones((1, 1)), approximate="tanh")
    assert y.item() == pytest.approx((1 + math.tanh(math.sqrt(2 / math.pi) * 1.044715)) / 2)


def test_softmax_by_hand():
    """Shares 1/4 and 3/4 of logits that differ by log 3, along the classes."""
    for shape in ((1, 2), (1, 1, 2), (1, 2, 1, 1)):
        y, _ = reference.softmax_forward(np.array([1000.0, 1000 + math.log(3)]).reshape(shape))
        assert y.ravel() == pytest.approx([0.25, 0.75], rel=1e-12)
    assert (reference.softmax_forward(np.zeros((2, 4, 3, 5)))[0] == 1 / 4).all()
    assert (reference.softmax_forward(np.zeros((2, 4, 5)))[0] == 1 / 5).all()
    assert (reference.softmax_forward(np.zeros((2, 5, 3)), dim=1)[0] == 1 / 5).all()


def test_images_by_hand():
    x = np.array([[[[0.0, 2.0]]]])
    for options, expected in [
            ({"size": (1, 4)}, [0, 0, 2, 2]), ({"size": (1, 3)}, [0, 0, 2]),
            ({"size": (1, 4), "mode": "bilinear"}, [0, 0.5, 1.5, 2]),
            ({"size": (1, 5), "mode": "bilinear", "align_corners": True}, [0, 0.5, 1, 1.5, 2])]:
        assert reference.upsample_forward(x, **options)[0].ravel().tolist() == expected
    row = np.arange(5.0).reshape(1, 1, 1, 5)
    y, _ = reference.adaptive_avg_pool2d_forward(row, output_size=(1, 3))
    assert y.ravel().tolist() == [0.5, 2, 3.5]               # pixels 0-1, 1-3, 3-4
    y, _ = reference.zero_pad2d_forward(x + 1, padding=(1, -1, 0, 1))
    assert y[0, 0].tolist() == [[0, 1], [0, 0]]
    y, _ = reference.cat_forward(x, x + 1, x)                # along the channels
    assert y.shape == (1, 3, 1, 2) and y[0, 1].tolist() == [[1, 3]]
    assert reference.cat_forward(np.zeros((2, 3, 4)), np.ones((2, 3, 1)))[0].shape == (2, 3, 5)


def test_norms_by_hand():
    x = np.array([[1.0, 3.0]])                       # mean 2, deviation 1; mean of squares 5
    assert reference.layer_norm_forward(x, eps=0.0)[0].tolist() == [[-1, 1]]
    y, _ = reference.rms_norm_forward(x, eps=4.0)
    assert y == pytest.approx(np.array([[1 / 3, 1]]), rel=1e-15)
    assert reference.group_norm_forward(x, num_groups=1, eps=3.0)[0].tolist() == [[-0.5, 0.5]]
    small = reference.rms_norm_forward(np.zeros((1, 2), dtype=np.float32) + np.float32(2**-11.5))[0]
    assert small == pytest.approx(math.sqrt(1 / 2), rel=1e-6)                   # eps 2⁻²³, x² 2⁻²³


def test_running_statistics_by_hand():
    """{0, 2} and {10, 12}: means 1 and 11, unbiased variances 2 and 2."""
    x = np.array([[0.0], [2.0], [10.0], [12.0]])
    start = {"running_mean": np.zeros(1), "running_var": np.ones(1)}
    y, saved = reference.ghost_batch_norm_forward(x, virtual_batch_size=2, eps=0.0, **start)
    assert y.ravel().tolist() == [-1, 1, -1, 1]
    assert saved[-2].item() == pytest.approx(0.9 * 0.1 + 1.1, rel=1e-14)
    assert saved[-1].item() == pytest.approx(0.81 + 0.19 * 2, rel=1e-14)
    _, saved = reference.batch_norm_forward(x, momentum=0.5, **start)
    assert saved[-2].item() == 3
    assert saved[-1].item() == pytest.approx(0.5 + 0.5 * 104 / 3, rel=1e-14)
    assert start["running_mean"] == 0 and start["running_var"] == 1
    stats = {"running_mean": np.full(1, 2.0), "running_var": np.full(1, 4.0)}
    y, saved = reference.batch_norm_forward(x, eps=0.0, training=False, **stats)
    assert y.ravel().tolist() == [-1, 0, 4, 5] and saved[-2:] == (2, 4)


def test_pooled_moments():
    assert reference.pooled_moments([(2, 1.0, 2.0), (2, 11.0, 2.0)]) == (4, 6.0, 104.0)
    rng = np.random.default_rng(0)
    groups = [rng.normal(i, 1 + i, size=(n, 3)) for i, n in enumerate((1, 4, 7))]
    moments = [(len(g), g.mean(axis=0), g.var(axis=0) * len(g)) for g in groups]
    n, mean, m2 = reference.pooled_moments(moments)
    together = np.concatenate(groups)
    assert n == 12 and error(mean, together.mean(axis=0)) < 1e-14
    assert error(m2 / n, together.var(axis=0)) < 1e-14


def test_embedding_adds_what_occurs_twice():
    tokens, weight = np.array([[1, 1], [2, 1]]), np.arange(8.0).reshape(4, 2)
    y, saved = reference.embedding_forward(tokens, weight=weight)
    assert y[1].tolist() == [[4, 5], [2, 3]]
    dxs, dparams = reference.embedding_backward(np.ones_like(y), saved)
    assert dxs == () and dparams["weight"].tolist() == [[0, 0], [3, 3], [1, 1], [0, 0]]


# ---- dropout ----

def scalar_mask(p, seed, update, layer, sample, element, row=None):
    """One element of a mask, from the definition in csrc/compute/random.h; ``row`` of attention."""
    m64, m32 = (1 << 64) - 1, (1 << 32) - 1

    def mix64(z):
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & m64
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & m64
        return z ^ z >> 31

    k = 0
    for value in [seed, update, layer, sample] + ([] if row is None else [row]):
        k = mix64((k + 0x9E3779B97F4A7C15 + value) & m64)
    x = k & m32 ^ (element * 0x9E3779B9 & m32)
    x ^= x >> 16
    x = (x * 0x7FEB352D & m32) + (k >> 32) & m32
    x ^= x >> 15
    x = x * 0x846CA68B & m32
    x ^= x >> 16
    return 0.0 if p == 1 or x < math.floor(p * 2**32) else 1 / (1 - p)


@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 4), (2, 3, 4, 5)], ids=str)
def test_masks_are_their_definition(shape):
    """Elements of images count channels last, all others row by row."""
    at = {"seed": 7, "update": 3, "layer": 2, "sample0": 10}
    y, _ = reference.dropout_forward(np.ones(shape), p=0.4, **at)
    for index in np.ndindex(shape):
        if len(shape) == 4:
            _, c, h, w = index
            element = (h * shape[3] + w) * shape[1] + c
        else:
            element = np.ravel_multi_index(index[1:], shape[1:])
        assert y[index] == scalar_mask(0.4, 7, 3, 2, 10 + index[0], int(element))
    if len(shape) == 4:
        y, _ = reference.dropout2d_forward(np.ones(shape), p=0.4, **at)
        for s, k in np.ndindex(shape[:2]):
            assert (y[s, k] == scalar_mask(0.4, 7, 3, 2, 10 + s, k)).all()


def test_dropout_drops_p_of_all_and_keeps_the_mean():
    x = np.ones((4, 50, 1000))
    for p in (0.1, 0.5, 0.9):
        y, _ = reference.dropout_forward(x, p=p, seed=1)
        deviation = math.sqrt(p * (1 - p) / x.size)
        assert abs((y == 0).mean() - p) < 5 * deviation
        assert abs(y.mean() - 1) < 5 * deviation / (1 - p)
    masks = {reference.dropout_forward(x[:2], **{"p": 0.5, "seed": 1, **change})[0].tobytes()
             for change in ({}, {"seed": 2}, {"update": 1}, {"layer": 1}, {"sample0": 2})}
    assert len(masks) == 5
    for word in ("dropout", "dropout2d"):
        function = getattr(reference, f"{word}_forward")
        image = np.ones((2, 3, 4, 5))
        assert (function(image, p=0.0)[0] == 1).all() and (function(image, p=1.0)[0] == 0).all()
        assert (function(image, p=0.9, training=False)[0] == 1).all()


# ---- losses ----

LOSSES = []


def loss_case(word, prediction, target, **options):
    LOSSES.append(SimpleNamespace(word=word, x=prediction, target=target, options=options,
                                  id=f"{word}-{sum(c.word == word for c in LOSSES)}"))


def labels(classes, *shape, ignored=None):
    y = RNG.integers(0, classes, shape)
    if ignored is not None:
        y[RNG.random(shape) < 0.4] = ignored
    return y


loss_case("cross_entropy_loss", some(5, 4), labels(4, 5))
loss_case("cross_entropy_loss", some(1, 3), labels(3, 1))
loss_case("cross_entropy_loss", some(6, 4), labels(4, 6, ignored=-100), weight=RNG.random(4))
loss_case("cross_entropy_loss", some(3, 5, 4), labels(4, 3, 5, ignored=-100), label_smoothing=0.2)
loss_case("cross_entropy_loss", some(3, 5, 4), labels(4, 3, 5, ignored=2), ignore_index=2,
          weight=RNG.random(4), label_smoothing=0.3)
loss_case("cross_entropy_loss", some(2, 3, 4, 3) * 9, labels(3, 2, 4, 3, ignored=-1),
          ignore_index=-1)
loss_case("cross_entropy_loss", some(4, 3), labels(3, 4), label_smoothing=1.0,
          weight=np.array([0.5, 2, 1]))
loss_case("cross_entropy_loss", some(3, 1), labels(1, 3))
for _word in ("mse_loss", "l1_loss"):
    loss_case(_word, some(4, 3), some(4, 3))
    loss_case(_word, some(1, 1), some(1, 1))
    loss_case(_word, some(2, 3, 2, 2), some(2, 3, 2, 2))
loss_case("bce_with_logits_loss", some(4, 3) * 3, RNG.random((4, 3)))
loss_case("bce_with_logits_loss", some(3), RNG.integers(0, 2, 3).astype(float), pos_weight=2.5)
loss_case("bce_with_logits_loss", some(2, 5, 3), RNG.random((2, 5, 3)),
          pos_weight=RNG.random(3) * 3)
loss_case("bce_with_logits_loss", some(2, 3, 4, 2), RNG.random((2, 3, 4, 2)),
          pos_weight=RNG.random(3) * 3)

each_loss = pytest.mark.parametrize("c", LOSSES, ids=lambda c: c.id)
each_weight = pytest.mark.parametrize("kind", [None, "sample", "element"])
each_per = pytest.mark.parametrize("per", ["element", "sample"])


def given_weights(c, kind):
    rng = np.random.default_rng(3)
    if kind is None:
        return None
    weight = rng.random(len(c.x) if kind == "sample" else c.target.shape)
    if weight.size > 2:
        weight.reshape(-1)[1] = 0
    return weight


def loss_forward(c, x=None, **more):
    function = getattr(reference, f"{c.word}_forward")
    return function(c.x if x is None else x, c.target, **c.options, **more)


def loss_backward(c, saved):
    return getattr(reference, f"{c.word}_backward")(saved)


@each_loss
@each_weight
@each_per
def test_loss_against_finite_differences(c, kind, per):
    x, more = c.x.copy(), {"sample_weight": given_weights(c, kind), "per": per}
    (loss, weight), saved = loss_forward(c, x, **more)
    assert loss.shape == weight.shape == (len(x),) and loss.dtype == weight.dtype == np.float64
    check_differences(lambda: loss_forward(c, x, **more)[0][0].sum(), x, loss_backward(c, saved))


@each_loss
def test_loss_keeps_the_dtype_and_its_arguments(c):
    x = c.x.astype(np.float32)
    before, target = x.copy(), c.target.copy()
    (loss, weight), saved = loss_forward(c, x)
    gradient = loss_backward(c, saved)
    assert gradient.dtype == np.float32 and loss.dtype == weight.dtype == np.float64
    (wide_loss, _), wide_saved = loss_forward(c)
    assert error(loss, wide_loss) < 1e-5 and error(gradient, loss_backward(c, wide_saved)) < 1e-5
    assert np.array_equal(x, before) and np.array_equal(c.target, target)


@each_loss
@each_weight
@each_per
def test_losses_of_micro_batches_are_those_of_the_batch(c, kind, per):
    weights = given_weights(c, kind)
    whole, saved = loss_forward(c, sample_weight=weights, per=per)
    gradient = loss_backward(c, saved)
    for i in range(len(c.x)):
        row = slice(i, i + 1)
        one = SimpleNamespace(word=c.word, x=c.x[row], target=c.target[row], options=c.options)
        part, saved = loss_forward(one, sample_weight=None if weights is None else weights[row],
                                   per=per)
        assert part[0][0] == pytest.approx(whole[0][i], rel=1e-14, abs=1e-14)
        assert part[1][0] == pytest.approx(whole[1][i], rel=1e-14)
        assert error(loss_backward(one, saved), gradient[row]) < 1e-14


def pytorch_loss(torch, c, x, target, reduction):
    """PyTorch's loss of x (tensor) and target, classes moved to where PyTorch wants them."""
    f = torch.nn.functional
    o = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in c.options.items()}
    target = torch.tensor(target)
    if c.word == "cross_entropy_loss":
        if x.ndim == 3:
            x = x.movedim(-1, 1)
        return f.cross_entropy(x, target, reduction=reduction, **o)
    if c.word == "bce_with_logits_loss":
        positive = torch.as_tensor(o.get("pos_weight", 1.0), dtype=x.dtype)
        if x.ndim == 4 and positive.ndim:
            positive = positive.reshape(-1, 1, 1)
        return f.binary_cross_entropy_with_logits(x, target, pos_weight=positive,
                                                  reduction=reduction)
    return getattr(f, c.word)(x, target, reduction=reduction)


@each_loss
def test_loss_against_pytorch(c):
    """Sum of losses over sum of weights: PyTorch's mean. Backward: the gradient of its sum."""
    torch = pytest.importorskip("torch")
    x = torch.tensor(c.x, requires_grad=True)
    (loss, weight), saved = loss_forward(c)
    mean = pytorch_loss(torch, c, x, c.target, "mean").item()
    assert loss.sum() / weight.sum() == pytest.approx(mean, rel=1e-13)
    expected = pytorch_loss(torch, c, x, c.target, "none")
    assert error(loss, expected.detach().numpy().reshape(len(c.x), -1).sum(axis=1)) < TOLERANCE
    expected.sum().backward()
    assert error(loss_backward(c, saved), x.grad.numpy()) < TOLERANCE


@each_loss
@pytest.mark.parametrize("kind", ["sample", "element"])
def test_weighted_loss_against_pytorch(c, kind):
    torch = pytest.importorskip("torch")
    x = torch.tensor(c.x, requires_grad=True)
    given = given_weights(c, kind)
    (loss, weight), saved = loss_forward(c, sample_weight=given)
    spread = given if kind == "element" else given.reshape(-1, *[1] * (c.target.ndim - 1))
    expected = pytorch_loss(torch, c, x, c.target, "none") * torch.tensor(spread)
    assert error(loss, expected.detach().numpy().reshape(len(c.x), -1).sum(axis=1)) < TOLERANCE
    expected.sum().backward()
    assert error(loss_backward(c, saved), x.grad.numpy()) < TOLERANCE
    counted, class_weight = np.ones(c.target.shape), 1
    if c.word == "cross_entropy_loss":
        counted = c.target != c.options.get("ignore_index", -100)
        classes = c.x.shape[1] if c.x.ndim == 4 else c.x.shape[-1]
        class_weight = c.options.get("weight", np.ones(classes))[c.target * counted]
    expected = (spread * counted * class_weight).reshape(len(c.x), -1).sum(axis=1)
    assert error(weight, expected) < TOLERANCE


@each_loss
def test_loss_per_sample_against_pytorch(c):
    """A sample's loss is PyTorch's mean of this sample alone; without counted elements, nothing."""
    torch = pytest.importorskip("torch")
    factors = np.random.default_rng(4).random(len(c.x))
    (loss, weight), saved = loss_forward(c, per="sample", sample_weight=factors)
    x, total = torch.tensor(c.x, requires_grad=True), 0.0
    for i, factor in enumerate(factors):
        one = pytorch_loss(torch, c, x[i:i + 1], c.target[i:i + 1], "mean") * factor
        if one.isnan():
            assert loss[i] == weight[i] == 0
            continue
        assert loss[i] == pytest.approx(one.item(), rel=1e-12) and weight[i] == factor
        total = total + one
    total.backward()
    assert error(loss_backward(c, saved), x.grad.nan_to_num().numpy()) < TOLERANCE


def test_losses_by_hand():
    """Logits 0, log 3: p = 1/4, 3/4. Errors 1, 2, 3. Logit 0: log 2."""
    x, quarter = np.array([[0, math.log(3)]] * 3), math.log(4)
    (loss, weight), saved = reference.cross_entropy_loss_forward(x, np.array([0, 1, -100]))
    assert loss == pytest.approx([quarter, quarter - math.log(3), 0], rel=1e-14)
    assert weight.tolist() == [1, 1, 0]
    assert reference.cross_entropy_loss_backward(saved) == pytest.approx(
        np.array([[-0.75, 0.75], [0.25, -0.25], [0, 0]]), rel=1e-14)
    (loss, weight), _ = reference.cross_entropy_loss_forward(
        x, np.array([0, 1, 1]), weight=[2, 3], label_smoothing=0.5)
    smooth = 0.25 * (2 * quarter + 3 * (quarter - math.log(3)))
    assert loss[0] == pytest.approx(quarter + smooth, rel=1e-14) and weight.tolist() == [2, 3, 3]
    x, target = np.array([[1.0, 2.0, -3.0]]), np.zeros((1, 3))
    assert [float(a[0]) for a in reference.mse_loss_forward(x, target)[0]] == [14, 3]
    assert [float(a[0]) for a in reference.l1_loss_forward(x, target)[0]] == [6, 3]
    loss, weight = reference.mse_loss_forward(x, target, per="sample")[0]
    assert loss == pytest.approx([14 / 3], rel=1e-15) and weight == 1
    _, saved = reference.mse_loss_forward(x, target, sample_weight=np.array([0.5]), per="sample")
    assert reference.mse_loss_backward(saved) == pytest.approx(np.array([[1, 2, -3]]) / 3)
    (loss, _), _ = reference.bce_with_logits_loss_forward(
        np.array([[0, 0, 1000, 1000, -1000, -1000.0]]), np.array([[0, 1, 1, 0, 0, 1.0]]),
        pos_weight=3.0)
    assert loss[0] == pytest.approx(4 * math.log(2) + 4000, rel=1e-15)
    assert reference.l1_loss_backward(reference.l1_loss_forward(x, x)[1]).tolist() == [[0, 0, 0]]


def test_large_logits_do_not_overflow():
    x = np.array([[1e30, -1e30]] * 2)
    (loss, _), saved = reference.cross_entropy_loss_forward(x, np.array([0, 1]))
    assert loss.tolist() == [0, 2e30]
    assert reference.cross_entropy_loss_backward(saved).tolist() == [[0, 0], [1, -1]]


def test_ignored_samples_count_nothing():
    target = np.array([[-100, -100], [1, -100]])
    for per in ("element", "sample"):
        (loss, weight), saved = reference.cross_entropy_loss_forward(
            np.ones((2, 2, 3)), target, per=per, label_smoothing=0.1)
        assert loss[0] == 0 and weight.tolist() == [0, 1] and loss[1] == pytest.approx(math.log(3))
        gradient = reference.cross_entropy_loss_backward(saved)
        assert (gradient[0] == 0).all() and (gradient[1, 1] == 0).all()
        assert (gradient[1, 0] != 0).all()


# ---- the window, optimizers, clipping ----

def test_the_weighted_mean_is_exact_and_the_mean_of_means_is_not():
    """Losses 2 on 4 tokens and 1 on 60 tokens: (8 + 60) / 64 = 1.0625, and (2 + 1) / 2 = 1.5."""
    micro_batches = [(8.0, 4.0, np.array([4.0, 8.0])), (60.0, 60.0, np.array([120.0, -60.0]))]
    loss, gradient = reference.weighted_mean(micro_batches)
    assert loss == 1.0625 and gradient.tolist() == [124 / 64, -52 / 64]
    loss, gradient = reference.mean_of_means(micro_batches)
    assert loss == 1.5 and gradient.tolist() == [1.5, 0.5]
    nothing = (0.0, 0.0, np.zeros(2))
    assert reference.weighted_mean([*micro_batches, nothing])[0] == 1.0625
    assert reference.mean_of_means([*micro_batches, nothing])[0] == 1.0
    single = [(np.float64(1), np.float64(2), np.ones(3, dtype=np.float32))]
    for function in (reference.weighted_mean, reference.mean_of_means):
        assert function(single)[1].dtype == np.float32 and function(single)[1].tolist() == [0.5] * 3


@pytest.mark.parametrize("sizes", [[12], [4, 4, 4], [5, 7], [1] * 12, [11, 1]], ids=str)
def test_every_split_of_a_small_network_gives_the_gradient_of_the_batch(sizes):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 5)), rng.integers(0, 3, 12)
    y[[2, 3, 7]] = -100
    w1, w2 = rng.normal(size=(6, 5)), rng.normal(size=(3, 6))

    def micro_batch(rows):
        h, saved1 = reference.linear_forward(x[rows], weight=w1)
        a, saved_tanh = reference.tanh_forward(h)
        z, saved2 = reference.linear_forward(a, weight=w2)
        (loss, weight), saved = reference.cross_entropy_loss_forward(z, y[rows], weight=[1, 2, 3])
        (da,), d2 = reference.linear_backward(reference.cross_entropy_loss_backward(saved), saved2)
        (dh,), _ = reference.tanh_backward(da, saved_tanh)
        _, d1 = reference.linear_backward(dh, saved1)
        gradient = np.concatenate([d1["weight"].ravel(), d2["weight"].ravel()])
        return loss.sum(), weight.sum(), gradient

    stops = list(itertools.accumulate(sizes))
    pieces = [slice(a, b) for a, b in zip([0, *stops], stops)]
    loss, gradient = reference.weighted_mean([micro_batch(rows) for rows in pieces])
    flat = np.concatenate([w1.ravel(), w2.ravel()])
    w1, w2 = flat[:30].reshape(6, 5), flat[30:].reshape(3, 6)     # views, so that flat can vary

    def batch_loss():
        loss, weight, _ = micro_batch(slice(0, 12))
        return loss / weight

    assert loss == pytest.approx(batch_loss(), rel=1e-14)
    check_differences(batch_loss, flat, gradient)


def test_a_window_of_weight_0_has_no_mean():
    with pytest.raises(ValueError, match="weight of the window is 0"):
        reference.weighted_mean([(0.0, 0.0, np.zeros(2))])


OPTIMIZERS = [
    ("sgd", {}), ("sgd", {"lr": 0.1, "momentum": 0.9}), ("sgd", {"lr": 0.1, "weight_decay": 0.1}),
    ("sgd", {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.1}),
    ("sgd", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.05}),
    ("adam", {}), ("adam", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    ("adam", {"lr": 0.02, "amsgrad": True}),
    ("adamw", {}), ("adamw", {"lr": 0.02, "betas": (0.7, 0.9), "eps": 1e-3, "weight_decay": 0.2}),
    ("adamw", {"lr": 0.02, "weight_decay": 0.0, "amsgrad": True}),
]


@pytest.mark.parametrize("word, options", OPTIMIZERS, ids=str)
def test_optimizer_against_pytorch_over_50_steps(word, options):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start = rng.normal(size=(3, 4))
    ours, state, theirs = start, {}, torch.tensor(start.copy(), requires_grad=True)
    names = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
    optimizer = getattr(torch.optim, names[word])([theirs], **options)
    for _ in range(50):
        gradient = rng.normal(size=start.shape) * rng.choice([0, 1e-3, 1, 10])  # amsgrad keeps 10
        theirs.grad = torch.tensor(gradient)
        optimizer.step()
        ours, state = getattr(reference, f"{word}_step")(ours, gradient, state, **options)
        assert error(ours, theirs.detach().numpy()) < TOLERANCE
    assert np.abs(ours - start).max() > 1e-3


def test_optimizers_by_hand():
    one, step = np.ones(1), reference.sgd_step
    assert step(one, one * 2, {}, lr=0.25)[0] == 0.5
    p, state = step(one, one, {}, lr=0.5, momentum=0.5, dampening=0.25)         # v = 1
    assert p == 0.5 and state["momentum_buffer"] == 1
    p, state = step(p, one, state, lr=0.5, momentum=0.5, dampening=0.25)        # v = 0.5 + 0.75
    assert p == 0.5 - 0.625 and state["momentum_buffer"] == 1.25
    p, state = step(one, one, {}, lr=0.5, momentum=0.5, nesterov=True)          # v = 1
    assert p == 1 - 0.5 * 1.5
    p, state = step(p, one, state, lr=0.5, momentum=0.5, nesterov=True)         # v = 1.5
    assert p == 0.25 - 0.5 * 1.75
    assert step(one * 2, one, {}, lr=0.5, weight_decay=0.5)[0] == 1             # g = 1 + 0.5 · 2
    # Adam, first step: m̂ = g, v̂ = g², so it moves by lr g / (|g| + eps), whatever the size of g
    for g in (1e-3, 1.0, -50.0):
        p, state = reference.adam_step(one, one * g, {}, lr=0.1, eps=1.0)
        assert p.item() == pytest.approx(1 - 0.1 * g / (abs(g) + 1), rel=1e-14)
        assert state["step"] == 1
        p, _ = reference.adam_step(one * 4, one * g, {}, lr=0.1, eps=1.0, weight_decay=0.5)
        assert p.item() == pytest.approx(4 - 0.1 * (g + 2) / (abs(g + 2) + 1), rel=1e-14)
        p, _ = reference.adamw_step(one, one * g, {}, lr=0.1, eps=1.0, weight_decay=0.5)
        assert p.item() == pytest.approx(0.95 - 0.1 * g / (abs(g) + 1), rel=1e-14)
    # equal gradients: m̂ = g and v̂ = g² in every step; then g = 0: amsgrad keeps the largest v
    p, state = one, {}
    for _ in range(3):
        p, state = reference.adam_step(p, one * 2, state, lr=0.1, eps=0.0, amsgrad=True)
    assert p.item() == pytest.approx(0.7, rel=1e-13)
    v = state["exp_avg_sq"].item()
    _, state = reference.adam_step(p, one * 0, state, amsgrad=True)
    assert state["max_exp_avg_sq"].item() == v > state["exp_avg_sq"].item() and state["step"] == 4


@pytest.mark.parametrize("word, options", OPTIMIZERS, ids=str)
def test_optimizers_are_pure_and_keep_the_dtype(word, options):
    param, gradient, state = np.ones(3, dtype=np.float32), np.full(3, 2, dtype=np.float32), {}
    function = getattr(reference, f"{word}_step")
    new, state = function(param, gradient, state, **options)
    kept = {k: np.copy(v) for k, v in state.items()}
    newer, _ = function(new, gradient, state, **options)
    assert new.dtype == newer.dtype == np.float32 and (param == 1).all() and (gradient == 2).all()
    assert all(np.array_equal(state[k], v) for k, v in kept.items())
    again, _ = function(new, gradient, state, **options)
    assert np.array_equal(newer, again)


def test_clipping():
    """A norm of 5 over both arrays: factor 1 / (5 + 1e-6)."""
    grads = [np.array([3.0]), np.array([[0.0, 4.0]])]
    clipped, norm = reference.clip_grad_norm(grads, 1.0)
    assert norm == 5 and clipped[0].item() == pytest.approx(3 / (5 + 1e-6), rel=1e-15)
    assert clipped[1].tolist() == [[0, pytest.approx(4 / (5 + 1e-6), rel=1e-15)]]
    clipped, norm = reference.clip_grad_norm(grads, 6.0)
    assert norm == 5 and clipped[0] == 3 and grads[0] == 3
    clipped, _ = reference.clip_grad_norm([np.ones(2, dtype=np.float32)], 0.1)
    assert clipped[0].dtype == np.float32
    clipped, norm = reference.clip_grad_norm([np.array([np.nan, 1.0])], 1.0)
    assert math.isnan(norm) and np.isnan(clipped[0]).all()


@pytest.mark.parametrize("max_norm", [0.5, 5.0, 1e3])
def test_clipping_against_pytorch(max_norm):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    grads = [rng.normal(size=shape) for shape in ((3, 4), (5,), (2, 1, 2))]
    tensors = [torch.zeros(g.shape, dtype=torch.float64, requires_grad=True) for g in grads]
    for tensor, g in zip(tensors, grads):
        tensor.grad = torch.tensor(g)
    expected = torch.nn.utils.clip_grad_norm_(tensors, max_norm).item()
    clipped, norm = reference.clip_grad_norm(grads, max_norm)
    assert norm == pytest.approx(expected, rel=1e-14)
    for tensor, g in zip(tensors, clipped):
        assert error(g, tensor.grad.numpy()) < TOLERANCE


# ---- defaults ----

PYTORCH_NAMES = {
    "leaky_relu": "LeakyReLU", "gelu": "GELU", "dropout": "Dropout", "dropout2d": "Dropout2d",
    "conv2d": "Conv2d", "conv_transpose2d": "ConvTranspose2d", "max_pool2d": "MaxPool2d",
    "avg_pool2d": "AvgPool2d", "upsample": "Upsample", "batch_norm": "BatchNorm2d",
    "group_norm": "GroupNorm", "instance_norm2d": "InstanceNorm2d", "embedding": "Embedding",
    "layer_norm": "LayerNorm", "rms_norm": "RMSNorm", "multihead_attention": "MultiheadAttention",
    "cross_entropy_loss": "CrossEntropyLoss", "bce_with_logits_loss": "BCEWithLogitsLoss",
    "sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


@pytest.mark.parametrize("word", PYTORCH_NAMES)
def test_defaults_are_those_of_pytorch(word):
    torch = pytest.importorskip("torch")
    optimizer = hasattr(reference, f"{word}_step")
    module = torch.optim if optimizer else torch.nn
    ours = getattr(reference, f"{word}_step" if optimizer else f"{word}_forward")
    theirs = inspect.signature(getattr(module, PYTORCH_NAMES[word])).parameters
    shared = {name: p.default for name, p in inspect.signature(ours).parameters.items()
              if name in theirs and name not in ("bias", "normalized_shape")
              and p.default is not p.empty}
    assert shared and shared == {name: theirs[name].default for name in shared}


def test_ghosts_have_the_defaults_of_batch_norm():
    whole, ghost = (inspect.signature(getattr(reference, f"{word}_forward")).parameters
                    for word in ("batch_norm", "ghost_batch_norm"))
    assert {name: p.default for name, p in whole.items()} == {
        name: p.default for name, p in ghost.items() if name != "virtual_batch_size"}


# ---- what NumPy would let pass ----

X = np.ones((2, 4))
IMAGE = np.ones((2, 3, 4, 4))


REFUSED = [
    ("embedding", [np.array([[0, 1], [4, 0]])], {"weight": np.ones((4, 2))}, IndexError,
     r"token 4 at \(1, 0\), expected 0 to 3"),
    ("embedding", [np.array([-1])], {"weight": np.ones((4, 2))}, IndexError, r"token -1 at \(0,\)"),
    ("cross_entropy_loss", [X, np.array([0, 4])], {}, IndexError,
     r"target 4 at \(1,\), expected 0 to 3"),
    ("cross_entropy_loss", [X, np.array([-1, 0])], {}, IndexError, "target -1"),
    ("cross_entropy_loss", [X, np.array([[0], [1]])], {}, ValueError,
     r"shape \(2,\), got \(2, 1\)"),
    ("cross_entropy_loss", [X, np.array([0, 1])], {"per": "token"}, ValueError, "per='token'"),
    ("mse_loss", [np.ones((3, 1)), np.ones(3)], {}, ValueError,
     r"target has shape \(3,\), the prediction \(3, 1\)"),
    ("l1_loss", [X, np.ones((2, 1))], {}, ValueError, r"target has shape \(2, 1\)"),
    ("bce_with_logits_loss", [X, np.ones(4)], {}, ValueError, r"target has shape \(4,\)"),
    ("mse_loss", [X, X], {"sample_weight": np.ones(4)}, ValueError,
     r"sample_weight has shape \(4,\), expected \(2,\)"),
    ("mse_loss", [X, X], {"sample_weight": np.ones((2, 1))}, ValueError,
     r"or \(2, 4\), one a target element"),
    ("add", [X, np.ones((1, 4))], {}, ValueError, r"shapes \(2, 4\) and \(1, 4\) differ"),
    ("gelu", [X], {"approximate": "erf"}, ValueError, "approximate='erf'"),
    ("dropout", [X], {"p": 1.5}, ValueError, "p=1.5"),
    ("batch_norm", [X[:1]], {}, ValueError, "one value per channel"),
    ("ghost_batch_norm", [X], {"virtual_batch_size": 3}, ValueError,
     "2 samples cannot be cut into ghosts of"),
    ("group_norm", [X], {"num_groups": 3}, ValueError,
     "num_groups=3 does not divide the 4 channels"),
    ("layer_norm", [X], {"weight": np.ones(3)}, ValueError,
     r"x has shape \(2, 4\), expected \(n, \.\.\., 3\)"),
    ("multihead_attention", [np.ones((1, 2, 4))],
     {"in_proj_weight": np.ones((12, 4)), "out_proj_weight": np.ones((4, 4)), "num_heads": 3},
     ValueError, "num_heads=3 does not divide the 4 features"),
    ("multihead_attention", [np.ones((1, 2, 4))],
     {"in_proj_weight": np.ones((12, 4)), "out_proj_weight": np.ones((4, 4)), "num_heads": 2,
      "key_padding_mask": np.ones(2)}, ValueError,
     r"key_padding_mask has shape \(2,\), expected \(1, 2\)"),
    ("multihead_attention", [np.ones((1, 2, 4)), np.ones(2)],
     {"in_proj_weight": np.ones((12, 4)), "out_proj_weight": np.ones((4, 4)), "num_heads": 2},
     ValueError, r"lengths has shape \(2,\), expected \(1,\)"),
    ("position", [np.ones((1, 3, 2))], {"weight": np.ones((2, 2))}, ValueError,
     "x has 3 steps, but weight has rows for 2 only"),
    ("conv2d", [IMAGE], {"weight": np.ones((1, 3, 5, 5))}, ValueError,
     r"reaches over \(5, 5\) pixels"),
    ("max_pool2d", [IMAGE], {"kernel_size": 3, "dilation": 2}, ValueError,
     r"reaches over \(5, 5\) pixels"),
    ("avg_pool2d", [IMAGE], {"kernel_size": 5}, ValueError,
     "windows of 5 pixels do not fit into 4"),
    ("upsample", [IMAGE], {}, ValueError, "either size or scale_factor"),
    ("upsample", [IMAGE], {"size": 8, "mode": "cubic"}, ValueError, "mode='cubic'"),
]


@pytest.mark.parametrize("word, arguments, options, kind, text", REFUSED,
                         ids=[f"{row[0]}-{i}" for i, row in enumerate(REFUSED)])
def test_wrong_arguments_are_refused_with_a_reason(word, arguments, options, kind, text):
    with pytest.raises(kind, match=text):
        getattr(reference, f"{word}_forward")(*arguments, **options)
