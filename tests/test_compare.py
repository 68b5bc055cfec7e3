"""ga.compare: settings side by side, numbers worked by hand, the same bits for the same effective batch."""
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.data import batches, digits


@pytest.fixture(scope="module")
def data():
    x_train, y_train, x_test, y_test = digits()
    return x_train[:200], y_train[:200], x_test[:50], y_test[:50]


def mlp():
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10))


def run(model, data, settings, **options):
    return ga.compare(model, data, settings, **({"epochs": 1, "seeds": (0,), "progress": False} | options))


def half():
    """y = w x with w = 1."""
    layer = nn.Linear(1, 1, bias=False)
    layer.weight = nn.Parameter(np.ones((1, 1)))
    return nn.Sequential(layer)


ONES = (np.ones((4, 1)), np.zeros((4, 1)))                   # loss w², gradient 2 w


# ---- the same bits ----

def test_equal_effective_batches_give_the_same_bits(data):
    c = run(mlp, data, [(64, 1), (16, 4), (5, 13), (1, 64)], seeds=(0, 1), epochs=2, optimizer=optim.AdamW, lr=1e-2)
    rows = c.rows
    assert [row["same_bits"] for row in rows] == [True, True, None, True]          # 5 x 13 is another batch
    assert c.same_bits is True and "Same bits: yes" in repr(c)
    for row in (rows[1], rows[3]):
        assert all(np.array_equal(a, b) for a, b in zip(row["losses"], rows[0]["losses"]))
        for key in ("train_loss", "train_loss_std", "validation_loss", "validation_accuracy", "validation_accuracy_std", "loss_spread", "updates"):
            assert row[key] == rows[0][key]
    assert not np.array_equal(rows[0]["losses"][0], rows[0]["losses"][1])          # another seed is another run


def test_a_row_is_the_run_that_one_would_write(data):
    x, y, x_test, y_test = data
    (row,) = run(mlp(), data, [(16, 3)], seeds=(7,), epochs=2, lr=0.2).rows
    net = ga.plan(mlp(), input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=16, seed=7)
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.2), accumulation_steps=3)
    losses = [acc.update(xb, yb).loss for epoch in range(2) for xb, yb in batches(x, y, 48, seed=7, epoch=epoch)]
    assert row["losses"][0].tolist() == losses and row["updates"] == len(losses) == 10
    assert row["train_loss"] == net.evaluate(x, y) and row["validation_loss"] == net.evaluate(x_test, y_test)
    assert row["validation_accuracy"] == np.mean(net.predict(x_test).argmax(axis=1) == y_test)
    assert row["bytes"] == net.memory.bytes() and row["by_kind"] == net.memory.by_kind()
    assert row["loss_spread"] == pytest.approx(np.std(np.diff(losses)))
    assert row["seconds_per_update"] > 0 and row["seconds_per_sample"] > 0


def test_images_and_steps_too():
    rng = np.random.default_rng(0)
    images = SimpleNamespace(x_train=rng.normal(size=(24, 1, 8, 8)), y_train=rng.integers(0, 3, 24), x_test=rng.normal(size=(6, 1, 8, 8)),
                             y_test=rng.integers(0, 3, 6))
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    c = run(model, images, [(12, 1), (4, 3)], optimizer=optim.Adam, lr=0.01)
    assert c.same_bits is True and all(0 <= row["validation_accuracy"] <= 1 for row in c.rows)
    tokens = rng.integers(0, 5, (24, 6))
    labels = tokens.copy()
    labels[:, :3] = -100
    text = nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 5))
    c = run(text, (tokens, labels), [(12, 1), (4, 3)], lr=5.0, epochs=40)
    assert c.same_bits is True and c.rows[0]["train_accuracy"] == 1.0              # ignored labels count neither as right nor as wrong


def test_layers_that_mix_samples_are_named(data):
    model = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
    c = run(model, data, [(64, 1), (16, 4)])
    assert c.same_bits is False and [row["same_bits"] for row in c.rows] == [True, False]
    assert "Same bits: NO. 1 (batch_norm" in c.text and "GroupNorm" in c.text and "engine=" not in c.text
    assert 'engine="openblas" adds in another order' in run(model, data, [(64, 1), (16, 4)], engine="openblas").statement()


def test_nothing_to_compare_is_no_promise(data):
    c = run(mlp, data, [(32, 1), (32, 2)])
    assert c.same_bits is None and "nothing to compare" in c.statement()


# ---- numbers by hand ----

def test_spread_and_final_loss_by_hand():
    """w is halved by each update: losses 1, 1/4, 1/16, their changes -3/4 and -3/16 have the deviation 9/32; the last w is 1/8."""
    (row,) = run(half, ONES, [(2, 2)], loss=nn.MSELoss(), lr=0.25, epochs=3, dtype="float64").rows
    assert row["losses"][0].tolist() == [1, 0.25, 0.0625]
    assert row["loss_spread"] == 9 / 32 and row["train_loss"] == 1 / 64
    assert row["train_accuracy"] is row["validation_loss"] is row["train_loss_std"] is None


def test_deviation_over_seeds(data):
    both, *single = (run(mlp, data, [(20, 2)], seeds=seeds).rows[0] for seeds in ((3, 5), (3,), (5,)))
    a, b = (row["validation_loss"] for row in single)
    assert both["validation_loss"] == pytest.approx((a + b) / 2)
    assert both["validation_loss_std"] == pytest.approx(abs(a - b) / np.sqrt(2))   # of two numbers, divided by n - 1


@pytest.mark.parametrize("lr, scaling, rates", [
    (0.1, None, [0.1, 0.1]), (0.1, "linear", [0.1, 0.4]), (0.1, "sqrt", [0.1, 0.2]), (lambda batch: 0.01 * batch, None, [0.01, 0.04])])
def test_the_learning_rate_follows_the_effective_batch(lr, scaling, rates):
    c = run(half, ONES, [(1, 1), (2, 2)], loss=nn.MSELoss(), lr=lr, scaling=scaling, dtype="float64")
    assert [row["lr"] for row in c.rows] == pytest.approx(rates)
    assert c.rows[1]["train_loss"] == pytest.approx((1 - 2 * rates[1]) ** 2)       # one update: w = 1 - lr * 2


# ---- what does not fit, and what was not finished ----

def test_a_setting_that_does_not_fit_is_a_row(data):
    c = run(mlp, data, [(128, 1), (32, 4), (8, 16)], memory_limit="45 KiB")
    first, second, third = c.rows
    assert first["refused"].startswith("does not fit: a micro-batch of 128 needs") and "limit is 45.00 KiB" in first["refused"]
    assert first["seeds"] == 0 and first["train_loss"] is first["losses"] is None and first["bytes"] > 45 * 1024 > second["bytes"]
    assert second["refused"] is None and c.same_bits is True and third["same_bits"] is True
    assert "does not fit: a micro-batch of 128" in repr(c)


def test_the_state_of_the_optimizer_may_not_fit_either(data):
    bytes_of = {row["micro_batch"]: row["bytes"] for row in run(mlp, data, [(8, 1)]).rows}
    c = run(mlp, data, [(8, 1)], optimizer=optim.AdamW, memory_limit=bytes_of[8] + 100)
    assert "does not fit: AdamW's state" in c.rows[0]["refused"]
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="no setting was run"):
        c.picture()


def test_ctrl_c_returns_what_is_finished(data):
    made = []

    def optimizer(net, lr):
        made.append(lr)
        if len(made) == 2 + 4:                               # two to look, then seed 0 twice, seed 1 once and not again
            raise KeyboardInterrupt
        return optim.SGD(net, lr=lr)

    c = run(mlp, data, [(32, 1), (8, 4)], seeds=(0, 1, 2), optimizer=optimizer)
    assert c.interrupted and [row["seeds"] for row in c.rows] == [2, 1] and "interrupted" in repr(c)
    assert c.same_bits is True                               # of the seed that both have


def test_a_setting_that_was_not_reached(data):
    made = []

    def optimizer(net, lr):
        made.append(lr)
        if len(made) == 4:
            raise KeyboardInterrupt
        return optim.SGD(net, lr=lr)

    c = run(mlp, data, [(32, 1), (8, 4)], optimizer=optimizer)
    assert c.rows[1]["seeds"] == 0 and "not run" in c.text


# ---- progress and picture ----

def test_progress_in_lines(data, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    run(mlp, data, [(32, 1), (8, 4)], progress=True)
    assert capsys.readouterr().err.splitlines() == ["compare: 32 x 1, seed 0 done", "compare: 8 x 4, seed 0 done"]
    run(mlp, data, [(32, 1)])
    assert capsys.readouterr() == ("", "")


def test_progress_as_a_bar(data, capsys):
    pytest.importorskip("tqdm")
    run(mlp, data, [(32, 1), (8, 4)], progress=True)
    assert "update" in capsys.readouterr().err


def test_the_picture_has_one_message_a_panel(data, tmp_path):
    pytest.importorskip("matplotlib")
    c = run(mlp, data, [(128, 1), (32, 4), (8, 16), (8, 2)], memory_limit="45 KiB", seeds=(0, 1))
    figure = c.picture()
    titles = [axes.get_title() for axes in figure.axes]
    assert [title.split(":")[0] for title in titles[:5]] == ["Speed", "Memory", "Learning", "Stability", "Result"]
    assert "128 × 1 does not fit" in titles[1] and titles[2] == "Learning: equal batches, one curve"
    assert len(figure.axes[2].lines) == 3 * 2                # settings that ran, times seeds
    assert "Same bits: yes" in figure.axes[5].texts[0].get_text()
    figure.savefig(tmp_path / "compare.png", dpi=40)
    assert len(run(mlp, data, [(128, 1)]).picture().axes) == 6


def test_a_missing_matplotlib_names_its_line(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'gradaccum\[show\]'"):
        run(half, ONES, [(1, 1)], loss=nn.MSELoss()).picture()


# ---- wrong arguments ----

@pytest.mark.parametrize("options, error, text", [
    ({"settings": []}, ValueError, "settings: it is empty"),
    ({"settings": [(0, 4)]}, ValueError, r"settings\[0\]: micro_batch=0: expected a whole number, at least 1"),
    ({"settings": [(4, 1), (4, 2.5)]}, ValueError, r"settings\[1\]: accumulation_steps=2.5: expected a whole number"),
    ({"settings": [32]}, ValueError, r"settings\[0\]=32: expected a pair"),
    ({"settings": [(128, 2)]}, ValueError, "an effective batch of 256 is larger than the training data, 200 samples"),
    ({"scaling": "cubic"}, ValueError, "scaling='cubic': expected one of None, 'linear', 'sqrt'"),
    ({"scaling": "sqrt", "lr": lambda batch: 0.1}, ValueError, "lr is a function of the effective batch already"),
    ({"lr": "linear"}, ValueError, "lr='linear': expected a finite learning rate"),
    ({"lr": lambda batch: -1.0}, ValueError, r"lr\(64\)=-1.0: expected a finite learning rate above 0"),
    ({"seeds": ()}, ValueError, "seeds: it is empty"),
    ({"seeds": 3}, ValueError, "seeds=3: expected a list"),
    ({"seeds": (0, -1)}, ValueError, r"seeds\[1\]=-1"),
    ({"epochs": 0}, ValueError, "epochs=0"),
    ({"optimizer": "adam"}, TypeError, "optimizer: got str, expected a class or function"),
    ({"optimizer": lambda net, lr: None}, TypeError, "optimizer: it returned NoneType"),
    ({"model": 3}, TypeError, "model: got int"),
    ({"model": lambda: 3}, TypeError, "the function returned int"),
    ({"data": (1, 2, 3)}, TypeError, "data: expected"),
    ({"data": (np.zeros((3, 2)), [1, 2])}, ValueError, r"training arrays x and y have the shapes \(3, 2\) and \(2,\)"),
    ({"data": (np.zeros((3, 2)), [0, 1, 1], np.zeros((0, 2)), [])}, ValueError, "validation arrays"),
    ({"micro_batch": 4}, TypeError, "micro_batch come from the data, the settings and the seeds"),
    ({"memory_limit": "much"}, ValueError, "memory_limit"),
])
def test_wrong_arguments_are_explained_before_training(data, options, error, text):
    arguments = {"model": mlp, "data": data, "settings": [(64, 1)]} | options
    with pytest.raises(error, match=text):
        ga.compare(**arguments, progress=False)


def test_compare_is_a_function_however_it_was_imported():
    import gradaccum.comparison  # noqa: F401

    assert callable(ga.compare) and ga.Comparison is gradaccum.comparison.Comparison
