"""What can end a call of linnet_run: Session.cancel, a timeout, or an exception from a Python signal handler.
C computes without holding the GIL. It calls back here from time to time, and then signal handlers run (Ctrl-C:
KeyboardInterrupt)."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, Final

from linnet.clib.errors import UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, library, new_struct


class Signals:
    """Lets Python's signal handlers run while C waits or computes. An exception they raise ends the call."""

    def __init__(self) -> None:
        self._raised: BaseException | None = None
        self.callback = ffi.callback("bool(void *)", lambda _: False, error=True, onerror=self._keep)

    def _keep(self, kind: Any, value: BaseException, traceback: Any) -> None:
        self._raised = value

    def taken(self) -> BaseException | None:
        """The exception that a handler has raised. It is returned only once."""
        raised, self._raised = self._raised, None
        return raised


_MAIN: Final = threading.main_thread().ident  # only the main thread runs signal handlers


@cache
def _signals() -> Signals:
    return Signals()  # one shared object is enough: only the main thread runs handlers, and it makes one call at a time


class Runner:
    """Runs the sessions of one Session, one at a time. `cancel` may be called from any thread."""

    __slots__ = ("_elsewhere", "_flag", "_here", "_signals", "call", "cancelled")

    def __init__(self) -> None:
        self.call = library().linnet_run_with
        self._flag, self.cancelled = ffi.new("int *"), False
        self._signals = _signals()
        self._here, self._elsewhere = self._config(), self._config()  # for the main thread and for other threads
        self._here.poll = self._signals.callback

    def _config(self) -> Any:
        config = new_struct("linnet_run_config")
        config.cancel = self._flag
        return config

    def config(self) -> Any:
        """The run configuration for a run that starts now in this thread."""
        if self.cancelled:
            self.cancelled, self._flag[0] = False, 0
        return self._here if threading.get_ident() == _MAIN else self._elsewhere

    def cancel(self) -> None:
        """Ends the current run. A cancellation that arrives after the run has ended is discarded when the next run
        starts."""
        self._flag[0] = 1
        self.cancelled = True

    def waits(self, session: Any, error: Any, timeout: float | None) -> int:
        """The status of a wait for submitted runs, with a time limit in seconds."""
        config = self.config()
        config.timeout_ns = 0 if timeout is None else nanoseconds(timeout)
        code = library().linnet_session_wait(session, config, error)
        config.timeout_ns = 0
        return int(code)

    def within(self, session: Any, error: Any, timeout: float) -> int:
        """The status of a run with a time limit in seconds."""
        config = self.config()
        config.timeout_ns = nanoseconds(timeout)
        code = self.call(session, config, error)
        config.timeout_ns = 0
        return int(code)

    def failure(self, error: Any) -> BaseException:
        """Why a run failed: the exception of a signal handler, or the error record."""
        made = exception(error)
        interrupt = None if isinstance(made.__cause__, Exception) else made.__cause__  # Ctrl-C in a Python user op
        return self._signals.taken() or interrupt or made


def nanoseconds(timeout: float) -> int:
    """Converts seconds to nanoseconds. Raises UsageError if the timeout is not a positive number."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise UsageError(
            "timeout must be a positive number",
            code=101,
            expected="a number of seconds above 0, or None",
            got=repr(timeout),
        )
    return max(1, int(min(timeout, 1e9) * 1e9))
