"""Runs the Python tests on a build that counts lines, and prints the covered share of Python and of C.

A C line counts as covered if any of its variants (precision, CPU level) ran it. Needs gcc's gcov and pytest-cov.
"""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build/coverage"


def build():
    shutil.rmtree(BUILD, ignore_errors=True)
    environment = os.environ | {"GRADACCUM_CFLAGS": "--coverage -O1", "GRADACCUM_LDFLAGS": "--coverage"}
    subprocess.run([sys.executable, "setup.py", "-q", "build", "--build-lib", BUILD / "lib", "--build-temp", BUILD / "objects"], cwd=ROOT,
                   env=environment, check=True)


def run_tests():
    subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not resident", "--cov=gradaccum", "--cov-report=term"],
                   cwd=ROOT, env=os.environ | {"PYTHONPATH": str(BUILD / "lib"), "COVERAGE_FILE": str(BUILD / "python")}, check=True)


def c_lines():
    """{file: {line: ran}} over all variants."""
    files = {}
    for notes in BUILD.rglob("*.gcno"):
        out = subprocess.run(["gcov", "--json-format", "--stdout", notes], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for text in out.splitlines():
            for file in json.loads(text)["files"]:
                path = os.path.relpath(ROOT / file["file"], ROOT)
                if path.startswith(("csrc", "python")):
                    lines = files.setdefault(path, {})
                    for line in file["lines"]:
                        lines[line["line_number"]] = lines.get(line["line_number"], False) or line["count"] > 0
    return files


def main():
    build()
    run_tests()
    files, total, ran = c_lines(), 0, 0
    print(f"\n{'C file':<50} {'lines':>6} {'covered':>8}")
    for path, lines in sorted(files.items()):
        hits = sum(lines.values())
        total, ran = total + len(lines), ran + hits
        print(f"{path:<50} {len(lines):>6} {100 * hits / len(lines):>7.1f}%")
    print(f"{'C in total':<50} {total:>6} {100 * ran / total:>7.1f}%")


if __name__ == "__main__":
    main()
