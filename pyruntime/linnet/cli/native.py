"""The commands linnet-bench, linnet-run, linnet-parameter-server and linnet-train of a Python installation. Each replaces its own
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


def parameter_server() -> NoReturn:
    """linnet-parameter-server: runs a parameter server without Python."""
    _become("linnet-parameter-server")


def serve() -> NoReturn:
    """linnet-serve: the old name of linnet-parameter-server, for one version."""
    print("linnet-serve: warning: this command is now linnet-parameter-server", file=sys.stderr)
    parameter_server()


def train() -> NoReturn:
    """linnet-train: trains a model without Python."""
    _become("linnet-train")
