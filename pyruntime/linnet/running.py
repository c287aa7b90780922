"""What a call of linnet_run can be ended by: Session.cancel, a time-out, and what Python's handlers of signals raise.
C computes without Python's lock; from time to time it asks here, and then handlers run (Ctrl-C: KeyboardInterrupt)."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, Final

from linnet._generated.ffi import ffi
from linnet._library import exception, library
from linnet.errors import UsageError


class Signals:
    """Lets Python's handlers of signals run while C waits or computes: what they raise ends the call."""

    def __init__(self) -> None:
        self._raised: BaseException | None = None
        self.callback = ffi.callback("int(void *)", lambda _: 0, error=1, onerror=self._keep)

    def _keep(self, kind: Any, value: BaseException, traceback: Any) -> None:
        self._raised = value

    def taken(self) -> BaseException | None:
        """What a handler has raised, once."""
        raised, self._raised = self._raised, None
        return raised


_MAIN: Final = threading.main_thread().ident  # no other thread runs handlers


@cache
def _signals() -> Signals:
    return Signals()  # one for all: handlers run in one thread, and that makes one call at a time


class Runner:
    """Runs the sessions of one Session, one at a time; `cancel` comes from any thread."""

    __slots__ = ("_elsewhere", "_flag", "_here", "_signals", "call", "cancelled")

    def __init__(self) -> None:
        self.call = library().linnet_run_with
        self._flag, self.cancelled = ffi.new("int *"), False
        self._signals = _signals()
        self._here, self._elsewhere = self._config(), self._config()  # of the main thread, and of others
        self._here.poll = self._signals.callback

    def _config(self) -> Any:
        config = ffi.new("linnet_run_config *")
        library().linnet_run_config_init(config)
        config.cancel = self._flag
        return config

    def config(self) -> Any:
        """For a run that begins now in this thread."""
        if self.cancelled:
            self.cancelled, self._flag[0] = False, 0
        return self._here if threading.get_ident() == _MAIN else self._elsewhere

    def cancel(self) -> None:
        """Ends the run that is on; what comes too late for it is forgotten when the next one begins."""
        self._flag[0] = 1
        self.cancelled = True

    def within(self, session: Any, error: Any, timeout: float) -> int:
        """The status of a run that may take so many seconds."""
        config = self.config()
        config.timeout_ns = nanoseconds(timeout)
        code = self.call(session, config, error)
        config.timeout_ns = 0
        return int(code)

    def failure(self, error: Any) -> BaseException:
        """Why a run failed: what a handler of signals has raised, or the record."""
        return self._signals.taken() or exception(error)


def nanoseconds(timeout: float) -> int:
    """Raises UsageError unless it is a time."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise UsageError("timeout is no time", code=101, expected="seconds, more than 0, or None", got=repr(timeout))
    return max(1, int(min(timeout, 1e9) * 1e9))
