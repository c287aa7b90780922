"""SIGINT and SIGTERM during a deployment. A signal takes effect only at points from which the files on the target can
be removed: code that waits polls for signals. Only computations on the host are interrupted at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM arrived. This is not a KeyboardInterrupt. If a KeyboardInterrupt passes through `exec` (as in a
    module that is being imported), Python later ends by SIGINT, whatever exit status the program gives."""


class Interrupts:
    """Within `with`, the first signal is kept until `check`, which raises Interrupted. Later signals change nothing,
    because the program is then already removing its files from the target."""

    def __init__(self) -> None:
        self.pending = False
        self._at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.pending else handler)  # after one, the process is about to end

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        first, self.pending = not self.pending, True
        if first and self._at_once:
            raise Interrupted

    def check(self) -> None:
        """Raises Interrupted if a signal has arrived."""
        if self.pending:
            raise Interrupted

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """A context in which a signal raises Interrupted immediately, for computations on the host."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False
