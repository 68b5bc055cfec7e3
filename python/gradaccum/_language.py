"""The language of cards, pictures, reasons and the explanations of errors: gettext of the standard library, catalogues in ``locale/``.

English texts are the keys. ``tools/make_catalogue.py`` collects them from the calls of ``_``, ``ngettext`` and ``N_``.
"""
from __future__ import annotations

import os
from contextlib import contextmanager

from ._checks import choice

DOMAIN, FOLDER = "gradaccum", os.path.join(os.path.dirname(__file__), "locale")
_language, _catalogue = "en", None                           # English needs no catalogue


def languages() -> tuple[str, ...]:
    """Those that ``set_language`` takes."""
    there = os.listdir(FOLDER) if os.path.isdir(FOLDER) else []
    return "en", *sorted(name for name in there if os.path.exists(os.path.join(FOLDER, name, "LC_MESSAGES", f"{DOMAIN}.mo")))


def _use(name: str, language: str) -> None:
    global _language, _catalogue
    choice(name, language, languages())
    if language == "en":
        _catalogue = None
    else:
        import gettext

        _catalogue = gettext.translation(DOMAIN, FOLDER, [language])
    _language = language


def set_language(language: str) -> None:
    """Language of cards, pictures, the reason that a printed ``Update`` gives and the lines of errors after the first, from now on: "en" or "vi".

    The environment variable GRADACCUM_LANGUAGE sets it when gradaccum is imported. Names, the first line of an error and its class stay
    English, so that they can be searched, and so does all that is data (``Update.reason``, logs, saved runs).

    Raises:
        ValueError: there is no catalogue of that language; the text lists those that there are.
    """
    _use("language", language)


def get_language() -> str:
    """The language that is in use."""
    return _language


@contextmanager
def using(language: str):
    """Another language inside the block."""
    before = _language
    _use("language", language)
    try:
        yield
    finally:
        _use("language", before)


def _(message: str) -> str:
    """The message in the language that is in use; English where the catalogue has none."""
    return _catalogue.gettext(message) if _catalogue and message else message    # gettext's empty message is the catalogue's header


def ngettext(one: str, many: str, n: int) -> str:
    """The message for this number of things."""
    return _catalogue.ngettext(one, many, n) if _catalogue else one if n == 1 else many


def N_(message: str) -> str:
    """Marks a message that is kept in a table and translated where it is shown."""
    return message


if os.environ.get("GRADACCUM_LANGUAGE"):
    _use("GRADACCUM_LANGUAGE", os.environ["GRADACCUM_LANGUAGE"])
