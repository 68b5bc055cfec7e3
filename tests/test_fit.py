"""ga.fit: a loop that does what the loop by hand does, and ends in order."""
import csv
import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import log, nn, optim
from gradaccum.data import Loader, batches, digits

X, Y, X_TEST, Y_TEST = digits()
X, Y = X[:300], Y[:300]


def accumulator(micro_batch=32, seed=0, **options):
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    net = ga.plan(model, input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, seed=seed)
    return ga.Accumulator(net, optim.SGD(net, lr=0.2), **options)


def test_arrays_are_the_loop_by_hand():
    acc, other = accumulator(accumulation_steps=3), accumulator(accumulation_steps=3)
    history = ga.fit(acc, (X, Y), 2, progress=False, seed=4)
    for epoch in range(2):
        for x, y in batches(X, Y, 96, seed=4, epoch=epoch):
            other.update(x, y)
    assert np.array_equal(acc.net.params, other.net.params)
    assert len(history) == 8 and [r["update"] for r in history] == list(range(1, 9)) and history.stopped == "epochs"
    assert [r["window_samples"] for r in history] == [96, 96, 96, 12] * 2 and history[-1]["samples"] == 600
    assert "8 updates in 2 epochs" in repr(history)


@pytest.mark.parametrize("data", [lambda: list(batches(X, Y, 30, seed=2)), lambda: Loader(X, Y, 30, seed=2)], ids=["list", "loader"])
def test_micro_batches_end_each_epoch_by_the_tail_policy(data):
    """10 micro-batches, K = 4: 3 updates an epoch with flush."""
    acc, other = accumulator(accumulation_steps=4), accumulator(accumulation_steps=4)
    history = ga.fit(acc, data(), 2, progress=False, micro_batches=True)
    again = data()
    for _ in range(2):
        for x, y in again:
            other.step(x, y)
        other.flush()
    assert len(history) == acc.updates == 6 and np.array_equal(acc.net.params, other.net.params)
    assert [r["accumulation_steps"] for r in history] == [4, 4, 2] * 2


@pytest.mark.parametrize("steps", [lambda u: 1 if u < 2 else 4, lambda u: 4 if u < 1 else 1], ids=["growing", "falling"])
def test_arrays_follow_accumulation_steps_that_change(steps):
    """300 samples in micro-batches of 32 are 10: 1 + 1 + 4 + 4, and 4 + 6 x 1."""
    acc, other = accumulator(accumulation_steps=steps), accumulator(accumulation_steps=steps)
    history = ga.fit(acc, (X, Y), 1, progress=False)
    for x, y in batches(X, Y, 32):
        other.step(x, y)
    other.flush()
    assert [r["accumulation_steps"] for r in history] == ([1, 1, 4, 4] if steps(0) == 1 else [4, 1, 1, 1, 1, 1, 1])
    assert np.array_equal(acc.net.params, other.net.params)


@pytest.mark.parametrize("tail, updates", [("flush", 6), ("drop", 4), ("carry", 5)])
def test_arrays_obey_the_tail_policy(tail, updates):
    """2 epochs of 10 micro-batches, K = 4 (row D39)."""
    acc = accumulator(accumulation_steps=4, tail=tail)
    assert len(ga.fit(acc, (X, Y), 2, progress=False)) == updates and acc.micro_step == 0


def test_inputs_by_name_or_in_a_tuple():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.p, self.q = nn.Linear(64, 10), nn.Linear(64, 10)

        def forward(self, p, q):
            return self.p(p) + self.q(q)

    runs = []
    for x in ({"p": X, "q": -X}, (X, -X)):
        net = ga.plan(Two(), inputs={"p": (64,), "q": (64,)}, loss=nn.CrossEntropyLoss(), micro_batch=50)
        ga.fit(ga.Accumulator(net, optim.SGD(net, lr=0.1)), (x, Y, np.arange(300) % 3), 1, progress=False)
        runs.append(net.params.copy())
    order = np.random.Generator(np.random.Philox(key=np.array([0, 0], np.uint64))).permutation(300)
    net = ga.plan(Two(), inputs={"p": (64,), "q": (64,)}, loss=nn.CrossEntropyLoss(), micro_batch=50)
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.1))
    for i in range(0, 300, 50):
        part = order[i:i + 50]
        acc.update((X[part], -X[part]), Y[part], (np.arange(300) % 3)[part])
    assert np.array_equal(runs[0], net.params) and np.array_equal(runs[1], net.params)


def test_weights_go_with_their_samples():
    weight = np.random.default_rng(0).uniform(0, 2, 300)
    acc, other = accumulator(), accumulator()
    ga.fit(acc, (X, Y, weight), 1, progress=False, batch_size=64)
    order = np.random.Generator(np.random.Philox(key=np.array([0, 0], np.uint64))).permutation(300)
    for i in range(0, 300, 64):
        part = order[i:i + 64]
        other.update(X[part], Y[part], weight[part])
    assert np.array_equal(acc.net.params, other.net.params)


def test_validation_and_epoch_means():
    acc = accumulator()
    acc.net.eval()
    history = ga.fit(acc, (X, Y), 20, validation=(X_TEST, Y_TEST), progress=False, batch_size=32)
    last = history.epochs[-1]
    assert last["val_loss"] == acc.net.evaluate(X_TEST, Y_TEST)
    assert last["val_accuracy"] == (acc.net.predict(X_TEST).argmax(1) == Y_TEST).mean() > 0.5
    rows = [r for r in history if r["epoch"] == 19]
    assert last["loss"] == pytest.approx(sum(r["loss"] * r["weight"] for r in rows) / 300)
    assert not acc.net.training                              # as it was found


def test_validation_is_in_the_log_and_ignored_labels_are_not_in_the_accuracy(tmp_path):
    acc, y = accumulator(), Y_TEST.copy()
    y[::2] = -100
    with log.JSONLines(tmp_path / "a") as a, log.CSV(tmp_path / "b") as b:
        history = ga.fit(acc, (X, Y), 2, validation=(X_TEST, y), progress=False, batch_size=100, log=[a, b])
    rows = [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()]
    with open(tmp_path / "b", newline="") as file:
        table = list(csv.DictReader(file))
    assert [("val_loss" in row, row["samples"]) for row in rows] == [(at in (3, 7), s) for at, s in enumerate((100, 200, 300, 300, 400, 500, 600, 600))]
    for at, epoch in ((3, 0), (7, 1)):
        assert (rows[at]["val_loss"], rows[at]["epoch"]) == (history.epochs[epoch]["val_loss"], epoch)
        assert float(table[at]["val_loss"]) == rows[at]["val_loss"] and table[at]["loss"] == ""
    right = acc.net.predict(X_TEST).argmax(1)[1::2] == Y_TEST[1::2]
    assert history.epochs[-1]["val_accuracy"] == right.mean()


def test_logs_and_callbacks(tmp_path):
    acc, seen = accumulator(), []
    with log.JSONLines(tmp_path / "a") as a, log.CSV(tmp_path / "b", x="updates") as b:
        history = ga.fit(acc, (X, Y), 5, progress=False, batch_size=100, log=[a, b], callbacks=[lambda acc, row: seen.append(row) or acc.updates == 4])
    assert history.stopped == "callback" and acc.updates == 4 and len(history.epochs) == 2
    assert len((tmp_path / "a").read_text().splitlines()) == 4 and len((tmp_path / "b").read_text().splitlines()) == 5
    assert [r for r in seen if "epoch_ended" not in r] == list(history)


def test_early_stopping_restores_the_best():
    acc = accumulator()
    losses = iter([1.0, 0.5, 0.6, 0.55, 0.1])
    states = []

    def score(acc, row):
        if "epoch_ended" in row:
            row["score"] = next(losses)
            states.append(acc.net.params.copy())

    stop = ga.EarlyStopping(patience=2, monitor="score")
    history = ga.fit(acc, (X, Y), 9, progress=False, batch_size=100, callbacks=[score, stop])
    assert len(history.epochs) == 4 and history.stopped == "callback" and stop.best == 0.5
    assert np.array_equal(acc.net.params, states[1])
    with pytest.raises(ValueError, match="val_loss"):
        ga.fit(accumulator(), (X, Y), 1, progress=False, callbacks=[ga.EarlyStopping()])


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    """3 epochs, then 2 more after loading, are 5; the log too."""
    whole, first, second = (accumulator(accumulation_steps=3) for _ in range(3))
    data = [Loader(X, Y, 96, seed=7) for _ in range(3)]
    with log.JSONLines(tmp_path / "whole") as out:
        ga.fit(whole, data[0], 5, progress=False, log=out)
    with log.JSONLines(tmp_path / "parts") as out:
        ga.fit(first, data[1], 3, progress=False, log=out, checkpoint=tmp_path / "run")
    second.load(tmp_path / "run", data=data[2])
    with log.JSONLines(tmp_path / "parts") as out:
        ga.fit(second, data[2], 2, progress=False, log=out)
    assert np.array_equal(whole.net.params, second.net.params) and second.updates == 20
    drop = lambda path: [{k: v for k, v in json.loads(line).items() if "second" not in k} for line in path.read_text().splitlines()]  # noqa: E731
    assert drop(tmp_path / "whole") == drop(tmp_path / "parts")


@pytest.mark.parametrize("updates", [2, 3, 4, 5])
def test_a_run_that_was_stopped_anywhere_goes_on_with_the_same_bits(tmp_path, updates):
    """Epochs of 4 windows; 4 is the last window of one, after which nothing of that epoch is left."""
    whole, first, second = (accumulator(accumulation_steps=3) for _ in range(3))
    data = [Loader(X, Y, 96, seed=7) for _ in range(3)]
    ga.fit(whole, data[0], 2, progress=False)
    with log.JSONLines(tmp_path / "log") as out:
        ga.fit(first, data[1], 2, progress=False, log=out, callbacks=[lambda acc, row: acc.updates == updates], checkpoint=tmp_path / "run")
    second.load(tmp_path / "run", data=data[2])
    with log.JSONLines(tmp_path / "log") as out:
        ga.fit(second, data[2], 2 - data[2].epoch, progress=False, log=out)
    assert np.array_equal(whole.net.params, second.net.params) and second.updates == 8
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(r["update"], r["epoch"]) for r in rows] == [(u, (u - 1) // 4) for u in range(1, 9)]


def test_a_log_of_an_earlier_run_is_refused_before_anything_is_trained(tmp_path):
    with log.JSONLines(tmp_path / "a") as out:
        ga.fit(accumulator(), (X, Y), 1, progress=False, log=out, batch_size=100)
    before, acc = (tmp_path / "a").read_bytes(), accumulator()
    with log.JSONLines(tmp_path / "a") as out, pytest.raises(ValueError, match="earlier run"):
        ga.fit(acc, (X, Y), 1, progress=False, log=out, batch_size=100)
    assert acc.micro_steps == 0 and (tmp_path / "a").read_bytes() == before


SCRIPT = """
import sys, time, numpy as np, gradaccum as ga
from gradaccum import nn, optim
x, y = np.zeros((80, 4), np.float32), np.zeros(80, int)
net = ga.plan(nn.Linear(4, 3), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=2)
acc = ga.Accumulator(net, optim.SGD(net), accumulation_steps=4)

def slow(acc, row):
    if acc.updates == 3:
        print("ready", flush=True)
    time.sleep(0.02)

history = ga.fit(acc, [(x[i:i + 2], y[i:i + 2]) for i in range(0, 80, 2)], 1000, progress=False, micro_batches=True, callbacks=[slow], checkpoint=sys.argv[1])
assert history.stopped == "interrupted", history.stopped
assert acc.micro_step == 0 and acc.micro_steps == 4 * acc.updates == 4 * len(history)
print("orderly", acc.updates)
"""


def test_ctrl_c_ends_at_a_boundary_and_saves(tmp_path):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "run")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert child.stdout.readline() == "ready\n", child.stderr.read()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    updates = int(out.split()[-1])
    net = ga.plan(nn.Linear(4, 3), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=2)
    acc = ga.Accumulator(net, optim.SGD(net), accumulation_steps=4)
    acc.load(tmp_path / "run")
    assert acc.updates == updates


def test_lines_without_tqdm(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    ga.fit(accumulator(), (X, Y), 2, validation=(X_TEST, Y_TEST), batch_size=100)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[1].startswith("epoch 2 of 2: loss ") and "val_accuracy" in lines[1]


def test_a_bar_with_tqdm(capsys):
    pytest.importorskip("tqdm")
    ga.fit(accumulator(), (X, Y), 2, batch_size=20)
    assert "updates" in capsys.readouterr().err


def once():
    yield from batches(X, Y, 100)


@pytest.mark.parametrize("call, error, text", [
    (lambda a: ga.fit(a, (X, Y), 0), ValueError, "epochs"),
    (lambda a: ga.fit(a, [], 1, progress=False), ValueError, "no batches"),
    (lambda a: ga.fit(a, once(), 2, progress=False), ValueError, "used up after one pass"),
    (lambda a: ga.fit(a, [X[:10]], 1, progress=False), ValueError, r"expected \(x, y\)"),
    (lambda a: ga.fit(a, [(X, Y, Y, Y)], 1, progress=False), ValueError, "of 4, expected"),
    (lambda a: ga.fit(a, 5, 1), TypeError, "data: got int"),
    (lambda a: ga.fit(a, (X, Y[:5]), 1), ValueError, "must be equal"),
    (lambda a: ga.fit(a, [(X, Y)], 1, batch_size=5), ValueError, "has batches already"),
    (lambda a: ga.fit(a, (X, Y), 1, log="run.jsonl"), TypeError, "JSONLines"),
    (lambda a: ga.fit(a, (X, Y), 1, callbacks=[3]), TypeError, "callbacks: got int"),
    (lambda a: ga.fit(a, (X, Y), 1, validation=X), ValueError, "validation"),
])
def test_bad_input(call, error, text):
    acc = accumulator()
    with pytest.raises(error, match=text):
        call(acc)
