"""Builds notebooks/en and notebooks/vi from notebooks/lessons: one text source a lesson, one catalogue of Vietnamese prose beside it.

A source is Markdown. `<!-- cell: id -->` begins a cell; a cell that is one ```python fence is code, the others are prose. Words after the id are tags:
`varies` marks outputs that differ from run to run (times, versions), which are not stored; `torch` a cell that shows more with PyTorch: without
it a lesson keeps the outputs that it has. `<!-- solution: name -->` is replaced by the reference solution of
that exercise. A catalogue (`03_split_128.vi.md`) has `<!-- cell: id en=hash -->` and the Vietnamese prose; the hash tells which English it translates.

    python tools/make_notebooks.py              all lessons: run the English ones, write both languages, print the figures
    python tools/make_notebooks.py 03 04        some of them
    python tools/make_notebooks.py --stamp 03   write the hashes of today's English into the catalogue, after the translation was checked
"""
from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
LESSONS = NOTEBOOKS / "lessons"
SOLUTIONS = ROOT / "python" / "gradaccum" / "exercises" / "solutions.py"
LANGUAGES = ("en", "vi")
LIMITS = {"cells": (15, 25), "words": (0, 1000), "lines": (0, 120), "longest cell": (0, 15), "widest line": (0, 115)}   # of a lesson; the glossary is none
HEADERS = {                                                  # below each title
    "en": "[Tiếng Việt](../vi/{name}.ipynb)\n\n",
    "vi": "> *Bản nháp: chờ người Việt đọc duyệt (draft until a native reader has reviewed it).* [English](../en/{name}.ipynb)\n\n",
}
OLDER = "> *Bản dịch này cũ hơn bản tiếng Anh (older than the English text).*\n\n"
MISSING = "> *Chưa dịch (not translated yet).*\n\n"
_CELL = re.compile(r"^<!-- cell: ([a-z0-9-]+)((?: [^ >]+)*) -->\n", re.M)
_CODE = re.compile(r"```python\n(.*?)\n?```", re.S)
_SOLUTION = re.compile(r"<!-- solution: (\w+) -->")


@dataclass
class Cell:
    """One cell: its id, whether it is code, its text, its tags."""

    id: str
    code: bool
    text: str
    tags: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:8]


@dataclass
class Lesson:
    """A lesson: name of its files, cells, and Vietnamese prose ``{id: (hash of the English, text)}``."""

    name: str
    cells: list[Cell]
    vi: dict[str, tuple[str, str]] = field(default_factory=dict)

    def figures(self) -> dict[str, int]:
        """Cells, words of prose (without code), lines of code, lines of the longest code cell, widest line of code."""
        code = [c.text.count("\n") + 1 for c in self.cells if c.code]
        prose = (re.sub(r"```.*?```|<[^>]*>", " ", c.text, flags=re.S) for c in self.cells if not c.code)
        return {"cells": len(self.cells), "words": sum(len(re.findall(r"\w[\w'’-]*", text)) for text in prose),
                "lines": sum(code), "longest cell": max(code, default=0),
                "widest line": max((len(line) for c in self.cells if c.code for line in c.text.splitlines()), default=0)}

    def complaints(self) -> list[str]:
        """Which limits it breaks."""
        if self.name == "glossary":
            return []
        return [f"{self.name}: {n} {key}, allowed are {LIMITS[key][0]} to {LIMITS[key][1]}"
                for key, n in self.figures().items() if not LIMITS[key][0] <= n <= LIMITS[key][1]]

    def translated(self) -> tuple[int, int]:
        """(prose cells with an up-to-date translation, prose cells)."""
        prose = [c for c in self.cells if not c.code]
        return sum(self.vi.get(c.id, ("", ""))[0] == c.hash for c in prose), len(prose)


def split(text: str, where: str) -> list[tuple[str, tuple[str, ...], str]]:
    """(id, tags, body) of each cell of a source or catalogue."""
    head, *parts = _CELL.split(text)
    if head.strip():
        raise ValueError(f"{where}: text before the first cell: {head.strip()[:60]!r}")
    cells = [(cell, tuple(tags.split()), body.strip()) for cell, tags, body in zip(parts[::3], parts[1::3], parts[2::3])]
    twice = {cell for cell, *_ in cells if sum(cell == c for c, *_ in cells) > 1}
    if twice:
        raise ValueError(f"{where}: the cell ids {sorted(twice)} are used twice")
    return cells


def read(path: Path) -> Lesson:
    """A lesson and its catalogue."""
    cells = []
    for cell, tags, body in split(path.read_text(encoding="utf-8"), path.name):
        code = _CODE.fullmatch(body)
        cells.append(Cell(cell, bool(code), code[1] if code else body, tags))
    lesson, catalogue = Lesson(path.stem, cells), path.with_suffix(".vi.md")
    if catalogue.exists():
        prose = {c.id for c in cells if not c.code}
        for cell, tags, body in split(catalogue.read_text(encoding="utf-8"), catalogue.name):
            if cell not in prose:
                raise ValueError(f"{catalogue.name}: there is no prose cell {cell!r} in {path.name}")
            lesson.vi[cell] = (dict(t.split("=") for t in tags).get("en", ""), body)
    return lesson


def lessons(some=()) -> list[Lesson]:
    """All lessons, or those whose name begins with one of the words."""
    paths = sorted(p for p in LESSONS.glob("*.md") if not p.name.endswith(".vi.md"))
    return [read(p) for p in paths if not some or any(p.name.startswith(s) for s in some)]


def solution(name: str) -> str:
    """Source of a reference solution, with the comments above it, as a code fence."""
    text = SOLUTIONS.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        names = [getattr(node, "name", "")] + [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        if name in names:
            first = node.lineno - 1
            while lines[first - 1].startswith("#"):
                first -= 1
            return "```python\n" + "\n".join(lines[first:node.end_lineno]) + "\n```"
    raise ValueError(f"there is no solution {name!r} in {SOLUTIONS.name}")


def expand(text: str) -> str:
    """Prose with its solutions filled in."""
    return _SOLUTION.sub(lambda m: solution(m[1]), text)


def notebook(lesson: Lesson, language: str, outputs=None):
    """The notebook of one language; ``outputs`` are ``{id: outputs}`` of its code cells."""
    cells, count = [], 0
    for c in lesson.cells:
        if c.code:
            count += 1
            cells.append(new_code_cell(c.text, id=c.id, execution_count=count, outputs=(outputs or {}).get(c.id, [])))
            cells[-1].metadata = {"tags": list(c.tags)} if c.tags else {}
            continue
        text = c.text
        if language == "vi":
            made_for, vi = lesson.vi.get(c.id, ("", None))
            text = MISSING + text if vi is None else vi if made_for == c.hash else OLDER + vi
        if c is lesson.cells[0]:
            text = text.replace("\n\n", "\n\n" + HEADERS[language].format(name=lesson.name), 1)
        cells.append(new_markdown_cell(expand(text), id=c.id))
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    return new_notebook(cells=cells, metadata=metadata)


def path_of(lesson: Lesson, language: str) -> Path:
    return NOTEBOOKS / language / f"{lesson.name}.ipynb"


def execute(nb, seconds: int = 120):
    """Runs a notebook in a kernel of its own; NotebookClient's CellExecutionError at the first failing cell."""
    spec = importlib.util.find_spec("gradaccum")             # the kernel shall find the package that this process has
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(spec.origin).parent.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    with tempfile.TemporaryDirectory() as folder:            # lessons may write files
        return NotebookClient(nb, timeout=seconds, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()


def kept(nb) -> dict[str, list]:
    """Outputs worth storing: text, HTML and PNG; nothing of cells that vary."""
    out = {}
    for cell in nb.cells:
        if cell.cell_type != "code" or "varies" in cell.metadata.get("tags", []):
            continue
        for output in cell.outputs:
            if "data" in output:
                output["data"] = {k: v for k, v in output["data"].items() if k in ("text/plain", "text/html", "image/png")}
                output["metadata"] = {}
        out[cell.id] = _merged(cell.outputs)
    return out


def _merged(outputs: list) -> list:
    """Neighbouring pieces of one stream as one output: where they were cut depends on the moment."""
    out: list = []
    for output in outputs:
        if out and output.output_type == out[-1].output_type == "stream" and output.name == out[-1].name:
            out[-1].text += output.text
        else:
            out.append(output)
    return out


def outputs_of(lesson: Lesson) -> dict[str, list]:
    """Runs the English notebook; without PyTorch, a lesson that shows it keeps what was stored."""
    if any("torch" in c.tags for c in lesson.cells) and importlib.util.find_spec("torch") is None and path_of(lesson, "en").exists():
        print(f"{lesson.name}: PyTorch is not installed, so its outputs stay as they are")
        return {cell.id: cell.outputs for cell in nbformat.read(path_of(lesson, "en"), 4).cells if cell.cell_type == "code"}
    return kept(execute(notebook(lesson, "en")))


def write(nb, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.validate(nb)
    path.write_text(nbformat.writes(nb, indent=1) + "\n", encoding="utf-8")


def stamp(lesson: Lesson) -> None:
    """Writes the hash of today's English into each cell of the catalogue."""
    path = LESSONS / f"{lesson.name}.vi.md"
    now = {c.id: c.hash for c in lesson.cells}
    path.write_text(_CELL.sub(lambda m: f"<!-- cell: {m[1]} en={now[m[1]]} -->\n", path.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lessons", nargs="*", help="first characters of the lessons' names; all by default")
    parser.add_argument("--stamp", action="store_true", help="only renew the hashes in the Vietnamese catalogues")
    args = parser.parse_args()
    complaints, total, done, all_prose = [], 0.0, 0, 0
    if not args.stamp:
        print(f"{'lesson':<28} {'cells':>5} {'words':>6} {'lines':>6} {'seconds':>8} {'translated':>11}")
    for lesson in lessons(args.lessons):
        if args.stamp:
            stamp(lesson)
            continue
        start = time.perf_counter()
        outputs = outputs_of(lesson)
        seconds = time.perf_counter() - start
        for language in LANGUAGES:
            write(notebook(lesson, language, outputs), path_of(lesson, language))
        figures, (fresh, prose) = lesson.figures(), lesson.translated()
        print(f"{lesson.name:<28} {figures['cells']:5} {figures['words']:6} {figures['lines']:6} {seconds:8.1f} {fresh:4} of {prose:3}")
        complaints += lesson.complaints()
        total, done, all_prose = total + seconds, done + fresh, all_prose + prose
    if all_prose:
        print(f"{total:.0f} seconds; Vietnamese: {done / all_prose:.0%} of {all_prose} prose cells are up to date")
    print(*complaints, sep="\n", end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
