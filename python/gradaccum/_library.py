"""Finds an OpenBLAS for the openblas engine; says what is in use."""
from __future__ import annotations

import os
import sys

from . import _core
from ._version import __version__


def _load_blas() -> None:
    forced = os.environ.get("GRADACCUM_BLAS_LIB")            # a path, a library name, or "none"
    own = os.path.join(os.path.dirname(__file__), "_libs", "libscipy_openblas-gradaccum.so")
    for library in [forced] if forced else [own, "libopenblas.so.0"]:
        if library == "none":
            return
        try:
            return _core.load_blas(library)
        except OSError:
            if forced:
                raise


_load_blas()


def info() -> dict:
    """What is in use: versions of gradaccum, Python and NumPy, OpenBLAS and its kernel, CPU level, bfloat16 products (told only), threads."""
    import numpy

    return {
        "gradaccum": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "numpy": numpy.__version__,
        "openblas": _core.blas_name() or "none",
        "cpu": _core.cpu_level(),
        "bf16": _core.cpu_bf16(),
        "threads": _core.get_num_threads(),
    }
