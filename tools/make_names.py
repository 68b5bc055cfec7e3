"""Makes python/gradaccum/data/names.txt from the Unicode CLDR (Debian package unicode-cldr-core, Unicode licence).

    apt-get download unicode-cldr-core && dpkg -x unicode-cldr-core*.deb folder
    python tools/make_names.py folder/usr/share/unicode/cldr/common

One line per item, English and Vietnamese with a tab between, under a line with the category in brackets. Left out: names that are
the same in both languages, spellings and draft names that CLDR marks as unconfirmed, and pairs that were there before.
"""
import sys
import unicodedata
import xml.etree.ElementTree as ElementTree
from pathlib import Path

LANGUAGES = ("en", "vi")
DISPLAY = "localeDisplayNames/"
# category -> (folder, where the elements are, their key, where the name is inside of them)
WHERE = {
    "symbol": ("annotations", "annotations/annotation[@type='tts']", "cp", None),
    "language": ("main", DISPLAY + "languages/language", "type", None),
    "currency": ("main", "numbers/currencies/currency", "type", "displayName"),
    "territory": ("main", DISPLAY + "territories/territory", "type", None),
    "script": ("main", DISPLAY + "scripts/script", "type", None),
}


def settled(element):
    """The usual name, not a variant of it, and not one that CLDR has no confidence in."""
    if element.get("alt") or element.get("count") or element.get("draft") not in (None, "contributed"):
        return False
    return "↑" not in element.text                           # CLDR's mark for "as in the parent"


def names(root, where, key, inside):
    found = {}
    for element in root.iterfind(where):
        for name in element.findall(inside) if inside else [element]:
            if settled(name):
                found[element.get(key)] = " ".join(unicodedata.normalize("NFC", name.text).split())
    return found


def main(folder):
    lines, seen = [], set()
    for category, (subfolder, where, key, inside) in WHERE.items():
        english, vietnamese = (names(ElementTree.parse(Path(folder, subfolder, f"{language}.xml")).getroot(), where, key, inside)
                               for language in LANGUAGES)
        lines.append(f"[{category}]")
        for code in sorted(english.keys() & vietnamese.keys()):
            pair = english[code], vietnamese[code]
            if pair not in seen and pair[0].casefold() != pair[1].casefold():
                seen.add(pair)
                lines.append("\t".join(pair))
    target = Path(__file__).parent.parent / "python/gradaccum/data/names.txt"
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{target.name}: {target.stat().st_size:,} bytes, {len(seen):,} pairs")


if __name__ == "__main__":
    main(sys.argv[1])
