"""A run that was killed and goes on has the bits of one that was not: wherever the window was, whatever had to be kept.

``python tests/test_resume.py`` prints the matrix of what is tried.
"""
import errno
import json
import os
import resource
import signal
import struct
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from conftest import below, hand_net, residual_net

import gradaccum as ga
from gradaccum import nn, optim, safetensors

pytestmark = pytest.mark.filterwarnings("ignore:.*batch statistics are those of a micro-batch")

K, MICRO, SAMPLES, MICRO_STEPS = 5, 3, 41, 25                # 14 micro-batches an epoch, the last of 2 samples: windows go on over the end of one

OPTIMIZERS = {
    "SGD, momentum": lambda net: optim.SGD(net, lr=0.05, momentum=0.9),
    "Adam, amsgrad": lambda net: optim.Adam(net, lr=0.01, amsgrad=True, groups=[{"params": ["*bias"], "lr": 0.02}]),
    "AdamW": lambda net: optim.AdamW(net, lr=0.01, weight_decay=0.1),
}
BUFFERS = {
    "unstaged": {}, "staged": {"staged": True}, "float64": {"accumulator": "float64"}, "compensated": {"accumulator": "compensated"},
}
WAYS = {
    "step": "after micro-step 1, 2, 3, 4 of 5 and after the update",
    "by hand": "after accumulate of each micro-step, normalize, clip, step and clear",
    "update": "after the update",
}


class Everything(nn.Module):
    """Dropout, a tied weight, two BatchNorms and GroupNorm."""

    def __init__(self, p=0.3):
        super().__init__()
        self.a, self.b, self.tied = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.tied.weight = self.a.weight
        self.window, self.each, self.group = nn.BatchNorm1d(6, running_stats="window"), nn.BatchNorm1d(6), nn.GroupNorm(2, 6)
        self.drop, self.out = nn.Dropout(p), nn.Linear(6, 4)

    def forward(self, x):
        x = self.drop(nn.functional.relu(self.window(self.a(x))))
        return self.out(self.group(self.tied(self.each(self.b(x)))))


def samples():
    rng = np.random.default_rng(5)
    return rng.normal(size=(SAMPLES, 6)).astype("float32"), rng.integers(0, 4, SAMPLES)


class Run:
    """A network, optimizer, Accumulator and Loader, made the same way every time, and ways to go on."""

    def __init__(self, optimizer="AdamW", buffer="unstaged", batch=MICRO, model=Everything, plan={}, **options):
        net = ga.plan(model(), **{"input_shape": (6,), "loss": nn.CrossEntropyLoss(), "micro_batch": MICRO, "seed": 7} | plan)
        options = {"accumulation_steps": K, "max_grad_norm": 0.5, "schedule": lambda updates: 0.02 / (1 + updates), "ema": 0.9,
                   "tail": "carry"} | BUFFERS[buffer] | options
        if optimizer == "Adam, amsgrad":                     # its second group keeps a learning rate of its own
            options["schedule"] = None
        self.acc = ga.Accumulator(net, OPTIMIZERS[optimizer](net), **options)
        self.loader = ga.data.Loader(*samples(), batch, seed=3)
        self.records, self.batches = [], None

    def next_batch(self):
        while True:
            self.batches = self.batches or iter(self.loader)
            for x, y in self.batches:
                return x, y, np.full(len(y), 0.0 if self.acc.micro_steps == 7 else 1.0)      # one micro-batch without weight
            self.batches = None
            self.acc.flush()

    def step(self):
        self.records.append(self.acc.step(*self.next_batch()))

    def update(self):
        self.records.append(self.acc.update(*self.next_batch()))

    def by_hand(self):
        """One stage at the boundary, or one micro-batch, whichever comes next."""
        acc, net = self.acc, self.acc.net
        if net.stage == "accumulate" and acc.micro_step == K:
            acc.normalize()
        elif net.stage == "normalize":
            acc.clip()
        elif net.stage == "clip":
            acc.optimizer.step()
            self.records.append(acc.last_update)
        elif net.stage == "update":
            acc.clear()
        else:
            x, y, weight = self.next_batch()
            if net.stage == "clear":
                acc.begin()
            net.forward(x)
            net.loss(y, weight)
            net.backward()
            acc.accumulate()

    def go(self, way, until=MICRO_STEPS):
        while self.acc.micro_steps < until or (way == "by hand" and self.acc.net.stage != "clear"):
            getattr(self, way.replace(" ", "_"))()
        return self

    def save(self, path):
        self.acc.save(path, data=self.loader)

    def load(self, path):
        self.acc.load(path, data=self.loader)
        return self


def bits(run):
    """Everything that a run is, as bytes and texts."""
    acc, net = getattr(run, "acc", run), getattr(run, "acc", run).net
    count = sum(p.data.size for p in net.parameters().values())
    uses = net._core.bytes(net.micro_batch)["gradients"] // net.dtype.itemsize - count
    arrays = {"parameters": net.params, "gradients": net._core.array(1, 0, (count + uses,), False)}
    arrays |= {name: net._state_view(name) for name in (*net._buffers, *net._private)}
    arrays |= acc._core.arrays() | {f"state {key}": a for key, a in (acc.optimizer._core.states() if acc.optimizer else {}).items()}
    out = {name: a.tobytes() for name, a in arrays.items()}
    last = acc.last_update and {k: v for k, v in acc.last_update.to_dict().items() if k != "seconds"}
    out |= {"window": repr(acc._core.get_state()), "losses": repr(acc._micro_losses), "last": repr(last), "training": net.training}
    if acc.optimizer:
        out |= {"groups": repr(acc.optimizer.groups), "clock": acc.optimizer.updates}
    return out | ({"data": repr(run.loader.state_dict())} if isinstance(run, Run) else {})


def records(run):
    """All records, as text because nan is not equal to nan; the seconds left out."""
    def plain(record):
        return {k: plain(v) if isinstance(v, dict) else v for k, v in record.items() if k != "seconds"}

    return [repr(plain(record.to_dict())) for record in run.records]


def differs(a, b):
    return [name for name in a | b if a.get(name) != b.get(name)]


# ---- the matrix ----

@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_resumed_after_every_micro_step_is_uninterrupted(optimizer, buffer, way, tmp_path):
    make = partial(Run, optimizer, buffer, K * MICRO if way == "update" else MICRO)
    whole = make()
    points = []
    while whole.acc.micro_steps < MICRO_STEPS or (way == "by hand" and whole.acc.net.stage != "clear"):
        getattr(whole, way.replace(" ", "_"))()
        if whole.acc.micro_steps in range(5, 16) or way == "update":             # two windows; in the second an epoch ends
            points.append((tmp_path / f"{len(points)}", len(whole.records), bits(whole)))
            whole.save(points[-1][0])                        # and that changes nothing:
    untouched = make().go(way)
    assert not differs(bits(untouched), bits(whole)) and records(untouched) == records(whole)
    assert whole.acc.updates == MICRO_STEPS // K if way != "update" else whole.acc.updates >= 5
    stages = {"step": {"clear", "accumulate"}, "update": {"clear"}}.get(way, {"clear", "accumulate", "normalize", "clip", "update"})
    seen = set()
    for path, done, then in points:
        run = make().load(path)
        assert not differs(bits(run), then)
        seen.add(run.acc.net.stage)
        run.go(way)
        assert not differs(bits(run), bits(whole)) and records(run) == records(whole)[done:]
    assert seen == stages


CHILD = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import test_resume
run = test_resume.Run("Adam, amsgrad", {buffer!r})
write, writes = os.write, 0
for micro_step in range({last}):
    run.step()
    if micro_step == {last} - 1 and {tear}:
        def torn(handle, part):
            global writes
            writes += 1
            if writes == 20:
                write(handle, part[:len(part) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return write(handle, part)
        os.write = torn
    run.save({path!r})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("buffer, last, tear", [("unstaged", 8, False), ("compensated", 13, False), ("staged", 10, False), ("unstaged", 9, True)])
def test_a_process_killed_by_sigkill_goes_on(buffer, last, tear, tmp_path):
    """tear: in the middle of a write of the last save, so that the run goes on from the save before."""
    path = str(tmp_path / "run.safetensors")
    code = CHILD.format(tests=os.path.dirname(__file__), buffer=buffer, last=last, tear=tear, path=path)
    child = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert child.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["run.safetensors"] if not tear else len(os.listdir(tmp_path)) == 2
    run = Run("Adam, amsgrad", buffer).load(path)
    assert run.acc.micro_steps == last - tear
    whole = Run("Adam, amsgrad", buffer).go("step")
    run.go("step")
    assert not differs(bits(run), bits(whole)) and records(run) == records(whole)[last - tear:]
    run.save(path)                                           # takes the place of what the torn one left, too
    assert os.listdir(tmp_path) == ["run.safetensors"]


@pytest.mark.parametrize("at", [13, 15])
def test_a_run_that_went_further_goes_back(at, tmp_path):
    """Into objects that were used: nothing of what they held is left, not even packed weights."""
    Run().go("step", 8).save(tmp_path / "run")
    used, whole = Run().go("step", at), Run().go("step")
    used.records, used.batches = [], None
    used.load(tmp_path / "run").go("step")
    assert not differs(bits(used), bits(whole)) and records(used) == records(whole)[8:]


@pytest.mark.parametrize("plan", [{"micro_batch": 9}, {"micro_batch": 40, "keep": "all"}, {"micro_batch": 5, "recompute": "sqrt"}], ids=str)
def test_another_plan_of_the_memory_goes_on_with_the_same_bits(plan, tmp_path):
    path = tmp_path / "run"
    Run().go("step", 8).save(path)
    other = Run(plan=plan).load(path).go("step")
    assert not differs(bits(other), bits(Run().go("step")))


def test_another_number_of_threads_goes_on_with_the_same_bits(tmp_path):
    path, threads = tmp_path / "run", ga.get_num_threads()
    whole = bits(Run().go("step"))
    try:
        ga.set_num_threads(1)
        Run().go("step", 8).save(path)
        ga.set_num_threads(3)
        assert not differs(bits(Run().load(path).go("step")), whole)
    finally:
        ga.set_num_threads(threads)


def test_a_number_of_micro_batches_that_is_a_function_of_updates(tmp_path):
    make = partial(Run, accumulation_steps=lambda updates: 2 + updates % 3)
    whole = make().go("step")
    for at in range(1, 12):
        make().go("step", at).save(tmp_path / "run")
        run = make().load(tmp_path / "run").go("step")
        assert not differs(bits(run), bits(whole)) and records(run) == records(whole)[at:]


@pytest.mark.parametrize("tail", ["flush", "drop"])
def test_an_unfinished_window_at_the_end_of_an_epoch(tail, tmp_path):
    """Killed after the last micro-batch of the epoch and before flush: flush is what comes next."""
    make = partial(Run, tail=tail)
    whole = make().go("step")
    make().go("step", 14).save(tmp_path / "run")
    run = make().load(tmp_path / "run")
    assert (run.acc.micro_step, run.loader.epoch, run.loader.position) == (4, 0, SAMPLES)
    assert not differs(bits(run.go("step")), bits(whole)) and whole.acc.micro_step == 11 % K


def test_a_run_of_update_many(tmp_path):
    x, y = samples()
    whole, first = Run(), Run()
    whole.acc.update_many(x, y)
    first.acc.update_many(x[:30], y[:30])
    first.save(tmp_path / "run")
    run = Run().load(tmp_path / "run")
    run.acc.update_many(x[30:], y[30:])
    assert not differs(bits(run) | {"last": 0}, bits(whole) | {"last": 0}) and run.acc.last_update == whole.acc.last_update


def test_gradients_of_convolutions_and_losses_with_class_weights(tmp_path):
    """Parameters that lie in memory in another order than their shape says; a loss that keeps numbers."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 3, 5, 5)), rng.integers(0, 4, 12)

    def make():
        model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5, running_stats="window"), nn.Flatten(), nn.Linear(45, 4))
        net = ga.plan(model, input_shape=(3, 5, 5), loss=nn.CrossEntropyLoss(weight=[1, 2, 3, 4]), micro_batch=3, dtype="float64")
        return ga.Accumulator(net, optim.SGD(net, 0.1, momentum=0.9), 3, accumulator="compensated")

    whole, first = make(), make()
    for i in range(8):
        part = slice(i % 4 * 3, i % 4 * 3 + 3)
        whole.step(x[part], y[part])
        if i < 4:
            first.step(x[part], y[part])
    first.save(tmp_path / "run")
    run = make()
    run.load(tmp_path / "run")
    for i in range(4, 8):
        part = slice(i % 4 * 3, i % 4 * 3 + 3)
        run.step(x[part], y[part])
    assert not differs(bits(run), bits(whole)) and run.updates == 2 and run.micro_step == 2


def test_d59_micro_step_2_of_3_by_hand(tmp_path):
    """Gradients 1, 2, 4: saved with 1 + 2 in the buffer, the update is 7 / 3."""
    def make():
        net = hand_net(dtype="float64")
        return ga.Accumulator(net, optim.SGD(net, lr=1.0), 3)

    acc = make()
    acc.step([[1.0]], below(1))
    acc.step([[2.0]], below(1))
    acc.save(tmp_path / "run")
    again = make()
    again.load(tmp_path / "run")
    assert again.buffer.tolist() == [3.0] and again.micro_step == 2 and again.micro_steps == 2 and again.is_boundary
    step = again.step([[4.0]], below(1))
    assert step.update.micro_losses == [1000.0, 1000.0, 1000.0] and again.net.params.tolist() == [-7 / 3]


def test_d60_at_update_10_the_next_sample_is_40_micro_batches_on(tmp_path):
    x, y = np.ones((1000, 1)), np.zeros((1000, 1))

    def make():
        net = hand_net(micro_batch=6)
        return ga.Accumulator(net, optim.SGD(net), 4), ga.data.Loader(x, y, 6)

    acc, loader = make()
    for xb, yb in loader:
        acc.step(xb, yb)
        if acc.updates == 10:
            break
    acc.save(tmp_path / "run", data=loader)
    acc, loader = make()
    acc.load(tmp_path / "run", data=loader)
    assert (acc.updates, acc.micro_steps, acc.samples, loader.epoch, loader.position) == (10, 40, 240, 0, 40 * 6)


# ---- between forward and accumulate ----

def at_stage(stage, staged, net):
    acc = ga.Accumulator(net[0], net[1], 3, staged=staged)
    x, y = np.random.default_rng(2).normal(size=(6, 12)), np.arange(6) % 5
    acc.step(x, y)
    for call in {"forward": 1, "loss": 2, "backward": 3}.get(stage, 0) * [1] and ["forward", "loss", "backward"]:
        getattr(net[0], call)(*{"forward": (x,), "loss": (y,)}.get(call, ()))
        if call == stage:
            break
    return acc, x, y


@pytest.mark.parametrize("stage, staged", [("forward", False), ("loss", False), ("forward", True), ("loss", True), ("backward", True)])
def test_what_has_added_nothing_is_saved_as_the_state_before_it(stage, staged, tmp_path):
    acc, x, y = at_stage(stage, staged, residual_net())
    assert acc.net.stage == stage
    acc.save(tmp_path / "run")
    assert acc.net.stage == stage                            # the micro-batch at hand can go on
    again, *_ = at_stage("", staged, residual_net())
    again.load(tmp_path / "run")
    assert again.net.stage == "accumulate" and again.micro_step == 1
    whole, *_ = at_stage("", staged, residual_net())
    for run in (again, whole):
        run.step(x, y)
        run.step(x, y)
    assert not differs(bits(again), bits(whole)) and whole.updates == 1


def test_what_cannot_be_repeated_is_refused(tmp_path):
    acc, *_ = at_stage("backward", False, residual_net())
    with pytest.raises(ga.StageError, match=r"call accumulate\(\) and save then"):
        acc.save(tmp_path / "run")
    acc.accumulate()
    acc.save(tmp_path / "run")
    run = Run("AdamW", "staged")
    run.acc.net.forward(samples()[0][:3])
    with pytest.raises(ga.StageError, match=r"running statistics \(window.running_mean\).*save before forward"):
        run.save(tmp_path / "other")
    assert os.listdir(tmp_path) == ["run"]


def test_a_file_is_loaded_at_any_stage(tmp_path):
    saved, x, y = at_stage("", False, residual_net())
    saved.save(tmp_path / "run")
    for stage in ("forward", "loss", "backward"):
        acc, *_ = at_stage(stage, False, residual_net())
        acc.load(tmp_path / "run")
        assert acc.net.stage == "accumulate" and not differs(bits(acc), bits(saved))


def test_a_replaced_accumulator_is_refused(tmp_path):
    net, opt = residual_net()
    old = ga.Accumulator(net, opt)
    old.save(tmp_path / "run")
    new = ga.Accumulator(net, opt)
    for call in (old.save, old.load):
        with pytest.raises(ga.StageError, match="replaced by a newer one"):
            call(tmp_path / "run")
    new.load(tmp_path / "run")


# ---- the file ----

@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.safetensors"
    Run(buffer="compensated").go("step", 8).save(path)
    return path


def refused(path, text, run=None, kind=ValueError):
    run = run or Run(buffer="compensated").go("step", 3)
    before = bits(run)
    with pytest.raises(kind, match=text) as error:
        run.load(path)
    assert not differs(bits(run), before)
    return str(error.value)


def forge(path, change):
    """The file with other content and a right checksum."""
    arrays, texts = safetensors.read(path)
    values = {name: json.loads(text) for name, text in texts.items() if name != "gradaccum"}
    change(arrays, values)
    safetensors.save(arrays, path, {"gradaccum": "0"} | {name: json.dumps(v) for name, v in values.items()}, checksum=True)


def test_the_safetensors_package_reads_it(saved):
    package = pytest.importorskip("safetensors")
    from safetensors.numpy import load_file
    ours = safetensors.load(saved)
    theirs = load_file(saved)
    assert set(ours) == set(theirs) and all(np.array_equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours)
    with package.safe_open(saved, "np") as file:
        assert file.metadata() == safetensors.metadata(saved) and json.loads(file.metadata()["counters"])["micro_steps"] == 8


def test_the_model_alone_is_taken_from_it(saved):
    net = ga.plan(Everything(), input_shape=(6,), micro_batch=3)
    net.load_state_dict(safetensors.load(saved), strict=False)
    state = Run(buffer="compensated").load(saved).acc.net.state_dict()
    assert all(np.array_equal(a, state[name]) for name, a in net.state_dict().items())


def test_between_windows_no_buffers_are_written(tmp_path):
    run = Run(buffer="compensated").go("step", 10)
    run.save(tmp_path / "run")
    assert not any(name.startswith("window/") for name in safetensors.load(tmp_path / "run"))
    other = Run(buffer="compensated").go("step", 8).load(tmp_path / "run")       # its open window is gone
    assert not differs(bits(other), bits(run))


def test_a_file_cut_off_anywhere_is_refused(saved):
    content, run = saved.read_bytes(), Run(buffer="compensated").go("step", 3)
    for i in range(50):
        saved.write_bytes(content[:len(content) * i // 50])
        refused(saved, "run.safetensors: .*(cut off|too few|ended|header)", run)
    saved.write_bytes(content[:-1])
    refused(saved, ".", run)
    saved.write_bytes(content + b"\0")
    refused(saved, ".", run)


def test_one_changed_bit_anywhere_is_refused(saved):
    content, run = saved.read_bytes(), Run(buffer="compensated").go("step", 3)
    rng = np.random.default_rng(0)
    positions = set(range(0, len(content), len(content) // 400)) | set(range(120)) | {len(content) - 1}
    for at in positions:
        saved.write_bytes(content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1:])
        refused(saved, ".", run)
    saved.write_bytes(content)
    run.load(saved)


def header(length, text, data=b""):
    return struct.pack("<Q", length) + text + data


@pytest.mark.parametrize("content, text", [
    (header(2**63, b"{}"), "too long"), (header(10**8 + 1, b"{}"), "too long"), (header(10**6, b"{}"), "cut off"), (b"", "too few"),
    (header(2, b"{}"), "no SHA-256 checksum"),
    (header(88, b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data'), "no valid JSON"),
    (header(105, b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0"), "'a' occurs twice"),
    (header(22, b'{"__metadata__":{"a":1'), "no valid JSON"),
])
def test_hostile_headers_are_refused(content, text, tmp_path):
    (tmp_path / "run").write_bytes(content)
    refused(tmp_path / "run", text)


def test_a_file_of_something_else_is_refused(tmp_path):
    safetensors.save({"a": np.zeros(3)}, tmp_path / "run")
    refused(tmp_path / "run", "no SHA-256 checksum")
    safetensors.save({"a": np.zeros(3)}, tmp_path / "run", checksum=True)
    refused(tmp_path / "run", "not written by acc.save")
    refused(tmp_path / "none", "none", kind=FileNotFoundError)


FORGED = {
    "format": (lambda a, t: t.update(checkpoint=2), "it has format 2, written by gradaccum 0"),
    "dtype": (lambda a, t: a.update({"out.bias": a["out.bias"].astype("f8")}), r"out.bias: float64 of shape \(4,\), expected float32 of shape \(4,\)"),
    "shape": (lambda a, t: a.update({"window/buffer/out.bias": np.zeros((2, 2), "f4")}), r"window/buffer/out.bias: float32 of shape \(2, 2\)"),
    "missing": (lambda a, t: a.pop("optimizer/exp_avg/out.bias"), "optimizer/exp_avg/out.bias is missing"),
    "more": (lambda a, t: a.update(x=np.zeros(1)), "x is not part of it"),
    "clear with arrays": (lambda a, t: t["window"].update(stage="clear", micro_step=0), "window/buffer/a.bias is not part of it"),
    "stage": (lambda a, t: t["window"].update(stage="backward"), "cannot rest in stage 'backward' with 3 micro-batches"),
    "stage unknown": (lambda a, t: t["window"].update(stage=[]), "cannot rest in stage"),
    "no micro-step": (lambda a, t: t["window"].update(micro_step=0), "cannot rest in stage 'accumulate' with 0"),
    "negative": (lambda a, t: t["window"].update(samples=-1), "samples=-1"),
    "large": (lambda a, t: t["counters"].update(updates=2**63), "updates=9223372036854775808: too large"),
    "no number": (lambda a, t: t["window"].update(loss_sum="x"), "could not convert"),
    "no window": (lambda a, t: t.pop("window"), "it has no 'window'"),
    "a list": (lambda a, t: t.update(window=[]), "indices"),
    "clock": (lambda a, t: t["optimizer"].update(updates=-3), "updates=-3"),
    "learning rate": (lambda a, t: t["optimizer"]["groups"][0].update(lr=-1.0), "lr=-1"),
    "groups": (lambda a, t: t["optimizer"].update(groups=[]), "zip"),
    "hyper-parameter": (lambda a, t: t["optimizer"]["groups"][0].update(momentum=1), "group 0 has"),
    "record": (lambda a, t: t["last_update"].update(other=1), "Update: got .*, other, expected update, loss"),
    "position": (lambda a, t: t["objects"]["data"].update(position=42), "position=42, but an epoch has 41 samples"),
    "order": (lambda a, t: t["objects"]["data"].update(seed=4), "seed was 4 and is 3 here"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_file_with_a_right_checksum_and_wrong_content_is_refused(name, saved):
    change, text = FORGED[name]
    forge(saved, change)
    message = refused(saved, text)
    assert message.startswith(f"{saved}: ") and message.endswith("; nothing was changed")


OTHERS = {
    "model": (dict(model=lambda: nn.Sequential(nn.Linear(6, 4))), r"network.parameters.a.weight: \[6, 6\] in the file, null here"),
    "dropout": (dict(model=lambda: Everything(0.5)), "network.options.drop.p: 0.3 in the file, 0.5 here"),
    "dtype": (dict(plan={"dtype": "float64"}), 'network.dtype: "float32" in the file, "float64" here'),
    "seed": (dict(plan={"seed": 8}), "network.seed: 7 in the file, 8 here"),
    "engine": (dict(plan={"engine": "openblas"}), 'network.engine: "native" in the file, "openblas" here'),
    "ties": (dict(plan={"ties": "fold"}), "network.gradients"),
    "loss": (dict(plan={"loss": nn.CrossEntropyLoss(ignore_index=0)}), "network.loss.ignore_index: -100 in the file, 0 here"),
    "class weights": (dict(plan={"loss": nn.CrossEntropyLoss(weight=[1, 1, 1, 2])}), "network.loss.has_weight: false in the file, true here"),
    "optimizer": (dict(optimizer="SGD, momentum"), 'optimizer.class: "AdamW" in the file, "SGD" here'),
    "reduction": (dict(reduction="sum"), 'accumulator.reduction: "mean" in the file, "sum" here'),
    "precision": (dict(buffer="float64"), 'accumulator.accumulator: "compensated" in the file, "float64" here'),
    "unstaged": (dict(buffer="unstaged"), "accumulator.staged: true in the file, false here"),
    "loss scale": (dict(loss_scale=8.0), "accumulator.loss_scale: null in the file, 8.0 here"),
    "no average": (dict(ema=None), "accumulator.ema: true in the file, false here"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_run_is_refused_and_the_difference_named(name, saved):
    options, text = OTHERS[name]
    if name == "engine" and ga.info()["openblas"] == "none":
        pytest.skip("no OpenBLAS is loaded")
    refused(saved, text, Run(**{"buffer": "compensated"} | options).go("step", 3))


def test_frozen_parameters_and_groups_are_part_of_a_run(tmp_path):
    def make(frozen=False, groups=None):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        model[0].weight.requires_grad = not frozen
        net = ga.plan(model, input_shape=(2,), loss=nn.MSELoss(), micro_batch=2)
        return ga.Accumulator(net, optim.AdamW(net, groups=groups))

    make().save(tmp_path / "run")
    refused(tmp_path / "run", r'network.frozen: \[\] in the file, \["0.weight"\] here', Loaded(make(frozen=True)))
    refused(tmp_path / "run", "optimizer.groups", Loaded(make(groups=[{"params": ["*bias"], "lr": 1.0}])))


class Loaded:
    """An Accumulator alone, for ``refused``."""

    def __init__(self, acc):
        self.acc, self.load = acc, acc.load


def test_settings_may_be_changed_on_purpose_and_a_warning_names_them(saved):
    run = Run(buffer="compensated", accumulation_steps=6, max_grad_norm=2.0, tail="flush")
    with pytest.warns(UserWarning, match='accumulation_steps: 5 in the file, 6 here; tail: "carry" in the file, "flush" here; max_grad_norm: 0.5 in') as seen:
        run.load(saved)
    assert len(seen) == 1 and seen[0].filename == __file__
    assert (run.acc.accumulation_steps, run.acc.max_grad_norm, run.acc.tail, run.acc.micro_step) == (6, 2.0, "flush", 3)
    refused(saved, "tail", Run(buffer="compensated", tail="flush"), UserWarning)     # a warning that is made an error refuses


def test_hyper_parameters_come_from_the_file_and_can_be_set_afterwards(tmp_path):
    net, opt = residual_net()
    acc = ga.Accumulator(net, opt)
    opt.set(lr=0.5, betas=(0.8, 0.9))
    acc.save(tmp_path / "run")
    net, opt = residual_net()
    acc = ga.Accumulator(net, opt)
    acc.load(tmp_path / "run")
    assert opt.lr == 0.5 and opt.groups == [{"lr": 0.5, "betas": (0.8, 0.9), "eps": 1e-8, "weight_decay": 0.1, "amsgrad": False}]
    opt.lr = 0.25
    assert opt.lr == 0.25


def test_training_mode_and_extra(tmp_path):
    net, opt = residual_net()
    acc = ga.Accumulator(net, opt)
    net.eval()
    acc.save(tmp_path / "run", extra={"best": 0.25, "names": ["á", None], "n": np.int64(3)})
    net.train()
    assert acc.load(tmp_path / "run") == {"best": 0.25, "names": ["á", None], "n": 3} and not net.training
    with pytest.raises(TypeError, match="extra: what is saved must be made of numbers, texts.*a set"):
        acc.save(tmp_path / "run", extra={1, 2})
    assert acc.load(tmp_path / "run")["n"] == 3


def test_an_accumulator_without_optimizer(tmp_path):
    def make():
        return ga.Accumulator(residual_net()[0])

    acc = make()
    acc.begin()
    acc.net.forward(np.ones((2, 12)))
    acc.net.loss([0, 1])
    acc.net.backward()
    acc.accumulate()
    acc.save(tmp_path / "run")
    again = make()
    again.load(tmp_path / "run")
    assert not differs(bits(again), bits(acc)) and again.normalize() == acc.normalize()


# ---- objects with a state of their own ----

class Counter:
    """A schedule and an object to register: counts its calls, keeps an array."""

    def __init__(self):
        self.calls, self.seen = 0, np.zeros(2)

    def __call__(self, updates):
        self.calls += 1
        self.seen = self.seen + [updates, 1]
        return 0.1 / self.calls

    def state_dict(self):
        return {"calls": self.calls, "seen": self.seen}

    def load_state_dict(self, state):
        if state["calls"] == 13:
            raise RuntimeError("thirteen")
        self.calls, self.seen = state["calls"], state["seen"]


def test_a_schedule_and_registered_objects_with_state_go_on(tmp_path):
    def make():
        run = Run(schedule=Counter())
        run.acc.register("counter", Counter())
        return run

    whole, first = make().go("step"), make().go("step", 12)
    first.acc._registered["counter"](4)
    first.save(tmp_path / "run")
    run = make().load(tmp_path / "run")
    counter = run.acc._registered["counter"]
    assert (run.acc.schedule.calls, counter.calls, counter.seen.tolist()) == (2, 1, [4, 1])
    assert not differs(bits(run.go("step")), bits(whole)) and records(run) == records(whole)[12:]


def test_an_object_that_refuses_its_state_puts_all_back(tmp_path):
    def make(calls):
        run = Run(schedule=Counter()).go("step", 6)
        run.acc.register("counter", Counter())
        run.acc._registered["counter"].calls = calls
        return run

    make(13).save(tmp_path / "run")
    run = make(2)
    run.acc.optimizer.lr = 0.75
    run.acc.schedule.calls = 77
    refused(tmp_path / "run", "thirteen", run, RuntimeError)
    assert run.acc.optimizer.lr == 0.75 and run.acc.schedule.calls == 77 and run.acc._registered["counter"].calls == 2


def test_what_was_saved_must_be_given_again(tmp_path):
    run = Run()
    run.save(tmp_path / "run")
    with pytest.raises(ValueError, match=r'objects: \["data"\] in the file, \[\] here.*give data='):
        run.acc.load(tmp_path / "run")
    run.acc.save(tmp_path / "run")
    refused(tmp_path / "run", r'objects: \[\] in the file, \["data"\] here', run)


@pytest.mark.parametrize("name, item, text", [("a/b", Counter(), "name='a/b'"), ("data", Counter(), "name='data'"), ("", Counter(), "name=''"),
                                              ("x", 3, "int has no state_dict")])
def test_what_cannot_be_registered(name, item, text):
    with pytest.raises((TypeError, ValueError), match=text):
        Run().acc.register(name, item)


# ---- power loss and full disks ----

class Disk:
    """Lets the os calls of a save through until the n-th, which fails; afterwards all fail (the power is gone), or none."""

    def __init__(self, monkeypatch, fail_at=None, power_loss=False, number=errno.ENOSPC):
        self.calls, self.fail_at, self.power_loss, self.number = [], fail_at, power_loss, number
        for name in ("open", "write", "fsync", "replace", "unlink"):
            monkeypatch.setattr(os, name, partial(self.call, name, getattr(os, name)))

    def call(self, name, function, *args):
        self.calls.append(name)
        n = len(self.calls) - 1
        if self.fail_at is not None and (n == self.fail_at or (self.power_loss and n > self.fail_at)):
            if name == "write":
                function(args[0], args[1][:len(args[1]) // 2])       # a part of it arrived
            raise OSError(self.number, os.strerror(self.number))
        return function(*args)


def test_the_order_of_the_calls(tmp_path, monkeypatch):
    """The content is on the disk before it gets the name, and the name afterwards."""
    run = Run().go("step", 3)
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        run.save(tmp_path / "run")
    assert disk.calls[0] == "open" and disk.calls[-4:] == ["fsync", "replace", "open", "fsync"] and set(disk.calls[1:-4]) == {"write"}


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_failure_at_any_call_leaves_the_old_or_the_new_file(power_loss, tmp_path, monkeypatch):
    path, reader = tmp_path / "run", Run()
    run = Run().go("step", 3)
    run.save(path)
    content, old = path.read_bytes(), bits(run)
    run.go("step", 4)
    new = bits(run)
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        run.save(tmp_path / "other")
    (tmp_path / "other").unlink()
    for n, call in enumerate(disk.calls):
        path.write_bytes(content)
        with monkeypatch.context() as patch:
            Disk(patch, n, power_loss)
            with pytest.raises(OSError, match="could not be written"):
                run.save(path)
        renamed = n >= len(disk.calls) - 2                   # only the folder was not flushed
        assert not differs(bits(reader.load(path)), new if renamed else old), f"call {n}, {call}"
        left = set(os.listdir(tmp_path))
        assert left == {"run"} or (power_loss and left == {"run", "run.part"})
    assert not differs(bits(run), new) and len(disk.calls) > 40
    run.save(path)
    assert os.listdir(tmp_path) == ["run"] and not differs(bits(reader.load(path)), new)


def test_a_full_disk_leaves_the_old_file_and_says_how_much_is_needed(tmp_path):
    """A limit on the size of files, enforced by the kernel, stands in for the disk."""
    path = tmp_path / "run"
    run = Run().go("step", 3)
    run.save(path)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match=rf"run could not be written: File too large; it needs {len(before)} bytes: free some space") as error:
            run.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.errno == errno.EFBIG and path.read_bytes() == before and os.listdir(tmp_path) == ["run"]
    with pytest.raises(FileNotFoundError, match="none/run could not be written"):
        run.save(tmp_path / "none" / "run")


def matrix() -> str:
    """What ``test_resumed_after_every_micro_step_is_uninterrupted`` tries: every row with every optimizer and every buffer."""
    lines = [f"model: dropout, tied weight, BatchNorm (per micro-batch and per window), GroupNorm; EMA, schedule, clipping, tail carry; K = {K}",
             f"optimizers: {'; '.join(OPTIMIZERS)}", f"buffers: {'; '.join(BUFFERS)}"]
    return "\n".join([*lines, *(f"{way:>8}: saved {points}" for way, points in WAYS.items())])


if __name__ == "__main__":
    print(matrix())
