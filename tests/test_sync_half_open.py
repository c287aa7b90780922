"""Connections that never finish a HELLO: when they end, the server gives their memory back to the system."""

from __future__ import annotations

import contextlib
import platform
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from linnet.sync import Server
from tests.test_sync_errors import counting

COUNT = 1000
PATIENCE = 60.0  # seconds; the server needs a fraction of one


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Each connection takes two descriptors of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries give memory back, or have no call for it"
)
def test_memory_of_half_open_connections_is_given_back(descriptors: None, tmp_path: Path) -> None:
    with (
        Server(counting(), listen=f"unix:{tmp_path}/s", workers=1, max_workers=COUNT + 8) as server,
        contextlib.ExitStack() as open_ones,
    ):
        before = resident()
        for _ in range(COUNT):
            stranger = open_ones.enter_context(socket.socket(socket.AF_UNIX))
            stranger.connect(f"{tmp_path}/s")
            stranger.send(b"\1" * 7)
        end = time.monotonic() + PATIENCE
        while (grown := resident() - before) < COUNT * 8000 and time.monotonic() < end:
            time.sleep(0.02)
        assert grown >= COUNT * 8000, "the server has not accepted the connections"
        open_ones.close()
        while (kept := resident() - before) > grown // 3 and time.monotonic() < end:
            time.sleep(0.02)
        assert kept <= grown // 3, f"{kept} of {grown} bytes stay resident"
        assert server.address
