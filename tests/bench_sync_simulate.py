"""Compares the simulator with real processes: a server in its own network namespace behind a slow link, and workers outside of
it. Run as root with iproute2: python -m tests.bench_sync_simulate. Prints the real and the simulated median step. No
traffic leaves the machine, and the namespace is removed afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np

import linnet
from linnet.sync import Link, Server, Worker
from linnet.sync import simulate as sim

MBIT, SIZE, COMPUTE, STEPS = 200, 1_000_000, 0.05, 12
OPEN = Link(insecure=True)  # nobody else can reach the namespace


def graph() -> linnet.Graph:
    """A model that transfers SIZE bytes each way and computes almost nothing."""
    made = linnet.Graph()
    x = made.placeholder("x", (1,))
    w = made.variable("w", np.zeros(SIZE // 4, np.float32))
    linnet.sync.signatures(made, (w.tensor(x) * x).sum(), linnet.SGD(0.1), {"x": x})
    return made


def sh(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def slow_port() -> Iterator[tuple[str, ...]]:
    """Creates a namespace at 10.77.0.2 behind a link of MBIT each way. Yields the command prefix that runs a command in it."""
    name, near, far = (f"{word}{os.getpid() % 100_000}" for word in ("linnet", "lna", "lnb"))
    inside = ("ip", "netns", "exec", name)
    sh("ip", "netns", "add", name)
    try:
        sh("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        sh("ip", "link", "set", far, "netns", name)
        for where, device, address in (((), near, "10.77.0.1/24"), (inside, far, "10.77.0.2/24")):
            sh(*where, "ip", "addr", "add", address, "dev", device)
            sh(*where, "ip", "link", "set", device, "up")
            shape = ("root", "tbf", "rate", f"{MBIT}mbit", "burst", "64kb", "latency", "200ms")
            sh(*where, "tc", "qdisc", "add", "dev", device, *shape)
        sh(*inside, "ip", "link", "set", "lo", "up")
        yield inside
    finally:
        subprocess.run(
            ["ip", "netns", "del", name], check=False
        )  # this removes one end of the pair, and with it the other
        subprocess.run(["ip", "link", "del", near], check=False, capture_output=True)


def real(inside: tuple[str, ...], workers: int) -> float:
    """Median seconds of a step with this number of workers."""
    command = [*inside, sys.executable, "-m", "tests.bench_sync_simulate", "serve", str(workers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        address = server.stdout.readline().strip()
        ends: list[list[float]] = [[] for _ in range(workers)]

        def work(number: int) -> None:
            with Worker(graph(), address, number=number, timeout=60, link=OPEN) as worker:
                worker.pull()
                for _ in range(STEPS):
                    time.sleep(COMPUTE)
                    worker.step({"x": np.ones(1, np.float32)})
                    ends[number].append(worker.info.decided)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.stdin.close()
    return float(np.median([np.diff(times[2:]) for times in ends]))


def simulated(workers: int, sharing: str) -> float:
    rate = MBIT * 1.25e5 * sim.TCP
    hardware = sim.Hardware(workers=workers, worker_rate=rate, server_rate=rate, sharing=sharing)
    return sim.run(sim.Setting(sim.Compute(COMPUTE), sim.Traffic(SIZE, SIZE), hardware), steps=10).median


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        with Server(graph(), workers=int(sys.argv[2]), listen="10.77.0.2:0", link=OPEN) as server:
            print(server.address, flush=True)
            sys.stdin.read()
        return
    print(f"{MBIT} Mbit/s, {SIZE / 1e6:g} MB each way, {COMPUTE * 1e3:g} ms of computing; ms a step")
    print("workers   real   fair   in turn")
    with slow_port() as inside:
        for workers in (1, 2, 4, 8, 16):
            times = real(inside, workers), simulated(workers, "fair"), simulated(workers, "fifo")
            print(f"{workers:7} " + " ".join(f"{1e3 * seconds:6.0f}" for seconds in times), flush=True)


if __name__ == "__main__":
    main()
