"""The page of a recording, driven by keyboard in a real browser."""
import pytest

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.data import digits


@pytest.fixture(scope="module")
def recording():
    x, y, *_ = digits()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    net = ga.plan(model, input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=32, memory_limit="300 KiB")
    return ga.Accumulator(net, optim.AdamW(net, lr=3e-3), max_grad_norm=1.0).record(x[:128], y[:128])


@pytest.fixture(scope="module")
def path(recording, tmp_path_factory):
    return recording.save_html(tmp_path_factory.mktemp("replay") / "window.html")


@pytest.fixture
def open_page(browser, path):
    """Opens the page; at the end checks that it said nothing to the console and asked for nothing but itself."""
    pages, complaints, requests = [], [], []

    def opened(file=path, width=1200, **options):
        page = browser.new_page(viewport={"width": width, "height": 800}, **options)
        pages.append(page)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        return page

    yield opened
    for page in pages:
        page.close()
    assert complaints == [] and requests and all(url.startswith("file://") for url in requests)


def picture(page, name):
    """The pixels of a buffer's canvas, as text."""
    return page.evaluate(f"document.querySelector('figure[data-name=\"{name}\"] canvas')?.toDataURL()")


def test_the_keyboard_steps_through_the_stages(open_page, recording):
    page = open_page()
    place, title = page.locator("#place"), page.locator("#stage")
    assert place.inner_text() == "Stage 1 of 20" and "Forward" in title.inner_text()
    empty = picture(page, "0.weight.grad")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert place.inner_text() == "Stage 3 of 20" and "Backward" in title.inner_text() and "Micro-batch 1 of 4" in title.inner_text()
    first = picture(page, "0.weight.grad")
    norm = recording.events[2]["norms"]["buffer"]
    assert first != empty and f"{norm:.5g}" in page.locator("#numbers").inner_text() and f"{norm:.5g}" in page.locator("#why").inner_text()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert picture(page, "0.weight.grad") != first and "Micro-batch 2 of 4" in title.inner_text()
    assert page.locator("#formula code").nth(1).inner_text() == recording.events[6]["formula"][0][1]
    page.keyboard.press("ArrowLeft")
    assert place.inner_text() == "Stage 6 of 20" and picture(page, "0.weight.grad") == first
    page.keyboard.press("End")
    assert place.inner_text() == "Stage 20 of 20" and picture(page, "0.weight.grad") == empty and page.locator("#step").is_disabled()
    page.keyboard.press("ArrowRight")
    assert place.inner_text() == "Stage 20 of 20"
    page.keyboard.press("Home")
    assert place.inner_text() == "Stage 1 of 20" and page.locator("#back").is_disabled()


def test_the_slider_and_the_buttons(open_page):
    page = open_page()
    slider = page.locator("#slider")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#place").inner_text() == "Stage 2 of 20" and slider.get_attribute("aria-valuetext") == "2 of 20: Loss, Micro-batch 1 of 4"
    page.keyboard.press("End")
    assert page.locator("#place").inner_text() == "Stage 20 of 20"
    page.locator("#back").click()
    assert "Update" in page.locator("#stage").inner_text() and page.locator("figure.written").count() == 8    # four parameters and their changes
    page.locator("#step").focus()
    page.keyboard.press("Space")                             # presses the button, and does not play
    assert page.locator("#place").inner_text() == "Stage 20 of 20" and "Play" in page.locator("#play").inner_text()
    page.locator(".stations i").nth(4).click()
    assert page.locator("#place").inner_text() == "Stage 5 of 20"


def test_space_plays_and_pauses(open_page):
    page = open_page()
    page.clock.install()
    page.keyboard.press("Space")
    assert "Pause" in page.locator("#play").inner_text()
    page.clock.run_for(5500)
    assert page.locator("#place").inner_text() == "Stage 4 of 20"
    page.keyboard.press("Space")
    page.clock.run_for(5000)
    assert page.locator("#place").inner_text() == "Stage 4 of 20" and "Play" in page.locator("#play").inner_text()
    page.keyboard.press("Space")
    page.clock.run_for(60000)
    assert page.locator("#place").inner_text() == "Stage 20 of 20" and "Play" in page.locator("#play").inner_text()


def test_the_languages_switch_inside_the_page(open_page, recording):
    page = open_page()
    page.keyboard.press("End")
    page.get_by_role("button", name="Tiếng Việt").click()
    assert page.evaluate("document.documentElement.lang") == "vi" and page.title() == "Một cửa sổ tích lũy gradient"
    assert page.locator("#why").inner_text() == recording.events[-1]["explanation"]["vi"] and page.locator("#place").inner_text() == "Giai đoạn 20 trên 20"
    assert page.locator("#language-vi").get_attribute("aria-pressed") == "true" and page.evaluate("document.activeElement.id") == "language-vi"
    page.get_by_role("button", name="English").click()
    assert page.locator("#why").inner_text() == recording.events[-1]["explanation"]["en"]


def test_the_page_begins_in_the_language_of_the_browser(open_page):
    assert "Truyền xuôi" in open_page(locale="vi-VN").locator("#stage").inner_text()
    assert "Forward" in open_page(locale="fr-FR").locator("#stage").inner_text()


def test_a_page_of_one_language_has_no_switch(open_page, recording, tmp_path):
    page = open_page(recording.save_html(tmp_path / "vi.html", language="vi"))
    assert "Truyền xuôi" in page.locator("#stage").inner_text() and page.locator("#languages button").count() == 0


def test_the_stage_is_announced(open_page):
    page = open_page()
    live = page.locator("#live")
    assert live.get_attribute("aria-live") == "polite"
    page.keyboard.press("ArrowRight")
    assert live.inner_text().startswith("Loss, Micro-batch 1 of 4. The loss says how wrong")
    unnamed = page.evaluate("""[...document.querySelectorAll("button, input, [role=img]")].filter(
        e => !(e.getAttribute("aria-label") || e.textContent.trim())).map(e => e.outerHTML)""")
    assert unnamed == []


def test_the_memory_shows_the_limit_and_the_full_batch(open_page):
    page = open_page()
    text = page.locator("#bytes").inner_text()
    assert "limit 300.00 KiB" in text and "all 128 at once: 372.16 KiB" in text and "activations" in text
    assert page.locator(".bar em.limit").count() == 1
    before = page.locator("#bytes strong").inner_text()
    page.evaluate("show(2)")
    assert page.locator("#bytes strong").inner_text() == "241.66 KiB" != before


def test_colours_follow_theme_and_scale(open_page):
    light, dark = open_page(color_scheme="light"), open_page(color_scheme="dark")
    backgrounds = [page.evaluate("getComputedStyle(document.body).backgroundColor") for page in (light, dark)]
    assert backgrounds[0] != backgrounds[1] and picture(light, "0.weight") != picture(dark, "0.weight")
    light_before = picture(light, "0.weight")
    light.emulate_media(color_scheme="dark")
    light.wait_for_function("before => document.querySelector('figure canvas').toDataURL() !== before", arg=light_before)
    assert picture(light, "0.weight") == picture(dark, "0.weight")
    dark.evaluate("show(2)")
    shared = picture(dark, "0.weight.grad")
    dark.locator("#scale_own").click()
    assert picture(dark, "0.weight.grad") != shared


def test_a_narrow_screen_and_paper(open_page):
    page = open_page(width=360, color_scheme="dark")
    for stage in (0, 2, 7, 17, 18, 19):
        page.evaluate(f"show({stage})")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(34, 41, 58)" and page.locator("#all tbody tr").count() == 20
    assert page.locator("#play").is_hidden() and page.locator("#all").is_visible()


def test_without_motion_nothing_moves(open_page):
    page = open_page(reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.getElementById('level')).transitionDuration") == "0s"


def test_hostile_names_are_text(open_page, tmp_path):
    class Hostile(nn.Module):
        def __init__(self):
            super().__init__()
            setattr(self, "</script><img src=x onerror=alert(1)>", nn.Linear(4, 3))

        def forward(self, x):
            return getattr(self, "</script><img src=x onerror=alert(1)>")(x)

    net = ga.plan(Hostile(), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=1)
    recording = ga.Accumulator(net, optim.SGD(net)).record([[1.0, 0.0, 2.0, 0.0]], [1])
    page = open_page(recording.save_html(tmp_path / "window.html"))
    assert page.locator("h3").first.inner_text().startswith("</script><img") and page.locator("img").count() == 0
