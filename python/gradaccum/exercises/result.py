"""What a checker says, and how it comes to say it: no checker raises, so "Run All" goes through with exercises undone or wrong."""
from __future__ import annotations

import copy
import functools
import html
import traceback
from dataclasses import dataclass
from typing import Callable

import numpy as np

DONE, WRONG, NOT_DONE = "done", "wrong", "not done yet"
_MARKS = {DONE: "✔", WRONG: "✘", NOT_DONE: "…"}


@dataclass(frozen=True)
class Result:
    """True if the exercise is done.

    Attributes:
        exercise: its name.
        state: "done", "wrong" or "not done yet".
        message: what is right, or what is wrong and why.
    """

    exercise: str
    state: str
    message: str

    def __bool__(self):
        return self.state == DONE

    def __repr__(self):
        return f"{_MARKS[self.state]} {self.exercise}: {self.state}. {self.message}"

    def _repr_html_(self):
        """The same in a notebook, where long reasons wrap."""
        return f"<div>{_MARKS[self.state]} <b>{html.escape(self.exercise)}: {self.state}.</b> {html.escape(self.message)}</div>"


class Wrong(Exception):
    """The answer is wrong; the text says why."""


class NotDone(Exception):
    """The answer still holds the three dots of the stub."""


CHECKERS: dict[str, Callable[[object], Result]] = {}         # by the name of the answer


def exercise(answer_name: str) -> Callable:
    """Decorator: makes the checker of the answer of that name from a function that returns words of praise, or raises Wrong."""
    def made(judge: Callable[[object], str]) -> Callable[[object], Result]:
        @functools.wraps(judge)
        def check(answer) -> Result:
            try:
                if answer is ... or answer is None:
                    raise NotDone
                return Result(answer_name, DONE, judge(answer))
            except NotDone:
                return Result(answer_name, NOT_DONE, "Replace the three dots (...) by your answer and run the cell again.")
            except Wrong as error:
                return Result(answer_name, WRONG, str(error))
            except Exception as error:                       # an answer of a kind that the checker does not expect
                return Result(answer_name, WRONG, f"This answer cannot be checked ({type(error).__name__}: {error}): {_short(answer)}")

        CHECKERS[answer_name] = check
        return check
    return made


def require(condition, reason: str) -> None:
    """Wrong(reason) unless the condition holds."""
    if not condition:
        raise Wrong(reason)


def call(function, *args, copies: bool = True):
    """Calls the learner's function, with copies so that it cannot spoil the checker's data; its exceptions become reasons."""
    if not callable(function):
        raise Wrong(f"expected a function, got {_short(function)}")
    try:
        result = function(*(copy.deepcopy(args) if copies else args))
    except (KeyboardInterrupt, Wrong, NotDone):
        raise
    except BaseException as error:                           # SystemExit too: exit() in an answer must not end the notebook
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f": {error}" if str(error) else ""
        raise Wrong(f"your function raised {type(error).__name__}{text} (line {place.lineno}, in {place.name})") from None
    if result is ...:
        raise NotDone
    return result


def numbers(answer, shape: tuple[int, ...], what: str = "the answer") -> np.ndarray:
    """The answer as a float64 array of that shape. NotDone if dots are left in it, or if a function returned nothing."""
    items = answer if isinstance(answer, (list, tuple)) else [answer]
    if any(item is ... or item is None for item in items):
        raise NotDone
    try:
        array = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        raise Wrong(f"{what}: expected {'a number' if shape == () else f'numbers of shape {shape}'}, got {_short(answer)}") from None
    require(array.shape == shape, f"{what}: expected {'a single number' if shape == () else f'shape {shape}'}, got shape {array.shape}")
    require(np.all(np.isfinite(array)), f"{what}: expected finite numbers, got {_short(answer)}")
    return array


def near(a, b, tolerance: float = 1e-6) -> bool:
    """Whether two arrays agree to a relative tolerance."""
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance))


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def compare_guess(guess, measured: float, unit: str = "") -> str:
    """Your guess beside what was measured. Any guess is welcome, also none: a wrong one teaches the most.

    Returns:
        One sentence, which a notebook prints.
    """
    unit = f" {unit}" if unit else ""
    if guess is ... or guess is None:
        return _Sentence(f"It is {measured:.6g}{unit}. (No guess this time? The next one is worth more with a guess.)")
    try:
        number = float(guess)
    except (TypeError, ValueError):
        return _Sentence(f"You said {_short(guess)}; it is {measured:.6g}{unit}.")
    if near(number, measured, 1e-9):
        return _Sentence(f"You said {number:g}{unit}, and so it is.")
    factor, off = number / measured if measured else np.inf, number - measured
    if float(off).is_integer() and abs(measured) <= 20:      # something that was counted
        how = f"{abs(off):g} too {'many' if off > 0 else 'few'}"
    elif not 0 < factor < np.inf:
        how = f"{off:+.6g} off"
    else:
        how = f"{factor:.3g} times too large" if factor > 1 else f"{1 / factor:.3g} times too small"
    return _Sentence(f"You said {number:g}{unit}; it is {measured:.6g}{unit}: {how}.")


class _Sentence(str):
    """A text that a notebook shows without quotes."""

    __slots__ = ()

    def __repr__(self):
        return str(self)
