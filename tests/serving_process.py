"""A `linnet serve` as a process of its own, for tests of what surrounds it: containers, manifests, the page."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

COMMAND = (sys.executable, "-m", "linnet", "serve")


class Served:
    """A server that is ready. url: where it listens."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url

    def most_bytes(self) -> int:
        """The most memory that the process has had in use."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        assert found
        return int(found[1]) * 1024


@contextlib.contextmanager
def served(
    arguments: Sequence[str], command: Sequence[str] = COMMAND, env: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """Starts it, waits until its models are loaded, and ends it. The arguments have `--log json` and a port; the server
    takes a free port instead."""
    words = list(arguments)
    words[words.index("--port") + 1] = "0"
    process = subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr is not None
    log, url, ready = "", "", False
    for line in process.stderr:
        log += line
        found = re.search(r'"url": ?"([^"]+)"', line)
        url = found[1].replace("0.0.0.0", "127.0.0.1") if found else url
        ready = ready or '"ready"' in line  # before or after it listens
        if url and ready:
            break
    reader = threading.Thread(target=process.stderr.read)  # or the pipe would fill up
    reader.start()
    try:
        assert url and process.poll() is None, log
        yield Served(process, url)
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            reader.join()
