"""Cards and pictures: their numbers worked by hand, their claims against the window itself, their layout without overlaps."""
import itertools
import math
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import Residual, below, hand_net

import gradaccum as ga
from gradaccum import models, nn, optim, show
from gradaccum._stages import MEANINGS, NEXT, TITLES, following
from gradaccum.memory import KINDS, format_bytes
from gradaccum.noise import NoiseScale
from gradaccum.show import cards, network_graph
from gradaccum.show._png import PALETTE, picture, png
from gradaccum.show.style import KIND_COLOURS


def mlp(micro_batch=32, **options):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16))
    return ga.plan(model, input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, **options)


def batch(n):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 64)).astype("float32"), rng.integers(0, 16, n)


class OwnLayer(nn.Function):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter((4,))

    def forward(self, x):
        return x * self.scale.data

    def backward(self, grad):
        return grad


# ---- numbers of cards ----

def test_statistics_worked_by_hand():
    s = cards.Statistics.of(np.array([[3, -4], [0, 0]], "float32"))
    assert (s.min, s.mean, s.max, s.norm, s.zeros, s.broken) == (-4, -0.25, 3, 5, 0.5, 0)
    s = cards.Statistics.of(np.array([1.0, np.nan, -np.inf, 2.0]))
    assert (s.min, s.mean, s.max, s.zeros, s.broken) == (1, 1.5, 2, 0, 2) and math.isnan(s.norm)
    assert cards.Statistics.of(np.array([1e30, 1e30], "float32")).norm == pytest.approx(math.sqrt(2) * 1e30)      # its square is no float32
    assert cards.Statistics.of(np.zeros((0, 3))).norm == 0 and "–" not in cards.Statistics.of(np.ones(2, int)).text()


@pytest.mark.parametrize("model, inputs, loss, name, axes", [
    (lambda: nn.Sequential(nn.Linear(3, 2)), (3,), nn.MSELoss(), "0.weight", ("out", "in")),
    (lambda: nn.Sequential(nn.Linear(3, 2)), (3,), nn.MSELoss(), "0.bias", ("out",)),
    (lambda: nn.Sequential(nn.Conv2d(3, 4, 3)), (3, 8, 8), nn.MSELoss(), "0.weight", ("out", "in", "height", "width")),
    (lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), (4, 8, 8), nn.MSELoss(), "0.weight", ("out", "in of a group", "height", "width")),
    (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2)), (3, 8, 8), nn.MSELoss(), "0.weight", ("in", "out", "height", "width")),
    (lambda: nn.Sequential(nn.Embedding(9, 5)), (4,), nn.MSELoss(), "0.weight", ("token", "feature")),
    (lambda: nn.Sequential(nn.LSTM(3, 5)), (4, 3), nn.MSELoss(), "0.weight_hh_l0", ("gate × hidden", "in")),
    (lambda: nn.Sequential(nn.MultiheadAttention(4, 2)), (4, 4), nn.MSELoss(), "0.out_proj.weight", ("out", "in")),
    (lambda: nn.Sequential(nn.GroupNorm(2, 4)), (4, 8, 8), nn.MSELoss(), "0.weight", ("channel",)),
    (lambda: nn.Sequential(nn.LayerNorm(4)), (4,), nn.MSELoss(), "0.bias", ("feature",)),
    (lambda: nn.Sequential(OwnLayer()), (4,), nn.MSELoss(), "0.scale", ())])
def test_axes_have_names(model, inputs, loss, name, axes):
    net = ga.plan(model(), input_shape=inputs, loss=loss, micro_batch=2)
    p = net.parameters()[name]
    assert cards.axis_names(p) == axes
    for text in (repr(p), p._repr_html_()):
        assert all(f"{axis} {n}" in text for axis, n in zip(axes, p.shape)) and name in text


@pytest.mark.parametrize("options", [{}, {"staged": True}, {"max_grad_norm": 0.01}, {"staged": True, "max_grad_norm": 0.01}, {"max_grad_norm": 1e9}], ids=str)
def test_last_written_by_is_the_event_that_changed_the_bits(options):
    net = mlp()
    acc = ga.Accumulator(net, optim.AdamW(net), **options)
    places = {"net.grads": "gradient", "acc.buffer": "buffer", "net.params": "parameters"}
    for _ in range(2):
        assert cards.written_by(net, "parameters") == ("ga.plan" if not acc.updates else "update 1")
        before = None
        for event in acc.stages(*batch(80)):
            if before is not None:
                for name, what in places.items():
                    written = name in event.changed or name == "net.params" and "parameters" in event.changed
                    if not written and not (name == "acc.buffer" and not acc.staged):
                        assert np.array_equal(event.views[name], before[name]), (event.stage, name)
                    if written and not (name == "acc.buffer" and not acc.staged):
                        assert cards.written_by(net, what) == (f"update {acc.updates}" if what == "parameters" else event.stage)
            assert event.is_now
            before = event.snapshot()


def test_last_written_by_a_call():
    net = mlp()
    opt = optim.SGD(net, lr=0.1)
    assert cards.written_by(net, "gradient") == "clear"
    net.load_state_dict(net.state_dict())
    assert cards.written_by(net, "parameters") == "load_state_dict"
    x, y = batch(8)
    net.forward(x), net.loss(y), net.backward()  # noqa: B018
    opt.step()
    assert cards.written_by(net, "parameters") == "optimizer.step" and cards.written_by(net, "gradient") == "backward"
    acc = ga.Accumulator(net, opt)
    acc.update_many(*batch(64), batch_size=32)
    assert cards.written_by(net, "parameters") == "update 2"
    acc.update(x, y, np.zeros(8))                            # no weight: no update
    assert cards.written_by(net, "parameters") == "update 2"


def test_a_loaded_run_says_so(tmp_path):
    net = mlp()
    acc = ga.Accumulator(net, optim.SGD(net))
    acc.update(*batch(8))
    acc.save(tmp_path / "run.safetensors")
    acc.load(tmp_path / "run.safetensors")
    assert cards.written_by(net, "parameters") == "acc.load"


def test_allowed_next_is_what_the_core_allows():
    """The core's own text is the reference: "allowed now: loss (or forward again)"."""
    net = mlp()
    opt = optim.SGD(net)
    acc = ga.Accumulator(net, opt)
    x, y = batch(8)
    stages = {"clear": acc.begin, "forward": lambda: net.forward(x), "loss": lambda: net.loss(y), "backward": net.backward, "accumulate": acc.accumulate,
              "normalize": acc.normalize, "clip": lambda: acc.clip(1.0), "update": opt.step}
    assert list(stages) == list(TITLES) == list(NEXT) == list(MEANINGS)

    def allowed(wrong):
        with pytest.raises(ga.StageError) as error:
            wrong()
        return set(re.findall(r"\w+", str(error.value).splitlines()[0].split("allowed now:")[1])) - {"or", "again"}

    for stage, run in stages.items():
        run()
        assert net.stage == stage
        assert allowed(acc.accumulate if stage in ("normalize", "clip", "update") else lambda: acc.clip(1.0)) == set(following(stage))
    acc.clear()
    alone = mlp()
    alone.forward(x), alone.loss(y), alone.backward()  # noqa: B018
    assert allowed(alone.backward) == set(following("backward", False)) == {"forward", "step"}


def test_an_event_knows_when_its_views_have_moved_on():
    net = mlp()
    acc = ga.Accumulator(net, optim.SGD(net))
    events = list(acc.stages(*batch(40)))
    assert [e.is_now for e in events] == [False] * (len(events) - 1) + [True]
    acc.update(*batch(8))
    assert not events[-1].is_now and "moved on" in events[-1]._repr_html_()
    assert ga.Event("forward", 1, (), {}, {}).is_now is None
    copy = pickle.loads(pickle.dumps(events[0]))
    assert copy.is_now is None and copy.stage == "forward" and list(events[0].to_dict()) == ["stage", "micro_step", "changed", "views", "values"]


def test_live_views_and_snapshots():
    net = mlp(keep="all")
    acc = ga.Accumulator(net, optim.SGD(net), staged=True)
    net.forward(batch(4)[0])
    views = [net.params, net.grads, acc.buffer, net.parameters()["0.weight"].data, net.nodes[0].output, net.nodes[0].output[1:, ::2].T]
    assert all(cards.is_live(v) for v in views) and not any(cards.is_live(v.copy()) for v in views)
    card = show.card(net.nodes[0].output, "hidden", kind="output", axes=("sample", "feature"))
    assert repr(card).startswith("hidden (sample 4, feature 128): output, float32, 2.00 KiB, live view\n  min ")
    assert "live view" in card._repr_html_() and "snapshot" in show.card([1, 2])._repr_html_()


def test_cards_of_what_is_no_array_of_numbers():
    with pytest.raises(TypeError, match="array: got dtype complex128, expected real numbers"):
        show.card([1j])
    with pytest.raises(ValueError, match=r"axes=\('a',\): expected one name for each of the 2 axes of shape \(2, 3\)"):
        show.card(np.zeros((2, 3)), axes=("a",))
    assert "0 numbers, 0 B" in show.card(np.zeros((0, 2)))._repr_html_()


def test_reprs_have_two_lines_with_the_facts():
    net = mlp(memory_limit="1 MiB")
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.5), 3, max_grad_norm=0.001)
    x, y = batch(96)
    event, record = next(acc.stages(x, y)), None
    acc.clear(discard=True)
    record = acc.update(x, y)
    for item in (net, net.memory, acc, event, record, net.parameters()["2.bias"], show.card(x)):
        assert len(repr(item).splitlines()) == 2
    assert repr(record).startswith(f"Update 1: loss {record.loss:.6g}, 96 samples in 3 micro-batches, weight 96\n  gradient norm")
    assert "clipped to 0.00099" in repr(record) and "lr 0.5" in repr(record)
    assert "Event 'forward' of micro-batch 1: wrote activations; samples 32" in repr(event) and "next: loss, forward" in repr(event)
    skipped = acc.update(x, y, np.zeros(96))
    assert len(repr(skipped).splitlines()) == 2 and "skipped: the window has no weight" in repr(skipped) and "Update: none, 1 so far" in repr(skipped)
    assert "no update" in skipped._repr_html_() and "the window has no weight" in skipped._repr_html_()


def test_names_are_escaped_everywhere():
    model = nn.Sequential({"<i>&": nn.Linear(2, 2)})
    net = ga.plan(model, input_shape=(2,), loss=nn.MSELoss(), micro_batch=2)
    for item in (net, *net.parameters().values(), show.card([1.0], "<i>&", kind="<i>")):
        assert "<i>" not in item._repr_html_() and "&lt;i&gt;&amp;" in item._repr_html_()


def test_a_frozen_parameter_has_no_gradient_on_its_card():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    p = ga.plan(model, input_shape=(2,), loss=nn.MSELoss(), micro_batch=2).parameters()["0.weight"]
    assert "frozen" in p._repr_html_() and "gradient" not in p._repr_html_().split("</style>")[1] and "frozen" in repr(p)


# ---- small pictures ----

def test_png_is_read_back_by_another_decoder(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    (tmp_path / "a.png").write_bytes(png(pixels))
    assert np.array_equal(np.rint(255 * image.imread(tmp_path / "a.png")).astype(np.uint8), pixels)


def test_colours_of_small_pictures():
    assert PALETTE[128].tolist() == [255, 255, 255] and PALETTE[1].tolist() == [0, 114, 178] and PALETTE[255].tolist() == [213, 94, 0]
    assert PALETTE[0].tolist() == [0, 0, 0] and PALETTE.shape == (256, 3)
    data, height, width = picture(np.zeros((200, 3)))
    assert data.startswith(b"\x89PNG") and (height, width) == (64, 3)


def test_each_kind_of_memory_has_its_own_colour():
    assert list(KIND_COLOURS) and set(KIND_COLOURS) == set(KINDS) and len(set(KIND_COLOURS.values())) == len(KINDS)


# ---- pictures ----

def test_memory_timeline_worked_by_hand():
    net = mlp(32, keep="all")
    optim.SGD(net)
    real, m = 4, 32
    fixed = net.memory.by_kind()["parameters"]
    assert fixed == 10384 * real
    activations = m * (64 + 128 + 128 + 16) * real + m * 48                      # values; labels, weights, losses: as in test_memory
    gradients = m * (128 + 128 + 16) * real
    packed = net.memory.by_kind()["packed_weights"]
    rows = show.memory_timeline(net, 2).text.splitlines()
    assert f"forward 1     {format_bytes(fixed + activations + packed):>11}".split() == rows[2].split()[:4]
    assert rows[4].split()[:4] == f"backward 1 {format_bytes(2 * fixed + activations + gradients + packed)}".split()
    assert rows[5].split()[:4] == f"accumulate 1 {format_bytes(2 * fixed + packed)}".split()
    assert rows[6].split()[:4] == f"forward 2 {format_bytes(2 * fixed + activations + packed)}".split()
    assert [row.split()[:3] for row in rows[10:]] == [[stage, *format_bytes(n).split()] for stage, n in
                                                      (("normalize", 2 * fixed), ("update", 2 * fixed), ("clear", fixed))]


def test_memory_timeline_says_how_much_smaller_the_peak_is():
    net = mlp(32, memory_limit="1 MiB")
    acc = ga.Accumulator(net, optim.AdamW(net), 4)
    one, eight = (sum(net.memory.by_kind(m).values()) for m in (256, 32))
    p = show.memory_timeline(acc, (1, 2, 4, 8))
    assert p.title == (f"The peak goes from {format_bytes(one)} at K = 1 to {format_bytes(eight)} at K = 8: {one / eight:.1f} times less for the same "
                       "256 samples")
    assert "K = 1, limit 1.00 MiB" in p.text and "forward 2-8" in p.text
    single = show.memory_timeline(acc)
    assert single.title.startswith(f"4 micro-batches of 32 need {format_bytes(net.memory.bytes())} at the peak; 128 samples at once would need ")
    uneven = show.memory_timeline(acc, 3, effective_batch_size=70)
    last = next(line for line in uneven.text.splitlines() if "forward 3" in line)        # 24 + 24 + 22
    assert f"activations {format_bytes(net.memory.by_kind(22)['activations'])}" in last


@pytest.mark.parametrize("call, error, text", [
    (lambda net: show.memory_timeline(7), TypeError, "net_or_acc: got int, expected a network"),
    (lambda net: show.memory_timeline(net, 0), ValueError, "accumulation_steps=0: expected a whole number, at least 1"),
    (lambda net: show.memory_timeline(net, ()), ValueError, "accumulation_steps: it is empty"),
    (lambda net: show.memory_timeline(net, 9, effective_batch_size=8), ValueError, "a window of 8 samples has at most that many"),
    (lambda net: show.memory_timeline(net, 8, effective_batch_size=9), ValueError, "accumulation_steps=8: 9 samples in micro-batches of 2 are 5; take 5"),
    (lambda net: show.memory_timeline(net, limit="8 miles"), ValueError, "limit: expected"),
    (lambda net: show.time_against_steps([{"seconds_per_update": 1.0}]), ValueError, r"rows\[0\]: accumulation_steps=None: expected a finite number"),
    (lambda net: show.noise_against_batch([{"noise": 1.0}]), ValueError, r"rows\[0\]: effective_batch_size=None: expected a finite number"),
    (lambda net: show.noise_against_batch([{"effective_batch_size": 4, "noise": math.nan}]), ValueError, "noise=nan: expected a finite number"),
    (lambda net: show.time_against_steps([{"micro_steps": 1, "seconds": 1.0}]), ValueError, r"rows\[0\]: samples=None: expected a finite number"),
    (lambda net: show.time_against_steps(3), TypeError, "rows: got int, expected dicts with accumulation_steps"),
    (lambda net: show.window(3), TypeError, "recording: got int, expected acc.record"),
    (lambda net: show.against_full_batch("all"), TypeError, "report: got str, expected ga.check_equivalence"),
    (lambda net: show.against_full_batch([{"split": "2 x 2", "parameter": "w", "equal": True}]), ValueError, r"report\[0\]: relative is missing"),
    (lambda net: show.losses({"a": 3}), TypeError, r"runs\['a'\]: got int, expected a list of Update records"),
    (lambda net: show.losses({"a": [{"loss": 1.0}]}), ValueError, r"runs\['a'\]\[0\]: it has no samples"),
    (lambda net: show.losses({"a": [{"samples": 1}]}), ValueError, r"runs\['a'\]\[0\]: it has no loss"),
    (lambda net: show.window([]), ValueError, 'recording: expected the events of a window, with a stage "accumulate"'),
    (lambda net: show.against_full_batch([]), ValueError, "report: it has no rows"),
    (lambda net: show.time_against_steps([]), ValueError, "rows: there is nothing to draw"),
    (lambda net: show.noise_against_batch([]), ValueError, "rows: there is nothing to draw"),
    (lambda net: show.noise_against_batch(NoiseScale()), ValueError, "noise_scale: there is no number yet: no window was measured"),
    (lambda net: show.losses({}), ValueError, "runs: there is none"),
    (lambda net: show.losses({"a": []}), ValueError, r"runs\['a'\]: it has no updates"),
    (lambda net: show.losses({"a": [1]}, x="steps"), ValueError, "x='steps': expected one of 'samples', 'updates'"),
    (lambda net: show.graph("net"), TypeError, "net: got str, expected a network")])
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call(mlp())


def test_a_window_fills_up_by_hand():
    """dL/dw of a sample is its x: sums 1, 3, 6, then 6 / 3."""
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, optim.SGD(net))
    x = np.array([[1.0], [2.0], [3.0]])
    p = show.window(list(acc.stages(x, below(3))))
    assert p.title == "The norm of the buffer goes from 1 to 6 over 3 micro-batches; dividing once makes it 2"
    assert [line.split()[-1] for line in p.text.splitlines()[2:]] == ["1", "3", "6", "2"]
    net.load_state_dict({"0.weight": [[0.0]]})
    assert show.window(acc.record(x, below(3))).text == p.text
    dicts = [{"stage": "accumulate", "micro_step": 1, "norm": 4.0}, {"stage": "normalize", "micro_step": None, "norm": 2.0},
             {"stage": "clip", "micro_step": None, "norm": 1.0}]
    p = show.window(dicts)
    assert p.title == "After 1 micro-batch the norm of the buffer is 4; dividing once makes it 2"
    assert [bar.get_height() for axes in p.figure.axes for bar in axes.patches] == [4, 2, 1]


@pytest.mark.parametrize("count", [2, 40])
def test_a_window_that_is_not_finite_is_drawn(count):
    rows = [{"stage": "accumulate", "micro_step": i + 1, "norm": math.inf if i else 1.0} for i in range(count)]
    p = show.window(rows + [{"stage": "normalize", "micro_step": None, "norm": math.nan}])
    assert p.title == f"The norm of the buffer goes from 1 to inf over {count} micro-batches; dividing once makes it nan"
    assert p._repr_png_() is not None and "inf" in [text.get_text() for text in p.figure.axes[0].texts]


def test_splits_against_the_full_batch():
    row = lambda split, name, relative: {"split": split, "parameter": name, "relative": relative, "equal": relative == 0}  # noqa: E731
    p = show.against_full_batch([row("2 x 4", "w", 0.0), row("4 x 2", "w", 0.0)])
    assert p.title == "All 2 splits have exactly the bits of the full batch"
    p = show.against_full_batch([row("2 x 4", "w", 0.0), row("7+1", "w", 0.25), row("7+1", "b", 1e-8)])
    assert p.title.replace("\xa0", " ") == "1 of 2 splits have the bits of the full batch; w in 7+1 is off by 25 %"
    zero, other = p.figure.axes
    assert [line.get_ydata()[0] for line in zero.lines] == [0] and sorted(line.get_xdata()[0] for line in other.lines[:2]) == [1e-8, 0.25]
    net = hand_net(micro_batch=8)
    assert show.against_full_batch(ga.check_equivalence(net, np.ones((8, 1)), below(8))).title.startswith("All ")


def test_time_against_steps():
    rows = [{"accumulation_steps": k, "seconds_per_update": u, "seconds_per_sample": s} for k, u, s in ((4, 0.002, 2e-6), (1, 0.001, 1e-6))]
    p = show.time_against_steps(rows)
    assert p.title == "A sample takes the least time at K = 1: 1 µs; at K = 4 it takes 2.0 times as long"
    assert p.text.splitlines()[2].split() == ["1", "1", "1"] and p.text.splitlines()[3].split() == ["4", "2", "2"]
    assert [axes.lines[0].get_ydata().tolist() for axes in p.figure.axes] == [[1.0, 2.0], [1.0, 2.0]]
    updates = [{"micro_steps": 2, "seconds": t, "samples": 10} for t in (0.1, 0.3, 0.2)]
    assert show.time_against_steps(updates).text.splitlines()[2].split() == ["2", "200", "2e+04"]       # the median


def test_noise_against_batch():
    p = show.noise_against_batch([{"effective_batch_size": 32, "noise": 0.4}, {"effective_batch_size": 128, "noise": 0.1}])
    assert p.title == "A batch 4 times as large has 4 times less noise; independent samples would give 2"
    scale = NoiseScale(decay=0.0)
    scale.add(8, 1 + 64 / 8, 32, 1 + 64 / 32)                # |G|² = 1, tr S = 64
    p = show.noise_against_batch(scale)
    assert p.title == "The noise scale is 64 samples: there the noise is as large as the gradient"
    assert ["64", "1"] in [line.split() for line in p.text.splitlines()] and ["256", "0.5"] in [line.split() for line in p.text.splitlines()]


def test_losses_against_samples_and_updates():
    run = lambda losses, samples: [{"loss": loss, "samples": samples} for loss in losses]  # noqa: E731
    runs = {"1 x 64": run([3.0, 2.0, 1.0], 64), "1 x 32": run([3.0, 2.5, 2.0, 1.5, 0.5], 32)}
    p = show.losses(runs)
    assert p.title == "1 x 32 ends lowest, at 0.5 after 160 samples"
    assert [line.get_xdata().tolist() for line in p.figure.axes[0].lines] == [[64, 128, 192], [32, 64, 96, 128, 160]]
    assert [line.get_xdata().tolist() for line in show.losses(runs, x="updates").figure.axes[0].lines] == [[1, 2, 3], [1, 2, 3, 4, 5]]
    assert show.losses({"a": runs["1 x 64"], "b": list(runs["1 x 64"])}).title == "2 runs, one curve: every loss is the same, bit for bit"
    skipped = runs["1 x 64"] + [{"loss": math.nan, "samples": 64, "skipped": True}]
    assert show.losses({"a": skipped}).title == "a ends lowest, at 1 after 192 samples"


def test_rows_of_several_batches_are_lines_of_their_own():
    rows = [{"accumulation_steps": k, "effective_batch_size": n, "seconds_per_update": n * s, "seconds_per_sample": s}
            for n, k, s in ((64, 1, 2e-6), (64, 4, 3e-6), (128, 4, 1e-6))]
    p = show.time_against_steps(rows)
    assert p.title == "A sample takes the least time at K = 4 (128 samples): 1 µs; at K = 4 (64 samples) it takes 3.0 times as long"
    assert [line.split() for line in p.text.splitlines()[2:]] == [["1", "64", "0.128", "2"], ["4", "64", "0.192", "3"], ["4", "128", "0.128", "1"]]
    assert [line.get_xdata().tolist() for line in p.figure.axes[1].lines] == [[1, 4], [4]]
    noise = show.noise_against_batch([{"effective_batch_size": n, "noise": v} for n, v in ((4, 3.0), (4, 5.0), (16, 1.0))])
    assert [line.split() for line in noise.text.splitlines()[2:]] == [["4", "4"], ["16", "1"]]


def test_micro_steps_have_no_place_on_an_axis_of_losses():
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, optim.SGD(net), accumulation_steps=2)
    steps = [acc.step([[1.0]], below(1)) for _ in range(4)]
    for x in ("samples", "updates"):
        with pytest.raises(TypeError, match=r"runs\['a'\]\[0\] is the record of a micro-batch; give those of updates"):
            show.losses({"a": steps}, x=x)
    line = show.losses({"a": [step.update for step in steps if step.update]}).figure.axes[0].lines[0]
    assert line.get_xdata().tolist() == [2, 4]


def test_samples_of_a_skipped_window_were_seen():
    run = [{"loss": 3.0, "samples": 64}, {"loss": math.nan, "samples": 64, "skipped": True}, {"loss": 1.0, "samples": 64}]
    assert show.losses({"a": run}).figure.axes[0].lines[0].get_xdata().tolist() == [64, 192]
    assert show.losses({"a": run}, x="updates").figure.axes[0].lines[0].get_xdata().tolist() == [1, 2]


def test_a_limit_of_ones_own():
    net = mlp(32)
    limit = net.memory.bytes(40)
    p = show.memory_timeline(net, (1, 4), limit=limit)
    assert "limit " + format_bytes(limit) in p.text and p.figure.axes[0].lines[0].get_ydata()[0] == limit / 1024


def test_a_comparison_feeds_three_pictures():
    x, y = batch(64)
    c = ga.compare(lambda: nn.Sequential(nn.Linear(64, 16)), (x, y), [(32, 1), (16, 2), (8, 1)], epochs=2, seeds=(0, 1), progress=False)
    assert [line.split()[:2] for line in show.time_against_steps(c).text.splitlines()[2:]] == [["1", "8"], ["1", "32"], ["2", "32"]]
    assert [line.split()[0] for line in show.noise_against_batch(c).text.splitlines()[2:]] == ["8", "32"]
    p = show.losses(c)
    assert np.array_equal(p.figure.axes[0].lines[0].get_ydata(), np.mean(c.rows[0]["losses"], axis=0))
    assert p.figure.axes[0].lines[2].get_xdata().tolist() == list(range(8, 129, 8))


def test_a_history_of_fit_is_a_run():
    net = mlp(16)
    x, y = batch(64)
    history = ga.fit(ga.Accumulator(net, optim.SGD(net), 2), (x, y), 2, progress=False)
    lines = show.losses({"fit": history}).text.splitlines()
    assert lines[2].split()[:3] == ["fit", "4", "128"] and show.time_against_steps(history).text.splitlines()[2].split()[0] == "2"


# ---- the graph ----

NETS = {
    "mlp": lambda: mlp(2),
    "residual": lambda: ga.plan(Residual(), input_shape=(12,), loss=nn.CrossEntropyLoss(), micro_batch=2),
    "resnet20": lambda: ga.plan(models.resnet20(), input_shape=(3, 32, 32), loss=nn.CrossEntropyLoss(), micro_batch=1),
    "unet": lambda: ga.plan(models.unet(), input_shape=(1, 32, 32), loss=nn.CrossEntropyLoss(), micro_batch=1),
    "gpt": lambda: ga.plan(models.gpt(65, 32, 4, 4, 32, 0.1), input_shape=(32,), loss=nn.CrossEntropyLoss(), micro_batch=1),
    "no loss": lambda: ga.plan(nn.Sequential(nn.Linear(2, 2)), input_shape=(2,), micro_batch=1),
}


@pytest.mark.parametrize("name", NETS)
def test_the_graph_shows_every_node_and_edge_and_nothing_overlaps(name):
    net = NETS[name]()
    boxes = network_graph._boxes(net)
    assert sorted(n for box in boxes for n in box.names) == sorted([*net._inputs, *(node.name for node in net.nodes)])
    at = {n: i for i, box in enumerate(boxes) for n in box.names}
    for node in net.nodes:
        for source in node.inputs:
            assert at[source] == at[node.name] or at[source] in boxes[at[node.name]].inputs
    assert all(boxes[i].depth < box.depth for box in boxes for i in box.inputs)
    layout = network_graph._place(boxes)
    assert len(layout.edges) == sum(len(box.inputs) for box in boxes)
    frames = [(b.x - network_graph.WIDTH / 2, b.x + network_graph.WIDTH / 2, b.y - b.height / 2, b.y + b.height / 2) for b in [*layout.boxes, *layout.again]]
    for (a, b, c, d), (e, f, g, h) in itertools.combinations(frames, 2):
        assert b <= e or f <= a or d <= g or h <= c
    assert all(a >= 0 and b <= layout.width and c >= 0 and d <= layout.height for a, b, c, d in frames)
    for a, b, lane in layout.edges:
        assert a.y < b.y and (lane is None) == (b.depth - a.depth == 1)
        if lane is not None:                                 # beside every box that it passes
            assert not [f for f in frames if f[0] <= lane <= f[1] and f[2] < b.y and f[3] > a.y]
    for (a, b, lane), (c, d, other) in itertools.combinations([e for e in layout.edges if e[2] is not None], 2):
        assert lane != other or b.y <= c.y or d.y <= a.y
    p = show.graph(net)
    assert len(p.text.splitlines()) == 1 + len(net.nodes)


@pytest.mark.parametrize("name, skips", [("resnet20", 7), ("gpt", 8), ("unet", 2), ("residual", 2), ("mlp", 0)])
def test_residual_edges_are_counted(name, skips):
    """ResNet-20: 9 blocks, of which 2 have a convolution on the shortcut; GPT: two residuals a block; U-Net: two levels."""
    title = show.graph(NETS[name]()).title
    assert f"{skips} connections skip layers" in title if skips else "skip" not in title


def test_shapes_stand_at_the_edges():
    texts = {text.get_text() for text in show.graph(NETS["resnet20"]()).figure.axes[0].texts}
    assert {"3×32×32", "16×32×32", "32×16×16", "64×8×8", "10", "layer3.0.downsample", "loss  cross_entropy_loss"} <= texts


# ---- what a picture is ----

def pictures():
    net = mlp(16, memory_limit="1 MiB")
    acc = ga.Accumulator(net, optim.AdamW(net), 4, max_grad_norm=0.1)
    x, y = batch(64)
    records = {f"run {i}": [acc.update(x, y) for _ in range(4)] for i in range(3)}
    yield "memory", show.memory_timeline(acc)
    yield "memory of several", show.memory_timeline(acc, (1, 2, 4, 8))
    yield "window", show.window(acc.record(x, y))
    yield "long window", show.window([{"stage": "accumulate", "micro_step": i, "norm": float(i)} for i in range(1, 201)])
    yield "splits", show.against_full_batch(ga.check_equivalence(net, x, y))
    yield "time", show.time_against_steps([{"accumulation_steps": k, "seconds_per_update": 1e-3 * k, "seconds_per_sample": 1e-6 * k} for k in (1, 4, 128)])
    yield "noise", show.noise_against_batch([{"effective_batch_size": 2**i, "noise": 2.0**-i} for i in range(4, 9)])
    yield "losses", show.losses(records)
    yield "graph", show.graph(net)
    yield "large graph", show.graph(NETS["gpt"]())


@pytest.mark.parametrize("language", ["en", "vi"])
def test_pictures_are_legible(language, tmp_path):
    pytest.importorskip("matplotlib")
    ga.set_language(language)
    try:
        for name, p in pictures():
            path = p.save(tmp_path / f"{name}.png", dpi=60)
            assert path.read_bytes().startswith(b"\x89PNG")
            figure = p.figure
            page = figure.bbox.padded(1)
            for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize") and artist.get_text().strip()):
                assert text.get_fontsize() >= 9, (name, text)
                box = text.get_window_extent()
                if text.get_visible() and text.axes is not None and text.get_clip_on() is False and box.width and text in text.axes.texts:
                    assert page.containsx(box.x0) and page.containsx(box.x1) and page.containsy(box.y0) and page.containsy(box.y1), (name, text)
            whole = figure.get_tightbbox()
            assert whole.x0 >= -0.02 and whole.y0 >= -0.02 and whole.x1 <= figure.get_figwidth() + 0.02 and whole.y1 <= figure.get_figheight() + 0.02, name
            assert figure._suptitle.get_text().replace("\n", " ") == p.title and p.text.startswith(p.title + "\n")
            if "graph" not in name:
                assert all(axes.get_xlabel() or axes.get_xticklabels() for axes in figure.axes)
                assert figure.axes[0].get_ylabel() or name == "splits"
    finally:
        ga.set_language("en")


def test_a_picture_in_a_notebook_has_its_text_too():
    pytest.importorskip("matplotlib")
    p = show.losses({"<a>": [{"loss": 1.0, "samples": 2}]})
    html = p._repr_html_()
    assert 'alt="&lt;a&gt; ends lowest' in html and "<pre>&lt;a&gt; ends lowest, at 1 after 2 samples" in html and "<script" not in html
    assert p._repr_png_().startswith(b"\x89PNG") and repr(p) == p.text and p.figure is p.figure


def test_vector_formats(tmp_path):
    pytest.importorskip("matplotlib")
    assert b"<svg" in show.graph(mlp(2)).save(tmp_path / "a.svg").read_bytes()


def test_without_matplotlib_there_is_the_text(monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "matplotlib"] + ["matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    p = show.graph(mlp(2))
    with pytest.raises(ImportError, match=r"pip install 'gradaccum\[show\]'"):
        p.figure
    assert "0 -> 1 (relu) 128" in repr(p) and p._repr_html_().startswith("<pre>") and p._repr_png_() is None


def test_cards_and_texts_load_no_plotting_library():
    code = ("import sys, gradaccum as ga; from gradaccum import nn; net = ga.plan(nn.Sequential(nn.Linear(2, 2)), input_shape=(2,), micro_batch=1); "
            "net._repr_html_(); print(ga.show.graph(net)); sys.exit('matplotlib' in sys.modules or 'IPython' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
