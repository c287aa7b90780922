"""Measures the overhead of a run: a graph of one op on four floats, from Python and natively. Limits: 2 us natively, 12 us from
Python. Run with `pytest tests/bench_overhead.py` (pytest-benchmark) or `make bench`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import linnet
from linnet.clib.ffi import ffi
from linnet.clib.library import library
from tests.bench_peers import native_program
from tests.graphs import bytes_of, feeds

Benchmark = Callable[..., Any]


def test_session_run(benchmark: Benchmark) -> None:
    """From Python: copies feeds in, runs, copies outputs out."""
    session, data = linnet.Session(bytes_of("one_op"), threads=1), feeds("one_op")
    benchmark(session.run, data)


def test_bare_call(benchmark: Benchmark) -> None:
    """linnet_run through cffi."""
    session = linnet.Session(bytes_of("one_op"), threads=1)
    session.run(feeds("one_op"))
    planned, lib, null = session._current(), library(), ffi.NULL
    benchmark(lambda: lib.linnet_run(planned.session, null))


def test_numpy_add(benchmark: Benchmark) -> None:
    """NumPy's x + 1 on the same four floats, for comparison."""
    array, one = feeds("one_op")["x"], np.float32(1)
    benchmark(lambda: array + one)


def test_native(benchmark: Any, tmp_path: Path) -> None:
    """linnet-bench, which times linnet_run itself. The process is one round; its median goes into `extra_info`."""
    path = tmp_path / "one_op.lnt"
    path.write_bytes(bytes_of("one_op"))
    command = [str(native_program("linnet-bench")), str(path), "--threads", "1", "--seconds", "1", "--json"]

    def run() -> float:
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return 1e3 * float(report["median_ms"])

    microseconds = benchmark.pedantic(run, rounds=1)
    benchmark.extra_info["native_us_per_run"] = microseconds
    print(f"\nnative linnet_run: {microseconds:.3f} us per run")
