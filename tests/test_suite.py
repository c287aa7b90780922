"""tests/suite.py: a test that hangs, in Python or in C, or takes all memory fails with its stack, and the others go on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.suite import DEAR, _durations, ordered
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


def test_dear_tests_have_a_reason() -> None:
    """A tenth of the time of a suite goes to its newest tests if nobody watches."""
    files = {name.partition("::")[0] for name, seconds in _durations().items() if seconds > DEAR}
    silent = [file for file in sorted(files) if "# Dear: " not in (ROOT / file).read_text()]
    assert silent == [], f"a test of these files takes more than {DEAR} processor seconds; write `# Dear: ` and why"


def test_processor_seconds_are_those_of_the_test_and_its_children(tmp_path: Path) -> None:
    (tmp_path / "test_busy.py").write_text(
        "import subprocess, sys, time\n"
        "SPIN = 'import time\\nwhile time.process_time() < 0.6: pass'\n"
        "def test_child(): subprocess.run([sys.executable, '-c', SPIN], check=True)\n"
        "def test_waits(): time.sleep(0.7)\n"
    )
    (tmp_path / "conftest.py").write_text(
        "def pytest_runtest_logreport(report):\n"
        "    if report.when == 'call': print('took', report.nodeid, report.processor_seconds)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.suite", f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    found = {name: float(seconds) for name, seconds in re.findall(r"took \S*::(\w+) (\S+)", done.stdout)}
    assert found["test_child"] >= 0.6 and found["test_waits"] < 0.4, done.stdout


class Item(NamedTuple):
    nodeid: str


def test_order() -> None:
    """Each worker begins with its share of the long tests, the longest first; the others keep their order; none is lost."""
    items = [Item(f"t{i}") for i in range(9)]
    found = [i.nodeid for i in ordered(items, {"t2": 5.0, "t7": 30.0, "t8": 4.0, "gone": 9.0}, 2)]
    assert found == ["t7", "t8", "t0", "t1", "t3", "t2", "t4", "t5", "t6"]
    assert [i.nodeid for i in ordered(items, {}, 2)] == [f"t{i}" for i in range(9)]
    assert [i.nodeid for i in ordered(items[:1], {"t0": 2.0}, 2)] == ["t0"]
