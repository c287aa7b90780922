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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

ENGINES = ("linnet", "linnet_python", "linnet_step", "raw", "python", "gloo", "ray")
ROOT = Path(__file__).resolve().parent.parent


class Case(Protocol):
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def table(self) -> int: ...


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
        # linnet (workers in C), linnet_shm, linnet_unix, linnet_tls, linnet_python; linnet_step pulls rows and pushes.
        server, worker = linnet_files(case.count, case.size, case.table, folder)
        place = str(folder / f"{engine}-{case.table}-{workers}")
        serve = [*this, "server", "linnet", *shape, str(server), place, str(workers), engine]
        if engine == "linnet_python":
            return serve, [[*this, "worker", engine, *shape, str(worker), str(r)] for r in range(workers)], one
        key = f"{place}.key" if "tls" in engine else "-"
        kind = "step" if case.count == 1 else "sparse" if engine == "linnet_step" else "rows"
        program = [linnet_program(folder), kind, str(worker)]
        return serve, [[*program, str(r), key, *shape] for r in range(workers)], {}
    return [*this, "server", engine, *shape], [[*this, "worker", engine, *shape]] * workers, one


def answer_steps(step: Callable[[], object]) -> None:
    """Main loop of a worker: reports ready, then runs as many steps as each line of stdin says."""
    print("ready", flush=True)
    for text in sys.stdin:
        times = []
        for _ in range(int(text)):
            begin = time.perf_counter()
            step()
            times.append(1e6 * (time.perf_counter() - begin))
        print(*(f"{t:.1f}" for t in times), flush=True)


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


# ---- linnet ----------------------------------------------------------------------------------------------------------


@functools.cache
def linnet_files(count: int, size: int, table: int, folder: Path) -> tuple[Path, Path]:
    """The files of the server and of the workers: a scalar; a table pulled whole, of which one row is pushed; or a table that
    stays on the server."""
    import linnet

    graph = linnet.Graph(seed=0)
    server = worker = folder / f"{table}-{count}.lnt"
    if table == size == 4:
        x, scalar = graph.placeholder("x", ("batch",)), graph.variable("table", np.zeros(1, np.float32))
        linnet.sync.signatures(graph, (scalar * x).mean(), linnet.SGD(0.1), {"x": x})
        graph.save(server)
        return server, worker
    width = min(size, 1000) // 4 if count == 1 else size // 4
    rows = graph.variable("table", np.zeros((table // (4 * width), width), np.float32))
    ids = graph.placeholder("x", ("batch",), "i64")
    loss = linnet.ops.gather(rows, ids).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.1), {"x": ids}, remote=[] if count == 1 else [rows])
    if count == 1:
        graph.save(server)
        return server, worker
    parts = linnet.sync.shard(graph, 1)
    server, worker = (folder / f"{table}-{count}-{role}.lnt" for role in ("server", "worker"))
    parts.servers[0].save(server)
    parts.worker.save(worker)
    return server, worker


@functools.cache
def linnet_program(folder: Path) -> str:
    """Compiles tests/c/bench_sync_worker.c against the libraries that Python uses."""
    from linnet.clib.library import library_path

    library, program = Path(library_path()).resolve().parent, folder / "bench_sync_worker"
    source = [str(ROOT / "tests" / "c" / "bench_sync_worker.c"), f"-I{ROOT / 'runtime_c' / 'include'}", f"-L{library}"]
    subprocess.run(
        ["cc", "-O2", *source, "-llinnet_sync", "-llinnet", f"-Wl,-rpath,{library}", "-o", str(program)], check=True
    )
    return str(program)


def linnet_server(_count: int, _size: int, _table: int, file: str, place: str, workers: str, engine: str) -> None:
    from linnet.sync import Link, Server

    key_file = f"{place}.key" if "tls" in engine else None
    if key_file:
        with open(key_file, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as key:
            key.write(os.urandom(32).hex())
    listen = next((f"{kind}:{place}" for kind in ("unix", "shm") if kind in engine), ":0")
    with Server(file, listen=listen, workers=int(workers), link=Link(key_file=key_file)) as server:
        print(server.address, flush=True)
        sys.stdin.read()


def linnet_python_worker(count: int, size: int, table: int, file: str, rank: str, address: str) -> None:
    from linnet.sync import Worker

    worker = Worker(file, address, number=int(rank), threads=1)
    rng = np.random.default_rng(int(rank))
    if table == 4:
        feeds = {"x": np.ones(1, np.float32)}
        answer_steps(lambda: worker.step(feeds))
    elif count == 1:
        row = {"x": np.array([int(rank)])}
        answer_steps(lambda: worker.step(row))
    else:
        answer_steps(lambda: worker.pull_rows("table", rng.integers(0, table // size, count)))
    worker.close()


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
