"""The commands linnet-bench, linnet-run, linnet-serve and linnet-train of a Python installation. Each replaces its own
process with the native tool in linnet/bin, so no Python remains. Native builds install the tools directly."""

from __future__ import annotations

import importlib.resources
import os
import sys
from typing import NoReturn


def _become(tool: str) -> NoReturn:
    name = tool + (".exe" if sys.platform == "win32" else "")
    path = str(importlib.resources.files("linnet") / "bin" / name)
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{tool}: error: cannot start {path}: {error.strerror}; reinstall linnet")


def bench() -> NoReturn:
    """linnet-bench: times a model without Python."""
    _become("linnet-bench")


def run() -> NoReturn:
    """linnet-run: runs a model once without Python."""
    _become("linnet-run")


def serve() -> NoReturn:
    """linnet-serve: runs a parameter server without Python."""
    _become("linnet-serve")


def train() -> NoReturn:
    """linnet-train: trains a model without Python."""
    _become("linnet-train")
