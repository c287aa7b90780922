"""Changed commands, changed pieces and changed recipes do not harm a host: it answers, stays within its memory, and gives
everything back. The driver (tests/fuzz/fuzz_remote_host.c) has sanitizers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import linnet
from tests.native import build, run
from tests.remote_host import host
from tests.test_remote import small


@pytest.fixture(scope="module")
def piece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A piece as a client sends it."""
    folder = tmp_path_factory.mktemp("pieces")
    with host("127.0.0.1:0", "--folder", str(folder)) as there:
        linnet.Session(small(64), **there.all).run({"x": np.ones((8, 64), np.float32)})
    (path,) = folder.glob("*.lnt")
    return path


def _fuzz(count: int, seed: int, piece: Path, *folder: Path) -> None:
    driver = build("address", "fuzz_remote_host") / "fuzz_remote_host"
    text = run([str(driver), str(count), str(seed), str(piece), *map(str, folder)])
    assert int(text.split()[0]) >= count


def test_changed_commands(piece: Path) -> None:
    _fuzz(4_000, 1, piece)


def test_changed_commands_with_a_folder(piece: Path, tmp_path: Path) -> None:
    _fuzz(2_000, 2, piece, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_changed_commands_at_length(seed: int, piece: Path, tmp_path: Path) -> None:
    _fuzz(125_000, 100 + seed, piece, *[tmp_path][seed % 2 :])
