"""Locks between processes, as files. The system releases the lock of a process that is killed, so nothing is left locked
after kill -9, and a trial whose lock is free has no process."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: one process at a time
    fcntl = None

POLL: Final = 0.05  # seconds between two looks whether a lock is free


class Lock:
    """An exclusive lock. Within one process, each Lock counts as another holder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def try_acquire(self) -> bool:
        """Takes the lock if it is free."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return False
        self._file = file
        return True

    def acquire(self) -> bool:
        """Waits for the lock."""
        while not self.try_acquire():
            time.sleep(POLL / 10)
        return True

    def release(self) -> None:
        """Gives the lock back."""
        file, self._file = self._file, -1  # before another thread takes the lock, and writes its own file there
        if file >= 0:
            os.close(file)


class JournalLock(Lock):
    """The lock of Optuna's journal. Whoever takes it removes a line that a killed process has written only in part:
    lines that follow it could not be read."""

    def __init__(self, journal: Path, path: Path) -> None:
        super().__init__(path)
        self._journal = journal

    def acquire(self) -> bool:
        super().acquire()
        with contextlib.suppress(FileNotFoundError), open(self._journal, "rb+") as file:
            end = file.seek(0, os.SEEK_END)
            at = end
            while at:
                begin = max(0, at - 4096)
                file.seek(begin)
                found = file.read(at - begin).rfind(b"\n")
                if found >= 0:
                    at = begin + found + 1
                    break
                at = begin
            if at < end:
                file.truncate(at)
        return True


@contextlib.contextmanager
def held(lock: Lock | None) -> Iterator[None]:
    """Holds a lock. None: does nothing."""
    if lock is None:
        yield
        return
    lock.acquire()
    try:
        yield
    finally:
        lock.release()
