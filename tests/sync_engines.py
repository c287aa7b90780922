"""Engines of tests/bench_sync.py: servers and workers, each a separate process, `python -m tests.sync_engines KIND ENGINE COUNT
SIZE TABLE ...`. A worker reads numbers of steps from stdin and prints their times in us."""

from __future__ import annotations

import functools
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from examples.evaluation import null_workers
from examples.evaluation.null_workers import Case
from examples.evaluation.processes import answer_steps

ENGINES = ("linnet", "linnet_python", "linnet_step", "raw", "python", "gloo", "ray")
ROOT = Path(__file__).resolve().parent.parent


@functools.cache
def raw_program(folder: Path) -> str:
    """Compiles tests/c/bench_sockets.c."""
    program = folder / "bench_sockets"
    subprocess.run(
        ["cc", "-O2", "-pthread", "-o", str(program), str(ROOT / "tests" / "c" / "bench_sockets.c")], check=True
    )
    return str(program)


def commands(
    engine: str, case: Case, workers: int, folder: Path
) -> tuple[list[str] | None, list[list[str]], dict[str, str]]:
    """The server's command, the workers' commands (to which the server's address is appended), and their environment."""
    shape = [str(case.count), str(case.size), str(case.table)]
    if engine == "raw":
        program = raw_program(folder)
        return [program, "serve", str(case.table)], [[program, "work", *shape]] * workers, {}
    this = [sys.executable, "-m", "tests.sync_engines"]
    one = {"OMP_NUM_THREADS": "1"}
    if engine == "gloo":
        store = str(folder / f"gloo-{case.table}-{workers}")
        return None, [[*this, "worker", engine, *shape, store, str(r), str(workers)] for r in range(workers)], one
    if engine == "ray":  # one process, which lets Ray's own workers run the steps
        return None, [[*this, "worker", engine, *shape, str(workers)]], one
    if engine.startswith("linnet"):
        return null_workers.commands(engine, case, workers, folder)
    return [*this, "server", engine, *shape], [[*this, "worker", engine, *shape]] * workers, one


# ---- a plain server in Python: sockets, NumPy, a thread per worker ---------------------------------------------------


def python_server(count: int, size: int, table: int) -> None:
    values = np.ones(table, np.uint8)
    rows = values[: table - table % size].view(np.float32).reshape(-1, size // 4)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def serve(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = np.empty(count, np.int64)
        while connection.recv_into(request, request.nbytes, socket.MSG_WAITALL) == request.nbytes:
            connection.sendall(memoryview(rows[0] if count == 1 else rows[request]).cast("B"))

    def accept() -> None:
        while True:
            threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


def python_worker(count: int, size: int, table: int, port: str) -> None:
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    values = np.zeros(count * size, np.uint8)
    rng = random.Random(os.getpid())
    code = struct.Struct(f"<{count}q")

    def step() -> None:
        connection.sendall(code.pack(*(rng.randrange(table // size) for _ in range(count))))
        view = memoryview(values)
        while len(view):
            view = view[connection.recv_into(view) :]

    answer_steps(step)


# ---- Gloo and Ray ----------------------------------------------------------------------------------------------------


def gloo_worker(count: int, size: int, _table: int, store: str, rank: str, workers: str, *_: str) -> None:
    """All-reduce of this many floats; a single rank sends nothing."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(workers))
    values = torch.zeros(count * size // 4)
    answer_steps(lambda: dist.all_reduce(values))


def ray_worker(count: int, size: int, _table: int, workers: str, *_: str) -> None:
    """An actor holds the parameters. Each worker is an actor that pulls them and pushes a scalar update."""
    import ray

    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=2 * 10**9, log_to_driver=False, configure_logging=False
    )

    @ray.remote(num_cpus=0)
    class Parameters:
        def __init__(self) -> None:
            self.values = np.zeros(count * size // 4, np.float32)

        def step(self, update: float) -> Any:
            self.values[0] += update
            return self.values

    @ray.remote(num_cpus=0)
    class Worker:
        def steps(self, server: Any, number: int) -> list[float]:
            times = []
            for _ in range(number):
                begin = time.perf_counter()
                values = ray.get(server.step.remote(1.0))
                times.append(1e6 * (time.perf_counter() - begin))
                del values
            return times

    server = Parameters.remote()  # type: ignore[attr-defined]
    actors = [Worker.remote() for _ in range(int(workers))]  # type: ignore[attr-defined]
    ray.get([actor.steps.remote(server, 1) for actor in actors])
    print("ready", flush=True)
    for text in sys.stdin:
        times = ray.get([actor.steps.remote(server, int(text)) for actor in actors])
        print(*(f"{t:.1f}" for each in times for t in each), flush=True)
    ray.shutdown()


def main() -> None:
    kind, engine, count, size, table, *rest = sys.argv[1:]
    globals()[f"{engine}_{kind}"](int(count), int(size), int(table), *rest)


if __name__ == "__main__":
    main()
