"""The native tools as commands of a Python installation: linnet-bench, linnet-host and the others. Each command replaces its
own process with the tool in linnet/bin, so no Python remains. Native builds install the tools directly."""

from __future__ import annotations

import importlib.resources
import os
import sys
from collections.abc import Sequence
from typing import NoReturn


def become(tool: str, arguments: Sequence[str]) -> NoReturn:
    """Replaces this process with the tool."""
    name = tool + (".exe" if sys.platform == "win32" else "")
    path = str(importlib.resources.files("linnet") / "bin" / name)
    try:
        os.execv(path, [path, *arguments])
    except OSError as error:
        sys.exit(f"{tool}: error: cannot start {path}: {error.strerror}; reinstall linnet")


def bench() -> NoReturn:
    """linnet-bench: times a model without Python."""
    become("linnet-bench", sys.argv[1:])


def run() -> NoReturn:
    """linnet-run: runs a model once without Python."""
    become("linnet-run", sys.argv[1:])


def parameter_server() -> NoReturn:
    """linnet-parameter-server: runs a parameter server without Python."""
    become("linnet-parameter-server", sys.argv[1:])


def serve() -> NoReturn:
    """linnet-serve: the old name of linnet-parameter-server, for one version."""
    print("linnet-serve: warning: this command is now linnet-parameter-server", file=sys.stderr)
    parameter_server()


def host() -> NoReturn:
    """linnet-host: lends this machine to others, which run parts of their models on it, without Python."""
    become("linnet-host", sys.argv[1:])


def train() -> NoReturn:
    """linnet-train: trains a model without Python."""
    become("linnet-train", sys.argv[1:])
