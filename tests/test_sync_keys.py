"""`linnet sync-key`, and what the command line and the C library make of keys that are good, missing or anybody's."""

from __future__ import annotations

import os
import stat
import string
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.cli_sync_key import write_key
from linnet.errors import FileError, UsageError


def _linnet(*words: str, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "linnet", *words], capture_output=True, text=True, check=False, timeout=60, umask=umask
    )


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_command_makes_a_key_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "job.key"
    done = _linnet("sync-key", str(path), umask=umask)
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert len(text) == 65 and text.endswith("\n") and set(text[:-1]) <= set(string.hexdigits.lower())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert text[:-1] not in done.stdout + done.stderr  # secrets are not printed


def test_two_keys_differ(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_key(tmp_path / name)
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "job.key"
    path.write_text("mine")
    done = _linnet("sync-key", str(path))
    assert done.returncode == 1 and "exists" in done.stderr and len(done.stderr.splitlines()) == 1
    assert path.read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="exists"):
        write_key(link)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        write_key(tmp_path / "nowhere" / "job.key")


def test_nothing_is_left_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FileError, match="No space left"):
        write_key(tmp_path / "job.key")
    assert list(tmp_path.iterdir()) == []
