"""``pytest --pyargs gradaccum.exercises --submissions FOLDER`` grades a class; without a folder, the reference solutions are checked."""
from __future__ import annotations

import functools
from pathlib import Path

import pytest

from gradaccum.exercises import grading

SOLUTIONS = {"solutions": [Path(__file__).parent / "solutions.py"]}


def pytest_generate_tests(metafunc):
    folder = metafunc.config.getoption("submissions", default=None)
    everybody = grading.students(folder) if folder else SOLUTIONS
    exercises = grading.exercises_of(everybody)
    rows = functools.cache(lambda student: {r.exercise: r for r in grading.grade(student, everybody[student], exercises)})
    cases = [pytest.param(rows, student, name, id=f"{student}-{name}") for student in everybody for name in exercises]
    metafunc.parametrize(("rows", "student", "exercise"), cases)


def test_submission(rows, student, exercise, record_property):
    row = rows(student)[exercise]
    record_property("row", row)
    if row.state != grading.DONE:
        pytest.fail(f"{row.state}: {row.reason}", pytrace=False)
