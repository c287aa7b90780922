"""A command in a terminal of its own, for tests: `answered` waits for a question and answers it. A small process makes the
terminal, so what a test process has gathered (threads, signals, limits) stays out of it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.tree import ROOT

_MOST_FILES = 1024


def answered(command: Sequence[str], env: Mapping[str, str], question: str, answer: str) -> tuple[int, str]:
    """Exit status of the command and all that it wrote."""
    words = json.dumps({"command": list(command), "question": question, "answer": answer})
    done = subprocess.run(
        [sys.executable, "-m", "tests.terminal"], input=words, env={**env, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        cwd=ROOT, capture_output=True, text=True, timeout=240, start_new_session=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["status"], found["seen"]


def _fresh() -> None:
    """Undoes what a process inherits from the one that started it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_MOST_FILES, hard) if hard >= 0 else _MOST_FILES, hard))
    os.umask(0o022)


def main() -> None:
    given = json.load(sys.stdin)
    _fresh()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(given["command"][0], given["command"])
    seen, asked = b"", False
    with contextlib.suppress(OSError):  # the terminal is closed at the end
        while got := os.read(terminal, 4096):
            seen += got
            if not asked and given["question"].encode() in seen:
                asked = True
                os.write(terminal, given["answer"].encode())
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps({"status": status, "seen": seen.decode(errors="replace")}))


if __name__ == "__main__":
    main()
