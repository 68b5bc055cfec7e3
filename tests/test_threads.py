"""Threads: any number gives the same bits, each Python thread may have its network, and a forked child works."""
import os
import select
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from conftest import below, hand_net

import gradaccum as ga
from gradaccum import nn, optim

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(160, 200)).astype("float32"), RNG.integers(0, 70, 160)


@pytest.fixture(autouse=True)
def threads():
    before = ga.get_num_threads()
    ga.set_num_threads(2)
    yield ga.set_num_threads
    ga.set_num_threads(before)


def make(seed=0, micro_batch=64):
    """Wide enough that products, activations and masks use all threads."""
    model = nn.Sequential(nn.Linear(200, 300), nn.GELU(), nn.Dropout(0.1), nn.Linear(300, 70))
    net = ga.plan(model, input_shape=(200,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, seed=seed)
    return net, ga.Accumulator(net, optim.AdamW(net, lr=1e-2))


def train(updates=5, seed=0):
    net, acc = make(seed)
    for _ in range(updates):
        acc.update(X, Y)
    return net.params.copy()


def run(*tasks):
    """Each task in a thread of its own, all started at once; their results."""
    barrier, results = threading.Barrier(len(tasks)), [None] * len(tasks)

    def work(i):
        barrier.wait(10)
        try:
            results[i] = tasks[i]()
        except BaseException as error:  # noqa: BLE001  handed to the caller
            results[i] = error

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(tasks))]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
        assert not w.is_alive()
    return results


def test_the_number_of_threads_changes_no_bit(threads):
    expected = None
    for n in (1, 2, 3, 7):
        threads(n)
        assert ga.get_num_threads() == n
        params = train()
        expected = params if expected is None else expected
        assert np.array_equal(params, expected)


def test_a_network_planned_for_fewer_threads(threads):
    threads(1)
    net, acc = make()
    threads(4)
    for _ in range(5):
        acc.update(X, Y)
    assert np.array_equal(net.params, train())


@pytest.mark.parametrize("n", [0, -1, 257, 1.5, "two", None])
def test_numbers_that_are_none(n):
    with pytest.raises((ValueError, TypeError)):
        ga.set_num_threads(n)
    assert ga.get_num_threads() == 2


@pytest.mark.parametrize("text, expected", [("3", 3), ("0", os.cpu_count()), ("many", os.cpu_count()), ("9999", 256)])
def test_the_environment_sets_the_number(text, expected):
    code = "import gradaccum as ga; print(ga.get_num_threads())"
    out = subprocess.run([sys.executable, "-c", code], env=os.environ | {"GRADACCUM_NUM_THREADS": text}, capture_output=True, text=True, timeout=60)
    assert out.returncode == 0 and int(out.stdout) == min(expected, 256)


# ---- several Python threads ----

def test_a_network_for_each_thread():
    expected = [train(seed=i) for i in range(4)]
    for result, params in zip(run(*(lambda i=i: train(seed=i) for i in range(4))), expected):
        assert np.array_equal(result, params)


def test_one_network_in_turns():
    """A lock around whole windows is enough, whichever thread comes next."""
    net, acc = make()
    lock, order = threading.Lock(), []

    def work():
        for _ in range(5):
            with lock:
                acc.update(X, Y)
                order.append(threading.get_ident())

    run(work, work)
    assert acc.updates == 10 and np.array_equal(net.params, train(10))


def test_two_threads_on_one_network_get_an_error_or_a_right_answer():
    net, _ = make()
    expected = net.predict(X)
    seen = {"right": 0, "refused": 0}

    def work():
        for _ in range(100):
            try:
                assert np.array_equal(net.predict(X), expected)
                seen["right"] += 1
            except ga.StageError as error:
                assert "in use by another thread" in str(error)
                seen["refused"] += 1

    for result in run(work, work):
        assert result is None
    assert seen["right"] + seen["refused"] == 200 and seen["right"] >= 100
    assert np.array_equal(net.predict(X), expected)


def test_two_threads_that_step_lose_no_micro_batch():
    """Refused steps change nothing: those that were taken are all there."""
    net = hand_net(micro_batch=8)
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.0), accumulation_steps=10**6, reduction="sum")
    x, y = np.ones((8, 1), np.float32), below(8)

    def work():
        taken = 0
        for _ in range(400):
            try:
                acc.step(x, y)
                taken += 1
            except ga.StageError:
                pass
        return taken

    taken = run(work, work)
    assert sum(taken) == acc.micro_step == acc.micro_steps and acc.buffer[0] == 8 * sum(taken)
    assert acc.weight_sum == acc.samples == 8 * sum(taken) > 0


def test_python_goes_on_during_a_pass():
    """The GIL is free while C computes: another thread runs while a function of this network waits."""
    inside, done = threading.Event(), threading.Event()

    class Waits(nn.Function):
        def forward(self, x):
            if x.shape[0] == 3:
                inside.set()
                assert done.wait(20)
            return x

    net = ga.plan(nn.Sequential(nn.Linear(200, 200), Waits()), input_shape=(200,), micro_batch=3)
    other, acc = make()

    def meanwhile():
        assert inside.wait(20)
        record = acc.update(X, Y)
        done.set()
        return record.samples

    assert run(lambda: net.predict(X[:3]).shape, meanwhile) == [(3, 200), 160]


def test_the_gil_is_released_in_a_long_pass():
    """A thread that only counts gets somewhere while another computes on one C thread."""
    ga.set_num_threads(1)
    net = ga.plan(nn.Sequential(*(nn.Linear(600, 600) for _ in range(6))), input_shape=(600,), micro_batch=256)
    x = np.ones((2560, 600), np.float32)
    stop, ticks = threading.Event(), []

    def count():
        while not stop.wait(0.0005):
            ticks.append(1)

    counter = threading.Thread(target=count)
    counter.start()
    before = len(ticks)
    net.predict(x)
    during = len(ticks) - before
    stop.set()
    counter.join()
    assert during > 0


def test_a_function_may_be_called_from_any_thread():
    class Add(nn.Function):
        seen = set()

        def forward(self, x):
            self.seen.add(threading.get_ident())
            return x + 1

        def backward(self, grad):
            return grad

    def work():
        net = ga.plan(nn.Sequential(nn.Linear(4, 4), Add()), input_shape=(4,), loss=nn.MSELoss(), micro_batch=2)
        acc = ga.Accumulator(net, optim.SGD(net, lr=0.1))
        for _ in range(20):
            acc.update(np.ones((4, 4)), np.zeros((4, 4)))
        return net.params.copy()

    a, b = run(work, work)
    assert np.array_equal(a, b) and len(Add.seen) == 2


# ---- fork ----

def in_child(function, seconds=30):
    """What a forked child makes of it: "ok", the error's text, or "hangs"."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks in programs with threads: they are the point
        child = os.fork()
    if child == 0:
        try:
            os.write(write, (function() or "ok").encode())
        except BaseException as error:  # noqa: BLE001
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        if not select.select([read], [], [], seconds)[0]:
            os.kill(child, 9)
            return "hangs"
        return os.read(read, 4096).decode()
    finally:
        os.close(read)
        os.waitpid(child, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
class TestFork:
    def test_a_child_trains_with_threads_after_its_parent_did(self):
        expected = train()                                   # the parent's workers are awake or asleep now
        assert in_child(lambda: None if np.array_equal(train(), expected) else "other bits") == "ok"
        assert np.array_equal(train(), expected)             # and the parent goes on

    def test_a_child_goes_on_with_its_parents_window(self):
        net, acc = make()
        acc.update(X, Y)

        def go_on():
            acc.update(X, Y)
            return None if np.array_equal(net.params, train(2)) else "other bits"

        before = net.params.copy()
        assert in_child(go_on) == "ok"
        assert np.array_equal(net.params, before) and acc.updates == 1
        acc.update(X, Y)
        assert np.array_equal(net.params, train(2))

    def test_children_of_children(self):
        expected = train()

        def nested():
            if not np.array_equal(train(), expected):
                return "other bits in the child"
            result = in_child(lambda: None if np.array_equal(train(), expected) else "other bits in its child")
            return None if result == "ok" else result

        assert in_child(nested) == "ok"

    def test_a_fork_while_another_thread_computes(self):
        """The pool's lock is taken at that moment; the child makes it anew."""
        expected, stop = train(), threading.Event()

        def busy():
            net, _ = make()
            while not stop.is_set():
                net.predict(X)

        worker = threading.Thread(target=busy)
        worker.start()
        try:
            for _ in range(5):
                assert in_child(lambda: None if np.array_equal(train(2), train(2)) else "other bits") == "ok"
        finally:
            stop.set()
            worker.join()
        assert np.array_equal(train(), expected)
