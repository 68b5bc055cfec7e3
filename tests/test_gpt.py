"""models.gpt: the same bits for every split, way and plan; bytes; initial values; state dicts of others. Tokens and weights: test_text.py."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim, safetensors
from gradaccum.testing import check_split

VOCABULARY, STEPS = 13, 9


def model(dropout=0.1, steps=STEPS):
    return ga.models.gpt(VOCABULARY, steps, n_layer=2, n_head=2, n_embd=12, dropout=dropout)


def network(micro_batch, dropout=0.1, steps=STEPS, dtype="float32", **options):
    return ga.plan(model(dropout, steps), input_shape=(steps,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, dtype=dtype, seed=2, **options)


def sentences(n=16, steps=STEPS, seed=0):
    """Tokens, and targets with -100 behind the end; lengths from 1 to steps."""
    rng = np.random.default_rng(seed)
    lengths = np.concatenate([[1, steps], rng.integers(1, steps + 1, n - 2)])
    x, y = rng.integers(0, VOCABULARY, (2, n, steps))
    y[np.arange(steps) >= lengths[:, None]] = -100
    return x, y


def train(net, x, y):
    acc = ga.Accumulator(net, optim.AdamW(net, lr=1e-2, weight_decay=0.1), max_grad_norm=0.5)
    for _ in range(3):
        update = acc.update(x, y)
    return net.params.copy(), update.loss, update.grad_norm


# ---- bits ----

def test_every_split_way_and_thread_count():
    """Tied weights, dropout on probabilities and activations, ignored targets, clipping, AdamW."""
    x, y = sentences(7)
    check_split(model(0.2), (STEPS,), loss=nn.CrossEntropyLoss(), x=x, y=y)


def test_tied_weights_fold_to_rounding():
    x, y = sentences(4)
    exact, folded = train(network(4, 0.0), x, y), train(network(4, 0.0, ties="fold"), x, y)
    assert np.allclose(exact[0], folded[0], rtol=0, atol=1e-4) and exact[1] == pytest.approx(folded[1], rel=1e-5)


@pytest.mark.parametrize("options", [{"recompute": "sqrt"}, {"keep": "all"}], ids=str)
def test_other_plans_have_the_same_bits(options):
    x, y = sentences(4)
    first, other = train(network(4, 0.2), x, y), train(network(4, 0.2, **options), x, y)
    assert np.array_equal(first[0], other[0]) and first[1:] == other[1:]


def test_shorter_sequences_in_a_longer_plan():
    """Predictions of the first steps do not change with what is planned or what follows."""
    x = sentences(3)[0]
    full, short = network(3, 0.0).predict(x), network(3, 0.0).predict(x[:, :4])
    assert np.array_equal(full[:, :4], short)


# ---- memory ----

def test_gpt2_shape_is_planned_without_memory():
    """124 million parameters: what it would take, and that a limit is kept before anything is allocated."""
    net_model = ga.models.gpt(50257, 256, 12, 12, 768)
    with pytest.raises(ga.BudgetError) as error:
        ga.plan(net_model, input_shape=(256,), loss=nn.CrossEntropyLoss(), micro_batch=4, memory_limit="1 GiB")
    parameters = 50257 * 768 + 256 * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768
    assert error.value.by_kind["parameters"] == 4 * parameters == 4 * 123_849_984
    assert error.value.by_kind["gradient_buffer"] == 4 * (parameters + 50257 * 768)


# ---- bad input ----

def test_lengths_outside_their_range():
    net = network(4)
    for steps in (0, STEPS + 1):
        with pytest.raises(ValueError, match=rf"got shape \(4, {steps}\), expected \(n, up to 9\)"):
            net.forward(np.zeros((4, steps), dtype=int))
    with pytest.raises(ValueError, match="sequences of 10 steps, but there are 9 positions"):
        ga.plan(model(), input_shape=(10,), micro_batch=1)


@pytest.mark.parametrize("arguments, text", [
    ((0, 8, 2, 2, 8), "vocab_size=0"), ((5, 8, 2, 3, 8), "n_head=3 does not divide n_embd=8"), ((5, 8, 2, 2, 8, 1.5), "dropout=1.5"),
    ((5, 8, 0, 2, 8), "n_layer=0"),
])
def test_gpt_that_cannot_be(arguments, text):
    with pytest.raises(ValueError, match=text):
        ga.models.gpt(*arguments)


# ---- start and state dicts ----

def test_start():
    """GPT-2's: normal with 0.02, in what is added to the residual stream 0.02 / sqrt(2 n_layer), biases 0, norms 1."""
    net = ga.plan(ga.models.gpt(300, 64, 2, 2, 64), input_shape=(64,), micro_batch=1)
    for name, value in net.state_dict().items():
        if ".ln_" in name:
            assert (value == name.endswith("weight")).all()
        elif name.endswith("bias"):
            assert not value.any()
        else:
            assert value.std() == pytest.approx(0.01 if "c_proj" in name else 0.02, rel=0.05), name


def published(net, turned=True):
    """The state of a network as files published with GPT-2 have it: linear weights (in, out), no prefix, masks beside them."""
    state = {}
    for name, value in net.state_dict().items():
        if name != "lm_head.weight":
            value = value.T if turned and name.startswith("transformer.h.") and value.ndim == 2 else value
            state[name.removeprefix("transformer.")] = value
    return state | {f"h.{i}.attn.bias": np.tri(8, dtype=bool)[None, None] for i in range(2)} | {"h.0.attn.masked_bias": np.float32(-1e4)}


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("prefix, head", [("", False), ("transformer.", True)])
def test_load_gpt2(prefix, head, turned, tmp_path):
    source, net = network(2), ga.plan(model(), input_shape=(STEPS,), loss=nn.CrossEntropyLoss(), micro_batch=2, seed=9)
    state = {f"{prefix}{name}": value for name, value in published(source, turned).items()}
    if head:
        state["lm_head.weight"] = source.state_dict()["lm_head.weight"]
    safetensors.save(state, tmp_path / "gpt2.safetensors")
    assert not np.array_equal(net.params, source.params)
    ga.models.load_gpt2(net, tmp_path / "gpt2.safetensors")
    assert np.array_equal(net.params, source.params)


def test_load_gpt2_into_fewer_positions(tmp_path):
    source, net = network(2, 0.0), network(2, 0.0, steps=4)
    safetensors.save(published(source), tmp_path / "x")
    ga.models.load_gpt2(net, tmp_path / "x")
    x = sentences(2)[0][:, :4]
    assert np.array_equal(net.predict(x), source.predict(x))


@pytest.mark.parametrize("change, text", [
    (lambda s: s.pop("h.1.ln_1.bias"), "missing transformer.h.1.ln_1.bias"),
    (lambda s: s.update({"h.2.ln_1.bias": np.zeros(12)}), "unexpected transformer.h.2.ln_1.bias"),
    (lambda s: s.update({"wte.weight": np.zeros((14, 12))}), r"transformer.wte.weight: got \(14, 12\), expected \(13, 12\)"),
    (lambda s: s.update({"lm_head.weight": np.zeros((13, 12))}), "lm_head.weight differs from transformer.wte.weight"),
    (lambda s: s.update({"h.0.attn.c_attn.weight": np.zeros((12, 12))}), "c_attn.weight: got"),
    (lambda s: s.clear(), "missing transformer.wte.weight"),
])
def test_load_gpt2_refuses(change, text, tmp_path):
    net = network(2)
    state, before = published(net), net.params.copy()
    change(state)
    safetensors.save(state, tmp_path / "x")
    with pytest.raises(ValueError, match=text):
        ga.models.load_gpt2(net, tmp_path / "x")
    assert np.array_equal(net.params, before)
    with pytest.raises(TypeError, match="the network's model is a Linear"):
        ga.models.load_gpt2(ga.plan(nn.Linear(2, 2), input_shape=(2,), micro_batch=1), tmp_path / "x")
