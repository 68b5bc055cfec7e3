"""gradaccum: the window in one C call."""
import numpy as np
from models import MODELS, parameters, window

import gradaccum as ga
from gradaccum import nn, optim


class CNN(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in zip((m["channels"], 32, 32, 64), (32, 32, 64, 64))])
        self.pool, self.flatten, self.fc = nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * (m["size"] // 4) ** 2, 10)

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            x = nn.functional.relu(conv(x))
            if i % 2:
                x = self.pool(x)
        return self.fc(self.flatten(x))


def build(m):
    """(module, our name of a parameter)"""
    if m["kind"] == "mlp":
        return ga.models.mlp(*m["sizes"]), lambda key: f"{2 * int(key.split('.')[1])}.{key.split('.')[2]}"
    if m["kind"] == "cnn":
        return CNN(m), lambda key: key
    if m["kind"] == "resnet":
        return ga.models.resnet20(), lambda key: key
    return ga.models.gpt(m["vocabulary"], m["steps"], m["layers"], m["heads"], m["width"], dropout=0.0), lambda key: f"transformer.{key}"


class Trainer:
    """variant: "default", or "direct": convolutions without Winograd's filtering."""

    def __init__(self, model, micro_batch, threads, variant):
        m = MODELS[model]
        ga.set_num_threads(threads)
        self.x, self.y = window(model)
        module, name = build(m)
        for _, layer in module.named_modules():
            if variant == "direct" and isinstance(layer, nn.Conv2d):
                layer.algorithm = "direct"
        self.net = ga.plan(module, input_shape=self.x.shape[1:], loss=nn.CrossEntropyLoss(), micro_batch=micro_batch)
        state = {name(key): a for key, a in parameters(model).items()}
        if m["kind"] == "gpt":
            state["lm_head.weight"] = state["transformer.wte.weight"]
        self.net.load_state_dict({k: v for k, v in self.net.state_dict().items() if k not in state} | state)
        opt = optim.SGD(self.net, lr=m["lr"]) if m["optimizer"] == "sgd" else optim.AdamW(self.net, lr=m["lr"], weight_decay=0.01)
        self.acc = ga.Accumulator(self.net, opt)

    def update(self):
        return self.acc.update(self.x, self.y).loss

    def about(self):
        return {"version": ga.__version__, "bytes": int(self.net.memory.bytes()), "kernels": str(ga.info().get("cpu", ""))} | {"numpy": np.__version__}
