"""Builds gradaccum._core: the core once, the compute sources once per precision and CPU level, the binding once.

Environment:
    GRADACCUM_CFLAGS, GRADACCUM_LDFLAGS   added to every compilation and to the link
    GRADACCUM_BLAS                        auto (default): bundle OpenBLAS if scipy-openblas32 is there; scipy: insist; none
"""
import os
import platform
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CFLAGS = [
    "-O3", "-std=c11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=off", "-Wall", "-Wextra",
    "-Wstrict-prototypes", "-Wno-missing-field-initializers", "-Werror=implicit-function-declaration",
]
LDFLAGS = ["-lm", "-ldl", "-lpthread", "-Wl,-z,relro,-z,now"]
LEVELS = {"base": []}
MACROS = [("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"), ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")]
if platform.machine() in ("x86_64", "AMD64"):
    LEVELS |= {"avx2": ["-march=x86-64-v3"], "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"]}
    MACROS.append(("GA_HAVE_X86_LEVELS", "1"))

CORE = sorted(map(str, Path("csrc/core").glob("*.c")))
COMPUTE = sorted(map(str, Path("csrc/compute").rglob("*.c")))
BINDING = sorted(map(str, Path("python/binding").glob("*.c")))
BUNDLED = "libscipy_openblas-gradaccum.so"


def find_blas():
    """The OpenBLAS file to copy into the package, or None (then the system's is used, if there is one)."""
    want = os.environ.get("GRADACCUM_BLAS", "auto")
    if want not in ("auto", "scipy", "none"):
        raise SystemExit(f"GRADACCUM_BLAS={want!r}: use auto, scipy or none")
    if want == "none":
        return None
    try:
        import scipy_openblas32 as openblas
    except ImportError:
        if want == "scipy":
            raise
        return print("WARNING: no scipy-openblas32: OpenBLAS is not bundled", file=sys.stderr)
    return os.path.join(openblas.get_lib_dir(), openblas.get_library(fullname=True))


class BuildExt(build_ext):
    def build_extension(self, ext):
        jobs = [(source, "common", []) for source in CORE + BINDING]
        for level, flags in LEVELS.items():
            for bits in (32, 64):
                variant = f"f{bits}_{level}"
                macros = [f"-DGA_VARIANT={variant}", f"-DGA_REAL_BITS={bits}"]
                jobs += [(source, variant, flags + macros) for source in COMPUTE]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda job: self.compile_one(ext, *job), jobs))
        target = Path(self.get_ext_fullpath(ext.name))
        if not target.exists() or any(os.path.getmtime(o) > target.stat().st_mtime for o in objects):
            self.compiler.link_shared_object(objects, str(target), extra_postargs=LDFLAGS + ext.extra_link_args)
        shutil.rmtree(target.parent / "_libs", ignore_errors=True)
        if blas := find_blas():
            # A name of its own for our copy, else another package that asks for the library by name would get ours.
            (target.parent / "_libs").mkdir()
            old, new = b"\0libscipy_openblas.so\0", b"\0libgradaccum_blas.so\0"      # equal lengths
            data = Path(blas).read_bytes()
            if data.count(old) != 1:
                raise SystemExit(f"{blas}: unexpected SONAME; set GRADACCUM_BLAS=none to build without it")
            (target.parent / "_libs" / BUNDLED).write_bytes(data.replace(old, new))

    def compile_one(self, ext, source, variant, flags):
        """One object file; skipped if it is newer than all it was made from and the command is the same."""
        folder = os.path.join(self.build_temp, variant)
        (obj,) = self.compiler.object_filenames([source], output_dir=folder)
        stamp, depends = Path(obj + ".cmd"), Path(obj).with_suffix(".d")
        command = repr((self.compiler.compiler_so, CFLAGS, flags, ext.define_macros, ext.include_dirs, ext.extra_compile_args))
        if os.path.exists(obj) and depends.exists() and stamp.exists() and stamp.read_text() == command:
            files = depends.read_text().replace("\\\n", " ").split(": ", 1)[1].split()
            if all(os.path.exists(f) and os.path.getmtime(f) <= os.path.getmtime(obj) for f in files):
                return obj
        self.compiler.compile([source], output_dir=folder, macros=ext.define_macros, include_dirs=ext.include_dirs,
                              extra_postargs=CFLAGS + flags + ["-MMD"] + ext.extra_compile_args)
        stamp.write_text(command)
        return obj

    def get_outputs(self):                                   # tells wheels about the copied library
        return super().get_outputs() + [str(p) for p in Path(self.build_lib).glob("gradaccum/_libs/*")]

    def copy_extensions_to_source(self):                     # editable installs: setuptools itself copies only the extension
        super().copy_extensions_to_source()
        source, target = Path(self.build_lib, "gradaccum/_libs"), Path("python/gradaccum/_libs")
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)


setup(
    cmdclass={"build_ext": BuildExt},
    ext_modules=[Extension(
        "gradaccum._core", CORE + COMPUTE + BINDING, include_dirs=[numpy.get_include(), "csrc", "csrc/core", "csrc/compute"],
        define_macros=MACROS, extra_compile_args=os.environ.get("GRADACCUM_CFLAGS", "").split(),
        extra_link_args=os.environ.get("GRADACCUM_LDFLAGS", "").split())],
)
