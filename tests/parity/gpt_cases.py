"""A small GPT trained for 50 updates in windows of two uneven micro-batches: what PyTorch and gradaccum both do."""
import numpy as np

UPDATES, SAMPLES, FIRST = 50, 5, 2                           # a window has 2 + 3 samples
VOCABULARY, STEPS, LAYERS, HEADS, FEATURES = 11, 8, 2, 2, 8
ADAMW = {"lr": 3e-3, "weight_decay": 0.1}


def weights():
    """Initial values under GPT-2's names, (out, in); the head is the embedding."""
    rng = np.random.default_rng(0)
    shapes = {"wte.weight": (VOCABULARY, FEATURES), "wpe.weight": (STEPS, FEATURES)}
    for i in range(LAYERS):
        shapes |= {f"h.{i}.{name}": shape for name, shape in {
            "ln_1.weight": (FEATURES,), "ln_1.bias": (FEATURES,), "attn.c_attn.weight": (3 * FEATURES, FEATURES), "attn.c_attn.bias": (3 * FEATURES,),
            "attn.c_proj.weight": (FEATURES, FEATURES), "attn.c_proj.bias": (FEATURES,), "ln_2.weight": (FEATURES,), "ln_2.bias": (FEATURES,),
            "mlp.c_fc.weight": (4 * FEATURES, FEATURES), "mlp.c_fc.bias": (4 * FEATURES,), "mlp.c_proj.weight": (FEATURES, 4 * FEATURES),
            "mlp.c_proj.bias": (FEATURES,)}.items()}
    shapes |= {"ln_f.weight": (FEATURES,), "ln_f.bias": (FEATURES,)}
    out = {f"transformer.{name}": rng.normal(0, 0.2, shape) + (".ln_" in f".{name}" and name.endswith("weight")) for name, shape in shapes.items()}
    return out | {"lm_head.weight": out["transformer.wte.weight"]}


def batches():
    """(tokens, targets): the next token, with padding of different lengths that counts nothing."""
    rng = np.random.default_rng(1)
    for _ in range(UPDATES):
        x = rng.integers(0, VOCABULARY, (SAMPLES, STEPS + 1))
        y = x[:, 1:].copy()
        y[np.arange(STEPS) >= rng.integers(1, STEPS + 1, SAMPLES)[:, None]] = -100
        yield x[:, :-1], y
