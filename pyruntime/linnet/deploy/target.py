"""A machine to deploy to. A new kind of target needs two things: a subclass in a file of its own that can run a shell
script on the machine, and a line in address.py."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from linnet.clib.errors import Error, SyncError
from linnet.deploy.interrupts import Interrupts

_POLL: Final = 0.1  # seconds between two looks for a signal


class Done:
    """How a command on a target ended. status: its exit status. If a signal ended the process on the host, status is
    minus the number of the signal."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status, self.out, self.err = status, out, err.decode(errors="replace")

    @property
    def last(self) -> str:
        """The last line of stderr."""
        return next((line.strip() for line in reversed(self.err.splitlines()) if line.strip()), "")


class Target:
    """A machine that runs shell scripts. `name` is its name in messages.

    kind: the word for it in reports. bases: folders in which to try to make a folder, as words for the shell there.
    prefix: words in front of each tool. architecture: the architecture of the tools, if it is known without asking the
    machine. own_tools: whether the tools of this installation run there.
    """

    kind = ""
    bases: tuple[str, ...] = ("${TMPDIR:-}", "/tmp", "/var/tmp", "${HOME:-}")
    prefix: tuple[str, ...] = ()
    architecture = ""
    own_tools = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.interrupts = Interrupts()
        self.scratch = Path()

    # ---- methods that each kind of target defines

    def connect(self) -> None:
        """Makes the machine reachable. May write to `scratch`, a private folder on the host. Raises Error, which says
        what to do."""

    def close(self) -> None:
        """Ends the connection. Raises nothing."""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the connection open while the host runs no command there for a long time."""
        yield

    def command(self, script: str) -> list[str]:
        """The words of a command that runs a script on the target. The command runs on the host, and the script has its
        standard input and output."""
        raise NotImplementedError

    def by_hand(self, script: str) -> str:
        """The command that a person types on the host to run a script on the target."""
        return shlex.join(self.command(script))

    def lost(self, done: Done) -> bool:
        """Whether a command ended because the connection was lost."""
        return False

    def send(self, data: bytes, path: str) -> Done:
        """Writes a file, which may be executed."""
        return self.run(f"cat >{shlex.quote(path)} && exec chmod 700 {shlex.quote(path)}", data)

    def fetch(self, path: str) -> Done:
        """Reads a file into `out`."""
        return self.run(f"exec cat {shlex.quote(path)}")

    # ---- running

    def start(self, script: str, stdin: int | IO[bytes] = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Starts a script. Its process on the host has its own session, so a Ctrl-C in the terminal does not reach
        it."""
        return start(self.command(script), stdin)

    def run(self, script: str, data: bytes = b"", timeout: float | None = None) -> Done:
        """Runs a script to its end, with `data` as its input. Raises Interrupted if a signal arrives. Raises SyncError
        after `timeout` seconds, or if the connection ends."""
        with (
            tempfile.TemporaryFile() as file
        ):  # has no name; Popen.communicate loses input that takes longer than its timeout
            file.write(data)
            file.seek(0)
            done = self.wait(self.start(script, file), timeout)
        if self.lost(done):
            raise SyncError(
                f"the connection to {self.name} was lost", code=607, got=done.last or f"exit status {done.status}",
                hint="check the network and the power of the machine, then deploy again",
            )  # fmt: skip
        return done

    def wait(self, process: subprocess.Popen[bytes], timeout: float | None = None) -> Done:
        """Waits for a process, and ends it if a signal arrives or the time is over."""
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                self.interrupts.check()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=_POLL)
                    return Done(process.returncode, out, err)
                if end is not None and time.monotonic() > end:
                    raise SyncError(
                        f"{self.name} does not answer", code=603, expected=f"an answer within {timeout:.0f} seconds",
                        hint="check that the machine is up and reachable",
                    )  # fmt: skip
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def start(words: list[str], stdin: int | IO[bytes] = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Starts a command of the host in its own session, with pipes. Raises Error if it is not installed."""
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(words, stdin=stdin, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        raise not_installed(words[0], error.strerror or "") from None


PACKAGES: Final = {
    "ssh": "openssh-client", "adb": "adb", "qemu-aarch64": "qemu-user", "qemu-arm": "qemu-user",
    "qemu-riscv64": "qemu-user",
}  # fmt: skip


def not_installed(program: str, reason: str = "") -> Error:
    return Error(
        f"{program} cannot be started", code=201, expected=f"the program {program} on PATH", got=reason or "no such program",
        hint=f"install it, for example with: apt-get install {PACKAGES.get(program, program)}",
    )  # fmt: skip
