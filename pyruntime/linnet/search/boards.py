"""A pool of boards. Each measurement takes a board that no other process measures on, also one of another study, because
two measurements at the same time would disturb each other."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from linnet._fetch import cache_dir
from linnet.clib.errors import SyncError
from linnet.search.locks import POLL, Lock


class Pool:
    """addresses: as `linnet deploy` takes them. folder: locks that other machines see, too, beside the journal."""

    def __init__(self, addresses: Sequence[str], folder: Path | None = None) -> None:
        self.addresses = list(dict.fromkeys(addresses))
        self._folder = folder

    @contextlib.contextmanager
    def board(self) -> Iterator[str]:
        """The address of a free board, which is held. Waits until there is one."""
        own = cache_dir() / "boards"
        own.mkdir(exist_ok=True)
        folders = [own] if self._folder is None else [own, self._folder]
        while True:
            for address in self.addresses:
                locks = [Lock(folder / f"board-{quote(address, safe='')}") for folder in folders]
                try:
                    if all(lock.try_acquire() for lock in locks):
                        yield address
                        return
                finally:
                    for lock in locks:
                        lock.release()
            time.sleep(POLL)

    def lose(self, address: str, error: SyncError) -> None:
        """Leaves out a board that does not answer. Raises the error if no other board is left."""
        self.addresses.remove(address)
        if not self.addresses:
            raise error
        warnings.warn(f"the board {address} is left out from here on: {error}", stacklevel=2)
