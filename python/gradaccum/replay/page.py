"""The page of a recording: ``page.html`` with the data inside."""
from __future__ import annotations

import html
import json
import re
from importlib.resources import files

from .texts import LANGUAGES, PAGE, STAGES, phrase


def render(recording, languages: tuple[str, ...]) -> str:
    """The page in these languages."""
    data = recording.to_dict()
    data["hidden"] = sum(not row["pictured"] for row in data["parameters"])
    data["parameters"] = [row for row in data["parameters"] if row["pictured"]]
    shown = {"grads", "buffer", "output"} | {row["name"] + end for row in data["parameters"] for end in ("", ".grad", ".buffer")}
    for event in data["events"]:
        event["norms"] = {name: v for name, v in event["norms"].items() if name in shown}
        event["explanation"] = {language: event["explanation"][language] for language in languages}
        del event["title"]                                   # one of few, below
    data["texts"] = {language: _texts(recording, language) for language in languages}
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    first = data["texts"][languages[0]]
    words = {"lang": languages[0], "title": html.escape(first["title"]), "table": html.escape(recording.table()), "data": _embed(data)}
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: words[mark[1]], template)


def _texts(recording, language: str) -> dict:
    i = LANGUAGES.index(language)
    texts = {key: words[i] for key, words in PAGE.items()}
    texts |= {f"stage.{stage}": words[i] for stage, words in STAGES.items()}
    w = recording.window
    texts["subtitle"] = texts["subtitle"].format(
        samples=phrase("samples", language, w["samples"]), optimizer=w["optimizer"],
        pieces=phrase("pieces", language, w["micro_steps"], m=w["micro_batch"]))
    return texts


def _embed(data) -> str:
    """JSON that cannot end the script element it stands in, whatever names it holds."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
