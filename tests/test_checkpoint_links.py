"""Which files a checkpoint is written to and read from: not through a link that somebody placed there, not a file that another
process is saving to, not a file that is not regular."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

import linnet
from tests.test_checkpoint import model, trained


def test_a_link_in_place_of_the_part_is_not_followed(tmp_path: Path) -> None:
    m = model()
    victim = tmp_path / "victim"
    victim.write_text("of another")
    (tmp_path / "a.part").symlink_to(victim)
    with pytest.raises(linnet.FileError, match="write_failed") as caught:
        trained(m).save(tmp_path / "a")
    assert str(tmp_path / "a") in str(caught.value)
    assert victim.read_text() == "of another"
    assert (tmp_path / "a.part").is_symlink() and not (tmp_path / "a").exists()


def test_a_link_that_points_nowhere_makes_no_file(tmp_path: Path) -> None:
    m = model()
    (tmp_path / "a.part").symlink_to(tmp_path / "made")
    with pytest.raises(linnet.FileError, match="write_failed"):
        trained(m).save(tmp_path / "a")
    assert not (tmp_path / "made").exists()


def test_who_saves_waits_for_another_who_saves(tmp_path: Path) -> None:
    """The lock is on the file that both write."""
    m = model()
    store = trained(m)
    part = tmp_path / "a.part"
    done = threading.Event()

    def save() -> None:
        store.save(tmp_path / "a")
        done.set()

    with open(part, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write("half of a checkpoint")
        held.flush()
        thread = threading.Thread(target=save)
        thread.start()
        time.sleep(0.3)
        waited = not done.is_set()
        kept = part.read_text() if part.exists() else ""
    thread.join(30)
    assert waited and kept == "half of a checkpoint"
    assert done.is_set()
    linnet.Store(m).load(tmp_path / "a")


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        for read in (linnet.Model, linnet.Store(model()).load):
            with pytest.raises(linnet.FileError, match=r"read_failed.*regular file") as caught:
                read(path)
            assert str(path) in str(caught.value)
    with pytest.raises(linnet.FileError, match="not a regular file"):
        trained(model()).save(tmp_path)
