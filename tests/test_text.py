"""Tokens and lengths: one divisor for the window, whatever the lengths of its sequences and the split."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import models, nn, optim
from gradaccum.data import pack

VOCABULARY, BLOCK = 11, 12


@pytest.fixture
def sequences():
    """16 sequences of 2 to 12 tokens, each with its next token as target."""
    rng = np.random.default_rng(3)
    return [rng.integers(3, VOCABULARY, n) for n in rng.integers(3, BLOCK + 1, 16)]


def window(sequences, pieces, reduction="mean", dtype="float32", updates=3):
    """Trains a GPT with tied weights and dropout; each piece is padded to its own longest sequence."""
    model = models.gpt(VOCABULARY, BLOCK, n_layer=2, n_head=2, n_embd=8, dropout=0.2)
    net = ga.plan(model, input_shape=(BLOCK,), loss=nn.CrossEntropyLoss(), micro_batch=max(pieces), dtype=dtype, seed=4)
    opt = optim.AdamW(net, lr=0.01)
    acc = ga.Accumulator(net, opt, reduction=reduction)
    gradient = None
    for _ in range(updates):
        acc.begin()
        first = 0
        for n in pieces:
            part = sequences[first:first + n]
            (micro,) = pack(part, "next", max_tokens=n * BLOCK, sort=False)
            net.forward(micro.tokens)
            net.loss(micro.targets)
            net.backward()
            acc.accumulate()
            first += n
        acc.normalize()
        gradient = net.grads.copy() if gradient is None else gradient
        opt.step()
        acc.clear()
    return net.params.copy(), acc.last_update, gradient


SPLITS = [[16], [8] * 2, [4] * 4, [2] * 8, [1] * 16, [1, 7, 5, 3], [15, 1]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_d02_every_split_of_sequences_of_random_lengths_has_the_same_bits(sequences, dtype):
    """16 x 1, 8 x 2, 4 x 4, 2 x 8, 1 x 16 and uneven ones; each micro-batch with its own padding, attention, dropout, tied weights."""
    params, update, _ = window(sequences, SPLITS[0], dtype=dtype)
    assert update.tokens == update.weight == sum(len(s) - 1 for s in sequences)
    for pieces in SPLITS[1:]:
        other, record, _ = window(sequences, pieces, dtype=dtype)
        assert np.array_equal(params, other), pieces
        assert (record.loss, record.grad_norm, record.tokens) == (update.loss, update.grad_norm, update.tokens)


def test_the_mean_of_means_is_off_by_tens_of_percent(sequences):
    """Sorted by length, so that micro-batches hold few and many tokens."""
    ordered = sorted(sequences, key=len)
    full = window(ordered, [16], updates=1)[2].astype(np.float64)
    for pieces, least in (([4] * 4, 0.1), ([1] * 16, 0.1)):
        means = window(ordered, pieces, "mean_of_means", updates=1)[2]
        assert np.linalg.norm(means - full) / np.linalg.norm(full) > least


def test_sentences_or_tokens():
    """Sentences of 1 and 3 tokens: two known divisors, each the same for both splits."""
    for per, weights in (("element", [1, 1, 1, 1]), ("sample", [1, 1 / 3, 1 / 3, 1 / 3])):
        results = []
        for m in (1, 2):
            net = ga.plan(nn.Linear(1, 2), input_shape=(3, 1), loss=nn.CrossEntropyLoss(per=per), micro_batch=m, dtype="float64")
            net.load_state_dict({"weight": [[1.0], [0.0]], "bias": [0.0, 0.0]})
            acc = ga.Accumulator(net, optim.SGD(net, lr=1.0))
            x = np.array([[[1.0], [0], [0]], [[2.0], [3], [4]]])
            acc.update(x, np.array([[1, -100, -100], [1, 1, 1]]))
            results.append(net.params.copy())
        p = 1 / (1 + np.exp(-np.array([1.0, 2, 3, 4])))      # probability of the wrong class 0
        expected = 1.0 - (np.array(weights) * p * [1, 2, 3, 4]).sum() / sum(weights)
        assert np.array_equal(*results) and results[0][0] == pytest.approx(expected, rel=1e-13)


def test_windows_without_a_target_change_nothing(sequences):
    net = ga.plan(models.gpt(VOCABULARY, BLOCK, 1, 2, 8), input_shape=(BLOCK,), loss=nn.CrossEntropyLoss(), micro_batch=4)
    acc = ga.Accumulator(net, optim.AdamW(net, lr=0.1, weight_decay=0.5))
    before = net.params.copy()
    update = acc.update(np.zeros((8, 5), int), np.full((8, 5), -100))
    assert update.skipped and update.tokens == 0 and np.array_equal(net.params, before) and acc.updates == 0
    mixed = acc.update(np.zeros((8, 5), int), np.where(np.arange(8)[:, None] < 4, -100, 1) * np.ones((1, 5), int))
    assert mixed.tokens == 20 and np.isfinite(mixed.loss) and np.isfinite(net.params).all()


def test_records_count_tokens_and_time(sequences):
    _, update, _ = window(sequences, [4] * 4)
    assert update.perplexity == pytest.approx(np.exp(update.loss)) and update.seconds > 0
    assert update.tokens_per_second == update.tokens / update.seconds and update.samples_per_second == 16 / update.seconds


def test_memory_of_attention_grows_with_t_and_not_its_square():
    """Activations and workspace of a block, T = 128, 512, 2,048: four times the steps, four times the bytes."""
    sizes = []
    for steps in (128, 512, 2048):
        net = ga.plan(nn.MultiheadAttention(64, 4, causal=True), input_shape=(steps, 64), loss=nn.MSELoss(), micro_batch=1)
        kinds = net.memory.by_kind()
        sizes.append(kinds["activations"] + kinds.get("activation_gradients", 0) + kinds["workspace"])
    assert 3.5 < sizes[1] / sizes[0] < 4.1 and 3.9 < sizes[2] / sizes[1] < 4.1


def test_bad_tokens_and_lengths():
    net = ga.plan(models.gpt(VOCABULARY, BLOCK, 1, 2, 8), input_shape=(BLOCK,), loss=nn.CrossEntropyLoss(), micro_batch=2)
    tokens = np.zeros((2, 5), int)
    tokens[1, 3] = VOCABULARY
    with pytest.raises(IndexError, match="transformer.wte .embedding.: sample 1 position 3 has the token 11; the vocabulary has 11, 0 to 10"):
        net.forward(tokens)
    with pytest.raises(ValueError, match=r"x: got shape \(2, 13\), expected \(n, up to 12\)"):
        net.forward(np.zeros((2, 13), int))
    with pytest.raises(TypeError, match="x: got dtype float64, expected integers"):
        net.forward(np.zeros((2, 5)))
    with pytest.raises(ValueError, match="n_head=3 does not divide n_embd=8"):
        models.gpt(VOCABULARY, BLOCK, 1, 3, 8)
