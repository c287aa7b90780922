"""The command `linnet` inside the process of a test. A process of its own takes half a second to import what is already there;
tests of what a process alone shows (exit, signals, pipes, memory, the environment at the start) take `linnet_process`."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from unittest import mock


def run_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What `linnet ARGUMENTS` prints, and its exit status."""
    from linnet.cli.main import main

    words = ["linnet", *map(str, arguments)]
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="replace", write_through=True) for _ in range(2))
    with (
        warnings.catch_warnings(),
        mock.patch.multiple(sys, argv=words, stdin=io.StringIO(), stdout=out, stderr=errors),
    ):
        warnings.resetwarnings()  # the test's own turn warnings into errors
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    texts = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, errors))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, status, *texts)


def run_process(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "linnet", *map(str, arguments)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
    )
