"""check_equivalence: each planted bug is found by its name, and a right loop is not accused."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum._suspects import Window, clip, low_precision, suspects

BOTH = pytest.mark.parametrize("dtype", ["float32", "float64"])
RNG = np.random.default_rng(7)
X = RNG.normal(size=(28, 6))
Y = RNG.integers(0, 4, 28)
Y[[1, 2, 3, 9, 17]] = -100                                   # micro-batches of 8 weigh 5, 7, 7, and the tail 4


def make(dtype="float64", model=None, loss=None):
    model = model or nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    return ga.plan(model, input_shape=(6,), loss=loss or nn.CrossEntropyLoss(), micro_batch=28, dtype=dtype, seed=3)


def check(net, run=None, splits=(8,), **options):
    return ga.check_equivalence(net, X, Y, splits=list(splits), run=run, **options)


def each(net, micro_batches):
    """Gradient of the loss sum and weight of each micro-batch."""
    for x, y in micro_batches:
        net.zero_grad()
        net.forward(x)
        _, n = net.loss(y)
        net.backward()
        yield net.grads.astype(np.float64), n


# ---- right loops ----

@BOTH
def test_a_right_loop_in_the_network_has_equal_bits(dtype):
    """The buffer of the network, divided once, in its own precision."""
    def run(net, micro_batches):
        total = 0
        for x, y in micro_batches:
            net.forward(x)
            total += net.loss(y)[1]
            net.backward()
        return net.grads / net.dtype.type(total)

    report = check(make(dtype), run, splits=(28, 8, 1))
    assert report and report.close and not report.suspects and "all bits equal" in repr(report)
    assert {row["split"] for row in report.rows} == {"1 x 28", "8+8+8+4", "28 x 1"} and len(report.rows) == 12


@BOTH
def test_a_right_loop_elsewhere_is_close(dtype):
    """Sums in another order differ by rounding: not equal, but not accused."""
    def run(net, micro_batches):
        parts = list(each(net, micro_batches))[::-1]
        return sum(g for g, _ in parts) / sum(n for _, n in parts)

    report = check(make(dtype), run)
    assert report.close and report.suspects in (["rounding"], [])


# ---- planted bugs ----

def mean_of_means(parts):
    return sum(g / n for g, n in parts) / len(parts)


def sums(parts):
    return sum(g for g, _ in parts)


def weight(parts):
    return sum(n for _, n in parts)


def running_clip(parts):
    total = 0
    for g, n in parts:
        total = clip(total + g / n / len(parts), 0.05)
    return total


BUGS = {
    "mean of means": (mean_of_means, ["mean of means"]),
    "sum": (sums, ["sum instead of mean"]),
    "sum of means": (lambda p: sum(g / n for g, n in p), ["mean of means", "sum instead of mean"]),
    "divided by K again": (lambda p: sums(p) / weight(p) / len(p), ["divided twice"]),
    "divided by the weight again": (lambda p: sums(p) / weight(p) ** 2, ["divided twice"]),
    "means divided by K twice": (lambda p: mean_of_means(p) / len(p), ["mean of means", "divided twice"]),
    "divided by samples": (lambda p: sums(p) / 28, ["wrong divisor"]),
    "loss scale left in": (lambda p: sums(p) / weight(p) * 1024, ["wrong divisor"]),
    "sign": (lambda p: -sums(p) / weight(p), ["wrong divisor"]),
    "tail dropped": (lambda p: sums(p[:-1]) / weight(p[:-1]), ["dropped tail"]),
    "tail dropped, but counted": (lambda p: sums(p[:-1]) / weight(p), ["dropped tail"]),
    "tail dropped, means": (lambda p: mean_of_means(p[:-1]), ["dropped tail"]),
    "cleared before each": (lambda p: p[-1][0] / p[-1][1], ["cleared inside the window"]),
    "cleared before each, divided by K": (lambda p: p[-1][0] / p[-1][1] / len(p), ["cleared inside the window"]),
    "cleared before each, divided by all": (lambda p: p[-1][0] / weight(p), ["cleared inside the window"]),
    "cleared after the first": (lambda p: sums(p[1:]) / weight(p), ["cleared inside the window"]),
    "cleared at the end": (lambda p: 0 * p[0][0], ["cleared inside the window"]),
    "updated after the first": (lambda p: p[0][0] / p[0][1], ["only the first micro-batch"]),
}


@BOTH
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_named(bug, dtype):
    loop, names = BUGS[bug]
    report = check(make(dtype), lambda net, micro_batches: loop(list(each(net, micro_batches))))
    assert not report and not report.close and report.suspects == names
    assert all(f"usual suspect: {name}: {report.reasons[name]}" in repr(report) for name in names)
    assert max(row["relative"] for row in report.rows) > 0.01


@BOTH
@pytest.mark.parametrize("loop", [
    lambda p: sum(clip(g / n, 0.05) for g, n in p) / len(p), lambda p: sum(clip(g / n, 0.05) for g, n in p), running_clip,
], ids=["each", "each, not divided", "running"])
def test_d43_clipping_each_micro_batch_is_named(loop, dtype):
    options = {"max_grad_norm": 0.05}
    report = check(make(dtype), lambda net, m: loop(list(each(net, m))), splits=[[9, 9, 10]], **options)
    right = check(make(dtype), lambda net, m: (lambda p: clip(sums(p) / weight(p), 0.05))(list(each(net, m))), splits=[[9, 9, 10]], **options)
    assert report.suspects == ["clip per micro-batch"] and right.close


def bfloat16(a):
    return (np.asarray(a, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)     # cut, not rounded: another variant than ours


@BOTH
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("divided", ["at the end", "before"])
def test_a_short_buffer_is_named(precision, divided, dtype):
    round_ = bfloat16 if precision == "bfloat16" else lambda a: np.asarray(a, np.float16)

    def run(net, micro_batches):
        parts = list(each(net, micro_batches))
        total, buffer = weight(parts), round_(np.zeros(net.params.size))
        for g, _ in parts:
            buffer = round_(buffer.astype(np.float64) + (g / total if divided == "before" else g))
        return buffer.astype(np.float64) / (1 if divided == "before" else total)

    report = check(make(dtype), run)
    assert report.suspects == ["buffer precision"] and precision in report.reasons["buffer precision"]


def test_a_float32_buffer_of_a_float64_network_is_named():
    def run(net, micro_batches):
        parts = list(each(net, micro_batches))
        return sum(g.astype(np.float32) for g, _ in parts).astype(np.float64) / weight(parts)

    report = check(make("float64"), run)
    assert report.suspects == ["buffer precision"] and "float32" in report.reasons["buffer precision"]


@pytest.mark.filterwarnings("ignore:.*batch statistics")
@BOTH
def test_batch_statistics_are_named_also_beside_another_bug(dtype):
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    right = check(make(dtype, model), lambda net, m: (lambda p: sums(p) / weight(p))(list(each(net, m))))
    assert right.suspects == ["batch statistics"] and right.layers == ["1"] and "1 normalise over the micro-batch" in repr(right)
    wrong = check(make(dtype, model), lambda net, m: mean_of_means(list(each(net, m))))
    assert wrong.suspects == ["mean of means", "batch statistics"]
    quiet = make(dtype, model).eval()
    assert check(quiet, lambda net, m: mean_of_means(list(each(net, m)))).suspects == ["mean of means"]


@BOTH
def test_what_is_no_usual_bug_is_not_given_a_name(dtype):
    """One layer without its gradient: the table shows which."""
    def run(net, micro_batches):
        parts = list(each(net, micro_batches))
        total = sums(parts) / weight(parts)
        net.parameters()["2.bias"].of(total)[...] = 0
        return total

    report = check(make(dtype), run)
    assert not report and report.suspects == [] and "look at 2.bias first" in repr(report)
    nan = check(make(dtype), lambda net, m: net.grads * np.nan)
    assert nan.suspects == ["NaN or infinity"]


# ---- updates ----

@BOTH
def test_updates_of_right_loops_have_equal_bits(dtype):
    def run(net, micro_batches):
        acc = ga.Accumulator(net, optim.AdamW(net, lr=0.1), len(micro_batches), max_grad_norm=0.01)
        for x, y in micro_batches:
            acc.step(x, y)

    assert check(make(dtype), run, splits=(8, 1), optimizer=lambda net: optim.AdamW(net, lr=0.1), max_grad_norm=0.01)


@BOTH
@pytest.mark.parametrize("optimizer", [lambda net: optim.SGD(net, lr=0.5, momentum=0.9), lambda net: optim.Adam(net, lr=0.01)], ids=["SGD", "Adam"])
def test_bugs_are_found_from_updates(optimizer, dtype):
    def run(reduction):
        def loop(net, micro_batches):
            acc = ga.Accumulator(net, optimizer(net), len(micro_batches), reduction=reduction)
            for x, y in micro_batches:
                acc.step(x, y)
        return loop

    assert check(make(dtype), run("mean"), optimizer=optimizer)
    assert check(make(dtype), run("mean_of_means"), optimizer=optimizer).suspects == ["mean of means"]


def test_d18_adam_hides_a_sum_up_to_eps():
    """Adam's first step is g / (|g| + eps): with eps = 0 the length of the gradient is no difference; SGD shows it."""
    def run(optimizer):
        def loop(net, micro_batches):
            acc = ga.Accumulator(net, optimizer(net), len(micro_batches), reduction="sum")
            for x, y in micro_batches:
                acc.step(x, y)
        return loop

    adam, sgd = (lambda net: optim.Adam(net, lr=0.01, eps=0.0)), (lambda net: optim.SGD(net, lr=0.01))
    assert check(make(), run(adam), optimizer=adam).close
    assert check(make(), run(sgd), optimizer=sgd).suspects == ["sum instead of mean"]


@BOTH
def test_adama_is_named(dtype):
    """In a loop that should have been Adam's, and in windows of this library, where it is declared."""
    x, y = X[:24], RNG.integers(0, 4, 24)

    def run(net, micro_batches):
        acc = ga.Accumulator(net, optim.AdamA(net, lr=0.01), len(micro_batches), reduction="mean_of_means")
        for xb, yb in micro_batches:
            acc.step(xb, yb)

    report = ga.check_equivalence(make(dtype), x, y, splits=[8], run=run, optimizer=lambda net: optim.Adam(net, lr=0.01))
    assert report.suspects == ["AdamA"] and "second moment" in repr(report)
    ours = ga.check_equivalence(make(dtype), x, y, optimizer=lambda net: optim.AdamA(net, lr=0.01), reduction="mean_of_means")
    assert not ours and ours.suspects == ["AdamA"]


@BOTH
def test_sam_has_equal_bits(dtype):
    assert ga.check_equivalence(make(dtype), X, Y, optimizer=lambda net: optim.SAM(optim.SGD(net, lr=0.1)))


# ---- windows of this library ----

@BOTH
@pytest.mark.parametrize("options, names", [
    ({}, []), ({"max_grad_norm": 0.01}, []), ({"loss_scale": 1024.0}, []),
    ({"reduction": "mean_of_means"}, ["mean of means"]), ({"reduction": "sum"}, ["sum instead of mean"]),
    ({"accumulator": "bfloat16"}, ["buffer precision"]), ({"accumulator": "float16"}, ["buffer precision"]),
])
def test_options_of_the_accumulator(options, names, dtype):
    report = check(make(dtype), **options)
    assert report.suspects == names and bool(report) == (not names)
    assert list(report.losses) == ["1 x 28", "8+8+8+4"]


def test_staged_windows_are_close():
    report = check(make("float32"), splits=(8, 1, 3), staged=True)
    assert report.close and report.suspects in ([], ["rounding"])


def test_the_network_stays_as_it_is():
    net = make("float32")
    before = net.snapshot()
    check(net, lambda copy, m: mean_of_means(list(each(copy, m))))
    assert all(np.array_equal(a, before[name]) for name, a in net.snapshot().items()) and net.stage == "clear"


# ---- results of another framework ----

def softmax_regression(w, b, x, y, divide):
    """Gradient of softmax regression in NumPy: what another framework would give."""
    counted = y >= 0
    x, y = x[counted], y[counted]
    p = np.exp(x @ w.T + b)
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return {"weight": p.T @ x / divide(len(y)), "bias": p.sum(axis=0) / divide(len(y))}


def in_pieces(net, divide):
    w, b = (net.parameters()[name].data for name in ("weight", "bias"))
    parts = [softmax_regression(w, b, X[i:i + 8], Y[i:i + 8], divide) for i in range(0, 28, 8)]
    return {name: sum(p[name] for p in parts) for name in ("weight", "bias")}


@BOTH
def test_a_gradient_dict_from_elsewhere(dtype):
    net = make(dtype, nn.Linear(6, 4))
    right = check(net, result=in_pieces(net, lambda n: 23))
    assert right.close and right.losses == {}
    naive = check(net, result=in_pieces(net, lambda n: 4 * n))
    assert naive.suspects == ["mean of means"]
    lr = 0.5
    moved = {name: net.parameters()[name].data - lr * g for name, g in in_pieces(net, lambda n: 4 * n).items()}
    assert check(net, result=moved, optimizer=lambda net: optim.SGD(net, lr=lr)).suspects == ["mean of means"]


def test_a_gradient_from_pytorch():
    torch = pytest.importorskip("torch")
    net = make("float32", nn.Linear(6, 4))
    twin = torch.nn.Linear(6, 4)
    twin.load_state_dict({name: torch.tensor(a) for name, a in net.state_dict().items()})
    loss = torch.nn.CrossEntropyLoss()
    for i in range(0, 28, 8):
        (loss(twin(torch.tensor(X[i:i + 8], dtype=torch.float32)), torch.tensor(Y[i:i + 8])) / 4).backward()
    report = check(net, result={name: p.grad for name, p in twin.named_parameters()})
    assert report.suspects == ["mean of means"]


# ---- arguments ----

@pytest.mark.parametrize("options, kind, text", [
    ({"result": {}, "splits": (8, 4)}, ValueError, "splits has 2"),
    ({"result": {"weight": np.zeros((4, 6))}}, ValueError, "missing bias; unexpected none"),
    ({"result": {"weight": np.zeros((4, 6)), "bias": np.zeros(4), "x": 0}}, ValueError, "unexpected x"),
    ({"result": {"weight": np.zeros((6, 4)), "bias": np.zeros(4)}}, ValueError, r"result\['weight'\]: got shape \(6, 4\), expected \(4, 6\)"),
    ({"result": {"weight": np.full((4, 6), "a"), "bias": np.zeros(4)}}, TypeError, "expected real numbers"),
    ({"result": np.zeros(3)}, ValueError, r"shape \(3,\), expected \(28,\)"),
    ({"result": {}, "run": print}, ValueError, "give one"),
    ({"splits": ([8, 8],)}, ValueError, "add up to 28"),
    ({"reduction": "median"}, ValueError, "reduction='median'"),
])
def test_wrong_arguments(options, kind, text):
    with pytest.raises(kind, match=text):
        check(make("float32", nn.Linear(6, 4)), **options)


def test_a_loop_that_updates_is_told_to_give_the_optimizer():
    def run(net, micro_batches):
        acc = ga.Accumulator(net, optim.SGD(net, lr=0.1))
        acc.step(*micro_batches[0])

    with pytest.raises(ValueError, match="run: it changed the parameters; give optimizer="):
        check(make(), run)


def test_a_batch_without_weight():
    with pytest.raises(ValueError, match="no mean to compare"):
        ga.check_equivalence(make(), X, np.full(28, -100), splits=[8])
    with pytest.raises(ValueError, match="no mean to compare"):
        ga.check_equivalence(make(), X, np.full(28, -100), splits=[8], optimizer=lambda net: optim.SGD(net))


# ---- the parts, by hand ----

def test_hypotheses_by_hand():
    """Gradient sums 2 and 9 with weights 1 and 3: right 11 / 4, mean of means (2 + 3) / 2, and so on."""
    window = Window(lambda: [(np.array([2.0]), 1.0, 1), (np.array([9.0]), 3.0, 3)], None, [])
    found = {}
    for names, gradient, _ in window.candidates():
        found.setdefault(names, []).append(gradient.item())
    assert found[("mean of means",)] == [2.5] and 11.0 in found[("sum instead of mean",)] and 11 / 8 in found[("divided twice",)]
    assert found[("dropped tail",)] == [2.0, 0.5, 2.0, 1.0]
    assert found[("cleared inside the window",)] == [3.0, 1.5, 9 / 4, 9.0, 9 / 4, 1.5]
    assert window.adama(1.0, 0.0) == pytest.approx(-2.5 / (13**0.5 / 2), rel=1e-15)
    clipped = Window(lambda: [(np.array([3.0, 0.0]), 1.0, 1), (np.array([0.0, 8.0]), 1.0, 1)], 2.0, [])     # to (2, 0) and (0, 2), mean (1, 1)
    assert next(clipped.clip_candidates())[1] == pytest.approx([1.0, 1.0], rel=1e-6)
    assert suspects(np.array([2.5]), np.array([2.75]), window, "float64").keys() == {"mean of means"}


def test_low_precision_by_hand():
    """1 + 2⁻⁷ is a bfloat16, 1 + 2⁻¹⁰ a float16 and no bfloat16, 1 + 2⁻²³ a float32, 1 + 2⁻⁴⁰ none of them."""
    for exponent, name in ((7, "bfloat16"), (10, "float16"), (23, "float32"), (40, "")):
        values = (1 + 2.0**-exponent) * np.array([1.0, -2.0, 0.5, 0.0, 4.0])
        assert low_precision(values / 3, "float64", (1.0, 3.0)) == name
        assert exponent > 10 or low_precision(values, "float32", (1.0,)) == name
