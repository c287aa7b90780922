"""Times one engine on one file in this process: `python -m tests.peers.worker JSON`, run by the engine's Python.
Prints one line of JSON. Times are milliseconds, memory is megabytes (10^6 bytes)."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.peers.engines import ENGINES, Job


def clock() -> float:
    """Seconds of a clock that all processes of the machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC) if hasattr(time, "CLOCK_MONOTONIC") else time.time()


def resident(what: str) -> float:
    """VmRSS or VmHWM of this process; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(what)), 0.0)


def scheduled() -> tuple[float, float]:
    """Seconds that this process's threads ran, and that they were ready to run and waited for a core."""
    ran = waited = 0.0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            fields = path.read_text().split()
        except OSError:
            continue  # the thread ended
        ran, waited = ran + int(fields[0]) / 1e9, waited + int(fields[1]) / 1e9
    return (ran, waited) if ran else (time.process_time(), 0.0)


def measure(engine: str, job: Job, seconds: float, started: float, reference: Path | None) -> dict[str, Any]:
    """Loads, runs until `seconds` have passed after a warm-up of a quarter of them, and says what it took."""
    before, begin = resident("VmRSS"), clock()
    run = ENGINES[engine](job)
    loaded = clock()
    result = np.array(run(), np.float32).ravel()
    first = clock()
    while clock() < first + seconds / 4:
        run()
    times: list[float] = []
    (ran, waited), start = scheduled(), clock()
    while len(times) < 3 or clock() < start + seconds:
        at = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - at))
    wall, (ran_end, waited_end) = clock() - start, scheduled()
    ran, waited = ran_end - ran, waited_end - waited
    found = {
        "runs": len(times),
        "min_ms": min(times),
        "median_ms": float(np.median(times)),
        "p95_ms": float(np.percentile(times, 95)),
        "load_ms": 1e3 * (loaded - begin),
        "cold_ms": 1e3 * (first - started),
        "peak_mb": max(0.0, resident("VmHWM") - before),
        "share": ran / (ran + waited) if ran + waited else 1.0,
        "cores": ran / wall,
    }
    if reference is not None:
        found |= difference(result, np.load(reference).ravel())
    return found


def difference(result: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> dict[str, float]:
    """The largest difference from the expected numbers, their range, and the correlation of both."""
    if result.shape != expected.shape:
        raise ValueError(f"the result has {result.size} numbers instead of {expected.size}")
    if not np.isfinite(result).all():
        raise ValueError("the result is not finite")
    found = {"difference": float(np.abs(result - expected).max()), "range": float(np.ptp(expected))}
    if result.size > 1 and np.ptp(result) and np.ptp(expected):
        found["correlation"] = float(np.corrcoef(result, expected)[0, 1])
    return found


def main() -> None:
    asked = json.loads(sys.argv[1])
    job = Job(asked["file"], np.load(asked["input"]), asked["threads"], asked["isa_max"])
    reference = Path(asked["reference"]) if asked["reference"] else None
    try:
        found = measure(asked["engine"], job, asked["seconds"], asked["started"], reference)
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]}
    print("@@" + json.dumps(found), flush=True)
    sys.stderr.flush()
    os._exit(0)  # some engines' threads crash while a process ends


if __name__ == "__main__":
    main()
