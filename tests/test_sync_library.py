"""The second library in Python: loaded next to the first, with a clear error if it is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import linnet
from linnet.clib.ffi import ffi
from linnet.clib.library import library, library_path
from linnet.sync import _library
from linnet.sync._library import sync_library


def test_versions_agree() -> None:
    assert ffi.string(sync_library().linnet_sync_version()) == ffi.string(library().linnet_version())


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = tmp_path / "liblinnet.so"
    shutil.copy(library_path(), alone)
    monkeypatch.setattr(_library, "library_path", lambda: alone)
    with pytest.raises(linnet.Error, match="distributed training is not installed") as caught:
        _library.sync_library.__wrapped__()
    assert str(tmp_path / "liblinnet_sync.so") in str(caught.value)
    assert "LINNET_SYNC" in str(caught.value)


def test_a_file_that_is_no_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "liblinnet_sync.so").write_bytes(b"no ELF")
    monkeypatch.setattr(_library, "library_path", lambda: tmp_path / "liblinnet.so")
    with pytest.raises(linnet.Error, match="cannot open the C library"):
        _library.sync_library.__wrapped__()


def test_python_may_end_while_a_thread_waits_in_the_library() -> None:
    """A Python process that exits unloads its libraries; this must not crash a daemon thread inside one of them."""
    code = """
import threading, time, numpy as np
from linnet.sync import Server, Worker
from tests.bench_sync_stragglers import model
data = model()
server = Server(data, workers=2)  # the second never comes
server.start()
began = threading.Event()
def work():
    with Worker(data, server.address, number=0) as worker:
        began.set()
        worker.step({"x": np.zeros((8, 784), "f4"), "t": np.zeros(8, "i4")})
threading.Thread(target=work, daemon=True).start()
began.wait()
time.sleep(0.2)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
