"""Times a null training step (fetch parameters, compute nothing, send an update) as in OSDI'16, section 6.2, for linnet and its
baselines on loopback. Every engine has its own processes; the engines take turns in rounds of steps.
`python -m tests.bench_sync [--cases scalar,dense,...] [--workers 1,8,32] [--engines ...] [--rounds N] [--json F] [--page]`"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from examples.evaluation.processes import Engine, line, started
from tests import benchmark_page, sync_engines

MB = 10**6


@dataclasses.dataclass(frozen=True)
class Case:
    """What a step fetches: `count` pieces of `size` bytes from a table of `table` bytes. steps: per round, by number of
    workers."""

    title: str
    count: int
    size: int
    table: int
    steps: dict[int, int]
    engines: tuple[str, ...]


_SPARSE_STEPS = {1: 300, 8: 100, 32: 30}
CASES = {
    "scalar": Case("scalar (4 bytes)", 1, 4, 4, {1: 500, 8: 200, 32: 60}, ("linnet", "raw", "python", "gloo", "ray")),
    "dense": Case("dense (100 MB)", 1, 100 * MB, 100 * MB, {1: 5, 8: 2}, ("linnet", "raw", "python", "gloo", "ray")),
    "sparse_100m": Case("32 rows of 100 MB", 32, 1024, 100 * MB, _SPARSE_STEPS, ("linnet", "raw", "python")),
    "sparse_1g": Case("32 rows of 1 GB", 32, 1024, 1000 * MB, _SPARSE_STEPS, ("linnet", "raw", "python")),
    "sparse_4g": Case("32 rows of 4 GB", 32, 1024, 4000 * MB, _SPARSE_STEPS, ("linnet", "raw")),
}
NAMES = {
    "linnet": "linnet", "linnet_python": "linnet, in Python", "linnet_step": "and push rows",
    "linnet_unix": "linnet, Unix sockets",
    "linnet_shm": "linnet, shared memory", "linnet_tls": "linnet, TLS", "raw": "raw C sockets",
    "python": "Python sockets", "gloo": "Gloo all-reduce", "ray": "Ray actors",
}  # fmt: skip
# Numbers of workers: an all-reduce needs two ranks, and more of these processes do not fit the machine.
RANGE = {"gloo": range(2, 9), "ray": range(1, 9)}


def run_case(name: str, workers: int, engines: Sequence[str], rounds: int, folder: Path) -> dict[str, Any]:
    """Medians over the rounds of each engine's median step in ms, and the ratio to raw sockets per round."""
    case = CASES[name]
    chosen = [e for e in engines if e.split("_")[0] in case.engines and workers in RANGE.get(e, [workers])]
    if case.count == 1:  # for these engines a step is a single request
        chosen = [e for e in chosen if e != "linnet_step"]
    steps = case.steps[workers]
    found: dict[str, list[float]] = {engine: [] for engine in chosen}
    with ExitStack() as stack:
        running = {}
        for engine in chosen:
            server, worker, env = sync_engines.commands(engine, case, workers, folder)
            address = line(stack.enter_context(started(server, env))).strip() if server else ""
            running[engine] = Engine([[*w, address] for w in worker], stack, env)
            running[engine].measure(max(2, steps // 5))
        for _ in range(rounds):
            for engine in chosen:
                found[engine].append(statistics.median(running[engine].measure(steps)) / 1e3)
    row: dict[str, Any] = {"case": name, "workers": workers, "ms": {e: statistics.median(t) for e, t in found.items()}}
    if "raw" in found:
        row["of_raw"] = {
            e: statistics.median(a / b for a, b in zip(found[e], found["raw"], strict=True))
            for e in found
            if e != "raw"
        }
    return row


def machine() -> str:
    """Processor, cores, date, and whether the machine was otherwise busy."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", text)
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    busy = (
        f"; busy with other work (load {load:.0f}): the ratios are more reliable than the times"
        if load > 1.5 * cores
        else ""
    )
    return f"{model.group(1).strip() if model else platform.machine()}, {cores} cores, {date}{busy}"


def as_markdown(rows: Sequence[dict[str, Any]]) -> str:
    engines = [e for e in NAMES if any(e in row["ms"] for row in rows)]
    lines = [
        "| null step, ms | workers | " + " | ".join(NAMES[e] for e in engines) + " | linnet / raw |",
        "|---|---:|" + "---:|" * (len(engines) + 1),
    ]
    for row in rows:
        cells = [f"{row['ms'][e]:.3g}" if e in row["ms"] else "" for e in engines]
        ratio = row.get("of_raw", {}).get("linnet")
        lines.append(
            f"| {CASES[row['case']].title} | {row['workers']} | {' | '.join(cells)} | {f'{ratio:.2f}' if ratio else ''} |"
        )
    return "\n".join(lines)


def note() -> str:
    """Describes where and how the table was measured."""
    words = " ".join(["python -m tests.bench_sync", *sys.argv[1:]])
    return f"{machine()}. Loopback TCP unless stated otherwise, medians of interleaved rounds: `{words}`."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--workers", default="1,8,32")
    parser.add_argument("--engines", default=",".join(sync_engines.ENGINES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true", help="also put the table into docs/benchmarks.md")
    a = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in a.cases.split(","):
            for workers in map(int, a.workers.split(",")):
                if workers in CASES[name].steps:
                    began = time.monotonic()
                    rows.append(run_case(name, workers, a.engines.split(","), a.rounds, Path(folder)))
                    shown = ", ".join(f"{e} {ms:.4g}" for e, ms in rows[-1]["ms"].items())
                    print(f"{name}, {workers} workers, ms: {shown} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"\n{note()}\n\n{as_markdown(rows)}")
    if a.json:
        a.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))
    if a.page:
        benchmark_page.put("sync", f"{note()}\n\n{as_markdown(rows)}")


if __name__ == "__main__":
    main()
