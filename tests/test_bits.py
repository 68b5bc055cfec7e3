"""The same bits: every split of a batch, every way to run the window, any number of threads, both precisions."""
import numpy as np
import pytest
from conftest import residual_net

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum._splits import pieces_of
from gradaccum.testing import check_split, gradcheck

UPDATES = 20
SPLITS = [96, 1, 5, 32, 50, 95, [90, 6], [1, 94, 1], [13, 13, 60, 10], [7] * 13 + [5]]
CASES = [(way, split) for way in ("step", "by hand") for split in SPLITS]
CASES += [(way, split) for way in ("update", "stages") for split in SPLITS if isinstance(split, int)]     # these cut the batch themselves


def train(split, way, batch, dtype="float32", **options):
    x, y, weight = batch
    pieces = pieces_of(96, split)
    net, opt = residual_net(max(pieces), dtype, **options)
    acc = ga.Accumulator(net, opt, len(pieces), max_grad_norm=0.5)
    starts = np.cumsum([0, *pieces])
    for _ in range(UPDATES):
        if way == "update":
            acc.update(x, y, weight)
        elif way == "stages":
            for _ in acc.stages(x, y, weight):
                pass
        for a, b in zip(starts, starts[1:]):
            if way == "step":
                acc.step(x[a:b], y[a:b], weight[a:b])
            elif way == "by hand":
                if a == 0:
                    acc.begin()
                net.forward(x[a:b])
                net.loss(y[a:b], weight[a:b])
                net.backward()
                acc.accumulate()
        if way == "by hand":
            acc.normalize()
            acc.clip()
            opt.step()
            acc.clear()
    return net.params.copy(), acc.last_update.loss, acc.last_update.grad_norm, acc.updates


@pytest.fixture(scope="module")
def full():
    cache = {}

    def get(batch, dtype):
        if dtype not in cache:
            cache[dtype] = train(96, "update", batch, dtype)
        return cache[dtype]

    return get


@pytest.fixture
def threads():
    """Sets the number of threads for one test."""
    before = ga.get_num_threads()
    yield ga.set_num_threads
    ga.set_num_threads(before)


def same(result, expected):
    assert result[3] == expected[3] == UPDATES
    assert np.array_equal(result[0], expected[0]), f"parameters differ by {np.abs(result[0] - expected[0]).max():.3g}"
    assert result[1:3] == expected[1:3]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("way, split", CASES, ids=str)
def test_every_split_in_every_way(way, split, number, dtype, batch, full, threads):
    """A residual network with dropout, a tied weight, ignored labels and sample weights, 20 AdamW updates with clipping."""
    threads(number)
    same(train(split, way, batch, dtype), full(batch, dtype))


@pytest.mark.parametrize("seed", range(12))
def test_random_splits(seed, batch, full):
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(np.arange(1, 96), rng.integers(1, 40), replace=False))
    dtype = ("float32", "float64")[seed % 2]
    same(train(np.diff([0, *cuts, 96]).tolist(), ("step", "by hand")[seed // 2 % 2], batch, dtype), full(batch, dtype))


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_threads_and_cpu_levels(level, number, batch, monkeypatch, threads):
    monkeypatch.setenv("GRADACCUM_CPU", level)
    threads(1)
    expected = train(96, "update", batch)
    threads(number)
    same(train(32, "update", batch), expected)


class Wide(nn.Module):
    """Large enough that products, activations and masks are really divided over threads."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(200, 300), nn.Linear(300, 300), nn.Linear(300, 70)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        h = self.drop(nn.functional.gelu(self.a(x)))
        return self.out(nn.functional.relu(self.b(h)) + h)


@pytest.mark.parametrize("staged", [False, True])
def test_wide_layers_over_threads(staged, threads):
    rng = np.random.default_rng(4)
    x, y, weight = rng.normal(size=(96, 200)).astype("float32"), rng.integers(0, 70, 96), rng.random(96)
    expected = None
    for number in (1, 2, 3):
        threads(number)
        for m in (96,) if staged else (96, 95, 31):
            net = ga.plan(Wide(), input_shape=(200,), loss=nn.CrossEntropyLoss(), micro_batch=m, seed=1)
            acc = ga.Accumulator(net, optim.AdamW(net, lr=1e-3), max_grad_norm=0.1, staged=staged)
            for _ in range(3):
                acc.update(x, y, weight)
            result = net.params.copy(), acc.last_update, net.predict(x)
            expected = expected or result
            assert np.array_equal(result[0], expected[0]) and np.array_equal(result[2], expected[2])
            assert (result[1].loss, result[1].grad_norm) == (expected[1].loss, expected[1].grad_norm)


def test_check_split_with_three_threads():
    check_split(nn.Sequential(nn.Linear(200, 300), nn.GELU(), nn.Linear(300, 70)), (200,), samples=40, updates=1, dtypes=("float32",),
                threads=(1, 2, 3), splits=[40, 7, [1, 39]])


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.L1Loss(), nn.BCEWithLogitsLoss(), nn.MSELoss(per="sample"),
                                  nn.CrossEntropyLoss(label_smoothing=0.1, weight=[1, 2, 0.5, 1, 3]), nn.CrossEntropyLoss(per="sample")], ids=repr)
@pytest.mark.parametrize("weights", ["none", "per sample", "per element"])
def test_sequences_and_losses(loss, weights):
    """Tokens of 11 sequences, cut between sequences."""
    rng = np.random.default_rng(5)
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 5))
    integer = isinstance(loss, nn.CrossEntropyLoss)
    y = rng.integers(0, 5, (11, 6)) if integer else rng.random((11, 6, 5))
    weight = {"none": None, "per sample": rng.integers(0, 3, 11) / 2, "per element": rng.integers(0, 3, y.shape) / 2}[weights]
    check_split(module, (6, 3), loss=loss, y=y, weight=weight, samples=11, splits=[11, 1, 4, 10, [5, 1, 3, 2]])


def test_per_sample_losses_do_not_depend_on_the_split(batch):
    x, y, weight = batch
    seen = []
    for m in (96, 32, 1):
        net, _ = residual_net(m)
        rows = []
        for i in range(0, 96, m):
            net.eval().forward(x[i:i + m])
            net.loss(y[i:i + m], weight[i:i + m])
            rows.append(np.stack(net.sample_losses()))
        seen.append(np.concatenate(rows, axis=1))
    assert np.array_equal(seen[0], seen[1]) and np.array_equal(seen[0], seen[2])


def test_predictions_do_not_depend_on_the_micro_batch():
    x = np.random.default_rng(6).normal(size=(50, 12))
    for dtype in ("float32", "float64"):
        out = [residual_net(m, dtype)[0].predict(x) for m in (50, 1, 7, 49)]
        assert all(np.array_equal(o, out[0]) for o in out)


def test_a_network_without_a_window_continues_the_same_chains():
    """backward adds, step applies: the gradient of the sum, and the dropout masks, for every split."""
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(30, 12)), rng.integers(0, 5, 30)
    results = []
    for pieces in ([30], [10] * 3, [1] * 30, [29, 1], [3, 20, 7]):
        net = ga.plan(nn.Sequential(nn.Linear(12, 20), nn.Dropout(0.5), nn.GELU(), nn.Linear(20, 5)), input_shape=(12,),
                      loss=nn.CrossEntropyLoss(), micro_batch=30, seed=2)
        opt = optim.Adam(net, lr=0.01)
        for _ in range(4):
            for part in np.split(np.arange(30), np.cumsum(pieces)[:-1]):
                net.forward(x[part])
                net.loss(y[part])
                net.backward()
            opt.step()
            net.zero_grad()
        results.append(net.params.copy())
    assert all(np.array_equal(r, results[0]) for r in results)


def test_looking_inside_a_window_changes_no_bit(batch, full):
    """predict and evaluate between micro-batches: no mask, no sum, no packed weight moves."""
    x, y, weight = batch
    net, opt = residual_net(32)
    acc = ga.Accumulator(net, opt, 3, max_grad_norm=0.5)
    for _ in range(UPDATES):
        for i in range(0, 96, 32):
            net.predict(x[:41])
            acc.step(x[i:i + 32], y[i:i + 32], weight[i:i + 32])
            net.evaluate(x, y, weight)
            net.forward(x[:5])                               # begun and dropped
    same((net.params.copy(), acc.last_update.loss, acc.last_update.grad_norm, acc.updates), full(batch, "float32"))


class Random(nn.Module):
    """A random graph over values of 4 features: residual adds, layers called twice, tied and frozen weights."""

    def __init__(self, rng):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.steps = []
        make = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "identity": nn.Identity, "softmax": nn.Softmax, "silu": nn.SiLU,
                "leaky": nn.LeakyReLU, "flatten": nn.Flatten, "drop": lambda: nn.Dropout(0.3), "linear": lambda: nn.Linear(4, 4),
                "tied": lambda: nn.Linear(4, 4), "frozen": lambda: nn.Linear(4, 4).requires_grad_(False), "shared": lambda: self.shared}
        for i in range(rng.integers(2, 12)):
            a, b = int(rng.integers(max(0, i - 2), i + 1)), int(rng.integers(0, i + 1))
            op = ["add", *make][rng.integers(len(make) + 1)]
            layer = make[op]() if op != "add" else None
            if op == "tied":
                layer.weight = self.shared.weight
            if op != "add":
                setattr(self, f"layer{i}", layer)
            self.steps.append((layer, a, b))
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        values, read = [x], set()
        for layer, a, b in self.steps:
            values.append(values[a] + values[b] if layer is None else layer(values[a]))
            read |= {a} | ({b} if layer is None else set())
        y = values[-1]
        for i, value in enumerate(values[:-1]):
            y = y + value if i not in read else y
        return self.out(y)


def train_graph(module, shape, plans, dtype="float32"):
    """Two updates of a random graph for each (micro_batch, options of the plan): all give the same bits."""
    rng = np.random.default_rng(1)
    x, y, weight = rng.normal(size=(11, *shape)), rng.integers(0, 3, 11), rng.random(11)
    expected = None
    for m, options in plans:
        net = ga.plan(module, input_shape=shape, loss=nn.CrossEntropyLoss(), micro_batch=m, seed=2, dtype=dtype, **options)
        acc = ga.Accumulator(net, optim.AdamW(net, lr=0.05), max_grad_norm=0.5)
        for _ in range(2):
            record = acc.update(x, y, weight)
        result = {**net.state_dict(), "prediction": net.predict(x), "loss": record.loss, "norm": record.grad_norm}
        expected = expected or result
        for name, value in result.items():
            assert np.array_equal(value, expected[name]), f"micro_batch={m}, {options}: {name} differs"
        assert net._core.guards_intact()


KEPT, REUSED, AGAIN = {"keep": "all"}, {}, {"recompute": "sqrt"}


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_random_graphs(first):
    """Splits, and memory that is used again against memory that is not (keep="all"): where the plan shares, no value is lost."""
    for seed in range(first, first + 30):
        train_graph(Random(np.random.default_rng(seed)), (4,), [(11, KEPT), (11, REUSED), (3, REUSED), (1, REUSED), (4, KEPT)])


def test_random_graphs_against_finite_differences():
    """All plans agree, above; here that they agree on the gradient."""
    for seed in range(20):
        assert gradcheck(Random(np.random.default_rng(seed)), (4,), loss=nn.CrossEntropyLoss(), most=4, step=1e-5) < 1e-7


class RandomImages(nn.Module):
    """A random graph over images: convolutions, pooling, norms, concatenations, sums, checkpoints; every end goes to the head."""

    def __init__(self, rng, mixing):
        super().__init__()
        self.steps, self.shapes = [], [(3, 8, 8)]
        for i in range(rng.integers(2, 10)):
            a = int(rng.integers(max(0, i - 2), i + 1))
            c, h, w = self.shapes[a]
            out, k, stride = (int(v) for v in rng.integers((1, 1, 1), (6, 4, 3)))
            narrow, wide = min(h, w) < 2, h > 8
            choices = {
                "conv": (lambda: nn.Conv2d(c, out, k, stride=stride, padding=k // 2), (out, (h + 2 * (k // 2) - k) // stride + 1,
                                                                                     (w + 2 * (k // 2) - k) // stride + 1)),
                "relu": (nn.ReLU, (c, h, w)), "gelu": (nn.GELU, (c, h, w)), "identity": (nn.Identity, (c, h, w)),
                "group": (lambda: nn.GroupNorm(1, c), (c, h, w)), "drop": (lambda: nn.Dropout(0.3), (c, h, w)),
                "drop2d": (lambda: nn.Dropout2d(0.3), (c, h, w)),
                "checkpoint": (lambda: nn.Checkpoint(nn.Sequential(nn.Conv2d(c, 4, 3, padding=1), nn.ReLU(), nn.Dropout(0.2), nn.Conv2d(4, c, 1))),
                               (c, h, w)),
                "instance": None if narrow else (lambda: nn.InstanceNorm2d(c, affine=True), (c, h, w)),
                "max": None if narrow else (lambda: nn.MaxPool2d(2), (c, h // 2, w // 2)),
                "average": None if narrow else (lambda: nn.AvgPool2d(2), (c, h // 2, w // 2)),
                "up": None if wide else (lambda: nn.Upsample(scale_factor=2), (c, 2 * h, 2 * w)),
                "transposed": None if wide else (lambda: nn.ConvTranspose2d(c, out, 2, stride=2), (out, 2 * h, 2 * w)),
                "pad": None if wide else (lambda: nn.ZeroPad2d(1), (c, h + 2, w + 2)),
                "batch": (lambda: nn.BatchNorm2d(c), (c, h, w)) if mixing else None,
                "add": "add", "cat": "cat",
            }
            names = [name for name, choice in choices.items() if choice]
            name = names[rng.integers(len(names))]
            fits = [j for j in range(i + 1) if (self.shapes[j] == (c, h, w) if name == "add" else self.shapes[j][1:] == (h, w))]
            b = int(rng.choice(fits))
            if name in ("add", "cat"):
                self.steps.append((name, a, b))
                self.shapes.append((c, h, w) if name == "add" else (c + self.shapes[b][0], h, w))
            else:
                make, shape = choices[name]
                setattr(self, f"layer{i}", make())
                self.steps.append((f"layer{i}", a, a))
                self.shapes.append(shape)
        self.heads = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(shape[0], 3)) for shape in self.shapes)

    def forward(self, x):
        values, read = [x], set()
        for name, a, b in self.steps:
            read |= {a, b}
            left, right = values[a], values[b]
            values.append(left + right if name == "add" else nn.functional.cat([left, right]) if name == "cat" else getattr(self, name)(left))
        y = self.heads[-1](values[-1])
        for i in range(len(values) - 1):
            y = y + self.heads[i](values[i]) if i not in read else y
        return y


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_random_image_graphs(first):
    """As above; networks with batch statistics keep their bits for every plan, though not for every split."""
    for seed in range(first, first + 40):
        mixing = seed % 3 == 0
        module = RandomImages(np.random.default_rng(seed), mixing)
        splits = [] if mixing else [(3, REUSED), (1, REUSED)]
        train_graph(module, (3, 8, 8), [(11, KEPT), (11, REUSED), *splits], ("float32", "float64")[seed % 2])


def test_random_graphs_that_are_computed_again():
    for seed in range(60):
        train_graph(Random(np.random.default_rng(seed)), (4,), [(11, KEPT), (11, AGAIN), (3, AGAIN), (4, KEPT | AGAIN)])
        images = RandomImages(np.random.default_rng(seed), seed % 3 == 0)
        train_graph(images, (3, 8, 8), [(11, KEPT), (11, AGAIN)] + ([] if seed % 3 == 0 else [(4, AGAIN)]))


def test_check_equivalence_is_true_for_the_native_engine(batch):
    x, y, weight = batch
    net, _ = residual_net()
    before = net.snapshot()
    report = ga.check_equivalence(net, x, y, weight, splits=[96, 1, 40, [3, 90, 3]])
    assert report and "all bits equal" in repr(report)
    assert all(np.array_equal(before[k], v) for k, v in net.snapshot().items())


def test_keep_all_changes_no_bit(batch, full):
    same(train(32, "update", batch, keep="all"), full(batch, "float32"))


# ---- where bits are not promised ----

def test_openblas_agrees_to_rounding(batch):
    if ga.info()["openblas"] == "none":
        pytest.skip("no OpenBLAS is loaded")
    for dtype, tolerance in (("float32", 2e-4), ("float64", 1e-11)):
        a, b = train(32, "update", batch, dtype)[0], train(32, "update", batch, dtype, engine="openblas")[0]
        assert np.abs(a - b).max() < tolerance


def test_folded_ties_agree_to_rounding(batch):
    a, b = train(32, "update", batch)[0], train(32, "update", batch, ties="fold")[0]
    assert 0 < np.abs(a - b).max() < 1e-3


def test_staged_splits_agree_to_rounding(batch):
    x, y, weight = batch
    results = []
    for m in (96, 32, 7):
        net, opt = residual_net(m, "float64")
        ga.Accumulator(net, opt, staged=True).update(x, y, weight)
        results.append(net.params.copy())
    assert np.abs(results[0] - results[1]).max() < 1e-12 and np.abs(results[0] - results[2]).max() < 1e-12
