"""Connects to a target and makes a folder there for the files to send. Signals are caught until the last file is
removed."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from linnet.deploy.folder import Folder
from linnet.deploy.interrupts import Interrupts
from linnet.deploy.local import Local
from linnet.deploy.target import Target
from linnet.report.tables import count, size

_SPARE: Final = (
    1 << 20
)  # bytes that the folder needs in addition to the files that are sent, for outputs and blocks of the file system
_SOCKET: Final = 60  # the longest name of a folder for sockets; their paths are limited to 107 bytes, and ssh adds 21


@dataclasses.dataclass
class Leftover:
    """left: the folder that may still be on the target. removal: the command that removes it."""

    left: str = ""
    removal: str = ""


@contextlib.contextmanager
def connected(target: Target, show: Callable[[str], None]) -> Iterator[None]:
    """Connects, and disconnects at the end. Raises Interrupted after SIGINT or SIGTERM. Raises SyncError if it cannot
    connect."""
    with Interrupts() as interrupts:
        target.interrupts = interrupts
        with _scratch(target):
            try:
                show(f"connecting to {target.name}")
                target.connect()
                yield
            finally:
                target.close()


@contextlib.contextmanager
def opened(
    target: Target, files: Mapping[str, bytes], more: int, leftover: Leftover, show: Callable[[str], None]
) -> Iterator[Folder]:
    """A folder on the target with these files and room for `more` bytes. At the end the folder is removed, unless its
    `keep` is set and nothing has failed. If the removal could not be confirmed, `leftover` names the folder."""
    folder = Folder(target, sum(map(len, files.values())) + more + _SPARE)
    good = False
    try:
        folder.open()
        show(f"sending {count(len(files), 'file')}, {size(sum(map(len, files.values())))}, to {folder.path}")
        for name, data in files.items():
            folder.send(data, name)
        yield folder
        good = True
    finally:
        if not folder.close(good and folder.keep):
            leftover.left = folder.path or "linnet-deploy.* in the folder for temporary files"
            leftover.removal = target.by_hand(f"rm -rf {folder.path or '/tmp/linnet-deploy.*'}")


@contextlib.contextmanager
def _scratch(target: Target) -> Iterator[None]:
    """A private folder on the host. A holder (a shell, see folder.py) removes it, as on targets."""
    host = Local("this machine")
    host.interrupts = target.interrupts
    place = tempfile.gettempdir()
    host.bases = (place, "/tmp", "/var/tmp") if len(place) <= _SOCKET else ("/tmp", "/var/tmp", place)
    folder = Folder(host)
    try:
        folder.open()
        target.scratch = Path(folder.path)
        yield
    finally:
        folder.close()
