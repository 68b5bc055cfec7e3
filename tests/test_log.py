"""Logs: read back with the readers of the tools they are for."""
import csv
import json
import math
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import log, nn, optim
from gradaccum.log.record import place

X = np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, 48)


def accumulator(**options):
    net = ga.plan(nn.Linear(5, 3), input_shape=(5,), loss=nn.CrossEntropyLoss(), micro_batch=4)
    return ga.Accumulator(net, optim.SGD(net, lr=0.1), **options)


def records(n=3, **options):
    acc = accumulator(**options)
    out = []
    for i in range(n):
        out.append(log.record(acc, acc.update(X[16 * i:16 * i + 16], Y[16 * i:16 * i + 16]), epoch=0))
    return out


# ---- what a record is ----

def test_d38_twelve_micro_batches_and_four_steps_are_three_updates():
    acc = accumulator(accumulation_steps=4)
    for i in range(0, 48, 4):
        acc.step(X[i:i + 4], Y[i:i + 4])
    row = log.record(acc)
    assert (row["micro_step"], row["update"], row["samples"], row["tokens"]) == (12, 3, 48, 48)
    assert (row["accumulation_steps"], row["window_samples"], row["weight"]) == (4, 16, 16.0)
    assert row["bytes"] == acc.net.memory.bytes() and row["lr"] == 0.1 and row["seconds"] > 0


def test_d40_the_window_mean_and_each_micro_loss():
    """Micro-batches of loss 1 (weight 1) and 3 (weight 3): 10 / 4 = 2.5, and [1, 3]."""
    net = ga.plan(nn.Linear(1, 1, bias=False), input_shape=(1,), loss=nn.L1Loss(), micro_batch=1)
    net.load_state_dict({"weight": [[1.0]]})
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.0))
    update = acc.update(np.array([[1.0], [3.0]], np.float32), np.zeros((2, 1), np.float32), weight=np.array([1.0, 3.0]))
    assert log.record(acc, update)["loss"] == 2.5 and update.micro_losses == [1.0, 3.0]


def test_d41_a_loss_scale_is_not_in_the_log():
    plain, scaled = records(), records(loss_scale=2.0**16)
    assert [(r["loss"], r["grad_norm"]) for r in plain] == [(r["loss"], r["grad_norm"]) for r in scaled]


def test_a_skipped_window_has_no_numbers_of_its_own():
    acc = accumulator()
    row = log.record(acc, acc.update(X, Y, np.zeros(48)))
    assert row["skipped"] and "no weight" in row["reason"] and math.isnan(row["loss"]) and row["grad_norm"] is None
    with pytest.raises(ValueError, match="no update yet"):
        log.record(accumulator())


# ---- text files ----

def test_json_lines(tmp_path):
    rows = records()
    rows[1] |= {"loss": math.nan, "grad_norm": math.inf}
    with log.JSONLines(tmp_path / "a.jsonl") as out:
        for row in rows:
            out.write(row)
            assert len((tmp_path / "a.jsonl").read_text().splitlines()) == rows.index(row) + 1       # written at once
    read = [json.loads(line, parse_constant=lambda c: pytest.fail(c)) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert read[0] == rows[0] and read[2] == rows[2]
    assert read[1] == rows[1] | {"loss": None, "grad_norm": None}


def test_csv(tmp_path):
    rows = records()
    with log.CSV(tmp_path / "a.csv", x="updates") as out:
        for row in rows:
            out.write(row)
    with open(tmp_path / "a.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == [*rows[0], "val_loss", "val_accuracy"]
    for a, b in zip(read, rows):
        assert float(a["loss"]) == b["loss"] and int(a["update"]) == b["update"] and a["reason"] == ""
    before = (tmp_path / "a.csv").read_bytes()
    with log.CSV(tmp_path / "a.csv") as out:
        with pytest.raises(ValueError, match="score is no column"):
            out.write(rows[2] | {"score": 1.0})
        assert (tmp_path / "a.csv").read_bytes() == before
        out.write(rows[2] | {"micro_step": 16, "reason": "two\nlines, and a comma"})
    with open(tmp_path / "a.csv", newline="") as file:
        assert list(csv.DictReader(file))[3]["reason"] == "two lines, and a comma"


@pytest.mark.parametrize("kind", ["JSONLines", "CSV"])
def test_a_run_that_goes_on_appends_without_duplicates_and_mends_a_cut_line(tmp_path, kind):
    """Crash in the middle of the third line; the resumed run does update 2 and 3 again."""
    rows, path = records(), tmp_path / "log"
    with getattr(log, kind)(path) as out:
        for row in rows:
            out.write(row)
    complete = path.read_bytes()
    for cut in range(1, len(complete) - complete.rstrip(b"\n").rfind(b"\n"), 7):         # in the last line, and before it
        path.write_bytes(complete[:-cut])
        with getattr(log, kind)(path) as out:
            for row in rows[1:]:
                out.write(row)
        assert path.read_bytes() == complete


@pytest.mark.parametrize("kind", ["JSONLines", "CSV"])
def test_the_file_tells_the_run_that_went_on(tmp_path, kind):
    """Three updates and a validation, then from the checkpoint after update 1 with another rate: what was undone is not in the file."""
    acc, path = accumulator(), tmp_path / "log"
    validation = {"epoch": 0, "val_loss": 2.0}
    with getattr(log, kind)(path) as out:
        for i in range(3):
            out.write(log.record(acc, acc.update(X[16 * i:16 * i + 16], Y[16 * i:16 * i + 16]), epoch=0))
            out.write(place(acc) | validation)
            if i == 0:
                acc.save(tmp_path / "run")
                first = path.read_bytes()
    acc.load(tmp_path / "run")
    acc.optimizer.lr = 0.5
    with getattr(log, kind)(path) as out:
        assert path.read_bytes().startswith(first)
        out.write(row := log.record(acc, acc.update(X[16:32], Y[16:32]), epoch=0))
    text = path.read_bytes()
    assert text.startswith(first) and text.count(b"\n") == first.count(b"\n") + 1
    assert str(row["lr"]) == "0.5" and b"0.5" in text[len(first):]


@pytest.mark.parametrize("kind", ["JSONLines", "CSV"])
def test_another_run_is_not_written_over_an_old_one(tmp_path, kind):
    rows, path = records(), tmp_path / "log"
    with getattr(log, kind)(path) as out:
        for row in rows:
            out.write(row)
    before = path.read_bytes()
    with getattr(log, kind)(path) as out:
        with pytest.raises(ValueError, match="holds 3 records of an earlier run, and this run begins anew.*acc.load"):
            out.write(rows[0])
        with pytest.raises(ValueError, match="of an earlier run"):
            out.start(accumulator())
        assert path.read_bytes() == before


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2}', "name,score\nann,3\nbob,4", "[1]\n", "5\n", "hello", "\n\n", "\xff\xfe\n"])
@pytest.mark.parametrize("kind", ["JSONLines", "CSV"])
def test_a_file_that_is_no_log_is_left_as_it_is(tmp_path, kind, text):
    path = tmp_path / "mine"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=f"mine is not a log of {kind}.*left as it is"):
        getattr(log, kind)(path)
    assert path.read_bytes() == text.encode("latin-1")


def test_numbers_of_numpy_are_numbers(tmp_path):
    row = records(1)[0] | {"val_loss": np.float32(0.5), "epoch": np.int64(2)}
    with log.JSONLines(tmp_path / "a") as out:
        out.write(row)
    assert json.loads((tmp_path / "a").read_text())["val_loss"] == 0.5 and json.loads((tmp_path / "a").read_text())["epoch"] == 2


def test_an_axis_does_not_run_backwards(tmp_path):
    rows = records()
    with log.JSONLines(tmp_path / "a") as out:
        out.write(rows[2])
        out.write(rows[2] | {"samples": 50})
        with pytest.raises(ValueError, match="samples=49 comes after samples=50"):
            out.write(rows[2] | {"samples": 49})
        with pytest.raises(ValueError, match="samples=None"):
            out.write({"update": 3})
    with pytest.raises(ValueError, match="closed"):
        out.write(rows[2])


def test_files_that_cannot_be_logs(tmp_path):
    (tmp_path / "other.txt").write_text("hello\n")
    for kind in (log.JSONLines, log.CSV):
        with pytest.raises(ValueError, match="other.txt is not a log"):
            kind(tmp_path / "other.txt")
        with pytest.raises(IsADirectoryError, match="must not be a folder"):
            kind(tmp_path)
        with pytest.raises(FileNotFoundError, match="must exist"):
            kind(tmp_path / "none" / "a")
    with pytest.raises(ValueError, match="expected one of 'samples', 'updates'"):
        log.JSONLines(tmp_path / "b", x="steps")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    from gradaccum.log.record import writable_folder
    with pytest.raises(OSError, match="cannot write into the folder"):
        writable_folder(tmp_path / "file")


# ---- tools, each read by its own reader ----

def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    rows = records()
    with log.TensorBoard(tmp_path / "tb") as out:
        for row in rows:
            out.write(row)
    reader = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert "reason" not in reader.Tags()["scalars"]
    assert [e.step for e in reader.Scalars("loss")] == [16, 32, 48]
    assert [e.value for e in reader.Scalars("loss")] == pytest.approx([r["loss"] for r in rows], rel=1e-6)
    assert all(abs(e.wall_time - time.time()) < 600 for e in reader.Scalars("loss"))


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_goes_on_without_duplicates_and_loses_nothing_unclosed(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    rows = records()
    first = log.TensorBoard(tmp_path)
    for row in rows:
        first.write(row)
    with pytest.raises(ValueError, match="event files of an earlier run"):
        log.TensorBoard(tmp_path).start(accumulator())
    del first                                                # forgotten, not closed
    with log.TensorBoard(tmp_path) as out:                   # from the checkpoint after update 1
        for row in rows[1:]:
            out.write(row | {"loss": 7.0})
    reader = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in reader.Scalars("loss")] == [(16, pytest.approx(rows[0]["loss"])), (32, 7.0), (48, 7.0)]


LEFT_OPEN = """
import sys, numpy as np, gradaccum as ga
from gradaccum import nn, optim
net = ga.plan(nn.Linear(4, 3), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=4)
acc = ga.Accumulator(net, optim.SGD(net))
ga.fit(acc, [(np.zeros((4, 4)), np.zeros(4, int))] * 5, 1, progress=False, log=ga.log.TensorBoard(sys.argv[1]))
"""


def test_a_log_left_open_is_complete_when_python_ends(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", LEFT_OPEN, str(tmp_path)], check=True, env=env, capture_output=True)
    assert [e.step for e in EventAccumulator(str(tmp_path)).Reload().Scalars("loss")] == [4, 8, 12, 16, 20]


@pytest.mark.filterwarnings("ignore")
def test_mlflow(tmp_path):
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow.tracking import MlflowClient
    rows = records()
    with log.MLflow(tmp_path / "ml", run="first", x="updates") as out:
        for row in rows:
            out.write(row)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'ml' / 'mlflow.db'}")
    history = client.get_metric_history(out.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(r["update"], r["loss"]) for r in rows]
    assert all(abs(m.timestamp / 1000 - time.time()) < 600 for m in history)
    assert client.get_run(out.run_id).info.status == "FINISHED"


@pytest.mark.filterwarnings("ignore")
def test_wandb(tmp_path, monkeypatch):
    """Read by wandb's own ``wandb leet inspect``."""
    pytest.importorskip("wandb", minversion="0.31")
    monkeypatch.setenv("HOME", str(tmp_path))
    rows = records()
    with log.WandB(tmp_path / "wb") as out:
        for row in rows:
            out.write(row)
        out.write({"micro_step": 12, "update": 3, "samples": 48, "tokens": 48, "epoch": 0, "val_loss": 0.5})
    (path,) = (tmp_path / "wb").rglob("run-*.wandb")
    text = subprocess.run([sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)], capture_output=True, text=True, check=True).stdout
    entries = [json.loads(line) for line in text.splitlines()]
    seen = [e["history"]["item"] for e in entries if e["type"] == "history"]
    assert [(s["_step"], s["loss"], s.get("val_loss")) for s in seen] == [(r["samples"], r["loss"], None if r["update"] < 3 else 0.5) for r in rows]
    assert [e["metric"]["step_metric"] for e in entries if e["type"] == "metric"] == ["samples"]


def test_a_missing_tool_is_named_with_its_install_line(tmp_path, monkeypatch):
    for module, make in (("tensorboard.summary.writer.event_file_writer", log.TensorBoard), ("mlflow.tracking", log.MLflow), ("wandb", log.WandB)):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=r"pip install 'gradaccum\[log\]'"):
            make(tmp_path / "x")
