"""Finds and opens liblinnet_sync, which lies beside liblinnet.
liblinnet is opened first: both then use the one copy that the rest of the package uses."""

from __future__ import annotations

from functools import cache
from typing import Any

from linnet._generated.ffi import ffi
from linnet._library import KEPT, library, library_path
from linnet.errors import Error


@cache
def sync_library() -> Any:
    """The opened library: the functions of linnet_sync.h as attributes. Raises linnet.Error when it is not there."""
    library()
    beside = library_path()
    path = beside.with_name(beside.name.replace("linnet", "linnet_sync", 1))
    if not path.is_file():
        raise Error(
            "the C library for distributed training is not installed", expected=str(path), got="no such file",
            hint="install with `pip install .` on a POSIX system, or build with CMake and -DLINNET_SYNC=ON",
        )  # fmt: skip
    try:
        return ffi.dlopen(str(path), KEPT)
    except OSError as error:
        raise Error(f"cannot open the C library '{path}': {error}", hint="build it again for this machine") from None
