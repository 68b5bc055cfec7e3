"""Cards of windows of every kind, at every stage: whole HTML, no script, pictures that decode, texts of two lines."""
import base64
import html.parser
import struct

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import _language, nn, optim, show

WINDOWS = [
    {}, {"staged": True}, {"accumulator": "float64"}, {"accumulator": "compensated"}, {"accumulator": "bfloat16"}, {"accumulator": "float16"},
    {"on_non_finite": "skip_update", "loss_scale": "dynamic"}, {"on_non_finite": "skip_micro_batch"}, {"reduction": "sum"}, {"reduction": "mean_of_means"},
    {"effective_batch_size": 20}, {"accumulation_steps": lambda updates: 3}, {"accumulation_steps": 10**6}, {"ema": 0.9, "max_grad_norm": 0.01},
]


class Checker(html.parser.HTMLParser):
    """Every element is closed in order; what is in text, images and elements is kept."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.images, self.text = [], set(), [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)) and not [name for name in names if name.startswith("on")]
        self.tags.add(tag)
        if tag == "img":
            self.images.append(dict(attributes))
        else:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if "style" not in self.open else ""


def check(item) -> str:
    """The text on the item's card."""
    card = Checker(item._repr_html_())
    assert card.tags <= {"div", "style", "strong", "span", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "img"}
    for image in card.images:
        data = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"), validate=True)
        width, height = struct.unpack(">II", data[16:24])    # of the IHDR chunk
        assert data.startswith(b"\x89PNG") and 1 <= width <= 64 and 1 <= height <= 64 and image["alt"]
    assert len(repr(item).splitlines()) == 2
    return card.text


def window(**options):
    model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3))
    net = ga.plan(model, input_shape=(6,), loss=nn.CrossEntropyLoss(), micro_batch=8)
    rng = np.random.default_rng(0)
    return net, ga.Accumulator(net, optim.AdamW(net), **options), rng.normal(size=(20, 6)).astype("float32"), np.arange(20) % 3


@pytest.mark.parametrize("language", ["en", "vi"])
@pytest.mark.parametrize("options", WINDOWS, ids=str)
def test_every_window_has_cards_at_every_stage(options, language):
    net, acc, x, y = window(**options)
    with _language.using(language):
        for event in acc.stages(x, y):
            for item in (net, net.memory, acc, event, *net.parameters().values()):
                text = check(item)
            assert event.stage in text                       # the parameter's card names the stage
        check(acc.update(x, y))
        skipped = acc.update(x, y, np.zeros(20))
        assert _language._(skipped.reason) in check(skipped) and _language._(skipped.reason) in check(acc)
        x[3] = np.nan
        if acc.on_non_finite == "raise":
            with pytest.raises(FloatingPointError):
                acc.update(x, y)
        else:
            assert "input x" in check(acc.update(x, y))      # where the NaN came from
        check(acc)


def test_a_window_by_hand_without_an_optimizer():
    net, _, x, y = window()
    acc = ga.Accumulator(net)
    for stage in (acc.begin, lambda: net.forward(x[:8]), lambda: net.loss(y[:8]), net.backward, acc.accumulate, acc.normalize, lambda: acc.clip(0.1)):
        stage()
        assert net.stage in check(acc) and net.stage in check(net.parameters()["0.bias"])


def test_an_update_whose_optimizer_keeps_no_gradient():
    net, _, x, y = window()
    acc = ga.Accumulator(net, optim.AdamA(net), 2, reduction="mean_of_means")
    update = acc.update(x[:16], y[:16])
    assert update.grad_norm is None and "gradient norm none" in repr(update) and "norm of the gradient" not in check(update)


def test_a_parameter_outlives_its_network():
    net, acc, *_ = window()
    p = net.parameters()["0.weight"]
    del net, acc
    assert "(5 × 6)" in check(p) and "stage now" not in check(p) and "shape=(5, 6)" in repr(p)


@pytest.mark.parametrize("array, facts", [
    (3.5, ["one number", "1 number, 8 B", "3.5"]), (np.zeros((3, 0, 2)), ["3 × 0 × 2", "0 numbers, 0 B"]), (np.ones(5, bool), ["bool", "2.236"]),
    (np.arange(120, dtype="uint64").reshape(2, 3, 4, 5), ["2 × 3 × 4 × 5", "uint64", "59.5", "0.8 %"]), (np.arange(10)[::-2], ["5", "12.85"]),
    (np.array([np.inf, -np.inf]), ["2 numbers are NaN or infinite"]), (np.array([6e4, 6e4], "float16"), ["8.485e+04"])], ids=str)
def test_cards_of_arrays(array, facts):
    text = check(show.card(array))
    assert [fact for fact in facts if fact not in text] == [] and "snapshot" in text and "arrayarray" not in text.replace(" ", "")


def test_a_long_table_shows_both_ends():
    net = ga.plan(nn.Sequential(*[nn.Linear(2, 2) for _ in range(50)]), input_shape=(2,), loss=nn.MSELoss(), micro_batch=1)
    text = check(net)
    assert "Parameters: 100" in text and "0.weight" in text and "49.bias" in text and "…" in text and "25.weightout" not in text
