"""Finds nvcc: the one on the PATH, or that of NVIDIA's four wheels, which the extra `cuda` of pyproject.toml installs
(`make .venv/.cuda-stamp`). Nothing here needs a GPU."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

MISSING = "missing: nvcc; get it with: make .venv/.cuda-stamp, or install the CUDA toolkit"


def find_nvcc() -> str | None:
    """The path of nvcc; None if there is none."""
    found = shutil.which("nvcc")
    if found is not None:
        return found
    folder = Path(sysconfig.get_path("purelib"), "nvidia")
    return next((str(path) for path in sorted(folder.glob("cu*/bin/nvcc"), reverse=True)), None)


def need_nvcc() -> str:
    """Skips the test if there is no nvcc."""
    found = find_nvcc()
    if found is None:
        import pytest

        pytest.skip(MISSING)
    return found
