"""Bytes: what is counted is what is allocated, limits are kept before anything is allocated, and nothing grows."""
import ctypes
import gc
import re
import sys
import tracemalloc

import numpy as np
import pytest
from conftest import below, hand_net, residual_net

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.memory import KINDS, format_bytes, machine_memory, parse_bytes


def mlp(micro_batch=32, keep=None, **options):
    """64 -> 128 -> 16, 10,384 parameters."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16))
    return ga.plan(model, input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, keep=keep, **options)


def batch(n):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 64)).astype("float32"), rng.integers(0, 16, n)


# ---- what is counted ----

@pytest.mark.parametrize("dtype, real", [("float32", 4), ("float64", 8)])
def test_bytes_by_kind_worked_by_hand(dtype, real):
    net = mlp(keep="all", dtype=dtype)
    kinds = net.memory.by_kind()
    assert kinds["parameters"] == net.params.nbytes == kinds["gradient_buffer"] == net.grads.nbytes == 10384 * real
    values = 32 * (64 + 128 + 128 + 16) * real
    loss = 32 * (8 + 8 + 8 + 8 + 2 * 8)                      # labels, weights, losses, their weights; log-sums and a factor
    assert kinds["activations"] == values + loss
    assert kinds["activation_gradients"] == 32 * (128 + 128 + 16) * real
    assert kinds["packed_weights"] >= (64 * 128 + 128 * 16) * real
    assert net.memory.bytes() == sum(kinds.values()) and list(kinds) == [k for k in KINDS if k in kinds]


def test_counted_activations_are_the_views():
    net = mlp(keep="all")
    x, y = batch(32)
    net.forward(x)
    net.loss(y)
    net.backward()
    views = [node.output for node in net.nodes[:-1]] + [node.output_grad for node in net.nodes[:-1]]
    kinds = net.memory.by_kind()
    assert sum(v.nbytes for v in views) + x.nbytes == kinds["activations"] + kinds["activation_gradients"] - 32 * 48
    assert len({v.ctypes.data for v in views}) == len(views) and all(v.ctypes.data % 64 == 0 for v in views)


@pytest.mark.parametrize("options, kind, each", [
    ({}, None, 0), ({"staged": True}, "gradient_buffer", 4), ({"accumulator": "float64"}, "gradient_buffer", 8),
    ({"accumulator": "compensated"}, "gradient_buffer", 8), ({"accumulator": "bfloat16"}, "gradient_buffer", 2),
    ({"accumulator": "float16"}, "gradient_buffer", 2), ({"ema": 0.5}, "ema", 4)], ids=str)
def test_windows_and_optimizers_announce_their_arrays(options, kind, each):
    net = mlp()
    plain = net.memory.by_kind()
    opt = optim.AdamW(net)
    acc = ga.Accumulator(net, opt, **options)
    kinds = net.memory.by_kind()
    arrays = [a for state in opt.state.values() for a in state.values()]
    assert kinds["optimizer_state"] == sum(a.nbytes for a in arrays) == 2 * net.params.nbytes
    if "ema" in options:
        assert kinds["ema"] == sum(a.nbytes for a in acc.ema.values())
    if kind == "gradient_buffer":
        assert kinds["micro_batch_gradient"] == net.grads.nbytes
        assert kinds[kind] == acc.buffer.nbytes + (acc.compensation.nbytes if acc.compensation is not None else 0)
    assert kinds.get(kind, 0) == each * net.params.size
    for name in plain.keys() - {"gradient_buffer"}:
        assert kinds[name] == plain[name]


def test_states_of_each_optimizer():
    for make, arrays in [(lambda n: optim.SGD(n), 0), (lambda n: optim.SGD(n, momentum=0.9), 1), (lambda n: optim.Adam(n), 2),
                         (lambda n: optim.AdamW(n, amsgrad=True), 3)]:
        net = mlp()
        opt = make(net)
        assert net.memory.by_kind().get("optimizer_state", 0) == arrays * net.params.nbytes
        assert sum(a.nbytes for a in opt.state_dict().values() if a.ndim) == arrays * net.params.nbytes
        del opt
        gc.collect()
        assert "optimizer_state" not in net.memory.by_kind()


def test_ties_show_their_extra_buffer():
    exact, folded = residual_net()[0], residual_net(ties="fold")[0]
    tied = exact.parameters()["a.weight"].data.nbytes
    assert exact.memory.by_kind()["gradient_buffer"] == folded.memory.by_kind()["gradient_buffer"] + tied == exact.grads.nbytes + tied


def test_rows_by_node():
    net = mlp(dtype="float64")
    rows = net.memory.by_node()
    assert [(r["node"], r["kind"], r["parameters"], r["output"], r["output_grad"]) for r in rows] == [
        ("0", "linear", 8 * (64 * 128 + 128), 8 * 32 * 128, 8 * 32 * 128), ("1", "relu", 0, 8 * 32 * 128, 8 * 32 * 128),
        ("2", "linear", 8 * (128 * 16 + 16), 8 * 32 * 16, 8 * 32 * 16), ("loss", "cross_entropy_loss", 0, 0, 0)]
    assert net.nodes[0].bytes == rows[0] and net.memory.by_node(64)[1]["output"] == 8 * 64 * 128
    assert sum(r["parameters"] for r in rows) == net.params.nbytes


@pytest.mark.parametrize("keep", [None, "all"])
def test_bytes_grow_linearly_with_the_micro_batch_and_with_nothing_else(keep):
    net = mlp(64, keep)
    one, two, three, ten = (net.memory.bytes(m) for m in (64, 128, 192, 640))
    assert one < two and three - two == two - one and ten - one == 9 * (two - one)
    fixed = {k: net.memory.by_kind(m)[k] for m in (64, 640) for k in ("parameters", "gradient_buffer", "packed_weights")}
    assert all(net.memory.by_kind(64)[k] == v for k, v in fixed.items())
    small = [net.memory.bytes(m) for m in range(1, 130)]
    assert small == sorted(small) and net.memory.bytes() == one


def test_reuse_saves_what_it_says():
    net, kept = mlp(), mlp(keep="all")
    for m in (1, 32, 1000):
        assert net.memory.reuse_saved(m) == kept.memory.bytes(m) - net.memory.bytes(m) > 0
    assert kept.memory.reuse_saved() == 0


def test_depth_does_not_multiply_gradients():
    """Activation gradients of a chain: two at a time, whatever the depth."""
    def chain(depth):
        model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(depth)))
        return ga.plan(model, input_shape=(64,), loss=nn.MSELoss(), micro_batch=64).memory.by_kind()

    value = 64 * 64 * 4
    assert chain(1)["activation_gradients"] == value and chain(2)["activation_gradients"] <= 2 * value
    assert chain(4)["activation_gradients"] == chain(20)["activation_gradients"] <= 2 * value
    assert chain(20)["activations"] - chain(4)["activations"] == 16 * value      # each layer's input is kept for its backward


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def allocated():
    """Bytes that malloc has given out."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        pytest.skip("mallinfo2 needs glibc 2.33")
    mallinfo.restype = Mallinfo
    info = mallinfo()
    return info.uordblks + info.hblkhd


@pytest.mark.resident
def test_d54_the_report_predicts_what_is_allocated():
    """Within 1 %: each block stays below the size that gets its own pages."""
    hand_net()                                               # everything that is made once
    gc.collect()
    gc.disable()
    try:
        before = allocated()
        net = ga.plan(nn.Sequential(nn.Linear(500, 700), nn.GELU(), nn.Linear(700, 400)), input_shape=(500,), loss=nn.MSELoss(), micro_batch=150)
        plan = allocated() - before
        assert abs(plan - net.memory.bytes()) < 0.01 * plan
        acc = ga.Accumulator(net, optim.AdamW(net), accumulator="compensated", ema=0.9)
        total = allocated() - before
        assert abs(total - net.memory.bytes()) < 0.01 * total and total > 1.5 * plan
        x, y = np.ones((600, 500), np.float32), np.ones((600, 400), np.float32)
        with_batch = allocated()
        acc.update(x, y)
        assert abs(allocated() - with_batch) < 0.001 * total  # a window allocates nothing that stays
    finally:
        gc.enable()


def test_a_refused_window_leaves_the_report():
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net), accumulation_steps=2)
    acc.step([[1.0]], below(1))
    before = net.memory.by_kind()
    with pytest.raises(ga.StageError):
        ga.Accumulator(net, acc.optimizer, staged=True, ema=0.5)
    assert net.memory.by_kind() == before


def test_a_window_that_is_gone_leaves_the_report():
    net = hand_net()
    before = net.memory.by_kind()
    acc = ga.Accumulator(net, staged=True, ema=0.5)
    assert net.memory.by_kind() != before
    del acc
    gc.collect()
    assert net.memory.by_kind() == before


def test_the_report_reads_well():
    memory = mlp(memory_limit="1 MiB").memory
    assert len(repr(memory).splitlines()) == 2 and "parameters 40.56 KiB" in repr(memory)
    text = str(memory)
    assert re.match(r"MemoryReport: [\d.]+ KiB of 1024.00 KiB|MemoryReport: [\d.]+ KiB of 1.00 MiB", text)
    assert "activations (grow with the micro-batch)" in text and "for micro-batches of 32" in text
    assert [format_bytes(n) for n in (0, 1023, 1024, 5 * 2**20, 3 * 2**30 * 10)] == ["0 B", "1023 B", "1.00 KiB", "5.00 MiB", "30.00 GiB"]


# ---- limits ----

@pytest.mark.parametrize("text, n", [("8 MiB", 8 * 2**20), ("8MB", 8 * 10**6), ("1.5 KiB", 1536), ("64", 64), (" 2 gb ", 2 * 10**9), (77, 77),
                                     (None, None), ("12 B", 12)])
def test_limits_as_text(text, n):
    assert parse_bytes(text) == n


@pytest.mark.parametrize("text", ["8 miles", "", "MiB", "-3", "1.2.3 MiB", 0, -5, True, 1.5])
def test_limits_that_are_none(text):
    with pytest.raises(ValueError, match="memory_limit"):
        parse_bytes(text)


def test_a_limit_may_be_a_numpy_integer():
    assert parse_bytes(np.int64(1000)) == 1000


def test_a_limit_is_exact():
    need = mlp(32).memory.bytes(32)
    assert mlp(32, memory_limit=need).memory.limit == need
    with pytest.raises(ga.BudgetError) as error:
        mlp(32, memory_limit=need - 1)
    error = error.value
    assert isinstance(error, MemoryError)
    assert (error.asked, error.limit) == (need, need - 1) and sum(error.by_kind.values()) == need
    assert error.by_kind == mlp(32).memory.by_kind()
    assert error.max_micro_batch == mlp(1).memory.max_micro_batch(need - 1) and 16 <= error.max_micro_batch < 32
    assert error.splits == [(m, 32 // m) for m in (16, 8, 4, 2, 1)]


def test_the_text_of_a_budget_error():
    net = mlp(1)
    limit = net.memory.bytes(40)
    with pytest.raises(ga.BudgetError) as error:
        mlp(64, memory_limit=limit)
    text = str(error.value)
    assert f"a micro-batch of 64 needs {format_bytes(net.memory.bytes(64))}, the limit is {format_bytes(limit)}." in text
    assert "activations (grow with the micro-batch)" in text and "gradient buffer (one window)" in text
    largest = net.memory.max_micro_batch(limit)
    assert f"Largest micro-batch that fits: {largest}. To keep an effective batch of 64, try 32 x 2 or 16 x 4" in text
    assert mlp(largest, memory_limit=limit).micro_batch == largest


def test_where_not_even_one_sample_fits():
    with pytest.raises(ga.BudgetError, match="Not even one sample fits: the smallest plan needs") as error:
        mlp(8, memory_limit="1 KiB")
    assert error.value.max_micro_batch == 0 and error.value.splits == []


def test_a_refused_plan_allocates_nothing():
    gc.collect()
    before = allocated()
    for _ in range(50):
        with pytest.raises(ga.BudgetError):
            mlp(10**6, memory_limit="1 MiB")
    gc.collect()
    assert allocated() - before < 200_000                    # one such plan would be 500 MB


@pytest.mark.parametrize("m", [1, 2, 31, 100, 999])
def test_max_micro_batch_is_the_largest(m):
    memory = mlp(1).memory
    for limit in (memory.bytes(m), memory.bytes(m + 1) - 1):
        largest = memory.max_micro_batch(limit)
        assert memory.bytes(largest) <= limit < memory.bytes(largest + 1) and largest >= m
    assert memory.max_micro_batch(memory.bytes(1) - 1) == 0


def test_auto_leaves_room_for_adam():
    net = mlp("auto", memory_limit="256 KiB")
    largest = net.micro_batch
    assert largest > 8 and net.memory.bytes() <= 256 * 1024
    acc = ga.Accumulator(net, optim.AdamW(net))
    x, y = batch(3 * largest)
    assert acc.update(x, y).micro_steps == 3
    assert net.memory.bytes() <= 256 * 1024 < net.memory.bytes(largest + 1) + 2 * 64
    with pytest.raises(ga.BudgetError, match="Not even one sample fits"):
        mlp("auto", memory_limit=1000)


def test_auto_without_a_limit_takes_half_of_the_machine(monkeypatch):
    monkeypatch.setattr(sys.modules["gradaccum.plan"], "machine_memory", lambda: 2 * 256 * 1024)
    net = mlp("auto")
    assert net.micro_batch == mlp("auto", memory_limit="256 KiB").micro_batch and net.memory.limit is None
    assert 2**20 < machine_memory() < 2**50


@pytest.mark.parametrize("make, what", [
    (lambda net: optim.AdamW(net), "AdamW's state"), (lambda net: ga.Accumulator(net, staged=True), "the accumulation window"),
    (lambda net: ga.Accumulator(net, ema=0.9), "the accumulation window")])
def test_what_comes_after_the_plan_keeps_the_limit(make, what):
    net = mlp(32, memory_limit=mlp(32).memory.bytes() + 1000)
    before = net.memory.by_kind()
    with pytest.raises(ga.BudgetError, match=f"{what} needs") as error:
        make(net)
    gc.collect()
    assert net.memory.by_kind() == before and error.value.asked > error.value.limit
    acc = ga.Accumulator(net, optim.SGD(net))
    assert acc.update(*batch(40)).micro_steps == 2


# ---- nothing grows ----

def test_d03_k_changes_no_byte():
    net = mlp(4)
    acc = ga.Accumulator(net, optim.SGD(net))
    before, address = net.memory.bytes(), net.forward(batch(1)[0]).ctypes.data
    for k in (1, 8, 64):
        acc.update(*batch(4 * k))
        assert net.memory.bytes() == before and net.forward(batch(1)[0]).ctypes.data == address


def pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


def run(calls, warm, times):
    """Pages of resident memory that `times` rounds add after `warm` of them."""
    for _ in range(warm):
        for call in calls:
            call()
    gc.collect()
    before = pages()
    for _ in range(times):
        for call in calls:
            call()
    gc.collect()
    return pages() - before


@pytest.mark.resident
def test_resident_memory_is_flat_over_20_000_updates():
    net = hand_net(micro_batch=2)
    acc = ga.Accumulator(net, optim.AdamW(net))
    x, y = np.ones((6, 1), np.float32), below(6)
    assert run([lambda: acc.update(x, y)], 2000, 20_000) < 64


@pytest.mark.resident
def test_d53_one_window_of_4_096_micro_batches():
    net = hand_net(micro_batch=2)
    acc = ga.Accumulator(net, optim.SGD(net), accumulation_steps=10**6)
    x, y = np.ones((2, 1), np.float32), below(2)
    acc._micro_losses = _Forgetful()                         # a number a micro-batch is kept for the record: that is all
    assert run([lambda: acc.step(x, y)], 500, 4096) < 16


class _Forgetful(list):
    def append(self, value):
        pass


class Double(nn.Function):
    def forward(self, x):
        return 2 * x

    def backward(self, grad):
        return 2 * grad


@pytest.mark.resident
def test_no_way_and_no_refused_call_leaks():
    net = ga.plan(nn.Sequential(nn.Linear(1, 1), Double()), input_shape=(1,), loss=nn.L1Loss(), micro_batch=2)
    acc = ga.Accumulator(net, optim.SGD(net, momentum=0.5), accumulation_steps=4, staged=True, ema=0.5)
    x, y = np.ones((4, 1)), below(4)

    def refused():
        for call in (lambda: acc.update(x, y[:3]), lambda: acc.update(x, y, [-1.0] * 4), acc.accumulate, acc.normalize,
                     lambda: acc.update(x.astype(object), y), lambda: net.forward(np.ones((9, 1)))):
            with pytest.raises((ValueError, TypeError, ga.StageError)):
                call()

    def looks():
        net.predict(x)
        net.evaluate(x, y)
        net.state_dict(), net.snapshot(), acc.ema, acc.buffer, opt.state_dict()  # noqa: B018

    opt = acc.optimizer
    calls = [lambda: acc.update(x, y), lambda: list(acc.stages(x, y)), refused, looks]
    assert run(calls, 100, 400) < 64


@pytest.mark.resident
def test_plans_are_given_back():
    def make():
        net = ga.plan(nn.Sequential(nn.Linear(30, 30), Double()), input_shape=(30,), loss=nn.L1Loss(), micro_batch=50)
        ga.Accumulator(net, optim.AdamW(net), staged=True, ema=0.5).update(np.ones((60, 30)), np.ones((60, 30)))

    assert run([make], 100, 300) < 256


def test_a_batch_of_the_right_type_is_not_copied():
    net = mlp(256)
    acc = ga.Accumulator(net, optim.SGD(net))
    x, y = batch(4096)
    acc.update(x, y)
    tracemalloc.start()
    try:
        acc.update(x, y)
        assert tracemalloc.get_traced_memory()[1] < 50_000
        acc.update(x.astype("float64"), y)
        assert tracemalloc.get_traced_memory()[1] > x.nbytes
    finally:
        tracemalloc.stop()


# ---- views ----

def test_every_view_outlives_its_owner():
    net = mlp(keep="all")
    opt = optim.AdamW(net)
    acc = ga.Accumulator(net, opt, accumulator="compensated", ema=0.5)
    acc.update(*batch(40))
    net.forward(batch(5)[0])
    net.loss(batch(5)[1])
    views = {"params": net.params, "grads": net.grads, "weight": net.parameters()["0.weight"].data, "grad": net.parameters()["0.weight"].grad,
             "output": net.nodes[0].output, "losses": net.sample_losses()[0], "buffer": acc.buffer, "compensation": acc.compensation,
             "ema": acc.ema["0.weight"], "state": opt.state["0.weight"]["exp_avg"]}
    copies = {name: view.copy() for name, view in views.items()}
    assert not any(view.flags.writeable or view.flags.owndata for view in views.values())
    del net, opt, acc
    gc.collect()
    junk = [np.full(n, 7.0) for n in (10, 1000, 10_000, 100_000) for _ in range(20)]     # would land in memory that was freed
    for name, view in views.items():
        assert np.array_equal(view, copies[name]), name
    assert len(junk) == 80


def test_nothing_writes_beyond_a_block():
    rng = np.random.default_rng(0)
    for m in (1, 3, 31):
        net, opt = residual_net(m)
        acc = ga.Accumulator(net, opt, max_grad_norm=1.0)
        for n in (1, m, 2 * m + 1):
            acc.update(rng.normal(size=(n, 12)), rng.integers(0, 5, n), rng.random(n))
            net.predict(rng.normal(size=(n, 12)))
        assert net._core.guards_intact()
