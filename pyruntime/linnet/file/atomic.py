"""Writes a file so that a reader sees either the old file or the complete new one, even after a crash."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from linnet.clib.errors import FileError

_MOST = 1 << 20


def write_atomic(path: Path, pieces: Iterator[bytes | bytearray | memoryview]) -> None:
    """Writes the pieces to a temporary file next to `path`, flushes it to disk, and renames it. Raises FileError if
    that fails.

    If `path` is a link, the file it points to is replaced, not the link. A device or pipe is written directly.
    """
    target, path = path, Path(os.path.realpath(path))
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            with open(path, "wb") as file:
                _write(file, pieces)
            return
    except OSError as error:
        raise _cannot_write(target, error) from None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise _cannot_write(target, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, pieces)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise _cannot_write(target, error) from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _write(file: BinaryIO, pieces: Iterator[bytes | bytearray | memoryview]) -> None:
    """Writes a MiB at a time, because one write of 400 MB takes three to eight times as long."""
    for piece in pieces:
        with memoryview(piece) as view:
            for at in range(0, len(view), _MOST):
                file.write(view[at : at + _MOST])


def _cannot_write(path: Path, error: OSError) -> FileError:
    return FileError(
        f"cannot write '{path}': {error.strerror or error}",
        code=207,
        tensor=str(path),
        hint=remedy(error),
    )


def remedy(error: OSError) -> str:
    """The hint for the error of a file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full: free some space, or give a path on another disk"
    if error.errno == errno.EFBIG:
        return "the file would be larger than this file system or your limits allow"
    if error.errno == errno.EROFS:
        return "the file system is read-only: give a path on another one"
    if error.errno == errno.EIO:
        return "the disk reports a fault: give a path on another disk"
    return "give a path in an existing folder that you may write to"
