"""PEP 517 backend: setuptools, plus the OpenBLAS wheel, which is asked for only when it is wanted."""
import os

from setuptools import build_meta as _build
from setuptools.build_meta import *  # noqa: F401,F403


def _blas():
    return ["scipy-openblas32>=0.3.34.237.2"] if os.environ.get("GRADACCUM_BLAS", "auto") != "none" else []


def get_requires_for_build_wheel(config_settings=None):
    return _build.get_requires_for_build_wheel(config_settings) + _blas()


def get_requires_for_build_editable(config_settings=None):
    return _build.get_requires_for_build_editable(config_settings) + _blas()
