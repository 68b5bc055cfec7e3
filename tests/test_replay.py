"""A recorded window: the bits of the window itself, numbers that can be worked by hand, and a page that is complete."""
import base64
import json
import re

import numpy as np
import pytest
from conftest import below, hand_net, residual_net

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.data import digits
from gradaccum.replay.pictures import flatten, images, signed
from gradaccum.replay.texts import EXPLANATIONS, PAGE, PHRASES, STAGES

OPTIONS = [{}, {"staged": True}, {"max_grad_norm": 0.1}, {"accumulator": "float64", "ema": 0.9, "loss_scale": 8.0}, {"reduction": "mean_of_means"}]


def digits_net(micro_batch=32, **options):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    net = ga.plan(model, input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=micro_batch, seed=0, **options)
    return ga.Accumulator(net, optim.AdamW(net, lr=3e-3), max_grad_norm=1.0)


@pytest.fixture(scope="module")
def recording():
    """The window of the README: 128 digits as 4 x 32."""
    x, y, *_ = digits()
    return digits_net(memory_limit="300 KiB").record(x[:128], y[:128])


def by_hand(gradients=(1.0, 2.0, 4.0), optimizer=None, **options):
    """y = w x with w = 0; the gradients of the micro-batches are the x."""
    net = hand_net(micro_batch=1, dtype="float64")
    acc = ga.Accumulator(net, (optimizer or optim.SGD)(net, lr=1.0), **options)
    return acc, acc.record(np.array(gradients)[:, None], below(len(gradients)))


def numbers(recording, stage):
    """The lines with numbers of all events of a stage."""
    return [line for e in recording.events if e["stage"] == stage for _, line in e["formula"]]


# ---- the same bits ----

@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_recorded_window_has_the_bits_of_update(batch, dtype, options):
    x, y, weight = batch
    records, nets = [], []
    for call in ("update", "record"):
        net, optimizer = residual_net(13, dtype=dtype)
        acc = ga.Accumulator(net, optimizer, **options)
        acc.update(x, y, weight)
        got = getattr(acc, call)(x, y, weight)
        records.append([got.update if call == "record" else got, acc.update(x, y, weight), acc.updates, acc.samples, acc.weight])
        nets.append(net)
    assert records[0] == records[1]
    assert np.array_equal(nets[0].params, nets[1].params)


def test_batch_statistics_move_as_in_update():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 6)), rng.integers(0, 3, 10)
    states = []
    for call in ("update", "record"):
        net = ga.plan(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), input_shape=(6,), loss=nn.CrossEntropyLoss(), micro_batch=5)
        with pytest.warns(UserWarning, match="batch statistics"):
            getattr(ga.Accumulator(net, optim.SGD(net)), call)(x, y)
        states.append(net.state_dict())
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])


# ---- numbers worked by hand ----

def test_gradients_1_2_4_are_added_and_divided_by_3():
    _, r = by_hand()
    assert [e["stage"] for e in r.events] == ["forward", "loss", "backward", "accumulate"] * 3 + ["normalize", "update", "clear"]
    assert numbers(r, "backward") == ["0 + 1 = 1", "1 + 2 = 3", "3 + 4 = 7"]
    assert numbers(r, "accumulate")[::2] == ["0 + 1 = 1", "1 + 1 = 2", "2 + 1 = 3"]
    assert numbers(r, "accumulate")[1] == "0 + 1000 = 1000"
    assert numbers(r, "normalize") == ["7 / 3 = 2.3333"]
    assert numbers(r, "update") == ["0 − 1 · 2.3333 = −2.3333"]
    assert numbers(r, "clear") == ["2.3333 → 0"]
    assert [e["norms"]["buffer"] for e in r.events] == pytest.approx([0, 0, 1, 1, 1, 1, 3, 3, 3, 3, 7, 7, 7 / 3, 7 / 3, 0])
    assert [e["norms"]["0.weight"] for e in r.events] == pytest.approx([0] * 13 + [7 / 3] * 2)
    assert r.window["followed"] == "0.weight[0, 0]" and r.events[0]["formula"] == [("output = network(x[0:1])", "(1, 1) → (1, 1)")]


def test_a_staged_window_shows_the_addition():
    _, r = by_hand(staged=True)
    assert numbers(r, "backward") == ["grad = 1", "grad = 2", "grad = 4"]
    assert numbers(r, "accumulate")[::3] == ["0 + 1 = 1", "1 + 2 = 3", "3 + 4 = 7"]
    assert numbers(r, "normalize") == ["7 / 3 = 2.3333"]
    assert [e["norms"]["0.weight.buffer"] for e in r.events if e["stage"] == "accumulate"] == [1, 3, 7]
    assert [e["norms"]["0.weight.grad"] for e in r.events if e["stage"] == "backward"] == [1, 2, 4]


def test_clipping_shows_its_factor():
    _, r = by_hand(max_grad_norm=0.7)
    assert numbers(r, "clip") == ["min(1, 0.7 / 2.3333) = 0.3", "0.3 · 2.3333 = 0.7"]
    assert "above the limit 0.7" in next(e for e in r.events if e["stage"] == "clip")["explanation"]["en"]
    _, r = by_hand(max_grad_norm=7.0)
    assert numbers(r, "clip")[0] == "min(1, 7 / 2.3333) = 1"
    assert next(e for e in r.events if e["stage"] == "clip")["changed"] == []


def test_the_other_divisors():
    assert numbers(by_hand(reduction="sum")[1], "normalize") == ["7 / 1 = 7"]
    assert numbers(by_hand(reduction="mean_of_means", loss_scale=2.0)[1], "normalize") == ["14 / 6 = 2.3333"]


def test_momentum_decay_and_nesterov_put_their_numbers_in():
    def sgd(net, lr):
        return optim.SGD(net, lr=lr, momentum=0.5, weight_decay=0.25, nesterov=True)

    acc, r = by_hand([2.0], sgd)                             # g = 2, m = 2, g = 2 + 0.5 * 2 = 3, w = -3
    assert numbers(r, "update") == ["2 + 0.25 · 0 = 2", "m = 2", "2 + 0.5 · 2 = 3", "0 − 1 · 3 = −3"]
    r = acc.record([[2.0]], below(1))                        # g = 2 - 0.75 = 1.25, m = 1 + 1.25 = 2.25, g = 1.25 + 1.125, w = -3 - 2.375
    assert numbers(r, "update") == ["2 + 0.25 · (−3) = 1.25", "0.5 · 2 + 1 · 1.25 = 2.25", "1.25 + 0.5 · 2.25 = 2.375", "−3 − 1 · 2.375 = −5.375"]


@pytest.mark.parametrize("kind", [optim.Adam, optim.AdamW])
def test_the_first_step_of_adam_is_the_learning_rate(kind):
    """m = 0.1 g, v = 0.001 g², so after their corrections m / sqrt(v) = 1 (Kingma, Ba 2015, section 2)."""
    _, r = by_hand([4.0], lambda net, lr: kind(net, lr=lr, weight_decay=0.0))
    assert numbers(r, "update") == ["0.9 · 0 + 0.1 · 4 = 0.4", "0.999 · 0 + 0.001 · 4² = 0.016", "t = 1:  m̂ = 4,  v̂ = 16",
                                    "0 − 1 · 4 / (√16 + 1e−08) = −1"]


def test_norms_are_those_of_the_buffers():
    x, y, *_ = digits()
    acc = digits_net()
    events = acc.record(x[:64], y[:64]).events
    for event, shown in zip(digits_net().stages(x[:64], y[:64]), events):
        assert shown["norms"]["output"] == pytest.approx(np.linalg.norm(event.views["output"])) if "output" in shown["norms"] else True
        assert shown["norms"]["grads"] == pytest.approx(np.linalg.norm(event.views["net.grads"].astype("float64")), abs=1e-12)
        assert (shown["stage"], shown["micro_step"], shown["changed"], shown["values"]) == (event.stage, event.micro_step, list(event.changed), event.values)


# ---- pictures ----

def test_levels_of_a_picture_are_square_roots():
    """-4 of 4 is level 128 - 127; 1 of 4 is 128 + 127 * sqrt(1 / 4) = 191.5; nan is 0."""
    picture = signed(np.array([[-4.0, 0.0, 1.0, np.nan]]), 8)
    assert picture.pixels.tolist() == [[1, 128, 192, 0]] and picture.scale == 4
    assert signed(np.zeros((2, 2)), 8).pixels.tolist() == [[128, 128], [128, 128]]


def test_a_large_buffer_becomes_means_of_blocks():
    a = np.array([[1.0, 3.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0], [0.0, 0.0, -8.0, -8.0], [0.0, 0.0, -8.0, -8.0]])
    picture = signed(a, 2)                                   # means 2, 0, 0, -8; level of 2: 128 + 127 * sqrt(2 / 8) = 191.5
    assert picture.pixels.tolist() == [[192, 128], [128, 1]] and picture.scale == 8 and picture.shape == (4, 4)
    assert signed(np.ones((7, 5)), 3).pixels.tolist() == [[255] * 3] * 3


def test_filters_lie_side_by_side():
    a = np.arange(2 * 3 * 2 * 2).reshape(2, 3, 2, 2)
    assert np.array_equal(flatten(a)[2:4, 2:4], a[1, 1])


def test_images_keep_their_grey_and_their_colours():
    grey = images(np.array([0.0, 0.5, 1.0, 0.25]).reshape(1, 1, 2, 2), 0.0, 1.0, 8)
    assert grey.pixels.tolist() == [[[0, 128], [255, 64]]]
    colour = images(np.array([[[[1.0]], [[0.0]], [[0.5]]]]), 0.0, 1.0, 8)
    assert colour.pixels.tolist() == [[[[255, 0, 128]]]]


def test_inputs_that_are_images_are_shown_as_images(recording):
    picture = recording.events[0]["pictures"]["x"]
    assert picture.kind == "images" and picture.pixels.shape == (32, 8, 8)
    x, y, *_ = digits()
    assert np.array_equal(picture.pixels[0], np.rint(255 * x[0].astype("float64").reshape(8, 8)).astype("uint8"))
    assert recording.events[0]["targets"] == y[:32].tolist()
    ignored = digits_net().record(x[:2], [-100, 3]).events[0]
    assert ignored["targets"] == [None, 3] and len(ignored["predicted"]) == 2
    table = by_hand()[1].events[0]["pictures"]["x"]
    assert table.kind == "signed"


def test_rows_of_an_image_shape_are_images():
    net = hand_net(features=6, micro_batch=2)
    r = ga.Accumulator(net, optim.SGD(net)).record(-np.ones((2, 6)), below(2), image_shape=(2, 3))
    assert r.events[0]["pictures"]["x"].pixels.shape == (2, 2, 3)


def test_pictures_change_only_where_the_stage_wrote(recording):
    for before, after in zip(recording.events, recording.events[1:]):
        same = after["pictures"]["0.weight.grad"] == before["pictures"]["0.weight.grad"] if "net.grads" not in after["changed"] else True
        assert same is True or same is np.True_
    first, last = recording.events[0]["pictures"], recording.events[-1]["pictures"]
    assert not np.array_equal(first["0.weight"].pixels, last["0.weight"].pixels) and not np.any(last["0.weight.grad"].pixels != 128)
    assert [e["stage"] for e in recording.events if "0.weight.change" in e["pictures"]] == ["update"]


# ---- bytes ----

def test_bytes_are_those_of_the_ledger_that_are_still_needed(recording):
    acc = digits_net(memory_limit="300 KiB")
    memory = acc.net.memory
    assert recording.memory == {"reserved": memory.by_kind(), "limit": 300 * 1024, "full_batch": memory.bytes(128)}
    for event in recording.events:
        kinds, k = set(event["bytes"]), event["micro_step"]
        assert ("activations" in kinds) == (event["stage"] in ("forward", "loss", "backward"))
        assert ("gradient_buffer" in kinds) == (event["stage"] != "clear" and not (k == 1 and event["stage"] in ("forward", "loss")))
        assert all(n == memory.by_kind()[kind] for kind, n in event["bytes"].items())
    assert sum(recording.events[2]["bytes"].values()) == memory.bytes()


def test_a_short_micro_batch_needs_less():
    x, y, *_ = digits()
    acc = digits_net()
    last = [e for e in acc.record(x[:40], y[:40]).events if e["stage"] == "forward"][-1]
    assert last["bytes"]["activations"] == acc.net.memory.by_kind(8)["activations"] < acc.net.memory.by_kind(32)["activations"]


# ---- text, JSON, page ----

def test_the_table_has_one_line_a_stage(recording):
    lines = recording.table().splitlines()
    assert len(lines) == 21 and "backward    2 of 4       activation gradients, net.grads" in lines[7] and "241.66 KiB" in lines[7]
    assert "20 stages, 128 samples in 4 micro-batches of up to 32" in repr(recording)


def test_json_holds_equal_pictures_once_and_all_numbers(recording):
    data = json.loads(recording.to_json())
    assert len(data["events"]) == len(recording) == 20
    assert len({json.dumps(p) for p in data["pictures"]}) == len(data["pictures"])
    for event, row in zip(recording.events, data["events"]):
        assert row["values"] == event["values"] and row["norms"] == event["norms"]
        for name, picture in event["pictures"].items():
            stored = data["pictures"][row["pictures"][name]]
            pixels = np.frombuffer(base64.b64decode(stored["pixels"]), np.uint8).reshape(stored["size"])
            assert np.array_equal(pixels, picture.pixels) and stored["scale"] == picture.scale


def test_the_page_is_small_and_complete(recording, tmp_path):
    path = recording.save_html(tmp_path / "window.html")
    page = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 400_000
    assert not re.search(r"""(src|href)\s*=|url\([^#]|@import|fetch\(|import\s*\(""", page.split('id="data"')[0])
    assert [link for link in re.findall(r"https?://[^\s\"']+", page) if link != "http://www.w3.org/2000/svg"] == []
    assert "{{" not in page
    assert recording.table().splitlines()[5] in page         # for readers without scripts


def test_the_languages_of_the_page(recording, tmp_path):
    both, en, vi = (recording.to_html(language) for language in ("both", "en", "vi"))
    assert "Lan truyền ngược" in both and "nothing is overwritten" in both
    assert "Lan truyền ngược" not in en and "nothing is overwritten" in en
    assert "Lan truyền ngược" in vi and "nothing is overwritten" not in vi and '<html lang="vi">' in vi
    with pytest.raises(ValueError, match="language='fr': expected one of 'both', 'en', 'vi'"):
        recording.save_html(tmp_path / "window.html", language="fr")
    assert not list(tmp_path.iterdir())


def test_both_languages_have_the_same_blanks():
    for words in (*EXPLANATIONS.values(), *PAGE.values(), *STAGES.values(), *((p[1], p[2]) for p in PHRASES.values())):
        assert len(words) == 2 and all(words)
        assert set(re.findall(r"\{\w+\}", words[0])) == set(re.findall(r"\{\w+\}", words[1])), words
    for words in EXPLANATIONS.values():                      # two sentences each
        assert all(text.count(". ") == 1 and text.endswith(".") for text in words), words


def test_all_texts_of_the_page_exist(recording):
    page = recording.to_html().split('id="data"')[0] + recording.to_html().rsplit("<script>", 1)[1]
    used = set(re.findall(r'\bt\("(\w+)"', page))
    assert len(used) > 15 and used <= set(PAGE)
    assert {f"kind.{kind}" for kind in ga.memory.KINDS} <= set(PAGE)


class Hostile(nn.Module):
    def __init__(self):
        super().__init__()
        setattr(self, "</script><script>alert(1)</script>", nn.Linear(4, 3))

    def forward(self, x):
        return getattr(self, "</script><script>alert(1)</script>")(x)


def test_names_cannot_end_the_script():
    net = ga.plan(Hostile(), inputs={"</script>&<!--{{data}}": (4,)}, loss=nn.CrossEntropyLoss(), micro_batch=2)
    r = ga.Accumulator(net, optim.SGD(net)).record(np.ones((2, 4)), [0, 1])
    page = r.to_html()
    assert page.count("</script") == 2 and "<script>alert" not in page and "<!--{{" not in page
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["parameters"][0]["name"] == "</script><script>alert(1)</script>.weight" and "</script>&<!--{{data}}" in data["window"]["inputs"]


def test_a_long_window_keeps_all_numbers_and_fewer_pixels():
    x, y, *_ = digits()
    r = digits_net(micro_batch=1).record(x[:100], y[:100])
    assert len(r) == 404
    assert r.events[2]["pictures"]["0.weight.grad"].pixels.size < 64 * 64
    pixels = sum(len(base64.b64decode(p["pixels"])) for p in r.to_dict()["pictures"])
    assert pixels < 3 * 144 * 1024


def test_a_deep_network_shows_its_ends():
    layers = [nn.Linear(4, 4) for _ in range(10)]
    net = ga.plan(nn.Sequential(*layers), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=2)
    r = ga.Accumulator(net, optim.SGD(net)).record(np.ones((2, 4)), [0, 1])
    assert [row["name"] for row in r.parameters if row["pictured"]] == [f"{i}.{n}" for i in (0, 1, 2, 7, 8, 9) for n in ("weight", "bias")]
    assert "5.weight.grad" in r.events[0]["norms"] and "5.weight.grad" not in r.events[0]["pictures"]
    assert '"hidden":8' in r.to_html()


# ---- windows that go wrong, or only seem to ----

def state(acc):
    return (acc.net.snapshot(), acc._core.get_state(), {k: {n: a.copy() for n, a in s.items()} for k, s in acc.optimizer.state.items()})


def equal(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return all(equal(p, q) for p, q in zip(a, b)) if isinstance(a, tuple) else np.array_equal(a, b)


def test_after_an_error_everything_is_as_it_was():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 6)), rng.integers(0, 3, 12)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    net = ga.plan(model, input_shape=(6,), loss=nn.CrossEntropyLoss(), micro_batch=4)
    net._warned = True                                       # of batch statistics
    acc = ga.Accumulator(net, optim.AdamW(net))
    acc.update(x, y)
    before = state(acc)
    wrong = y.copy()
    wrong[9] = 7
    with pytest.raises(IndexError, match="7"):
        acc.record(x, wrong)                                 # found in the third micro-batch
    assert equal({**before[1], "grad_norm": 0, "grad_norm_clipped": 0}, {**acc._core.get_state(), "grad_norm": 0, "grad_norm_clipped": 0})
    assert equal(before[0], net.snapshot()) and equal(before[2], state(acc)[2])
    with pytest.raises(ValueError, match="x has the shape"):
        acc.record(x[:5], y)
    with pytest.raises(ValueError, match="at least 1"):
        acc.record(x[:0], y[:0])
    with pytest.raises(ValueError, match=r"image_shape=\(5, 5\): no input"):
        acc.record(x, y, image_shape=(5, 5))
    with pytest.raises(ValueError, match=r"image_shape=\(2, 1, 3\): expected"):
        acc.record(x, y, image_shape=(2, 1, 3))
    assert equal(before[0], net.snapshot())


def test_an_open_window_is_left_alone():
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net), accumulation_steps=2)
    acc.step([[3.0]], below(1))
    with pytest.raises(ga.StageError, match="record: the window already holds 1 micro-batches"):
        acc.record([[1.0]], below(1))
    assert acc.micro_step == 1 and net.grads.tolist() == [3.0]


def test_a_gradient_by_hand_is_left_alone():
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net))
    acc.begin()
    net.forward([[3.0]])
    net.loss(below(1))
    net.backward()
    with pytest.raises(ga.StageError):
        acc.record([[1.0]], below(1))
    assert net.grads.tolist() == [3.0] and net.stage == "backward"


def test_a_window_without_weight_is_recorded_as_skipped():
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net))
    r = acc.record([[3.0]], below(1), [0.0])
    assert r.update.skipped and [e["stage"] for e in r.events] == ["forward", "loss", "backward", "accumulate", "clear"]
    assert "nothing to divide by" in r.events[-1]["explanation"]["en"] and "no update" in repr(r)
    assert "NaN" not in r.to_html().split('id="data">')[1].split("</script>")[0].replace("NaN or", "").replace("có NaN", "")


def test_a_rejected_micro_batch_says_so():
    net = hand_net(micro_batch=1)
    acc = ga.Accumulator(net, optim.SGD(net, lr=1.0), on_non_finite="skip_micro_batch")
    r = acc.record([[np.inf], [2.0]], below(2))
    taken = [e["explanation"]["en"] for e in r.events if e["stage"] == "accumulate"]
    assert "leaves it out" in taken[0] and "leaves it out" not in taken[1]
    assert r.update.rejected == 1 and json.loads(r.to_json())["events"][2]["norms"]["grads"] == "nan"
    assert r.events[2]["pictures"]["0.weight.grad"].pixels.tolist() == [[0]]
    assert numbers(r, "normalize") == ["2 / 1 = 2"]


@pytest.mark.parametrize("policy", ["skip_micro_batch", "skip_update"])
def test_a_window_of_nan_is_recorded_as_skipped(policy):
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net), on_non_finite=policy)
    r = acc.record([[np.nan]], below(1))
    assert r.update.skipped and r.events[-1]["explanation"]["en"].startswith("No update: the gradient has NaN")
    assert net.parameters()["0.weight"].data.tolist() == [[0.0]] and "NaN" not in r.to_json().replace("has NaN", "").replace("is NaN", "").replace(
        "có NaN", "").replace("là NaN", "")


def test_ctrl_c_after_the_update_leaves_an_empty_window(monkeypatch):
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net, lr=1.0))
    monkeypatch.setattr(optim.SGD, "step", lambda self, step=optim.SGD.step: (step(self), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        acc.record([[3.0]], below(1))
    monkeypatch.undo()
    assert net.parameters()["0.weight"].data.tolist() == [[-3.0]] and acc.updates == 1
    acc.update([[1.0]], below(1))
    assert net.parameters()["0.weight"].data.tolist() == [[-4.0]]


def test_without_an_optimizer_there_is_nothing_to_record():
    with pytest.raises(ValueError, match="record: this Accumulator was made without an optimizer"):
        ga.Accumulator(hand_net()).record([[1.0]], below(1))


def test_nan_that_raises_leaves_the_window_empty():
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net))
    with pytest.raises(FloatingPointError, match="NaN or infinity"):
        acc.record([[np.nan]], below(1))
    assert (acc.micro_step, acc.micro_steps, acc.updates, net.grads.tolist()) == (0, 0, 0, [0.0])


def test_a_frozen_parameter_has_no_gradient_and_a_tied_one_is_not_followed():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight
            self.c.weight.requires_grad = False
            self.d = nn.Linear(3, 2)

        def forward(self, x):
            return self.d(self.c(self.b(self.a(x))))

    net = ga.plan(Tied(), input_shape=(3,), loss=nn.CrossEntropyLoss(), micro_batch=2)
    r = ga.Accumulator(net, optim.SGD(net)).record(np.eye(3), [0, 1, 0])
    assert r.window["followed"].startswith("d.") and "c.weight.grad" not in r.events[0]["norms"]
    assert [row["name"] for row in r.parameters if row["frozen"]] == ["c.weight"]
