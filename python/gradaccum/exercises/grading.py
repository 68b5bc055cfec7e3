"""Grades a folder of submissions with the public checkers.

    pytest --pyargs gradaccum.exercises --submissions FOLDER

Each entry of FOLDER is a student: a sub-folder with notebooks and Python files, or one such file. An exercise is handed in by binding its name
(``window_gradient``, ``bias_gradient``, ...), so the lessons' own notebooks can be handed in as they are. Only the statements that the answer needs are run,
in a process of its own with a time limit: whatever else a notebook does, and a crash or an endless loop in one answer, does not touch the others.

The code of students is run. Grade strangers' code in a container.
"""
from __future__ import annotations

import ast
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator, NamedTuple

from ..memory import machine_memory
from .result import CHECKERS, DONE, NOT_DONE, WRONG

SECONDS = 20                                                 # for one answer
NOT_HANDED_IN = "not handed in"


class Row(NamedTuple):
    """One student and exercise: state is "done", "wrong", "not done yet" or "not handed in"."""

    student: str
    exercise: str
    state: str
    reason: str


# ---- what was handed in ----

def students(folder: str | Path) -> dict[str, list[Path]]:
    """``{student: files}``. ValueError if the folder holds none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"submissions={str(folder)!r}: there is no such folder")
    out = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "__")):
            continue
        if entry.is_dir():
            out[entry.name] = sorted(p for p in entry.rglob("*") if p.suffix in (".py", ".ipynb") and ".ipynb_checkpoints" not in p.parts)
        elif entry.suffix in (".py", ".ipynb"):
            out.setdefault(entry.stem, []).append(entry)
    if not out:
        raise ValueError(f"submissions={str(folder)!r}: expected a sub-folder, a notebook or a .py file for each student")
    return out


def sources(path: Path) -> list[str]:
    """Pieces of code that stand or fall together: the cells of a notebook, or the top-level blocks of a file that does not parse as a whole."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
        return [re.sub(r"^\s*[%!].*$", "", cell, flags=re.M) for cell in code]
    try:
        ast.parse(text)
        return [text]
    except (SyntaxError, ValueError):
        return [block for block in re.split(r"^(?=[A-Za-z_@])(?!else|elif|except|finally)", text, flags=re.M) if block.strip()]


def statements(path: Path) -> tuple[list[ast.stmt], dict[str, str]]:
    """Top-level statements, and ``{name: reason}`` for the names that a piece with a syntax error seems to bind."""
    out, broken = [], {}
    try:
        pieces = sources(path)
    except (ValueError, KeyError, TypeError) as error:
        return [], dict.fromkeys(CHECKERS, f"{path.name} is not a notebook: {type(error).__name__}: {error}")
    for piece in pieces:
        try:
            out += ast.parse(piece).body
        except (SyntaxError, ValueError) as error:
            line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
            for name in re.findall(r"^\s*(?:def\s+|class\s+)?(\w+)", piece, flags=re.M):
                broken[name] = f"{path.name} does not parse there: {getattr(error, 'msg', error)}{line} of the piece"
    return out, broken


# ---- what an answer needs ----

def _bound(statement: ast.stmt) -> set[str]:
    """Names that it binds, or whose object it may change."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    names = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            names |= _base(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.func.attr.startswith(("check_", "compare_")):
            names |= _base(node.func)                        # answer.append(3)
    return names


def _base(node) -> set[str]:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def needed(name: str, body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that binding ``name`` depends on, in their order."""
    bound = [_bound(s) for s in body]
    loaded = [{n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} for s in body]
    names, chosen = {name}, set()
    while True:
        more = {i for i, b in enumerate(bound) if b & names} - chosen
        if not more:
            return [s for i, s in enumerate(body) if i in chosen]
        chosen |= more
        names |= set().union(*(loaded[i] for i in more))


def handed_in(files: list[Path]) -> dict[str, tuple[Path, str]]:
    """``{exercise: (file, "" or why it does not parse)}``; of several files the last."""
    out = {}
    for path in files:
        body, broken = statements(path)
        bound = set().union(*(_bound(s) for s in body))
        out |= {name: (path, "") for name in CHECKERS if name in bound}
        out |= {name: (path, broken[name]) for name in CHECKERS if name in broken and name not in bound}
    return out


# ---- the process that runs answers ----

def _judge(name: str, path: Path):
    """Runs what the answer needs and checks it."""
    namespace: dict = {"__name__": "submission"}
    errors = {}
    for statement in needed(name, statements(path)[0]):
        try:
            exec(compile(ast.Module([statement], []), path.name, "exec"), namespace)
            for bound in _bound(statement):
                errors.pop(bound, None)
        except BaseException as error:                       # also exit() and raise SystemExit
            errors |= dict.fromkeys(_bound(statement), f"line {statement.lineno} raised {type(error).__name__}: {error}")
    if name in errors or name not in namespace:
        return WRONG, errors.get(name, "the name is never bound")
    result = CHECKERS[name](namespace[name])
    return result.state, result.message


def _run(descriptor: int, path: Path, names: list[str]) -> None:
    """Child: one line of JSON for each answer."""
    resource.setrlimit(resource.RLIMIT_AS, (max(machine_memory() // 2, 2**30),) * 2)
    sys.path.append(str(path.parent))                        # last, so that no file of a student hides a library
    with open(descriptor, "w", encoding="utf-8") as out:
        for name in names:
            out.write(json.dumps([name, *_judge(name, path)]) + "\n")
            out.flush()


def _answers(path: Path, names: list[str], seconds: float) -> Iterator[tuple[str, str, str]]:
    """(exercise, state, reason) of each; after a crash or a time-out a new process goes on with the next."""
    names = list(names)
    while names:
        reader, writer = os.pipe()
        package = str(Path(__file__).parents[2])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))}
        command = [sys.executable, "-P", "-m", "gradaccum.exercises.grading", str(writer), str(path.resolve()), *names]
        process = subprocess.Popen(command, cwd=path.parent, env=environment, pass_fds=[writer], start_new_session=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(writer)
        try:
            waiting = b""
            while names:
                ready, _, _ = select.select([reader], [], [], seconds)
                data = os.read(reader, 65536) if ready else b""
                if not data:
                    break
                *lines, waiting = (waiting + data).split(b"\n")
                for line in lines:
                    try:
                        name, state, reason = json.loads(line)
                        names.remove(name)
                    except (ValueError, TypeError):          # the answer wrote into our pipe
                        continue
                    yield name, state, reason
        finally:
            os.close(reader)
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            code = process.wait()
        if names:
            late = f"no answer after {seconds:g} seconds: an endless loop?"
            yield names.pop(0), WRONG, late if not ready else f"the process ended with status {code}"


# ---- the report ----

def grade(student: str, files: list[Path], exercises, seconds: float = SECONDS) -> list[Row]:
    """The rows of one student. Nothing that the code does reaches the caller."""
    found = handed_in(files)
    rows = {name: Row(student, name, NOT_HANDED_IN, "no file binds this name") for name in exercises if name not in found}
    by_file: dict[Path, list[str]] = {}
    for name in exercises:
        if name in found:
            path, broken = found[name]
            if broken:
                rows[name] = Row(student, name, WRONG, broken)
            else:
                by_file.setdefault(path, []).append(name)
    for path, names in by_file.items():
        for name, state, reason in _answers(path, names, seconds):
            rows[name] = Row(student, name, state, reason)
    return [rows[name] for name in exercises]


def exercises_of(everybody: dict[str, list[Path]]) -> list[str]:
    """The exercises that at least one student handed in."""
    some = set().union(*(handed_in(files) for files in everybody.values()))
    return [name for name in CHECKERS if name in some]


__all__ = ["DONE", "NOT_DONE", "NOT_HANDED_IN", "Row", "WRONG", "exercises_of", "grade", "students"]

if __name__ == "__main__":
    _run(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
