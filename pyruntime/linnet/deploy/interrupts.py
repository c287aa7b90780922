"""SIGINT and SIGTERM during a deployment. They wait until what is on the target has an owner that will remove it: waits poll
for them, and only what computes on the host is interrupted at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM arrived. Not KeyboardInterrupt itself: if that passes through `exec`, as in a module that is being
    imported, Python ends by SIGINT later, whatever exit status the program gives."""


class Interrupts:
    """Within `with`, the first signal is kept until `check`, which raises Interrupted. Later ones change nothing,
    because the removal is then under way."""

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
        """Within it, a signal raises Interrupted immediately: for computations on the host."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False
