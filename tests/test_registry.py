"""A layer is in five places under one word: C file, registry line, nn constructor, NumPy reference, test. None may be missing."""
import re
from pathlib import Path

import pytest

from gradaccum import nn, reference
from gradaccum.nn.module import Layer

ROOT = Path(__file__).parent.parent
KINDS = re.findall(r"^LAYER_LINE\((\w+)\)", (ROOT / "csrc/compute/layers.def").read_text(), re.M)
FILES = {kind: path for path in (ROOT / "csrc/compute/layers").glob("*.c")
         for kind in re.findall(r"LAYER\((\w+)\)|^(?:ELEMENTWISE|REGRESSION)\((\w+),", path.read_text(), re.M) for kind in kind if kind}


for _name in nn.__all__:
    getattr(nn, _name)                                       # files of layers are loaded when first used


def constructors(cls=Layer):
    for sub in cls.__subclasses__():
        yield sub
        yield from constructors(sub)


def test_there_are_layers():
    assert len(KINDS) == len(set(KINDS)) >= 16


@pytest.mark.parametrize("kind", KINDS)
def test_layer_is_in_all_five_places(kind):
    assert kind in FILES, f"{kind}: no C file defines LAYER({kind})"
    assert kind == "add" or any(c.kind == kind for c in constructors()), f"{kind}: no nn constructor"
    for direction in ("forward", "backward"):
        assert hasattr(reference, f"{kind}_{direction}"), f"{kind}: no reference.{kind}_{direction}"
    assert (ROOT / f"tests/layers/test_{FILES[kind].stem}.py").exists(), f"{kind}: no tests/layers/test_{FILES[kind].stem}.py"


def test_every_constructor_is_public_and_has_a_layer():
    for c in constructors():
        if c.kind and not c.__name__.startswith("_"):
            assert c.kind in KINDS and getattr(nn, c.__name__, None) is c, f"{c.__name__}: not in gradaccum.nn, or its kind is no layer"
