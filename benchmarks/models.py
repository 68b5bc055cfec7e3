"""The models of the benchmark: sizes, initial weights, one window of data, and how much work a sample is.

Every lane starts from these arrays. Names and layouts of parameters are PyTorch's.
"""
from __future__ import annotations

import numpy as np

MODELS = {
    "small": dict(kind="mlp", sizes=(64, 128, 10), window=128, micro_batches=(128, 32, 8, 1), optimizer="sgd", lr=0.1),
    "mlp": dict(kind="mlp", sizes=(784, 512, 512, 10), window=1024, micro_batches=(8, 32, 128, 1024), optimizer="adamw", lr=1e-3),
    "mlp-large": dict(kind="mlp", sizes=(1024, 2048, 2048, 2048, 1024), window=512, micro_batches=(8, 32, 128, 512), optimizer="adamw", lr=3e-5),
    "cnn-28": dict(kind="cnn", channels=1, size=28, window=256, micro_batches=(1, 4, 16, 64, 256), optimizer="adamw", lr=1e-4),
    "cnn-64": dict(kind="cnn", channels=3, size=64, window=128, micro_batches=(1, 4, 16, 128), optimizer="adamw", lr=1e-4),
    "resnet20": dict(kind="resnet", channels=3, size=32, window=128, micro_batches=(8, 32, 128), optimizer="adamw", lr=1e-4),
    "char-gpt-1m": dict(kind="gpt", width=128, layers=5, heads=4, steps=128, vocabulary=96, window=32, micro_batches=(1, 4, 32), optimizer="adamw", lr=3e-4),
    "char-gpt-11m": dict(kind="gpt", width=384, layers=6, heads=6, steps=256, vocabulary=96, window=8, micro_batches=(1, 2, 8), optimizer="adamw", lr=3e-4),
    "gpt2-124m": dict(kind="gpt", width=768, layers=12, heads=12, steps=256, vocabulary=50257, window=4, micro_batches=(1, 4), optimizer="adamw", lr=3e-4),
}
CLASSES = 10


def shapes(name: str) -> dict[str, tuple[int, ...]]:
    """{parameter: shape} in the order of the layers."""
    m, out = MODELS[name], {}

    def linear(at, inputs, outputs, bias=True):
        out[f"{at}.weight"] = (outputs, inputs)
        if bias:
            out[f"{at}.bias"] = (outputs,)

    def norm(at, width):
        out[f"{at}.weight"], out[f"{at}.bias"] = (width,), (width,)

    if m["kind"] == "mlp":
        for i, (a, b) in enumerate(zip(m["sizes"], m["sizes"][1:])):
            linear(f"layers.{i}", a, b)
    elif m["kind"] == "cnn":
        for i, (a, b) in enumerate(zip((m["channels"], 32, 32, 64), (32, 32, 64, 64))):
            out[f"convs.{i}.weight"], out[f"convs.{i}.bias"] = (b, a, 3, 3), (b,)
        linear("fc", 64 * (m["size"] // 4) ** 2, CLASSES)
    elif m["kind"] == "resnet":
        out["conv1.weight"] = (16, 3, 3, 3)
        norm("bn1", 16)
        before = 16
        for stage, width in enumerate((16, 32, 64), start=1):
            for block in range(3):
                at = f"layer{stage}.{block}"
                out[f"{at}.conv1.weight"] = (width, before, 3, 3)
                norm(f"{at}.bn1", width)
                out[f"{at}.conv2.weight"] = (width, width, 3, 3)
                norm(f"{at}.bn2", width)
                if before != width:
                    out[f"{at}.downsample.0.weight"] = (width, before, 1, 1)
                    norm(f"{at}.downsample.1", width)
                before = width
        linear("fc", 64, CLASSES)
    else:
        c = m["width"]
        out["wte.weight"], out["wpe.weight"] = (m["vocabulary"], c), (m["steps"], c)
        for i in range(m["layers"]):
            norm(f"h.{i}.ln_1", c)
            linear(f"h.{i}.attn.c_attn", c, 3 * c)
            linear(f"h.{i}.attn.c_proj", c, c)
            norm(f"h.{i}.ln_2", c)
            linear(f"h.{i}.mlp.c_fc", c, 4 * c)
            linear(f"h.{i}.mlp.c_proj", 4 * c, c)
        norm("ln_f", c)                                      # the head is tied to wte
    return out


def parameters(name: str) -> dict[str, np.ndarray]:
    """Initial float32 weights: normal, by fan-in; gains near 1, biases small."""
    rng, kind, out = np.random.default_rng(0), MODELS[name]["kind"], {}
    for key, shape in shapes(name).items():
        a = rng.standard_normal(shape, dtype=np.float32)
        gain = len(shape) == 1 and key.endswith(".weight")
        if len(shape) == 1:
            a *= 0.01
        elif key in ("wte.weight", "wpe.weight"):
            a *= 0.02
        else:
            a *= np.float32(((1 if kind == "gpt" else 2) / np.prod(shape[1:])) ** 0.5)
        out[key] = a + np.float32(gain)
    return out


def window(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) of one window; every update sees the same samples, cut into micro-batches in order."""
    m, rng = MODELS[name], np.random.default_rng(1)
    n = m["window"]
    if m["kind"] == "gpt":
        tokens = rng.integers(0, m["vocabulary"], (n, m["steps"] + 1))
        return tokens[:, :-1].copy(), tokens[:, 1:].copy()
    shape = (m["sizes"][0],) if m["kind"] == "mlp" else (m["channels"], m["size"], m["size"])
    return rng.standard_normal((n, *shape), dtype=np.float32), rng.integers(0, m["sizes"][-1] if m["kind"] == "mlp" else CLASSES, n)


def flops(name: str) -> float:
    """Multiply-adds x 2 of forward and backward of a sample: products and convolutions only (attention as causal; no gradient of the input)."""
    m = MODELS[name]
    if m["kind"] == "gpt":
        c, t = m["width"], m["steps"]
        return 6.0 * t * (12 * c * c * m["layers"] + c * m["vocabulary"]) + 6.0 * m["layers"] * t * t * c
    total, first, side = 0.0, True, m.get("size", 1)
    for key, shape in shapes(name).items():
        if len(shape) < 2:
            continue
        if m["kind"] == "cnn":
            side = {"convs.2": m["size"] // 2, "convs.3": m["size"] // 2, "fc": 1}.get(key.rsplit(".", 1)[0], side)
        elif m["kind"] == "resnet":
            side = 1 if key.startswith("fc") else m["size"] >> {"layer2": 1, "layer3": 2}.get(key.split(".")[0], 0)
        total += 2.0 * np.prod(shape) * (side * side if len(shape) == 4 else 1) * (2 if first else 3)
        first = False
    return total
