"""The lock of a run's directory. While a process trains there, the file `lock` is locked and names the process. The
system releases the lock of a process that is killed; its file is then used again."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from linnet.clib.errors import UsageError

try:
    import fcntl
except ImportError:  # not on Windows, where directories are not locked
    fcntl = None  # type: ignore[assignment]

NAME = "lock"
_held: dict[tuple[int, int], int] = {}  # threads of this process that hold a directory, by its device and inode


@contextlib.contextmanager
def locked(directory: Path | None) -> Iterator[None]:
    """Holds the lock of an existing directory. A thread may take it again while it holds it. None: nothing is locked.
    Raises UsageError if another process or thread trains there."""
    if directory is None or fcntl is None:
        yield
        return
    status = directory.stat()
    place = status.st_dev, status.st_ino
    if _held.get(place) == threading.get_ident():
        yield
        return
    file = _lock(directory)
    _held[place] = threading.get_ident()
    try:
        yield
    finally:
        del _held[place]
        forget(directory, file)
        os.close(file)


def forget(directory: Path, file: int) -> None:
    """Removes the lock's file if it is still this open one."""
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(file), (directory / NAME).stat()):
            (directory / NAME).unlink()


def _lock(directory: Path) -> int:
    """The open and locked file."""
    while True:
        file = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 20, 0).decode("ascii", "replace").strip()
            os.close(file)
            raise UsageError(
                f"another process trains in '{directory}'", code=101, tensor=str(directory),
                expected="a directory that no running process uses", got=f"process {holder or 'with an unknown number'}",
                hint="end that process first, or give another directory",
            ) from None  # fmt: skip
        except OSError:
            pass  # a file system without locks gives no protection
        with contextlib.suppress(OSError):  # a previous holder may have removed the file
            if os.path.samestat(os.fstat(file), (directory / NAME).stat()):
                with contextlib.suppress(OSError):  # if the disk is full, the lock names no process
                    os.truncate(file, 0)
                    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
                return file
        os.close(file)
