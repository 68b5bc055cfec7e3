"""A GPT with tied weights and ignored targets against PyTorch over 50 AdamW updates (stored numbers on every machine), and attention masks."""
import sys
from pathlib import Path

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim

sys.path.insert(0, str(Path(__file__).parent))
from gpt_cases import ADAMW, FEATURES, FIRST, HEADS, LAYERS, SAMPLES, STEPS, VOCABULARY, batches, weights  # noqa: E402


def run(dtype, engine="native"):
    model = ga.models.gpt(VOCABULARY, STEPS, LAYERS, HEADS, FEATURES, dropout=0.0)
    net = ga.plan(model, input_shape=(STEPS,), loss=nn.CrossEntropyLoss(), micro_batch=SAMPLES - FIRST, dtype=dtype, engine=engine)
    net.load_state_dict(weights())
    acc = ga.Accumulator(net, optim.AdamW(net, **ADAMW), accumulation_steps=2)
    losses = []
    for x, y in batches():
        acc.step(x[:FIRST], y[:FIRST])
        losses.append(acc.step(x[FIRST:], y[FIRST:]).update.loss)
    return net.state_dict(), np.array(losses)


def compare(parameters, losses, dtype, engine="native"):
    """float64 to 1e-9. In float32 losses to 1e-6 and parameters to 1e-5, but for the biases of the keys: softmax does not see them, their gradient is
    rounding alone, and Adam makes steps of full length of it."""
    ours, our_losses = run(dtype, engine)
    assert np.abs(our_losses - losses).max() < {"float64": 1e-9, "float32": 1e-6 * losses.max()}[dtype]
    for name, expected in parameters.items():
        difference = np.abs(ours[name] - expected)
        if dtype == "float32" and name.endswith("attn.c_attn.bias"):
            difference = np.delete(difference, np.arange(FEATURES, 2 * FEATURES))
        assert difference.max() < {"float64": 1e-9, "float32": 1e-5}[dtype], name


@pytest.mark.parametrize("engine", ["native", "openblas"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gpt_golden(dtype, engine):
    with np.load(Path(__file__).with_name("gpt_golden.npz"), allow_pickle=False) as golden:
        stored = {name: golden[name] for name in golden.files if name not in ("torch", "losses")}
        compare(stored, golden["losses"], dtype, engine)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gpt_live(dtype):
    pytest.importorskip("torch")
    import with_torch_gpt

    compare(*with_torch_gpt.run("float64"), dtype)


def test_masks_live():
    """Causal masks, lengths and no biases in float64, with PyTorch's state dict loaded as it is, over more steps than a block of queries has."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    steps, lengths, rng = 70, np.array([70, 1, 40]), np.random.default_rng(0)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(steps, dtype=torch.float64)
    hidden = torch.arange(steps)[None] >= torch.tensor(lengths)[:, None]
    for heads, options, masks in ((3, {}, {}), (2, {"bias": False}, {"attn_mask": causal}), (1, {}, {"key_padding_mask": hidden})):
        padded = "key_padding_mask" in masks
        theirs = torch.nn.MultiheadAttention(12, heads, batch_first=True, **options).double()
        inputs = {"x": (steps, 12)} | ({"lengths": ()} if padded else {})
        layer = nn.MultiheadAttention(12, heads, causal="attn_mask" in masks, **options)
        net = ga.plan(layer, inputs=inputs, loss=nn.MSELoss(), micro_batch=3, dtype="float64")
        net.load_state_dict({name: p.detach().numpy() for name, p in theirs.state_dict().items()})
        x = rng.normal(size=(3, steps, 12))
        tensor = torch.tensor(x)
        y, expected = net.forward((x, lengths) if padded else x).copy(), theirs(tensor, tensor, tensor, need_weights=False, **masks)[0]
        net.loss(np.zeros(y.shape))
        net.backward()
        (expected**2).sum().backward()
        assert np.allclose(y, expected.detach().numpy(), rtol=0, atol=1e-12)
        for name, p in theirs.named_parameters():
            assert np.abs(net.parameters()[name].grad - p.grad.numpy()).max() < 1e-11 * max(1, float(p.grad.abs().max())), name
