"""The commands linnet-bench, linnet-run, linnet-serve and linnet-train of a Python installation: they become the native tools
in linnet/bin. Native builds have the tools directly; nothing of Python stays in the process."""

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
        sys.exit(f"{tool}: error: cannot start {path}: {error.strerror}; install linnet again")


def bench() -> NoReturn:
    """linnet-bench: times a model natively."""
    _become("linnet-bench")


def run() -> NoReturn:
    """linnet-run: runs a model once natively."""
    _become("linnet-run")


def serve() -> NoReturn:
    """linnet-serve: a server of a training job, natively."""
    _become("linnet-serve")


def train() -> NoReturn:
    """linnet-train: trains a model natively."""
    _become("linnet-train")
