"""Measures the step time on loopback with one slowed worker of eight, with and without two backup workers, in alternation.
`python -m tests.bench_sync_stragglers [--rounds N] [--steps N] [--compute MS] [--slowed TIMES] [--json FILE]`"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from examples.evaluation.backup_workers import Straggler, model, round_of

WORKERS, BACKUP = 8, 2
SETUPS = {  # (one worker is slowed, backup workers)
    "no straggler": (False, 0),
    "one slowed": (True, 0),
    "one slowed, 2 backups": (True, BACKUP),
    "no straggler, 2 backups": (False, BACKUP),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--compute", type=float, default=40.0, help="ms that a worker computes")
    parser.add_argument("--slowed", type=float, default=5.0, help="times as long the slowed worker computes")
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    data = model()
    times: dict[str, list[float]] = {name: [] for name in SETUPS}
    for number in range(a.rounds):
        for name, (slowed, backup) in SETUPS.items():
            setup = Straggler(WORKERS, backup, a.compute / 1e3, a.slowed if slowed else 1.0)
            times[name].append(round_of(data, setup, a.steps, number))
    base = statistics.median(times["no straggler"])
    rows = {name: statistics.median(all_) for name, all_ in times.items()}
    for name, seconds in rows.items():
        print(f"{name:24} {seconds * 1e3:8.2f} ms   {seconds / base:5.2f} of no straggler")
    if a.json:
        a.json.write_text(json.dumps({name: seconds * 1e3 for name, seconds in rows.items()}))


if __name__ == "__main__":
    main()
