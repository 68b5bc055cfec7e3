"""Logs: read back with the readers of the tools they are for."""
import csv
import json
import math

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import log, nn, optim

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
    assert list(read[0]) == list(rows[0])
    for a, b in zip(read, rows):
        assert float(a["loss"]) == b["loss"] and int(a["update"]) == b["update"] and a["reason"] == ""
    with log.CSV(tmp_path / "a.csv") as out, pytest.raises(ValueError, match="val_loss"):
        out.write(rows[2] | {"samples": 99, "val_loss": 1.0})


@pytest.mark.parametrize("kind", ["JSONLines", "CSV"])
def test_a_run_that_goes_on_appends_without_duplicates_and_mends_a_cut_line(tmp_path, kind):
    """Crash in the middle of the third line; the resumed run does update 2 and 3 again."""
    rows, path = records(), tmp_path / "log"
    with getattr(log, kind)(path) as out:
        for row in rows:
            out.write(row)
    complete = path.read_bytes()
    path.write_bytes(complete[:-7])
    with getattr(log, kind)(path) as out:
        for row in rows[1:]:
            out.write(row)
    assert path.read_bytes() == complete


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
        with pytest.raises(ValueError, match="other.txt is not a"):
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
    assert client.get_run(out.run_id).info.status == "FINISHED"


def leveldb_log(data, header=7, block=32768):
    """Records of a .wandb file: LevelDB's log format after 7 bytes; wandb's Python package writes it, but has no reader of it any more."""
    at, parts = header, []
    while at + 7 <= len(data):
        if block - at % block < 7:                           # the rest of a block that has no room for a head
            at += block - at % block
            continue
        length, kind = int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
        parts.append(data[at + 7:at + 7 + length])
        at += 7 + length
        if kind in (1, 4):                                   # whole, or last part
            yield b"".join(parts)
            parts = []


@pytest.mark.filterwarnings("ignore")
def test_wandb(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2
    monkeypatch.setenv("HOME", str(tmp_path))
    rows = records()
    with log.WandB(tmp_path / "wb") as out:
        for row in rows:
            out.write(row)
    (path,) = (tmp_path / "wb").rglob("run-*.wandb")
    seen = []
    for data in leveldb_log(path.read_bytes()):
        entry = wandb_internal_pb2.Record()
        entry.ParseFromString(data)
        if entry.WhichOneof("record_type") == "history":
            seen.append({(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in entry.history.item})
    assert [(s["_step"], s["loss"]) for s in seen] == [(r["samples"], pytest.approx(r["loss"])) for r in rows]


def test_a_missing_tool_is_named_with_its_install_line(tmp_path, monkeypatch):
    import sys
    for module, make in (("tensorboard.summary.writer.event_file_writer", log.TensorBoard), ("mlflow.tracking", log.MLflow), ("wandb", log.WandB)):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=r"pip install 'gradaccum\[log\]'"):
            make(tmp_path / "x")
