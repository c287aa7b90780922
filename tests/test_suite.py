"""tests/suite.py: a test that hangs, in Python or in C, or takes all memory fails with its stack, and the others go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.suite import ordered
from tests.tree import ROOT

TESTS = """
import ctypes, subprocess, sys, time
import pytest

def test_before(): pass

@pytest.mark.timeout(1)
def test_hangs(): time.sleep(60)

EATS = "kept = [bytearray(1 << 20) for _ in range(1000)]; import time; time.sleep(60)"

def test_whose_child_eats(): assert subprocess.run([sys.executable, "-c", EATS]).returncode == 0

def test_hangs_in_c(): ctypes.PyDLL(None).sleep(60)

def test_after(): pass
"""


def test_limits(tmp_path: Path) -> None:
    (tmp_path / "test_limits.py").write_text(TESTS)
    options = [
        "-q",
        "-n",
        "1",
        "-p",
        "tests.suite",
        "-p",
        "no:cacheprovider",
        "--megabytes",
        "600",
        f"--rootdir={tmp_path}",
    ]
    ends = ["-o", "faulthandler_timeout=5", "-o", "faulthandler_exit_on_timeout=true"]
    command = [sys.executable, "-m", "pytest", *options, *ends, "test_limits.py"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {
        "PYTHONPATH": str(ROOT)
    }
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False)
    found = done.stdout + done.stderr
    assert done.returncode == 1 and "3 failed, 2 passed" in found, found
    for name in ("test_hangs ", "test_whose_child_eats ", "test_hangs_in_c "):
        assert f"FAILED test_limits.py::{name}" in found, found
    assert "time.sleep(60)" in found and "in test_hangs_in_c" in found and "took more than 600 MB" in found, found


class Item(NamedTuple):
    nodeid: str


def test_order() -> None:
    """Each worker begins with its share of the long tests, the longest first; the others keep their order; none is lost."""
    items = [Item(f"t{i}") for i in range(9)]
    found = [i.nodeid for i in ordered(items, {"t2": 5.0, "t7": 30.0, "t8": 4.0, "gone": 9.0}, 2)]
    assert found == ["t7", "t8", "t0", "t1", "t3", "t2", "t4", "t5", "t6"]
    assert [i.nodeid for i in ordered(items, {}, 2)] == [f"t{i}" for i in range(9)]
    assert [i.nodeid for i in ordered(items[:1], {"t0": 2.0}, 2)] == ["t0"]
