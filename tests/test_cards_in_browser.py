"""Cards in a real browser: in light and dark pages, on a phone, in Vietnamese, without any style. GRADACCUM_SCREENSHOTS=folder keeps the pictures."""
import os
from pathlib import Path

import numpy as np
import pytest

import gradaccum as ga
from gradaccum import _language, nn, optim, show
from gradaccum.data import digits

PAGE = """<!doctype html><meta charset="utf-8"><title>card</title><style>
body {{ margin: 16px; background: {paper}; color: {ink}; }}
.jp-RenderedHTMLCommon table {{ border-collapse: collapse; border: none; font-size: 12px; table-layout: fixed; margin-left: auto; margin-bottom: 1em; }}
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th {{ vertical-align: middle; padding: .5em; line-height: normal; white-space: normal; max-width: none;
  text-align: right; }}
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) {{ background: {zebra}; }}
</style><div class="jp-RenderedHTMLCommon">{card}</div>"""
THEMES = {"light": {"paper": "#ffffff", "ink": "#1f1f1f", "zebra": "#f5f5f5"}, "dark": {"paper": "#111111", "ink": "#e0e0e0", "zebra": "#212121"}}

CONTRAST = """() => {
  const parse = text => { const m = text.match(/[\\d.]+/g).map(Number); return text.startsWith('color(') ? [...m.slice(-4, -1).map(v => 255 * v), m.at(-1)] :
    [m[0], m[1], m[2], m[3] ?? 1]; };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3]));
  const linear = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => .2126 * linear(c[0]) + .7152 * linear(c[1]) + .0722 * linear(c[2]);
  let worst = 99, where = '';
  const walk = document.createTreeWalker(document.querySelector('.ga-card'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const parent = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !parent.checkVisibility() || parent.tagName == 'STYLE') continue;
    let opacity = 1, papers = [];
    for (let e = parent; e; e = e.parentElement) { opacity *= getComputedStyle(e).opacity; papers.push(parse(getComputedStyle(e).backgroundColor)); }
    const paper = papers.reverse().reduce((below, c) => over(c, below), [255, 255, 255]);
    const ink = parse(getComputedStyle(parent).color);
    const [a, b] = [light(over([...ink.slice(0, 3), ink[3] * opacity], paper)), light(paper)].sort((p, q) => q - p);
    const ratio = (a + .05) / (b + .05);
    if (ratio < worst) { worst = ratio; where = walk.currentNode.data; }
  }
  return [worst, where];
}"""
OVERFLOW = """() => [...document.querySelectorAll('.ga-card, .ga-card *')]
  .filter(e => e.tagName != 'STYLE' && e.checkVisibility() && getComputedStyle(e).display != 'inline')
  .filter(e => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1).map(e => e.tagName + '.' + e.className + ' ' + e.innerText.slice(0, 40))"""
STRIP = """() => { document.querySelectorAll('style, link').forEach(e => e.remove());
  document.querySelectorAll('*').forEach(e => { e.removeAttribute('style'); e.removeAttribute('class'); }); }"""


def window(**options):
    x, y, *_ = digits()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    net = ga.plan(model, input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=32, memory_limit="400 KiB")
    return ga.Accumulator(net, optim.AdamW(net, lr=3e-3), 4, max_grad_norm=0.1, **options), x[:128], y[:128]


def cards():
    """(card's HTML, facts that must be seen) by name."""
    acc, x, y = window(staged=True)
    record = acc.update(x, y)
    acc.step(x[:32], y[:32])
    acc.step(x[32:64], y[32:64])
    net = acc.net
    out = {
        "network": (net, ["Sequential", "9,610", "37.54 KiB", "float32", "up to 32 samples", "400.00 KiB", "accumulate", "forward, normalize",
                          "cross_entropy_loss", "out 128, in 64", "0.weight", "optimizer state", "training"]),
        "parameter": (net.parameters()["0.weight"], ["0.weight", "parameter", "out 128, in 64", "float32", "8,192", "32.00 KiB", "live view", "update 1",
                                                     "backward", "accumulate", "norm", "zeros", "buffer (window)", "forward, normalize"]),
        "accumulator": (acc, ["Accumulator", "■■□□", "2 of 4 micro-batches", "64", "divisor so far", "forward, normalize", "AdamW", "mean", "0.1", "updates",
                              "The last update", "net.grads", "acc.buffer"]),
        "memory": (net.memory, ["MemoryReport", "279.20 KiB", "400.00 KiB", "used: 69.8 %", "optimizer state", "75.08 KiB",
                                "activations (grow with the micro-batch)", "26.75 KiB", "largest micro-batch"]),
        "update": (record, ["Update", "update 1", f"{record.loss:.4g}", "128 in 4 micro-batches", "clipped to 0.1", "0.003", "samples per second",
                            f"{record.micro_losses[3]:.4g}"]),
        "array": (show.card(x.reshape(-1, 8, 8)[3], "a digit", kind="input", axes=("row", "column")),
                  ["a digit", "input", "row 8, column 8", "float32", "256 B", "snapshot", "min", "norm", "zeros"]),
        "escaped": (show.card(np.array([[1.0, -2.0], [np.nan, 0.0]]), "<b>&\"'</b>"), ["<b>&\"'</b>", "1 number is NaN or infinite", "25.0 %"]),
    }
    out = {name: (item._repr_html_(), facts) for name, (item, facts) in out.items()}
    acc.clear(discard=True)
    other, x, y = window()
    for event in other.stages(x, y):
        if event.stage in ("backward", "update"):
            out[f"event {event.stage}"] = (event._repr_html_(), [event.stage.title(), "● written by this stage", "net.grads", "37.54 KiB",
                                                                 ", ".join(event.changed), "accumulate" if event.stage == "backward" else "clear"])
    past = next(other.stages(x, y))
    other.clear(discard=True)
    out["event of the past"] = (past._repr_html_(), ["Forward", "micro-batch 1", "The window has moved on", "activations"])
    return out


CARDS = cards()


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    return Path(os.environ.get("GRADACCUM_SCREENSHOTS") or tmp_path_factory.mktemp("cards"))


def opened(browser, theme, html):
    page = browser.contexts[0].pages[0] if browser.contexts else browser.new_page()
    page.set_viewport_size({"width": 800, "height": 600})
    page.set_content(PAGE.format(card=html, **THEMES[theme]))
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    return page


def on_a_phone(page, path):
    """Nothing has to be scrolled sideways, and nothing but the heads of wide tables is hidden."""
    page.set_viewport_size({"width": 360, "height": 600})
    page.screenshot(path=path, full_page=True)
    assert page.evaluate(OVERFLOW) == [] and page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    hidden = page.evaluate("[...document.querySelectorAll('td, img, th[scope=row]')].filter(e => (e.innerText || e.src) && !e.checkVisibility()).length")
    wide = "[...document.querySelectorAll('.ga-wide td')].filter(e => e.innerText && e.dataset.name)"
    assert hidden == 0 and page.evaluate(f"{wide}.every(e => getComputedStyle(e, '::before').content == JSON.stringify(e.dataset.name))")


@pytest.mark.parametrize("name", CARDS)
def test_cards_are_legible_and_complete_in_light_in_dark_and_without_style(browser, shots, name):
    missing = lambda text: [fact for fact in CARDS[name][1] if fact not in text]  # noqa: E731
    for theme in THEMES:
        page = opened(browser, theme, CARDS[name][0])
        page.screenshot(path=shots / f"{name} {theme}.png", full_page=True)
        worst, where = page.evaluate(CONTRAST)
        assert worst >= 7, f"{theme}: contrast {worst:.2f} of {where!r}"       # WCAG 2.1 AAA
        assert page.evaluate(OVERFLOW) == []
        assert missing(page.inner_text(".ga-card")) == []
        assert page.evaluate("document.querySelectorAll('script').length") == 0
        assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0 && i.alt)")
    on_a_phone(page, shots / f"{name} phone.png")
    page.set_viewport_size({"width": 800, "height": 600})
    page.evaluate(STRIP)
    page.screenshot(path=shots / f"{name} stripped.png", full_page=True)
    text = page.inner_text("body")
    assert missing(text) == [] and "{" not in text
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_vietnamese_cards_fit_too(browser, shots):
    with _language.using("vi"):
        own = cards()
    for name, (html, _facts) in own.items():
        page = opened(browser, "light", html)
        page.screenshot(path=shots / f"{name} vi.png", full_page=True)
        assert page.evaluate(CONTRAST)[0] >= 7 and page.evaluate(OVERFLOW) == [] and "allowed next" not in page.inner_text(".ga-card")
        on_a_phone(page, shots / f"{name} vi phone.png")
