"""Times a network beside other work on the same cores: idle, beside a process that starts every 5 ms, beside one and two busy
loops. `python -m tests.bench_busy [--library NAME=PATH ...]` compares builds, thread counts and ONNX Runtime in one run."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
_BUSY = ["sh", "-c", "while :; do :; done"]
LOADS = {
    "idle": [],
    "light": [["sh", "-c", "while :; do ls > /dev/null; sleep 0.005; done"]],
    "one": [_BUSY],
    "two": [_BUSY] * 2,
}


def worker(engine: str, model: str, threads: int, seconds: float) -> None:
    """Prints the median of the milliseconds of a run, the cores in use, and a digest of the outputs."""
    if engine == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        peer = onnxruntime.InferenceSession(model + ".onnx", options, providers=["CPUExecutionProvider"])
        shape = [side if isinstance(side, int) else 1 for side in peer.get_inputs()[0].shape]
        feeds = {peer.get_inputs()[0].name: np.random.default_rng(0).standard_normal(shape, np.float32)}

        def run() -> list[np.ndarray]:
            return list(peer.run(None, feeds))
    else:
        import linnet

        session = linnet.Session(model + ".lnt", threads=threads)
        spec = session.inputs[0]
        shape = [side if isinstance(side, int) else 1 for side in spec.shape]
        feeds = {spec.name: np.random.default_rng(0).standard_normal(shape, np.float32)}

        def run() -> list[np.ndarray]:
            return list(session.run(feeds).values())

    digest = hashlib.sha256(b"".join(array.tobytes() for array in run())).hexdigest()[:12]
    times: list[float] = []
    warm = time.perf_counter() + seconds / 4
    while time.perf_counter() < warm:
        run()
    start, used = time.perf_counter(), time.process_time()
    while time.perf_counter() < start + seconds:
        before = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - before))
    cores = (time.process_time() - used) / (time.perf_counter() - start)
    print(
        json.dumps(
            {"median": statistics.median(times), "mean": statistics.fmean(times), "cores": cores, "digest": digest}
        )
    )


@contextlib.contextmanager
def beside(load: str) -> Iterator[None]:
    """Runs a load's processes meanwhile."""
    others = [subprocess.Popen(command, start_new_session=True) for command in LOADS[load]]
    try:
        time.sleep(0.1 if others else 0)
        yield
    finally:
        for other in others:
            os.killpg(other.pid, 9)
            other.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", action="append", default=[], metavar="NAME=PATH", help="a build of liblinnet.so")
    parser.add_argument("--net", default="squeezenet", help="a name of tests/light_nets.py")
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        engine, model, threads, seconds = options.worker
        return worker(engine, model, int(threads), float(seconds))
    import linnet
    from tests import light_nets

    libraries = dict(word.split("=", 1) for word in options.library) or {"linnet": os.environ.get("LINNET_LIBRARY", "")}
    engines = [(name, t) for name in libraries for t in map(int, options.threads.split(","))] + [("onnxruntime", 2)]
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "m")
        shutil.copy(light_nets.path(options.net), model + ".onnx")
        linnet.from_onnx(model + ".onnx").save(model + ".lnt")
        print(f"{options.net}: median ms (mean ms; cores used), middle round")
        for load in options.loads.split(","):
            found: dict[tuple[str, int], list[dict[str, float]]] = {engine: [] for engine in engines}
            for _ in range(options.rounds):
                for engine in engines:
                    name, threads = engine
                    command = [
                        sys.executable,
                        "-m",
                        "tests.bench_busy",
                        "--worker",
                        name,
                        model,
                        str(threads),
                        str(options.seconds),
                    ]
                    env = os.environ | ({"LINNET_LIBRARY": libraries[name]} if libraries.get(name) else {})
                    with beside(load):
                        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
                    found[engine].append(json.loads(done.stdout))
            for (name, threads), rows in found.items():
                middle = sorted(rows, key=lambda row: row["median"])[len(rows) // 2]
                mean = statistics.median(row["mean"] for row in rows)
                digests = ",".join(sorted({str(row["digest"]) for row in rows}))
                times = f"{middle['median']:7.2f} ({mean:7.2f}; {middle['cores']:.2f})"
                print(f"{load:6} {name:12} threads {threads}: {times} {digests}", flush=True)


if __name__ == "__main__":
    main()
