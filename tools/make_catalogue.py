"""Collects the messages of the package into its catalogues, compiles them, and says how much is translated. Needs Babel.

    python tools/make_catalogue.py            # updates every gradaccum.po and its gradaccum.mo
    python tools/make_catalogue.py --check    # changes nothing; fails if something is missing, unused or not compiled
"""
import ast
import sys
from datetime import datetime, timezone
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po, write_po

PACKAGE = Path(__file__).parent.parent / "python" / "gradaccum"
HEADER = '''# Texts of gradaccum in another language. tools/make_catalogue.py updates this file and compiles it.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=utf-8\\n"
"Language: {language}\\n"
"Plural-Forms: {plural}\\n"

'''
CALLS = {"_": 1, "N_": 1, "ngettext": 2}                     # function -> number of texts


def messages() -> dict:
    """{message, or (one, many): [(file, line), ...]} of all calls with literal texts."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            count = CALLS.get(node.func.id) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
            texts = [a.value for a in node.args[:count] if isinstance(a, ast.Constant) and isinstance(a.value, str)] if count else []
            if count and len(texts) == count and texts[0]:
                found.setdefault(texts[0] if count == 1 else tuple(texts), []).append((path.relative_to(PACKAGE).as_posix(), node.lineno))
    return found


def catalogues() -> list[Path]:
    return sorted(PACKAGE.glob("locale/*/LC_MESSAGES/gradaccum.po"))


def read(path: Path) -> Catalog:
    with path.open("rb") as file:
        catalogue = read_po(file, locale=path.parts[-3], domain="gradaccum")
    catalogue.creation_date = catalogue.revision_date = datetime(2026, 1, 1, tzinfo=timezone.utc)      # else every run would give another file
    return catalogue


def table(catalogue: Catalog) -> dict:
    """{message: translation} of what is translated."""
    plain = lambda text: text if isinstance(text, str) else tuple(text)  # noqa: E731
    return {plain(m.id): plain(m.string) for m in catalogue if m.id and m.string and all(m.string)}


def report(path: Path, found: dict) -> tuple[list, list]:
    """Prints the share; (missing, unused) messages."""
    done = table(read(path))
    missing, unused = [m for m in found if m not in done], [m for m in done if m not in found]
    share = 1 - len(missing) / len(found)
    print(f"{path.parts[-3]}: {len(found) - len(missing)} of {len(found)} messages, {share:.1%} translated; {len(unused)} unused")
    for m in missing:
        print(f"  missing: {m!r} ({found[m][0][0]}:{found[m][0][1]})")
    return missing, unused


def update(path: Path, found: dict) -> None:
    """Rewrites the .po with the messages as they are now, keeps translations, and compiles the .mo."""
    old = read(path)
    done = table(old)
    new = Catalog(locale=path.parts[-3], domain="gradaccum")
    for m, places in found.items():
        new.add(m, done.get(m, ""), locations=[(name, None) for name in dict.fromkeys(name for name, _line in places)])
    with path.open("wb") as file:
        file.write(HEADER.format(language=old.locale, plural=old.plural_forms).encode())
        write_po(file, new, width=150, omit_header=True)
    with path.with_suffix(".mo").open("wb") as file:
        write_mo(file, read(path))


def compiled(path: Path) -> bool:
    """Whether the .mo beside it holds the same messages."""
    with path.with_suffix(".mo").open("rb") as file:
        return table(read_mo(file)) == table(read(path))


def main(arguments: list[str]) -> int:
    found, bad = messages(), False
    for path in catalogues():
        if "--check" not in arguments:
            update(path, found)
        missing, unused = report(path, found)
        bad |= bool(missing or unused) or not compiled(path)
    return int(bad and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
