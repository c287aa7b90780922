"""A target that ssh reaches. One connection is made in the foreground, where ssh may ask for a password; all commands then
share it through a socket in the host's private folder."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from linnet.clib.errors import Error, SyncError
from linnet.deploy.target import Done, Target, not_installed

_CONNECT: Final = 15  # seconds for the TCP connection; ssh itself counts them
_IDLE: Final = 10  # seconds after which a connection without commands ends by itself: the host's process is gone


class Ssh(Target):
    """The machine `host`. It is reached by this system's ssh with its configuration. options: further -o options."""

    kind = "ssh"

    def __init__(self, name: str, host: str, port: int | None, options: Sequence[str]) -> None:
        super().__init__(name)
        self.host, self.port = host, port
        self.options = [word for option in options for word in ("-o", option)]
        if port is not None:
            self.options += ["-p", str(port)]

    def _socket(self) -> list[str]:
        return ["-S", str(self.scratch / "ssh")]

    def connect(self) -> None:
        asks = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
        words = [  # ssh takes the first value of an option: the caller's before the defaults
            "ssh", "-M", "-N", "-f", *self._socket(), "-E", str(self.scratch / "log"), "-o", f"ControlPersist={_IDLE}",
            *self.options, "-o", f"ConnectTimeout={_CONNECT}", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
            "-o", f"BatchMode={'no' if asks else 'yes'}", self.host,
        ]  # fmt: skip
        none = subprocess.DEVNULL
        try:  # the process that stays keeps its streams, so they cannot be pipes; with a terminal it asks on /dev/tty
            process = subprocess.Popen(words, stdin=none, stdout=none, stderr=none, start_new_session=not asks)
        except OSError as error:
            raise not_installed("ssh", error.strerror or "") from None
        end = time.monotonic() + (600 if asks else 2 * _CONNECT)
        while process.poll() is None:
            if self.interrupts.pending or time.monotonic() > end:
                process.kill()
                process.wait()
                self.interrupts.check()
                raise self._failure("Connection timed out")
            time.sleep(0.02)
        self.interrupts.check()  # Ctrl-C in the terminal reaches an ssh that asks for a password, too
        if process.returncode:
            raise self._failure((self.scratch / "log").read_text(errors="replace") if self._logged() else "")

    def _logged(self) -> bool:
        return (self.scratch / "log").exists()

    def close(self) -> None:
        if self._logged():
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                words = ["ssh", *self._socket(), "-O", "exit", *self.options, self.host]
                none = subprocess.DEVNULL
                subprocess.run(
                    words, stdin=none, stdout=none, stderr=none, timeout=5, start_new_session=True, check=False
                )

    def command(self, script: str) -> list[str]:
        there = f"exec sh -c {shlex.quote(script)}"  # whatever the login shell is
        # Without the shared connection, ssh would make another one, after the folder has gone with the first.
        shared = ["-T", *self._socket(), "-o", "ControlMaster=no", "-o", "ProxyCommand=false", "-o", "BatchMode=yes"]
        return ["ssh", *shared, *self.options, self.host, there]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        process = self.start("exec cat")  # ends with its input, at the latest with the host's process
        try:
            yield
        finally:
            process.kill()
            process.communicate()

    def by_hand(self, script: str) -> str:
        return shlex.join(["ssh", *self.options, self.host, script])

    def lost(self, done: Done) -> bool:
        return done.status == 255

    def _failure(self, log: str) -> Error:
        """An error with the last lines of ssh, and with advice."""
        lines = [line.strip() for line in log.splitlines() if line.strip() and "Warning: Permanently added" not in line]
        got = lines[-1].rstrip(".") if lines else "no message"
        by_hand = shlex.join(["ssh", *self.options, self.host])
        for part, code, what, hint in (
            ("REMOTE HOST IDENTIFICATION HAS CHANGED", 605, "the host key of {} has changed",
             "find out why; if the machine was installed anew, remove the old key with ssh-keygen -R"),
            ("Host key verification failed", 605, "the host key of {} is not known",
             f"run `{by_hand}` once and compare the fingerprint"),
            ("Could not resolve hostname", 601, "the host {} is not known", "check the name, or give its IP address"),
            ("Connection refused", 601, "{} refuses the connection", "check the port, and that sshd runs there"),
            ("Permission denied (", 605, "{} does not accept this user",
             f"check the user and the keys with `{by_hand}`; ssh-copy-id installs a key"),
            ("Too many authentication failures", 605, "{} does not accept this user",
             "name the key with --ssh-option IdentityFile=FILE --ssh-option IdentitiesOnly=yes"),
            ("timed out", 603, "{} does not answer", "check the address, the network, and that the machine is up"),
            ("No route to host", 601, "{} cannot be reached", "check the address and the network"),
            ("Network is unreachable", 601, "{} cannot be reached", "check the address and the network"),
        ):  # fmt: skip
            if part in log:
                return SyncError(what.format(repr(self.name)), code=code, got=got, hint=hint)
        return SyncError(f"cannot connect to {self.name!r}", code=601, got=got, hint=f"try `{by_hand}`")
