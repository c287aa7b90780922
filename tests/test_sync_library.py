"""The second library as Python sees it: opened beside the first, and a clear error where it is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import linnet
from linnet._generated.ffi import ffi
from linnet._library import library, library_path
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
