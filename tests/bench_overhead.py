"""What a run costs when there is nothing to compute: a graph of one op on four floats, natively and from Python.
`python -m tests.bench_overhead [--json F]`. The figures to hold: 2 us natively, 12 us from Python."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table


def microseconds(work: Callable[[], object], seconds: float = 1.0, batch: int = 200) -> float:
    """Microseconds of `work()`: the median over batches that fill `seconds`, after one that is not counted."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(batch):
            work()
        times.append(1e6 * (time.perf_counter() - start) / batch)
    return statistics.median(times[1:])


def measure() -> dict[str, float]:
    """{case: microseconds per run}."""
    import linnet
    from linnet._generated.ffi import ffi
    from linnet._library import library
    from tests.bench_peers import native_program
    from tests.graphs import bytes_of, feeds

    found = {}
    session, data = linnet.Session(bytes_of("one_op"), threads=1), feeds("one_op")
    found["Python, Session.run"] = microseconds(lambda: session.run(data))
    planned, lib, null = session._current(), library(), ffi.NULL
    found["Python, the bare call of linnet_run"] = microseconds(lambda: lib.linnet_run(planned.session, null))
    array = data["x"]
    found["NumPy, x + 1 (for scale)"] = microseconds(lambda: array + np.float32(1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one_op.lnt"
        path.write_bytes(bytes_of("one_op"))
        command = [str(native_program("linnet-bench")), str(path), "--threads", "1", "--seconds", "1", "--json"]
        report: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        found["native, linnet_run"] = 1e3 * report["median_ms"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    found = measure()
    table = Table(title="One op on four floats")
    table.add_column("case")
    table.add_column("us per run", justify="right")
    for case, value in found.items():
        table.add_row(case, f"{value:.2f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
