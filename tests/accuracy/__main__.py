"""`python -m tests.accuracy [NAME ...]`: the table of how close quantized networks stay to their f32.
Each network is measured in its own process with a time limit; an error shows in its row, and the rest go on."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.accuracy.entry import entries
from tests.accuracy.table import shown, summary

Row = dict[str, Any]


def one(name: str, limit: float, **arguments: Any) -> Row:
    """The row of a network, measured in another process."""
    command = [sys.executable, "-m", "tests.accuracy.measure", json.dumps({"name": name, **arguments})]
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"name": name, "error": f"took longer than {limit:g} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"name": name, "error": f"ended with {done.returncode}: {reason}"[:300]}
    return {**json.loads(lines[-1]), "total_seconds": round(time.perf_counter() - begin, 1)}


def main(words: Sequence[str] | None = None) -> int:
    """Prints a row per network and a summary; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks; all without any")
    parser.add_argument("--dtypes", default="f16,i16,i8", help="comma-separated: f16, bf16, i16, i8")
    parser.add_argument("--no-ort", action="store_true", help="leave out ONNX Runtime")
    parser.add_argument("--ort-only", action="store_true", help="only fill the cache of ONNX Runtime's results")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--samples", type=int, help="number of test samples (each network has its own)")
    parser.add_argument("--effort", choices=("fast", "normal", "best"), help="passed to linnet.quantize if it takes it")
    parser.add_argument("--seconds", type=float, default=900, help="time limit for each network")
    parser.add_argument("--list", action="store_true", help="print the networks and what is measured")
    options = parser.parse_args(words)
    unknown = [n for n in options.names if n not in entries()]
    if unknown:
        parser.error(f"no network {', '.join(unknown)}; there are {', '.join(entries())}")
    names = options.names or list(entries())
    if options.list:
        print("\n".join(f"{name:<22} {entries()[name].measure}. {entries()[name].note}" for name in names))
        return 0
    dtypes, rows = options.dtypes.split(","), []
    for name in names:
        rows.append(
            one(name, options.seconds, dtypes=dtypes, effort=options.effort, samples=options.samples,
                with_ort=not options.no_ort, ort_only=options.ort_only)
        )  # fmt: skip
        if len(rows) == 1:
            print(shown(rows, dtypes, head=True), flush=True)
        else:
            print(shown(rows[-1:], dtypes), flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    print(summary(rows, dtypes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
