"""Languages: catalogues are complete and compiled, what should be translated is, and what is searched for stays English."""
import os
import string
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import below, hand_net

import gradaccum as ga
from gradaccum import _language, nn, optim, show
from gradaccum._stages import MEANINGS, TITLES
from gradaccum.memory import KINDS

ROOT = Path(__file__).parent.parent
TERMS = ("lan truyền ngược", "lượt truyền xuôi", "mất mát", "tốc độ học", "trọng số", "tầng", "tích lũy", "cập nhật", "gradient", "batch", "giá trị kích hoạt")


@pytest.fixture
def vietnamese():
    ga.set_language("vi")
    yield
    ga.set_language("en")


@pytest.fixture(scope="module")
def tool():
    pytest.importorskip("babel")
    sys.path.insert(0, str(ROOT / "tools"))
    import make_catalogue

    sys.path.pop(0)
    return make_catalogue


def test_catalogues_are_complete_and_compiled(tool, capsys):
    assert [path.parts[-3] for path in tool.catalogues()] == ["vi"]
    assert tool.main(["--check"]) == 0, capsys.readouterr().out
    assert "100.0% translated; 0 unused" in capsys.readouterr().out


def test_the_tool_sees_what_is_missing_and_what_is_not_compiled(tool, tmp_path, monkeypatch, capsys):
    (original,) = tool.catalogues()
    copy = tmp_path / "locale/vi/LC_MESSAGES/gradaccum.po"
    copy.parent.mkdir(parents=True)
    copy.write_text(original.read_text().replace('msgstr "Truyền xuôi"', 'msgstr ""'))
    copy.with_suffix(".mo").write_bytes(original.with_suffix(".mo").read_bytes())
    monkeypatch.setattr(tool, "catalogues", lambda: [copy])
    assert not tool.compiled(copy) and tool.main(["--check"]) == 1
    assert "missing: 'Forward'" in capsys.readouterr().out
    assert tool.main([]) == 0 and tool.compiled(copy)        # a first run writes what it can
    assert tool.table(tool.read(copy)).keys() == tool.table(tool.read(original)).keys() - {"Forward"}
    source = tmp_path / "a.py"
    source.write_text('_("one"); N_("two"); ngettext("{n} a", "{n} b", 2); _(name); other("three")')
    monkeypatch.setattr(tool, "PACKAGE", tmp_path)
    assert list(tool.messages()) == ["one", "two", ("{n} a", "{n} b")]


def test_placeholders_survive_translation(tool):
    fields = lambda text: {(name, spec) for _t, name, spec, _c in string.Formatter().parse(text) if name}  # noqa: E731
    for path in tool.catalogues():
        for english, own in tool.table(tool.read(path)).items():
            if isinstance(english, tuple):
                assert all(fields(text) <= fields(english[0]) | fields(english[1]) for text in own), english
            else:
                assert fields(own) == fields(english) and own[:1].isspace() == english[:1].isspace(), english


def test_the_terms_are_those_of_vietnamese_courses(tool):
    (path,) = tool.catalogues()
    text = path.read_text().lower()
    assert [term for term in TERMS if term not in text] == []


def test_unknown_languages_are_refused():
    with pytest.raises(ValueError, match=r"language='fr': expected one of 'en', 'vi'"):
        ga.set_language("fr")
    assert ga.get_language() == "en"
    for language, code, text in (("fr", 1, "GRADACCUM_LANGUAGE='fr': expected one of 'en', 'vi'"), ("vi", 0, "vi"), ("", 0, "en")):
        done = subprocess.run([sys.executable, "-c", "import gradaccum; print(gradaccum.get_language())"], capture_output=True, text=True,
                              env={**os.environ, "GRADACCUM_LANGUAGE": language})
        assert done.returncode == code and text in done.stdout + done.stderr


def test_every_stage_and_kind_is_translated(vietnamese):
    for message in (*TITLES.values(), *MEANINGS.values(), *KINDS.values()):
        assert _language._(message) != message
    assert _language._("") == "" and _language._("no such message") == "no such message"


def test_a_block_in_another_language():
    with _language.using("vi"):
        assert ga.get_language() == "vi" and _language.ngettext("{n} micro-batch", "{n} micro-batches", 2) == "{n} micro-batch"
    assert ga.get_language() == "en" and _language.ngettext("{n} micro-batch", "{n} micro-batches", 2) == "{n} micro-batches"
    with pytest.raises(RuntimeError), _language.using("vi"):
        raise RuntimeError
    assert ga.get_language() == "en"


def budget_error():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16))
    make = lambda m, limit: ga.plan(model, input_shape=(64,), loss=nn.CrossEntropyLoss(), micro_batch=m, memory_limit=limit)  # noqa: E731
    with pytest.raises(ga.BudgetError) as error:
        make(64, make(1, None).memory.bytes(40))
    return str(error.value).splitlines()


def stage_error():
    net = hand_net()
    with pytest.raises(ga.StageError) as error:
        net.backward()
    return str(error.value).splitlines()


def test_errors_keep_their_first_line_and_explain_in_the_language():
    english = budget_error(), stage_error()
    ga.set_language("vi")
    try:
        own = budget_error(), stage_error()
    finally:
        ga.set_language("en")
    for e, v in zip(english, own):
        assert e[0] == v[0] and len(e) == len(v) == 3 and e[1] != v[1] and e[2] != v[2]
    assert english[1][0] == 'backward was called in stage "clear"; allowed now: forward' and english[1][1].startswith("  The window is empty.")
    assert "giá trị kích hoạt (tăng theo micro-batch)" in own[0][1] and "Micro-batch lớn nhất còn vừa" in own[0][2] and "32 x 2 hoặc 16 x 4" in own[0][2]
    assert own[1][1].startswith("  Cửa sổ đang trống.") and "lượt truyền xuôi" in own[1][1]


def test_an_error_without_a_stage_has_one_line():
    assert str(ga.StageError("busy")) == "busy" and issubclass(ga.StageError, RuntimeError)
    assert ga.StageError is ga._core.StageError and ga.StageError.__module__ == "gradaccum.errors"


def test_reasons_are_english_in_data_and_translated_where_they_are_shown(vietnamese):
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net), on_non_finite="skip_update", noise_scale=True)
    weightless, broken = acc.update([[1.0]], below(1), [0.0]), acc.update([[np.inf]], below(1))
    assert acc.noise_scale.state_dict()["reason"] == "the window was skipped: the gradient has NaN or infinity"      # saved with a run
    for update, english, own in ((weightless, "the window has no weight", "cửa sổ không có trọng số mẫu nào"),
                                 (broken, "the gradient has NaN or infinity", "gradient có NaN hoặc vô cực")):
        assert update.reason.startswith(english) and own in repr(update) and own in update._repr_html_()
        assert english not in repr(update) + update._repr_html_()
        with _language.using("en"):
            assert english in repr(update) and english in update._repr_html_()
    net = hand_net()
    assert ga.Accumulator(net, optim.SGD(net)).update_many([[1.0]], below(1), batch_size=1, weight=[0.0])[0].reason == weightless.reason


def test_cards_and_memory(vietnamese):
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net), 2)
    acc.step([[1.0]], below(1))
    html = acc._repr_html_()
    assert 'lang="vi"' in html and "■□" in html and "1 trên 2 micro-batch" in html and "số chia đến lúc này" in html
    assert "Cửa sổ đang giữ mọi micro-batch cho đến lúc này" in html and "accumulate" in html
    assert "tham số" in net.parameters()["0.weight"]._repr_html_() and "(ra 1, vào 1)" in net.parameters()["0.weight"]._repr_html_()
    assert "bộ đệm gradient (một cửa sổ)" in str(net.memory) and "giá trị kích hoạt" in net.memory._repr_html_()
    acc.clear(discard=True)
    event = list(acc.stages([[1.0]], below(1)))[2]
    assert "Lan truyền ngược" in event._repr_html_() and ">backward<" in event._repr_html_() and "Cửa sổ đã đi tiếp" in event._repr_html_()


def test_numbers_on_cards_have_no_comma(vietnamese):
    """12,345 would be read as 12.345."""
    record = ga.Update(1, 0.5, 12345.0, 12345, 12345, 1, [0.5], 1.0, 1.0, False, 0.1, seconds=0.001)
    assert "12\u202f345 trong 1 micro-batch" in record._repr_html_() and "12\u202f345\u202f000 mẫu mỗi giây" in record._repr_html_()
    assert ">mảng<" in show.card([1.0])._repr_html_()


def test_a_picture_keeps_the_language_it_was_made_in(vietnamese):
    pytest.importorskip("matplotlib")
    p = show.losses({"a": [{"loss": 1.0, "samples": 2048}]})
    ga.set_language("en")
    assert p.title == "a kết thúc thấp nhất, ở 1 sau 2\u202f048 mẫu"
    assert p.figure.axes[0].get_ylabel() == "mất mát của cửa sổ" and ga.get_language() == "en"
