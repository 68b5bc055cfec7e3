"""The lessons: what is committed is what the sources say, the limits hold, and every English notebook runs from top to bottom in a kernel.

Running them needs the extra "lessons"; it is left out without it. `make lessons` and `.ci/run` have it.
"""
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"

nbformat = pytest.importorskip("nbformat", reason="pip install 'gradaccum[lessons]'")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

spec = importlib.util.spec_from_file_location("make_notebooks", ROOT / "tools" / "make_notebooks.py")
make = sys.modules["make_notebooks"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

LESSONS = {lesson.name: lesson for lesson in make.lessons()}
SAME_OUTPUT = ("00_ten_minute_start", "01_one_update")      # of these the stored texts must be what a run prints


def committed(name, language):
    return nbformat.read(NOTEBOOKS / language / f"{name}.ipynb", 4)


def code(nb):
    return [(c.id, c.source) for c in nb.cells if c.cell_type == "code"]


def text_of(cell):
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") + "\n" for o in cell.outputs)


def test_there_are_eleven_lessons_and_a_glossary():
    assert [name[:2] for name in LESSONS] == [f"{i:02}" for i in range(11)] + ["gl"]
    for language in make.LANGUAGES:
        assert {p.stem for p in (NOTEBOOKS / language).glob("*.ipynb")} == set(LESSONS)


@pytest.mark.parametrize("name", LESSONS)
def test_the_limits_hold(name):
    """15 to 25 cells, at most 1,000 words, 120 lines of code, 15 lines a cell; the title asks a question."""
    lesson = LESSONS[name]
    assert lesson.complaints() == []
    if name != "glossary":
        assert re.match(r"# .+\?\n", lesson.cells[0].text) and "**You will be able to**" in lesson.cells[0].text and "**Time:**" in lesson.cells[0].text
        assert lesson.cells[-1].id == "next" and any(c.id == "asserts" and c.text.count("assert ") >= 3 for c in lesson.cells)
        text = "\n".join(c.text for c in lesson.cells)
        assert re.search(r"^my_guess = \.\.\.", text, re.M) and "ex.compare_guess(my_guess" in text
        assert 2 <= len(set(re.findall(r"ex\.check_(\w+)\(", text))) == len(re.findall(r"<!-- solution: \w+ -->", text)) <= 3


def test_every_checker_is_used_by_a_lesson():
    from gradaccum import exercises as ex
    text = "".join(c.text for lesson in LESSONS.values() for c in lesson.cells)
    assert set(re.findall(r"<!-- solution: (\w+) -->", text)) == set(ex.CHECKERS)
    assert set(re.findall(r"ex\.(check_\w+)\(", text)) == {name for name in ex.__all__ if name.startswith("check_")}


@pytest.mark.parametrize("language", make.LANGUAGES)
@pytest.mark.parametrize("name", LESSONS)
def test_the_committed_notebook_is_what_the_source_says(name, language):
    built, there = make.notebook(LESSONS[name], language), committed(name, language)
    assert [(c.id, c.cell_type, c.source, c.metadata) for c in built.cells] == [(c.id, c.cell_type, c.source, c.metadata) for c in there.cells]
    assert built.metadata == there.metadata
    assert (NOTEBOOKS / language / f"{name}.ipynb").stat().st_size < 300_000


@pytest.mark.parametrize("name", LESSONS)
def test_both_languages_have_the_same_code_and_outputs(name):
    en, vi = committed(name, "en"), committed(name, "vi")
    assert code(en) == code(vi) and [c.id for c in en.cells] == [c.id for c in vi.cells]
    assert [c.outputs for c in en.cells if c.cell_type == "code"] == [c.outputs for c in vi.cells if c.cell_type == "code"]


@pytest.mark.parametrize("name", LESSONS)
def test_vietnamese_is_complete_and_keeps_links_and_names(name):
    lesson = LESSONS[name]
    done, prose = lesson.translated()
    assert done == prose, f"{name}: {[c.id for c in lesson.cells if not c.code and lesson.vi.get(c.id, ('',))[0] != c.hash]} are missing or older"
    for cell in lesson.cells:
        if not cell.code:
            vi = lesson.vi[cell.id][1]
            for what in (r"\]\(([^)]+)\)", r"<!-- solution: \w+ -->", r"</?details>", r"^#+ ", r"^\|", r"^- ", r"\$\$.*?\$\$"):
                assert re.findall(what, cell.text, re.M) == re.findall(what, vi, re.M), (cell.id, what)
            assert set(re.findall(r"`[^`\n]+`", cell.text)) == set(re.findall(r"`[^`\n]+`", vi)), cell.id
    assert "draft until a native reader has reviewed it" in committed(name, "vi").cells[0].source


def test_an_outdated_or_missing_translation_is_marked():
    cells = [make.Cell("a", False, "Hello"), make.Cell("b", False, "World"), make.Cell("c", False, "New")]
    lesson = make.Lesson("x", cells, {"a": (cells[0].hash, "Chào"), "b": ("00000000", "Thế giới")})
    a, b, c = (cell.source for cell in make.notebook(lesson, "vi").cells)
    assert a == "Chào" and "older than the English text" in b and b.endswith("Thế giới") and "not translated yet" in c and c.endswith("New")
    assert lesson.translated() == (1, 3)


@pytest.mark.parametrize("text, message", [
    ("hello\n<!-- cell: a -->\nx", "before the first cell"),
    ("<!-- cell: a -->\nx\n<!-- cell: a -->\ny", "used twice"),
])
def test_a_broken_source_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        make.split(text, "x.md")


def test_stored_outputs_have_no_times_and_no_addresses():
    for name, lesson in LESSONS.items():
        varies = {c.id for c in lesson.cells if "varies" in c.tags}
        for cell in committed(name, "en").cells:
            if cell.cell_type == "code":
                assert cell.id not in varies or not cell.outputs
                assert not re.search(r"0x[0-9a-f]{6}|\bµs\b|\d seconds|/tmp/|/home/", text_of(cell)), (name, cell.id)
                assert all(o.output_type in ("stream", "display_data", "execute_result") for o in cell.outputs)


def test_every_claim_has_its_cell():
    rows = re.findall(r"^\| (?!claim|---)(.+?) \| (.+?) \| (\w+) \| ([\w-]+) \|$", (NOTEBOOKS / "CLAIMS.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) >= 15
    for claim, verdict, name, cell in rows:
        (there,) = [c for c in LESSONS[name].cells if c.id == cell]
        assert there.code and re.match("proved|measured|shown|corrected", verdict), claim


def test_links_lead_somewhere():
    for name, lesson in LESSONS.items():
        for target in re.findall(r"\]\(([^)#]+)\)", "".join(c.text for c in lesson.cells)):
            assert target.startswith("https://") or (NOTEBOOKS / "en" / target).exists(), (name, target)


@pytest.mark.lessons
@pytest.mark.parametrize("name", [n for n in LESSONS if n != "glossary"])
def test_the_english_notebook_runs(name):
    nb = make.execute(make.notebook(LESSONS[name], "en"))
    (last,) = [c for c in nb.cells if c.id == "asserts"]
    assert "All claims of this lesson hold." in text_of(last)
    stored = {c.id: c for c in committed(name, "en").cells}
    for cell in nb.cells if name in SAME_OUTPUT else ():
        if cell.cell_type == "code" and "varies" not in cell.metadata.get("tags", ()):
            assert text_of(cell) == text_of(stored[cell.id]), cell.id


@pytest.mark.lessons
@pytest.mark.parametrize("name", [n for n in LESSONS if n != "glossary"])
def test_the_solutions_work_where_a_learner_writes_them(name):
    """The notebook with every exercise solved and every guess made."""
    nb, solved = make.notebook(LESSONS[name], "en"), 0
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.source = re.sub(r"^my_guess = \.\.\.", "my_guess = 3", cell.source, flags=re.M)
            if check := re.search(r"^ex\.check_\w+\((\w+)\)", cell.source, re.M):
                code = re.fullmatch(r"```python\n(.*)\n```", make.solution(check[1]), re.S)[1]
                cell.source, solved = f"{code}\n{check[0]}", solved + 1
    text = "".join(text_of(cell) for cell in make.execute(nb).cells if cell.cell_type == "code")
    assert text.count("✔") == solved >= 2 and "✘" not in text and "not done yet" not in text
    assert "You said 3" in text or "PyTorch is not installed" in text
