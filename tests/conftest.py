"""Shared by all tests: a tiny model whose gradients can be worked out by hand, and a digits-like batch."""
import shutil

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim


def hand_net(features=1, micro_batch=64, dtype="float32", **options):
    """y = w x with w = 0 and the loss |y - t|. With targets far below, dL/dw of a sample is simply its x."""
    model = nn.Sequential(nn.Linear(features, 1, bias=False))
    net = ga.plan(model, input_shape=(features,), loss=nn.L1Loss(), micro_batch=micro_batch, dtype=dtype, **options)
    net.load_state_dict({"0.weight": np.zeros((1, features))})
    return net


def below(n):
    """Targets far below any prediction of ``hand_net``."""
    return np.full((n, 1), -1000.0)


@pytest.fixture(scope="module")
def browser():
    """Chromium, driven by playwright; a test that wants it is skipped where one of the two is missing."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def batch():
    """96 samples with 12 features, 5 classes, some labels ignored, weights with zeros."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 5, 96)
    y[[3, 40, 41, 95]] = -100
    weight = rng.random(96)
    weight[[0, 50]] = 0
    return rng.normal(size=(96, 12)).astype("float32"), y, weight


class Residual(nn.Module):
    """A graph with a residual connection, dropout and a tied weight."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.tied = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12, bias=False)
        self.tied.weight = self.a.weight
        self.drop, self.out = nn.Dropout(0.3), nn.Linear(12, 5)

    def forward(self, x):
        h = nn.functional.relu(self.a(x)) + x
        h = self.drop(nn.functional.gelu(self.b(h))) + h
        return self.out(self.tied(h))


def residual_net(micro_batch=96, dtype="float32", **options):
    net = ga.plan(Residual(), input_shape=(12,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, dtype=dtype, seed=3, **options)
    return net, optim.AdamW(net, lr=1e-2, weight_decay=0.1)
