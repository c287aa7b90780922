"""Finds and opens liblinnet_sync, which is in the same folder as liblinnet.
liblinnet is opened first. So liblinnet_sync uses the same copy of liblinnet as the rest of the package."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from linnet.clib.errors import Error
from linnet.clib.ffi import ffi
from linnet.clib.library import KEPT, library, library_path


@cache
def sync_library() -> Any:
    """The opened library. The functions of linnet_sync.h are its attributes. Raises linnet.Error if it is not
    installed."""
    library()
    beside = Path(library_path())
    path = beside.with_name(beside.name.replace("linnet", "linnet_sync", 1))
    if not path.is_file():
        raise Error(
            "the C library for distributed training is not installed", expected=str(path), got="no such file",
            hint="install with `pip install .` on a POSIX system, or build with CMake and -DLINNET_SYNC=ON",
        )  # fmt: skip
    try:
        return ffi.dlopen(str(path), KEPT)
    except OSError as error:
        raise Error(f"cannot open the C library '{path}': {error}", hint="rebuild it for this machine") from None
