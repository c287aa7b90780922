"""Servers and workers of null steps, each a process of its own: `python -m examples.evaluation.null_workers server|worker ...`.
Workers are C programs where there is a compiler, because a step takes 20 us, and Python else; stdin gives numbers of steps."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import numpy as np

from .processes import answer_steps


class Case(Protocol):
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def table(self) -> int: ...


def commands(engine: str, case: Case, workers: int, folder: Path) -> tuple[list[str], list[list[str]], dict[str, str]]:
    """The server's command, the workers' commands (to which the server's address is appended), and their environment.

    engine: linnet (workers in C), linnet_shm, linnet_unix or linnet_tls (the same over another transport), linnet_python
    (workers in Python), or linnet_step (pulls rows and pushes their gradients)."""
    shape = [str(case.count), str(case.size), str(case.table)]
    this = [sys.executable, "-m", "examples.evaluation.null_workers"]
    of_server, of_worker = files(case.count, case.size, case.table, folder)
    place = str(folder / f"{engine}-{case.table}-{workers}")
    serve = [*this, "server", *shape, str(of_server), place, str(workers), engine]
    if engine == "linnet_python":
        work = [*this, "worker", *shape, str(of_worker)]
        return serve, [[*work, str(rank)] for rank in range(workers)], {"OMP_NUM_THREADS": "1"}
    key = f"{place}.key" if "tls" in engine else "-"
    kind = "step" if case.count == 1 else "sparse" if engine == "linnet_step" else "rows"
    made = program(folder)
    return serve, [[made, kind, str(of_worker), str(rank), key, *shape] for rank in range(workers)], {}


def best_engine() -> str:
    """Workers in C if there is a C compiler."""
    return "linnet" if shutil.which("cc") else "linnet_python"


@functools.cache
def files(count: int, size: int, table: int, folder: Path) -> tuple[Path, Path]:
    """The files of the server and of the workers: a scalar; a table pulled whole, of which one row is pushed; or a table that
    stays on the server."""
    import linnet

    graph = linnet.Graph(seed=0)
    of_server = of_worker = folder / f"{table}-{count}.lnt"
    if table == size == 4:
        x, scalar = graph.placeholder("x", ("batch",)), graph.variable("table", np.zeros(1, np.float32))
        linnet.sync.signatures(graph, (scalar * x).mean(), linnet.SGD(0.1), {"x": x})
        graph.save(of_server)
        return of_server, of_worker
    width = min(size, 1000) // 4 if count == 1 else size // 4
    rows = graph.variable("table", np.zeros((table // (4 * width), width), np.float32))
    ids = graph.placeholder("x", ("batch",), "i64")
    loss = linnet.ops.gather(rows, ids).mean()
    linnet.sync.signatures(graph, loss, linnet.SGD(0.1), {"x": ids}, remote=[] if count == 1 else [rows])
    if count == 1:
        graph.save(of_server)
        return of_server, of_worker
    parts = linnet.sync.shard(graph, 1)
    of_server, of_worker = (folder / f"{table}-{count}-{role}.lnt" for role in ("server", "worker"))
    parts.servers[0].save(of_server)
    parts.worker.save(of_worker)
    return of_server, of_worker


@functools.cache
def program(folder: Path) -> str:
    """Compiles null_worker.c against the libraries that Python uses, and returns the path of the program."""
    import linnet
    from linnet.clib.library import library_path

    library, made = Path(library_path()).resolve().parent, folder / "null_worker"
    source = [str(Path(__file__).with_name("null_worker.c")), f"-I{Path(linnet.__file__).parent / 'include'}"]
    libraries = [f"-L{library}", "-llinnet_sync", "-llinnet", f"-Wl,-rpath,{library}"]
    subprocess.run(["cc", "-O2", *source, *libraries, "-o", str(made)], check=True)
    return str(made)


def server(_count: int, _size: int, _table: int, file: str, place: str, workers: str, engine: str) -> None:
    from linnet.sync import Link, Server

    key_file = f"{place}.key" if "tls" in engine else None
    if key_file:
        with open(key_file, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as key:
            key.write(os.urandom(32).hex())
    listen = next((f"{kind}:{place}" for kind in ("unix", "shm") if kind in engine), ":0")
    with Server(file, listen=listen, workers=int(workers), link=Link(key_file=key_file)) as running:
        print(running.address, flush=True)
        sys.stdin.read()


def worker(count: int, size: int, table: int, file: str, rank: str, address: str) -> None:
    from linnet.sync import Worker

    joined = Worker(file, address, number=int(rank), threads=1)
    rng = np.random.default_rng(int(rank))
    if table == 4:
        feeds = {"x": np.ones(1, np.float32)}
        answer_steps(lambda: joined.step(feeds))
    elif count == 1:
        row = {"x": np.array([int(rank)])}
        answer_steps(lambda: joined.step(row))
    else:
        answer_steps(lambda: joined.pull_rows("table", rng.integers(0, table // size, count)))
    joined.close()


def main() -> None:
    """Runs one server, or one worker in Python."""
    kind, count, size, table, *rest = sys.argv[1:]
    {"server": server, "worker": worker}[kind](int(count), int(size), int(table), *rest)


if __name__ == "__main__":
    main()
