"""Characters to numbers and back."""
from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Iterable

import numpy as np

SPECIAL = ("<pad>", "<bos>", "<eos>")                        # tokens 0, 1, 2


class CharTokenizer:
    """One token a character; 0 is padding, 1 the beginning, 2 the end, 3 the first character.

    Text is brought to Unicode's composed form (NFC) first. Vietnamese needs it: "ế" can be written as
    one character or as three (e, circumflex, acute), which look the same and would be different tokens.

    Args:
        texts: the characters in them, in the order of Unicode, are the tokens; a str counts as one
            text. Build it from all texts, those of the test set too: a character that was not there
            cannot be encoded.

    Attributes: ``pad``, ``bos``, ``eos``: their tokens. ``characters``: str, token 3 and on.
    ``len(tokenizer)``: the vocabulary, special tokens and characters.
    """

    pad, bos, eos = range(len(SPECIAL))

    def __init__(self, texts: Iterable[str]):
        if isinstance(texts, str):
            texts = (texts,)
        found: set[str] = set()
        for i, text in enumerate(texts):
            found.update(_composed(text, f"text {i}"))
        if not found:
            raise ValueError("texts holds no character, so there is nothing to build a vocabulary from")
        self._set("".join(sorted(found)))

    def _set(self, characters: str) -> None:
        self.characters = characters
        self._token = {c: i for i, c in enumerate(characters, len(SPECIAL))}

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.characters)

    def __repr__(self) -> str:
        return f"CharTokenizer({len(self)} tokens: {', '.join(SPECIAL)}, {self.characters!r})"

    def __eq__(self, other) -> bool:
        return isinstance(other, CharTokenizer) and self.characters == other.characters

    __hash__ = None

    def encode(self, text: str, bos: bool = False, eos: bool = False) -> np.ndarray:
        """The tokens of ``text``, int64 (n,); with ``bos`` and ``eos``, the marks around it.

        Raises:
            ValueError: a character that is not in the vocabulary; names it and its position in the
                composed text.
        """
        text = _composed(text, "text")
        try:
            tokens = [self._token[c] for c in text]
        except KeyError:
            at = next(i for i, c in enumerate(text) if c not in self._token)
            raise ValueError(
                f"{text!r}: the character {text[at]!r} ({_name(text[at])}) at position {at} is not in "
                f"the vocabulary of {len(self.characters)} characters; build the CharTokenizer from "
                "texts that have it, or take it out") from None
        return np.array([self.bos] * bool(bos) + tokens + [self.eos] * bool(eos), dtype=np.int64)

    def decode(self, tokens, special: bool = False) -> str:
        """The text of a sequence of tokens; ``special`` writes the special ones as "<eos>" and so on,
        otherwise they are left out.

        Raises:
            IndexError: a token outside of the vocabulary; names it and its position.
        """
        tokens = np.asarray(tokens)
        if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
            raise ValueError(f"tokens has shape {tokens.shape} and dtype {tokens.dtype}; expected whole "
                             "numbers in one sequence (n,): decode the rows of a batch one by one")
        out = []
        for i, token in enumerate(tokens.tolist()):
            if not 0 <= token < len(self):
                raise IndexError(f"token {token} at position {i}: the vocabulary has 0 to "
                                 f"{len(self) - 1}")
            if token >= len(SPECIAL):
                out.append(self.characters[token - len(SPECIAL)])
            elif special:
                out.append(SPECIAL[token])
        return "".join(out)

    def save(self, path) -> None:
        """Writes the vocabulary as JSON, to be read by ``load``."""
        data = {"type": "CharTokenizer", "special": SPECIAL, "characters": self.characters}
        Path(path).write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path) -> CharTokenizer:
        """The tokenizer that ``save`` wrote: the same characters have the same tokens.

        Raises:
            ValueError: not such a file, or an altered one.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:                          # of JSON or of UTF-8
            raise ValueError(f"{path}: damaged, or not a file of CharTokenizer.save: {error}") from None
        if not isinstance(data, dict) or data.get("type") != "CharTokenizer":
            raise ValueError(f"{path}: not a file of CharTokenizer.save")
        if data.get("special") != list(SPECIAL):
            raise ValueError(f"{path}: special tokens {data.get('special')}; expected {list(SPECIAL)}")
        characters = data.get("characters")
        if (not isinstance(characters, str) or not characters
                or list(characters) != sorted(set(characters))):
            raise ValueError(f"{path}: characters must be a string of different characters in the order "
                             "of Unicode; the file was altered")
        self = cls.__new__(cls)
        self._set(characters)
        return self


def _composed(text: str, what: str) -> str:
    """``text`` in NFC."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is {type(text).__name__}, expected str"
                        + ("; decode it first: text.decode('utf-8')" if isinstance(text, bytes) else ""))
    text = unicodedata.normalize("NFC", text)
    for i, c in enumerate(text):
        if "\ud800" <= c <= "\udfff":
            raise ValueError(f"{what} has half of a surrogate pair, U+{ord(c):04X}, at position {i}: it "
                             "was read with the wrong encoding or errors='surrogateescape'")
    return text


def _name(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".strip()
