"""Finds and opens liblinnet, and turns its error records into exceptions. The library is opened at first use, not at
import. The environment variable LINNET_LIBRARY names another build of the library, for development."""

from __future__ import annotations

import os
import sys
import threading
from functools import cache
from typing import Any

from linnet.clib.errors import STATUS, Error, class_of
from linnet.clib.ffi import ffi
from linnet.clib.names import python_names

NULL = ffi.NULL
# Threads may still be running inside the library when Python exits and closes it, so it stays mapped.
KEPT = getattr(os, "RTLD_NOW", 0) | getattr(os, "RTLD_NODELETE", 0)
_NAMES = {"darwin": "liblinnet.dylib", "win32": "linnet.dll"}


def _installed(*parts: str) -> str:
    """A path in the package. The package is always a folder, not an archive, because it contains a shared library.
    importlib.resources and pathlib would add 10 ms to the start of every program."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *parts)


def library_path() -> str:
    """Path of the shared library. Raises linnet.Error if this installation has none."""
    chosen = os.environ.get("LINNET_LIBRARY")
    if chosen:
        return chosen
    path = _installed("lib", _NAMES.get(sys.platform, "liblinnet.so"))
    if os.path.isfile(path):
        return path
    raise Error(
        "the C library liblinnet is not installed with the Python package", expected=path, got="no such file",
        hint="install with `pip install .`, or set LINNET_LIBRARY to a liblinnet.so built with CMake",
    )  # fmt: skip


def include_dir() -> str:
    """Path of the folder with the C headers of this installation: linnet.h, linnet_ext.h, linnet_device.h, ... They are
    needed to build user ops, devices and programs in C. Raises linnet.Error if this installation has none."""
    folder = _installed("include")
    if os.path.isfile(os.path.join(folder, "linnet.h")):
        return folder
    raise Error(
        "the C headers are not installed with the Python package", expected=folder, got="no linnet.h there",
        hint="install with `pip install .`, or use runtime_c/include of the sources",
    )  # fmt: skip


@cache
def library() -> Any:
    """The opened library. Its functions are attributes."""
    path = library_path()
    try:
        return ffi.dlopen(path, KEPT)
    except OSError as error:
        raise Error(f"cannot open the C library '{path}': {error}", hint="rebuild it for this machine") from None


def new_struct(name: str) -> Any:
    """A zeroed struct of the C API with its struct_size set, as the header's NAME_init makes it."""
    made = ffi.new(f"{name} *")
    library().linnet_struct_init(made, ffi.sizeof(name))
    return made


@cache
def log_callback() -> Any:
    """The linnet_log that passes the C library's messages to logging.getLogger("linnet")."""

    def send(_: Any, level: int, message: Any) -> None:
        if level < library().LINNET_LOG_WARNING and "logging" not in sys.modules:
            return  # nobody has asked for such messages, and importing logging takes 3 ms
        import logging

        level = logging.WARNING if level >= library().LINNET_LOG_WARNING else logging.INFO
        logging.getLogger("linnet").log(level, "%s", _message(message))

    return ffi.callback("linnet_log", send)


def _text(field: Any) -> str:
    return bytes(ffi.string(field)).decode("utf-8", "replace")


def _message(field: Any) -> str:
    return python_names(_text(field))


_pending = threading.local()


def keep_cause(error: BaseException) -> None:
    """Stores the exception with which a Python callback has just failed. C then reports the failure to the same
    thread."""
    _pending.cause = error


def take_cause(code: int) -> BaseException | None:
    """The exception behind a failure of a user op. It is returned only once."""
    cause: BaseException | None = getattr(_pending, "cause", None)
    _pending.cause = None
    return cause if STATUS.get(code) == "user_op_failed" else None


def exception(record: Any) -> Error:
    """Converts a filled `linnet_error` to an exception. Does not raise it."""
    made = class_of(record.code)(
        _message(record.what) or _text(library().linnet_status_name(record.code)),
        code=record.code,
        op=_text(record.op),
        op_index=record.op_index,
        tensor=_text(record.tensor),
        expected=_message(record.expected),
        got=_message(record.got),
        hint=_message(record.hint),
    )
    made.__cause__ = take_cause(record.code)
    return made
