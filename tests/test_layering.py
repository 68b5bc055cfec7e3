"""Who may include whom: the core knows no Python, layers do not know each other, the binding is a client of the public header."""
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def includes(path):
    return re.findall(r'#include\s+[<"]([^>"]+)[>"]', path.read_text())


def test_the_core_library_includes_no_python():
    for path in (ROOT / "csrc").rglob("*.[ch]"):
        assert not [i for i in includes(path) if "Python" in i or "numpy" in i], path


def test_the_core_knows_no_element_type():
    for path in (ROOT / "csrc/core").iterdir():
        assert not [i for i in includes(path) if i.endswith(("real.h", "layer.h"))], path


def test_a_layer_includes_the_layer_header_and_kernels_only():
    allowed = {"../layer.h", "../loss.h", "../random.h"}
    for path in (ROOT / "csrc/compute/layers").glob("*.c"):
        own = [i for i in includes(path) if "/" in i or i.endswith(".h") and i not in ("stdio.h", "float.h")]
        assert not [i for i in own if i not in allowed and not i.startswith("../kernels/")], path


def test_the_binding_includes_the_public_header_only():
    for path in (ROOT / "python/binding").iterdir():
        own = [i for i in includes(path) if (ROOT / "csrc" / i).exists() or (ROOT / "csrc/core" / i).exists()]
        assert set(own) <= {"gradaccum.h"}, path


def test_reference_needs_numpy_only():
    for path in (ROOT / "python/gradaccum/reference").glob("*.py"):
        modules = re.findall(r"^(?:from|import) ([\w.]+)", path.read_text(), re.M)
        assert all(m.startswith(".") or m in ("numpy", "math") for m in modules), path


def test_the_core_never_prints_exits_or_aborts():
    for path in (ROOT / "csrc").rglob("*.c"):
        assert not re.search(r"\b(printf|puts|exit|abort|fprintf)\s*\(", path.read_text()), path
