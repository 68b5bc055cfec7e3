"""Records: named values, compared and printed by name."""
import pytest

from gradaccum.records import Record, Step


class Pair(Record):
    first: int
    second: str = "b"
    seconds: float = 0.0
    big: list = None
    _uncompared = ("seconds",)
    _unprinted = ("big",)


def test_made_compared_and_printed_by_name():
    assert Pair(1) == Pair(first=1, second="b", seconds=3.0) != Pair(2) and Pair(1) != (1, "b")
    assert repr(Pair(1, big=[5])) == "Pair(first=1, second='b', seconds=0.0)"
    assert Pair(1, "c").to_dict() == {"first": 1, "second": "c", "seconds": 0.0, "big": None}
    assert Step(1.0, 2.0, 3, update=Pair(1)).to_dict()["update"]["second"] == "b"
    match Pair(7):
        case Pair(first=n):
            assert n == 7


@pytest.mark.parametrize("make", [lambda: Pair(), lambda: Pair(1, 2, 3, 4, 5), lambda: Pair(1, first=2), lambda: Pair(1, third=3)])
def test_wrong_fields_are_refused(make):
    with pytest.raises(TypeError, match="Pair: got .*expected first, second"):
        make()


def test_a_record_is_not_hashable():
    with pytest.raises(TypeError):
        hash(Pair(1))
