"""Makes python/gradaccum/data/names.txt from the Unicode CLDR 41 (Debian package unicode-cldr-core,
Unicode licence).

    apt-get download unicode-cldr-core && dpkg -x unicode-cldr-core*.deb folder
    python tools/make_names.py folder/usr/share/unicode/cldr/common

One line per item, English and Vietnamese with a tab between, under a line with the category in
brackets. Left out: names that are the same in both languages, variants, drafts that CLDR is not
sure of, and items of which one name was there before (the script "Arabic" after the language), so
that each name stands in the file once and belongs to one item.
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


def names(tree, where, key, inside):
    """{code: name} of one category."""
    found = {}
    for element in tree.iterfind(where):
        for name in element.findall(inside) if inside else [element]:
            if settled(name):
                found[element.get(key)] = " ".join(unicodedata.normalize("NFC", name.text).split())
    return found


def main(folder):
    lines, seen = [], set()
    for category, (subfolder, where, key, inside) in WHERE.items():
        files = (Path(folder, subfolder, f"{language}.xml") for language in LANGUAGES)
        english, vietnamese = (names(ElementTree.parse(file), where, key, inside) for file in files)
        lines.append(f"[{category}]")
        for code in sorted(english.keys() & vietnamese.keys()):
            pair = english[code], vietnamese[code]
            plain = {name.casefold() for name in pair}
            if len(plain) == 2 and not plain & seen:
                seen |= plain
                lines.append("\t".join(pair))
    target = Path(__file__).parent.parent / "python/gradaccum/data/names.txt"
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{target.name}: {target.stat().st_size:,} bytes, {len(seen) // 2:,} pairs")


if __name__ == "__main__":
    main(sys.argv[1])
