"""Exercises of the lessons: public checkers that tell what is wrong and why, and never raise.

    from gradaccum import exercises as ex
    ex.check_updates_per_epoch(45)           # ✘ updates_per_epoch: wrong. 45 is the number of micro-batches; ...
    ex.compare_guess(my_guess, 4.0)          # your guess beside what was measured; any guess is welcome

An answer that is still ``...`` is "not done yet". ``pytest --pyargs gradaccum.exercises --submissions FOLDER`` grades a class with the
same checkers: see ``grading``.
"""
from .basics import *  # noqa: F403
from .basics import __all__ as _basics
from .windows import *  # noqa: F403
from .windows import __all__ as _windows
from .planning import *  # noqa: F403
from .planning import __all__ as _planning
from .result import CHECKERS, Result, compare_guess

__all__ = ["CHECKERS", "Result", "compare_guess", *_basics, *_planning, *_windows]
