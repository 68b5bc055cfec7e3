"""Short names in English and Vietnamese: which language is it, and how does it go on?

2,975 things that have a name in both: symbols and emoji ("shark", "cá mập"), languages, currencies,
territories, scripts. The names are 2 to 53 characters long, so half of a batch is padding unless names
of similar length are put together (``pack``), and a mean over tokens is not a mean over names.

Source: the Unicode Common Locale Data Repository 41 (Unicode licence) in Debian's package
unicode-cldr-core; tools/make_names.py made the file. See LICENSES/names.txt.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._checks import choice
from ._files import path

LANGUAGES = ("en", "vi")
CATEGORIES = ("symbol", "language", "currency", "territory", "script")


class Names(NamedTuple):
    """The names, two for each item: English, then Vietnamese.

    text: list of str, in Unicode's composed form (NFC). language: int64 (n,), 0 en, 1 vi, as in
    ``languages``. item: int64 (n,), the number of the thing that is named. category: list of str.
    train, test: int64, positions in ``text``; the two names of an item are on the same side.
    """

    text: list[str]
    language: np.ndarray
    item: np.ndarray
    category: list[str]
    languages: tuple[str, str]
    train: np.ndarray
    test: np.ndarray

    def split(self) -> tuple[list[str], np.ndarray, list[str], np.ndarray]:
        """(x_train, y_train, x_test, y_test): names and their languages."""
        return ([self.text[i] for i in self.train], self.language[self.train],
                [self.text[i] for i in self.test], self.language[self.test])

    def pairs(self) -> list[tuple[str, str]]:
        """(English, Vietnamese) of every item."""
        return list(zip(self.text[::2], self.text[1::2]))


def names(categories=CATEGORIES) -> Names:
    """All names, or those of some categories.

    Every fifth item of the file is for testing. No name occurs twice in the file, not even in the
    other language, so nothing in the test set was seen in training, nor was its translation.

    How hard: a linear classifier of the characters that occur gets all languages ("Tiếng ...") and
    scripts ("Chữ ...") right, 99 % of the symbols, 92 % of the territories and 84 % of the currencies
    ("Belarusian Ruble", "Rúp Belarus").

    Args:
        categories: one, or several, of "symbol" (1,887 items), "language", "currency", "territory",
            "script". An item is on the same side whatever the categories.
    """
    wanted = (categories,) if isinstance(categories, str) else tuple(categories)
    if not wanted:
        raise ValueError(f"categories={categories!r}: expected at least one of {CATEGORIES}")
    for category in wanted:
        choice("categories", category, CATEGORIES)
    text, item, kinds, number, category = [], [], [], 0, None
    for line in path("names.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            category = line[1:-1]
            continue
        if category in wanted:
            text += line.split("\t")
            item += [number] * len(LANGUAGES)
            kinds += [category] * len(LANGUAGES)
        number += 1
    language, item = np.arange(len(text)) % len(LANGUAGES), np.array(item, dtype=np.int64)
    test = item % 5 == 4
    return Names(text, language, item, kinds, LANGUAGES, np.flatnonzero(~test), np.flatnonzero(test))
