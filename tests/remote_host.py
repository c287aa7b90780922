"""Hosts for tests: linnet-host in a process of its own, and how much a client sends to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from linnet.cli.sync_key import write_key
from linnet.session.options import SessionFields
from tests.native import build

# The leak checker stops all threads with ptrace when the process ends, which has hung in virtual machines. The fuzzer of hosts
# (tests/test_remote_fuzz.py) has it.
WITHOUT_LEAKS = {"ASAN_OPTIONS": "detect_leaks=0"}


class Host:
    """linnet-host in a process. `name` is its device; with `all` as its arguments, a session puts each node there."""

    def __init__(
        self, listen: str, *options: str, kind: str = "release", key: Path | None = None, under: Sequence[str] = ()
    ) -> None:
        """under: a command that runs the program, such as an emulator."""
        command = [*under, str(build(kind, "linnet-host") / "linnet-host"), "--listen", listen, *options]
        self.process = subprocess.Popen(
            [*command, *(["--key", str(key)] if key else [])],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | WITHOUT_LEAKS,
        )  # fmt: skip
        self.paused = False
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        assert line[:1] == ["listening"], self.process.communicate()[1]
        self.address = line[1]
        self.name = f"remote:{self.address}" + (f",key={key}" if key else "")
        self.all: SessionFields = {"devices": [self.name], "placement": {"*": f"remote:{self.address}"}}

    def stop(self) -> str:
        """Ends it, and returns what it wrote to stderr."""
        self.process.send_signal(signal.SIGTERM)
        if self.paused:
            self.process.send_signal(signal.SIGCONT)
        errors = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0, errors
        return str(errors)

    def pause(self) -> None:
        """Lets it hang, as a host does that is out of memory, until SIGCONT."""
        self.paused = True
        self.process.send_signal(signal.SIGSTOP)
        while any(" T " not in path.read_text() for path in Path(f"/proc/{self.process.pid}/task").glob("*/stat")):
            time.sleep(0.001)

    def resident(self) -> int:
        """Kilobytes of memory that the process has."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0])

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


@contextlib.contextmanager
def host(
    listen: str = "127.0.0.1:0",
    *options: str,
    kind: str = "release",
    key: Path | None = None,
    under: Sequence[str] = (),
) -> Iterator[Host]:
    made = Host(listen, *options, kind=kind, key=key, under=under)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            assert made.stop() == ""
        else:
            made.process.communicate()


def new_key(folder: Path) -> Path:
    path = folder / "key"
    write_key(path)
    return path
