"""What the README shows runs, and the commands do what they say."""
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gradaccum as ga
from gradaccum.__main__ import main

ROOT = Path(__file__).parent.parent


def test_the_readme_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    out = capsys.readouterr().out
    assert "accuracy 0.8" in out and "normalize" in out and names["acc"].updates == 121


def test_the_demo_shows_equal_bits(capsys):
    assert main(["demo", "--epochs", "2"]) == 0
    out = capsys.readouterr().out
    for text in ("OpenBLAS", "accumulate", "same bits: yes", "32 + 32 + 32 + 4: same bits: yes", "4.0 times less", "Samples per second"):
        assert text in out


def test_the_demo_fails_if_bits_differ(capsys, monkeypatch):
    from gradaccum import demo

    train = demo.train

    def altered(micro_batch, *args):
        net, *rest = train(micro_batch, *args)
        if micro_batch == 32:
            net.parameters()["0.weight"].writable()[0, 0] += 1e-7
        return net, *rest

    monkeypatch.setattr(demo, "train", altered)
    assert main(["demo", "--epochs", "1"]) == 1
    assert "same bits: NO" in capsys.readouterr().out


def test_info_and_help(capsys):
    assert main(["info"]) == 0
    assert ga.__version__ in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0 and "demo" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["demo", "--epochs", "0"])
    result = subprocess.run([sys.executable, "-m", "gradaccum", "info"], capture_output=True, text=True)
    assert result.returncode == 0 and "numpy" in result.stdout


def test_import_loads_numpy_only():
    """No plotting library, no peer, and none of the submodules that are not needed yet."""
    code = "import sys, gradaccum; print(*sorted(m for m in sys.modules if m.split('.')[0] in ('torch', 'jax', 'matplotlib', 'scipy', 'IPython')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_a_subnormal_number_stays_one():
    """Nothing in the library was built with -ffast-math, which would flush them to zero for the whole process."""
    assert np.float32(1e-40) * np.float32(0.5) > 0 and np.float64(1e-310) * 0.5 > 0


def test_the_medical_project(capsys, tmp_path):
    import json

    assert main(["medical", "--epochs", "1", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for text in ("proves nothing clinical", "BudgetError: a micro-batch of 64 needs", "try 16 x 4", "same bits: yes", "white matter", "optimizer state"):
        assert text in out
    log = json.loads((tmp_path / "medical.json").read_text())
    assert [run["split"] for run in log["runs"]] == ["1 x 64", "4 x 16", "64 x 1"] and len(log["losses"]) == 64
    assert log["runs"][0]["bytes"] > 8 * 2**20 > log["runs"][1]["bytes"] > log["runs"][2]["bytes"]
    with np.load(tmp_path / "slice.npz") as file:
        assert file["predicted"].shape == file["true"].shape and set(np.unique(file["predicted"])) <= {-1, 0, 1, 2}


def test_the_text_project(capsys):
    assert main(["text", "--updates", "4"]) == 0
    out = capsys.readouterr().out
    for text in ("BudgetError", "same bits, 1 x 32 and 4 x 8 divided by tokens: yes", "4 x 8, means", "test perplexity", "  vi: "):
        assert text in out
