"""Ensures that no process of a launch outlives it. All processes of a launch have its token in their environment, which
Linux's /proc shows. A small separate process ends them, even if the launcher is killed with kill -9."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

TOKEN: Final = "LINNET_LAUNCH"
_STARTING: Final = 1.0  # seconds: /proc shows the environment of a process only when the kernel has started its program


def descendants(token: str) -> list[int]:
    """This user's processes that have the token of a launch, except this process. Processes that left their process
    group are included."""
    wanted = f"{TOKEN}={token}".encode()
    found = []
    for entry in Path("/proc").iterdir() if Path("/proc/self/environ").exists() else ():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if wanted in (entry / "environ").read_bytes().split(b"\0") and _alive(entry):
                found.append(int(entry.name))
    return found


def _alive(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"


def end_all(token: str, grace: float) -> int:
    """Sends SIGTERM to every process of a launch, and SIGKILL to those still running after `grace` seconds. Returns how
    many processes there were before the first signal."""
    first = descendants(token)
    deadline = time.monotonic() + grace
    _send(first, signal.SIGTERM)
    left = first
    while left:
        if time.monotonic() >= deadline:
            _send(left, signal.SIGKILL)
        time.sleep(0.01)
        left = descendants(token)
    return len(first)


def _send(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def remove(files: Sequence[Path]) -> None:
    """Removes the files and folders. Missing ones are ignored."""
    for file in files:
        if file.is_dir():
            shutil.rmtree(file, ignore_errors=True)
        else:
            file.unlink(missing_ok=True)


class Guard:
    """A process that waits for the end of the process that created it. After close(), it only exits. Otherwise it ends
    all processes of the launch and removes the files. On systems other than Linux it only removes the files."""

    def __init__(self, token: str, files: Sequence[Path], grace: float) -> None:
        reader, self._pipe = os.pipe()  # only this process has the write end; children do not inherit it
        self._pid = os.fork()
        if self._pid == 0:
            self._watch(reader, token, files, grace)
        os.close(reader)

    def _watch(self, reader: int, token: str, files: Sequence[Path], grace: float) -> NoReturn:
        try:
            os.setsid()  # only the launcher handles Ctrl-C
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            null = os.open(os.devnull, os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)  # a reader of the launcher's output does not wait for this process
            os.close(self._pipe)
            if os.read(reader, 1) == b"":
                end = time.monotonic() + _STARTING
                while time.monotonic() < end:
                    end_all(token, grace)
                    time.sleep(0.02)
                remove(files)
        finally:
            os._exit(0)

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, b"x")
        os.close(self._pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
