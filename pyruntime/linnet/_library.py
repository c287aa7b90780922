"""Finds and opens liblinnet, and turns its error records into exceptions. Opened at first use, not at import.
LINNET_LIBRARY names another build of the library, for development."""

from __future__ import annotations

import importlib.resources
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from linnet._generated.ffi import ffi
from linnet.errors import Error, class_of

NULL = ffi.NULL
# Threads may still be inside a library when Python ends and lets go of it: it stays mapped.
KEPT = getattr(os, "RTLD_NOW", 0) | getattr(os, "RTLD_NODELETE", 0)
_NAMES = {"darwin": "liblinnet.dylib", "win32": "linnet.dll"}


def library_path() -> Path:
    """Where the shared library is. Raises linnet.Error when this installation has none."""
    chosen = os.environ.get("LINNET_LIBRARY")
    if chosen:
        return Path(chosen)
    name = _NAMES.get(sys.platform, "liblinnet.so")
    path = importlib.resources.files("linnet") / "lib" / name
    if path.is_file():
        return Path(str(path))
    raise Error(
        "the C library is not installed with the Python package", expected=str(path), got="no such file",
        hint="install with `pip install .`, or set LINNET_LIBRARY to a liblinnet.so that CMake built",
    )  # fmt: skip


@cache
def library() -> Any:
    """The opened library: its functions as attributes."""
    path = library_path()
    try:
        return ffi.dlopen(str(path), KEPT)
    except OSError as error:
        raise Error(f"cannot open the C library '{path}': {error}", hint="build it again for this machine") from None


def _text(field: Any) -> str:
    return bytes(ffi.string(field)).decode("utf-8", "replace")


def exception(record: Any) -> Error:
    """The exception of a filled `linnet_error`, not raised."""
    return class_of(record.code)(
        _text(record.what) or _text(library().linnet_status_name(record.code)),
        code=record.code,
        op=_text(record.op),
        op_index=record.op_index,
        tensor=_text(record.tensor),
        expected=_text(record.expected),
        got=_text(record.got),
        hint=_text(record.hint),
    )
