"""How much a cluster trains in a second, for the evaluations of scaling: one worker alone and real workers on this machine, both
measured, and more workers than this machine has cores, simulated from the measured step."""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import linnet
from linnet.sync import Server, Worker, simulate

Feeds = Mapping[str, Any]
NETWORK = 10  # Gbit/s of the simulated machines' ports


@dataclasses.dataclass(frozen=True)
class Step:
    """A worker's step on one thread: the measured seconds of each step, and what it transfers."""

    seconds: tuple[float, ...]
    traffic: simulate.Traffic

    @property
    def median(self) -> float:
        """The median seconds."""
        return statistics.median(self.seconds)


def alone(graph: linnet.Graph, feeds: Feeds, seconds: float, least: int = 3) -> Step:
    """Measures the signature `grad` of linnet.sync.signatures on one thread for about `seconds`, at least `least` steps. Counts
    the bytes of its gradients; of a sparse gradient only the different rows, which are pulled as well."""
    session = linnet.Session(linnet.Model(graph.to_bytes()), "grad", threads=1)
    given = {spec.name: feeds[spec.name] for spec in session.inputs}
    found, times, end = session.run(given), list[float](), time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        begin = time.perf_counter()
        session.run(given)
        times.append(time.perf_counter() - begin)
    dense, rows, bulk = 0, 0, 0
    for name, value in found.items():
        if name.endswith("/ids"):
            count = len(set(value.tolist()))
            rows += count
            bulk += count * found[name.removesuffix("/ids") + "/rows"][0].nbytes
        elif name.startswith("gradient/") and f"{name.removesuffix('/rows')}/ids" not in found:
            dense += value.nbytes
    return Step(tuple(times), simulate.Traffic(dense, dense, rows, bulk / max(rows, 1)))


@dataclasses.dataclass(frozen=True)
class Job:
    """What real workers train: the server's and the workers' model (the same, if no tables stay on the server), and a batch."""

    server: linnet.Graph
    worker: linnet.Graph
    feeds: Feeds


def together(job: Job, workers: int, steps: int) -> float:
    """The steps per second of all workers together: a real server and `workers` workers in this process, each with a
    connection over loopback and one thread. They are synchronous."""
    data, feeds, clocks = job.worker.to_bytes(), job.feeds, list[float]()
    with Server(job.server, workers=workers) as server:

        def work(number: int) -> None:
            with Worker(data, server.address, number=number, threads=1, timeout=600) as worker:
                worker.step(feeds)
                if number == 0:
                    clocks.append(time.perf_counter())
                for _ in range(steps):
                    worker.step(feeds)
                if number == 0:
                    clocks.append(time.perf_counter())

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if len(clocks) < 2:
        raise SystemExit("a worker of the evaluation has failed; its error is above")
    return workers * steps / (clocks[1] - clocks[0])


def rounds(
    graph: linnet.Graph, job: Job, counts: Iterable[int], seconds: float, steps: int
) -> tuple[Step, dict[int, float]]:
    """`alone` with `graph`, and `together` with `job` for each number of workers, in three rounds in turn, because a machine may
    become faster or slower meanwhile. Returns the times of all rounds, and {number of workers: the median steps per second}."""
    found, rates = list[Step](), {count: list[float]() for count in counts}
    for _ in range(3):
        found.append(alone(graph, job.feeds, seconds / 3))
        for count, values in rates.items():
            values.append(together(job, count, steps))
    step = Step(tuple(t for each in found for t in each.seconds), found[0].traffic)
    return step, {count: statistics.median(values) for count, values in rates.items()}


def hardware(costs: Mapping[str, float], servers: int, workers: int = 1) -> simulate.Hardware:
    """Machines with 10 Gbit/s ports, and servers that cost what linnet's server costs here."""
    rate = NETWORK * 1.25e8 * simulate.TCP
    return simulate.Hardware(workers=workers, servers=servers, worker_rate=rate, server_rate=rate, **costs)


def simulated(step: Step, machines: simulate.Hardware, mode: simulate.Mode, steps: int, seed: int) -> simulate.Result:
    """A cluster whose workers draw their times from the measured ones."""
    compute = simulate.Compute(step.median, measured=step.seconds)
    return simulate.run(simulate.Setting(compute, step.traffic, machines, mode), steps=steps, seed=seed)
