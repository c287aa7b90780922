"""Measures the step time on loopback with one slowed worker of eight, with and without two backup workers, in alternation.
`python -m tests.bench_sync_stragglers [--rounds N] [--steps N] [--compute MS] [--slowed TIMES] [--json FILE]`"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from pathlib import Path

import numpy as np

import linnet
from linnet.sync import Server, Worker

WORKERS, BACKUP = 8, 2
SETUPS = {  # (one worker is slowed, backup workers)
    "no straggler": (False, 0),
    "one slowed": (True, 0),
    "one slowed, 2 backups": (True, BACKUP),
    "no straggler, 2 backups": (False, BACKUP),
}


def model() -> bytes:
    """A softmax regression on 784 inputs, with 31 KB of gradients."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", ("batch", 784)), graph.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(linnet.nn.dense(x, 10), t).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.01), {"x": x, "t": t})
    return graph.to_bytes()


def round_of(data: bytes, slowed: bool, backup: int, steps: int, compute: float, factor: float, seed: int) -> float:
    """Median seconds between two updates, as seen by worker 0, which is never slowed."""
    marks: list[float] = []
    done = threading.Event()
    rng = np.random.default_rng(seed)
    feeds = {"x": rng.normal(size=(8, 784)).astype(np.float32), "t": rng.integers(0, 10, 8).astype(np.int32)}
    with Server(data, workers=WORKERS, quorum=WORKERS - backup, elastic=True) as server:

        def work(number: int) -> None:
            own = np.random.default_rng([seed, number])
            with Worker(data, server.address, number=number) as worker:
                while not done.is_set():
                    computing = compute * own.lognormal(0.0, 0.05) * (factor if slowed and number == WORKERS - 1 else 1)
                    time.sleep(
                        computing
                    )  # replaces computing gradients: eight workers that compute would share two cores
                    worker.step(feeds)
                    if number == 0:
                        marks.append(time.perf_counter())
                        if len(marks) > steps:
                            done.set()

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(WORKERS)]
        for thread in threads:
            thread.start()
        done.wait()
        for thread in threads:
            thread.join()
    return statistics.median(np.diff(marks))


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
            times[name].append(round_of(data, slowed, backup, a.steps, a.compute / 1e3, a.slowed, number))
    base = statistics.median(times["no straggler"])
    rows = {name: statistics.median(all_) for name, all_ in times.items()}
    for name, seconds in rows.items():
        print(f"{name:24} {seconds * 1e3:8.2f} ms   {seconds / base:5.2f} of no straggler")
    if a.json:
        a.json.write_text(json.dumps({name: seconds * 1e3 for name, seconds in rows.items()}))


if __name__ == "__main__":
    main()
