"""The exercises: reference solutions pass, each planted wrong answer is refused with its reason, nothing stops Run All, and a class can be graded."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gradaccum import exercises as ex
from gradaccum import nn
from gradaccum.exercises import grading, solutions

ROOT = Path(__file__).parent.parent


class HalfSquare(solutions.SquaredReLU):
    """The planted bug of lesson 2."""

    def backward(self, grad):
        return self.r * grad


class NoChainRule(solutions.SquaredReLU):
    def backward(self, grad):
        return 2 * self.r


class Forgetful(solutions.Scale):
    """Overwrites its gradient: passes a gradient check."""

    def backward(self, grad):
        self.scale.grad[...] = (grad * self.x).sum(axis=0)
        return grad * self.scale.data


class WrongInput(solutions.Scale):
    def backward(self, grad):
        super().backward(grad)
        return grad


def by_hand(pieces=8, size=16, stages="normalize step clear", updates=1):
    def window(net, acc, x, y):
        for _ in range(updates):
            acc.begin()
            for k in range(pieces):
                part = slice(size * k, size * (k + 1))
                net.forward(x[part]), net.loss(y[part]), net.backward(), acc.accumulate()
            for stage in stages.split():
                {"normalize": acc.normalize, "step": acc.optimizer.step, "clear": acc.clear}[stage]()
    return window


def shuffled(net, acc, x, y):
    by_hand()(net, acc, x, np.roll(y, 1))


# ---- the wrong loops, as they stand in the lessons ----

def mean_of_means(micro_batches):
    return sum(g / n for g, n in micro_batches) / len(micro_batches)


def cleared_inside(gradients):
    for g in gradients:
        buffer = 0.0
        buffer += g
    return buffer


def index_modulo(micro_batches, K):
    sizes, waiting = [], 0
    for index in range(micro_batches):
        waiting += 1
        if index % K == 0:
            sizes.append(waiting)
            waiting = 0
    return sizes


def limited(g, max_norm):
    return g * min(1.0, max_norm / np.linalg.norm(g))


def clip_inside(gradients, max_norm):
    total = np.zeros(2)
    for g in gradients:
        total = limited(total + g, max_norm)
    return total


RATES, LETTERS = solutions.choose_rate, solutions.diagnose
WRONG = [                                                    # answer's name, wrong answer, words of the reason
    ("batch_shape", (20, 64), "what goes in"), ("batch_shape", (10, 20), "first axis"), ("batch_shape", 20, "shape (2,)"),
    ("updates_per_epoch", 45, "after every fourth"), ("updates_per_epoch", 11, "left over"), ("updates_per_epoch", 1437 / 128, "round up"),
    ("bias_gradient", [0.8, 0.5, 0.7], "subtract 1"), ("bias_gradient", [0.2, 0.5, -0.7], "sign"), ("bias_gradient", [-0.1, -0.25, 0.35], "divided by 2"),
    ("bias_gradient", "ten", "expected numbers"), ("bias_gradient", [0, 0], "shape (3,)"), ("bias_gradient", [np.nan] * 3, "finite"),
    ("which_stage", {**solutions.which_stage, "net.grads": "update"}, "net.grads"), ("which_stage", {"x": 1}, "three names"),
    ("SquaredReLU", HalfSquare, "factor 2"), ("SquaredReLU", NoChainRule, "chain rule"), ("SquaredReLU", int, "subclass of nn.Function"),
    ("Scale", Forgetful, "+= instead of ="), ("Scale", WrongInput, "gradcheck"),
    ("split_8_by_16", by_hand(4, 32), "not 8"), ("split_8_by_16", by_hand(8, 8), "not 128"), ("split_8_by_16", by_hand(stages="step"), "StageError"),
    ("split_8_by_16", by_hand(stages="normalize"), "never changed"), ("split_8_by_16", by_hand(stages="normalize step"), "still full"),
    ("split_8_by_16", by_hand(4, 16, updates=2), "updates"), ("split_8_by_16", shuffled, "not the one of the full batch"),
    ("buffer_after", [1, 2, 4, 7 / 3], "single micro-batches"), ("buffer_after", [1, 3, 7, 7], "after normalize"),
    ("buffer_after", [1, 3, 7, 4 / 3], "only the last"), ("buffer_after", [0, 1, 3, 1], "starts at 0"),
    ("window_gradient", mean_of_means, "mean of the two means"), ("window_gradient", lambda m: sum(g for g, n in m), "the sum"),
    ("window_gradient", lambda m: sum(g for g, n in m) / len(m), "number of micro-batches"),
    ("window_gradient", lambda m: 68 / 64 if len(m) == 2 else 1, "cut"),
    ("accumulate", cleared_inside, "inside the window"), ("accumulate", lambda g: 0.0, "before anybody used"), ("accumulate", lambda g: sum(g[:-1]), "missing"),
    ("window_sizes", index_modulo, "0 % 4 == 0"), ("window_sizes", lambda n, K: [K] * (n // K), "thrown away"),
    ("window_sizes", lambda n, K: [4, 4, 1], "8 micro-batches"),
    ("window_sizes", lambda n, K: {9: [4, 4, 1], 8: [4, 4]}.get(n, []), "nothing would ever"),
    ("largest_batch", 1, "try more"), ("largest_batch", 60, "more than 6 MiB"), ("largest_batch", 2.5, "number of images"),
    ("best_split", (32, 3), "more than 4 MiB"), ("best_split", (16, 6), "fewer and larger"), ("best_split", (10, 9), "not 96"),
    ("first_costly", lambda t: 8, "17 %"), ("first_costly", lambda t: 32, "not the first"),
    ("first_costly", lambda t: next(b[0] for a, b in zip(t, t[1:]) if b[1] > 1.2 * a[1]), "not the first"), ("first_costly", lambda t: 16, "row before"),
    ("extra_time", 0.04, "one update"), ("extra_time", 44, "whole epoch"), ("extra_time", 16, "not 400"),
    ("choose_rate", {**RATES, "64 as 4 x 16": 0.4}, "same 64"), ("choose_rate", {**RATES, "SGD, 16 to 4 x 16": 0.1}, "four times"),
    ("choose_rate", {**RATES, "Adam, 16 to 4 x 16": 0.004}, "Adam"),
    ("noise_at_128", 0.15, "square root"), ("noise_at_128", 9.6, "smaller"), ("noise_at_128", 1.2, "factor of 4"),
    ("clip_once", clip_inside, "after every micro-batch"), ("clip_once", lambda gs, m: sum(limited(g, m) for g in gs) / len(gs), "by itself"),
    ("clip_once", lambda gs, m: limited(sum(gs), m) / len(gs), "before it is divided"),
    ("clip_once", lambda gs, m: sum(gs) / len(gs), "not clipped"),
    ("clip_once", lambda gs, m: sum(gs) / np.linalg.norm(sum(gs)) * m, "must stay"),
    ("who_breaks", {"BatchNorm2d", "GroupNorm"}, "inside one sample"), ("who_breaks", {"BatchNorm2d", "Dropout"}, "number of the sample"),
    ("who_breaks", {"Conv2d"}, "missing"), ("who_breaks", {"BatchNorm2d", "Conv2d"}, "one sample at a time"), ("who_breaks", {"ReLU6"}, "choose among"),
    ("x_axis", lambda r: r["update"], "effective batch"), ("x_axis", lambda r: r["micro_step"], "stretched"), ("x_axis", lambda r: r["loss"], "y axis"),
    ("choose_setting", lambda s, limit: min(s, key=lambda r: r["seconds"]), "the card has 8"), ("choose_setting", lambda s, limit: s[-1], "faster"),
    ("choose_setting", lambda s, limit: s[2], "do not accumulate"), ("choose_setting", lambda s, limit: s[0] if limit > 50 else s[2], "return None"),
    ("pytorch_order", "BACDEF", "one block"), ("pytorch_order", "ABCDFE", "before the step"), ("pytorch_order", "ABDCEF", "first the loss"),
    ("pytorch_order", "BCDAEF", "throws the gradient away"), ("pytorch_order", "ABC", "once"),
    ("diagnose", {**LETTERS, "the gradient norm grows with K": "a"}, "would look different"), ("diagnose", {}, "Keep the symptoms"),
]


@pytest.mark.parametrize("name", ex.CHECKERS)
def test_the_reference_solution_passes_and_an_empty_stub_is_not_done(name):
    result = ex.CHECKERS[name](getattr(solutions, name))
    assert result and result.state == "done" and result.exercise == name and repr(result).startswith(f"✔ {name}: done. ")
    assert ex.CHECKERS[name](...).state == "not done yet" and not ex.CHECKERS[name](...)


@pytest.mark.parametrize("name, answer, reason", WRONG)
def test_a_planted_wrong_answer_is_refused_with_its_reason(name, answer, reason):
    result = ex.CHECKERS[name](answer)
    assert result.state == "wrong" and reason in result.message, result


def test_every_exercise_has_planted_wrong_answers():
    assert {name for name, *_ in WRONG} == set(ex.CHECKERS)


@pytest.mark.parametrize("name", ex.CHECKERS)
def test_nothing_stops_run_all(name):
    """Odd answers, functions that raise, exit or return odd things: always a result, never an exception."""
    def leave(*args):
        raise SystemExit(3)

    odd = [None, 3, -1, 1e300, "text", "", [], {}, set(), [[1, 2], [3]], object(), int, leave, lambda: 1, lambda *a: None, lambda *a: ..., lambda *a: "x",
           lambda *a: [], lambda *a: object(), lambda *a: 1 / 0, np.zeros((2, 3)), [...], {...}, {"a": ...}, [1 + 2j], type("Empty", (nn.Function,), {})]
    for answer in odd:
        assert isinstance(ex.CHECKERS[name](answer), ex.Result), answer
    assert "SystemExit" in ex.check_accumulate(leave).message


def test_a_reason_is_shown_as_html_without_being_html():
    result = ex.check_who_breaks({"<b>"})
    assert "&lt;b&gt;" in result._repr_html_() and "<b>who_breaks: wrong.</b>" in result._repr_html_() and "<b>: choose" in repr(result)


def test_a_checker_protects_its_own_data():
    def spoil(settings, limit):
        settings.clear()

    ex.check_choose_setting(spoil)
    assert ex.check_choose_setting(solutions.choose_setting)


def test_a_guess_is_never_refused():
    assert "and so it is" in ex.compare_guess(4, 4.0, "updates")
    assert "4 too many" in ex.compare_guess(8, 4.0) and "3 too few" in ex.compare_guess(1, 4)
    assert "2 times too large" in ex.compare_guess(5, 2.5) and "4 times too small" in ex.compare_guess(25, 100.0)
    assert "-4.5 off" in ex.compare_guess(0, 4.5) and "+0.5 off" in ex.compare_guess(0.5, 0.0)
    assert "It is 4" in ex.compare_guess(..., 4.0) and "You said 'many'" in ex.compare_guess("many", 4.0)
    assert repr(ex.compare_guess(4, 4.0)).startswith("You said")


# ---- grading a class ----

@pytest.fixture
def school(tmp_path):
    """A good notebook, a file with one answer of each kind of trouble, a file that does not parse, and an empty folder."""
    folder = tmp_path / "class"
    (folder / "ada").mkdir(parents=True)
    (folder / "nobody").mkdir()
    code = ["%matplotlib inline\nfrom gradaccum import exercises as ex\n", "batch_shape = (20, 10)\nex.check_batch_shape(batch_shape)",
            "extra_time = ", "while True:\n    pass", "def x_axis(record):\n    return record[KEY]", "KEY = 'samples'"]
    cells = [{"cell_type": "code", "source": [text], "metadata": {}, "outputs": []} for text in code]
    (folder / "ada" / "lesson.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}))
    (folder / "bob.py").write_text(
        "import os, numpy\nbatch_shape = (20, 64)\nprint('noise' * 10000)\nimport not_there\n"
        "def accumulate(gradients):\n    while True: pass\n"
        "def window_sizes(n, K):\n    os._exit(7)\n"
        "extra_time = 1 / 0\nextra_time = 4\n"
        "noise_at_128 = not_there.value\n"
        "buffer_after = []\nbuffer_after.extend([1, 3, 7, 7 / 3])\n"
        "def x_axis(record):\n    return helper(record)\ndef helper(record):\n    return record['samples']\n")
    (folder / "eve.py").write_text("def accumulate(gradients:\n    return 7\n\nbatch_shape = (20, 10)\nx_axis = ...\n")
    return folder


def test_trouble_in_one_answer_fails_only_its_own_line(school):
    everybody = grading.students(school)
    exercises = grading.exercises_of(everybody)
    assert exercises == [n for n in ex.CHECKERS if n in {"batch_shape", "buffer_after", "accumulate", "window_sizes", "extra_time", "noise_at_128", "x_axis"}]
    rows = {(r.student, r.exercise): r for s, files in everybody.items() for r in grading.grade(s, files, exercises, seconds=4)}
    assert len(rows) == 4 * len(exercises)
    state = {key: row.state for key, row in rows.items()}
    reason = {key: row.reason for key, row in rows.items()}
    assert state["ada", "batch_shape"] == state["ada", "x_axis"] == "done" and state["ada", "accumulate"] == "not handed in"
    assert state["ada", "extra_time"] == "wrong" and "does not parse" in reason["ada", "extra_time"]
    assert "what goes in" in reason["bob", "batch_shape"]
    assert "endless loop" in reason["bob", "accumulate"] and "ended with status 7" in reason["bob", "window_sizes"]
    assert state["bob", "extra_time"] == state["bob", "buffer_after"] == state["bob", "x_axis"] == "done"
    assert "NameError" in reason["bob", "noise_at_128"]
    assert "does not parse" in reason["eve", "accumulate"] and state["eve", "batch_shape"] == "done" and state["eve", "x_axis"] == "not done yet"
    assert {s for (student, _), s in state.items() if student == "nobody"} == {"not handed in"}


def test_a_folder_that_is_none_or_empty_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        grading.students(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="for each student"):
        grading.students(tmp_path)


def test_what_is_no_notebook_is_named(tmp_path):
    (tmp_path / "ida.ipynb").write_text("{")
    (row,) = grading.grade("ida", [tmp_path / "ida.ipynb"], ["accumulate"])
    assert row.state == "wrong" and "ida.ipynb is not a notebook" in row.reason


def run_pytest(*arguments):
    command = [sys.executable, "-m", "pytest", "-p", "gradaccum_pytest", "-p", "no:cacheprovider", "--pyargs", "gradaccum.exercises", *arguments]
    path = os.pathsep.join([str(Path(grading.__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(command, capture_output=True, text=True, cwd="/", env=os.environ | {"PYTHONPATH": path})


def test_the_command_for_teachers(tmp_path):
    (tmp_path / "ada.py").write_text("batch_shape = (20, 10)\nextra_time = 44\n")
    (tmp_path / "bob.py").write_text("batch_shape = ...\n")
    result = run_pytest("--submissions", str(tmp_path))
    assert result.returncode == 1
    lines = [line for line in result.stdout.splitlines() if re.match(r"(ada|bob) +\w+ +\w", line)]
    assert len(lines) == 4                                   # one for each student and exercise, and none twice
    assert any(re.match(r"ada +batch_shape +done +One row", line) for line in lines)
    assert any(re.match(r"ada +extra_time +wrong +44 s is the whole epoch", line) for line in lines)
    assert any(re.match(r"bob +batch_shape +not done yet", line) for line in lines)
    assert any(re.match(r"bob +extra_time +not handed in", line) for line in lines)


def test_without_a_folder_the_reference_solutions_are_checked():
    result = run_pytest()
    assert result.returncode == 0 and f"{len(ex.CHECKERS)} passed" in result.stdout
