"""Damaged files in the directory of `finetune`: every flipped bit is noticed, and ends in an error that says what to do or in the
same arrays, computed again."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.training import manifest
from linnet.training.finetune_directory import SETTINGS, Arrays, Directory, _opened
from linnet.training.history import MetricsFile

MADE = {"features": np.arange(24, dtype=np.float32).reshape(4, 6), "labels": np.arange(4, dtype=np.int32)}
ABOUT = {"seed": 0, "learning rate": 0.001, "size": [4, 6]}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "m.bin").write_bytes(b"a model")
    return tmp_path / "run"


def directory(place: Path) -> Directory:
    return Directory(place, place.parent / "m.bin", ABOUT)


def flips(whole: bytes) -> list[bytes]:
    """The content with each of its bits flipped, and with its end cut off or longer."""
    number, size = int.from_bytes(whole, "little"), len(whole)
    flipped = [(number ^ (1 << bit)).to_bytes(size, "little") for bit in range(8 * size)]
    return [*flipped, *(whole[:cut] for cut in range(0, size, 7)), whole + b"\0", whole + whole]


def test_arrays_are_computed_again(place: Path) -> None:
    kept, path, computed = directory(place), place / "p.npz", 0

    def compute() -> Arrays:
        nonlocal computed
        computed += 1
        return MADE

    kept.piece("p", compute)
    kept.piece("p", compute)
    assert computed == 1, "an undamaged file is read"
    with np.load(path) as found:
        assert set(found) == set(MADE)
    whole = path.read_bytes()
    assert _opened(whole) is not None and all(_opened(damaged) is None for damaged in flips(whole))
    for number, damaged in enumerate(flips(whole)[::97]):  # each writes a file to the disk
        path.write_bytes(damaged)
        found = kept.piece("p", compute)
        assert computed == number + 2, f"damage {number} is not noticed"
        assert all(np.array_equal(found[key], MADE[key]) for key in MADE) and path.read_bytes() == whole


def test_arrays_that_cannot_be_read(place: Path) -> None:
    kept = directory(place)
    (place / "p.npz").mkdir()
    with pytest.raises(
        linnet.FileError, match=r"cannot read '.*p\.npz': Is a directory; delete it, and its arrays are"
    ):
        kept.piece("p", lambda: MADE)


def test_damaged_settings_are_an_error(place: Path) -> None:
    directory(place)
    directory(place)
    path = place / SETTINGS
    whole = path.read_bytes()
    others: list[Any] = [[], 3, None, "x", {}, {"model": 1}, {**json.loads(whole), "more": 1}]
    texts = [json.dumps(value).encode() for value in others]
    for damaged in [*flips(whole), *texts, b"{", b"[" * 100_000, b"\xff"]:
        path.write_bytes(damaged)
        with pytest.raises(
            linnet.FileError, match=r"finetune\.json' is damaged.*delete the directory, or give another"
        ):
            directory(place)
    path.write_bytes(whole)
    directory(place)


def test_a_directory_belongs_to_all_of_a_model_and_all_settings(place: Path) -> None:
    """A model may differ in its last byte, and a run of an earlier version may lack a setting."""
    model = place.parent / "m.bin"
    model.write_bytes(bytes(3 << 20))
    directory(place)
    directory(place)
    model.write_bytes(bytes((3 << 20) - 1) + b"x")
    with pytest.raises(linnet.UsageError, match="started with another model;"):
        directory(place)
    model.write_bytes(bytes(3 << 20))
    with pytest.raises(linnet.UsageError, match="started with another threads; expected threads None, got threads 2"):
        Directory(place, model, {**ABOUT, "threads": 2})
    other = place.parent / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(linnet.UsageError, match="holds something other than a run of finetune"):
        Directory(other, model, ABOUT)
    assert [path.name for path in other.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "content", [[], 3, None, "x", {}, {"run": 3, "resumed": []}, {"run": {}, "resumed": {}}, "\xff"]
)
def test_a_damaged_manifest_is_an_error(content: Any, tmp_path: Path) -> None:
    (tmp_path / manifest.NAME).write_text(json.dumps(content))
    with pytest.raises(linnet.UsageError, match="cannot read the run's description"):
        manifest.resume(tmp_path, {"seed": 0}, 1, linnet.SessionOptions())


def test_damaged_lines_of_metrics_are_left_out(tmp_path: Path) -> None:
    good = '{"kind": "step", "step": 1, "loss": 2.0}'
    bad = [
        "[]",
        "3",
        "null",
        '"x"',
        "{}",
        '{"kind": "step"}',
        '{"step": "1", "kind": "step"}',
        '{"kind": [], "step": 1}',
        "{",
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_bytes("\n".join([good, *bad, good, ""]).encode() + b"\xff\xfe\n")
    history: Any = SimpleNamespace(steps=[], records=[])
    MetricsFile(path, history).go_on(5)
    assert [row["loss"] for row in history.steps] == [2.0, 2.0] and path.read_text().splitlines() == [good, good]
