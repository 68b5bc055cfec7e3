"""Looks into the built sdist and wheel: what must be there, and what must not."""
import sys
import tarfile
import zipfile
from pathlib import Path


def need(names, wanted, what):
    missing = [w for w in wanted if not any(w in n for n in names)]
    if missing:
        raise SystemExit(f"{what}: missing {', '.join(missing)}")


def main(folder: str) -> None:
    (sdist,) = Path(folder).glob("*.tar.gz")
    (wheel,) = Path(folder).glob("*.whl")
    names = tarfile.open(sdist).getnames()
    need(names, ["csrc/gradaccum.h", "csrc/compute/layers.def", "python/binding/binding.h", "tools/ga_backend.py", "LICENSE", "LC_MESSAGES/gradaccum.po"],
         sdist.name)
    if any(n.endswith(".so") for n in names):
        raise SystemExit(f"{sdist.name}: holds a compiled library")
    names = zipfile.ZipFile(wheel).namelist()
    need(names, ["gradaccum/_core", "gradaccum/py.typed", "gradaccum/data/digits.npz", "gradaccum/locale/vi/LC_MESSAGES/gradaccum.mo", "licenses/LICENSE"],
         wheel.name)
    if any("_libs/" in n for n in names):
        need(names, ["LICENSES/OpenBLAS.txt"], wheel.name)
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes; {wheel.name}: {wheel.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
