"""What a border between machines costs, with both sides on this machine: one small node on a host beside a bare ping-pong of the
same bytes, beside torch.distributed.rpc and a Ray actor (those that are installed); large values; chains of borders; two hosts
in a chain; and predictions beside measured times on three clusters. `python -m tests.bench_remote [--json FILE]`"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import linnet
from linnet import ops
from linnet.placing.task import Task
from tests import bench_sync, zoo
from tests.bench_clusters import clusters
from tests.native import build
from tests.remote_host import Host, host

ROUNDS = 3000
SECONDS = 5.0  # of each measurement of pipelined
VALUE = 2048  # bytes of the input and of the output of the small node


def median_us(run: Callable[[], Any], rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        times.append(1e6 * (time.perf_counter() - begin))
    return statistics.median(times)


def node(elements: int = VALUE // 4, count: int = 1) -> linnet.Graph:
    """relu, `count` times, with a product between so that nothing is joined."""
    graph = linnet.Graph()
    x = y = graph.placeholder("x", (1, elements))
    for i in range(count):
        with graph.scope(f"n{i}"):
            y = ops.softmax(y)
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


@contextlib.contextmanager
def echo(listen: str) -> Iterator[str]:
    """ping_remote as a server; gives its address."""
    command = [str(build("release", "ping_remote") / "ping_remote"), "serve", listen]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[1]
    finally:
        process.kill()
        process.wait()


def pinged(listen: str, size: int) -> float:
    """Microseconds of a ping-pong of this many bytes there and back."""
    with echo(listen) as address:
        command = [str(build("release", "ping_remote") / "ping_remote"), address, str(size), str(ROUNDS)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def benched(model: Path, there: Host, placement: str = "*") -> float:
    """Microseconds of a run of the model with every node on the host, by linnet-bench."""
    command = [
        str(build("release", "linnet-bench", "linnet_remote") / "linnet-bench"), str(model), "--threads", "1", "--seconds", "1",
        "--json", "--device", there.name, "--placement", f"{placement}={there.name}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return 1e3 * float(json.loads(done.stdout)["median_ms"])


def listens(folder: str) -> dict[str, str]:
    return {"TCP": "127.0.0.1:0", "Unix socket": f"unix:{folder}/u", "shared memory": f"shm:{folder}/s"}


def small() -> dict[str, dict[str, float]]:
    """A run of one small node, beside a ping-pong of the same bytes."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        node().save(f"{folder}/m.lnt")
        for medium, listen in listens(folder).items():
            with host(listen, "--threads", "1") as there:
                run = benched(Path(folder, "m.lnt"), there)
            ping = pinged(listen, VALUE + 96)
            found[medium] = {"run_us": run, "ping_us": ping, "above_us": run - ping}
    return found


def large() -> dict[str, dict[str, float]]:
    """Milliseconds of a run with an input of 100 MB, without those of the same run in this process, beside a null step of the
    sync library that moves 100 MB over the same transport."""
    found, graph = {}, linnet.Graph()
    x = graph.placeholder("x", (25_000_000,))
    graph.signature("infer", {"x": x}, {"y": ops.max(x)})
    feeds = {"x": np.ones(25_000_000, np.float32)}
    here = linnet.Session(graph, threads=1)
    alone = median_us(lambda: here.run(feeds), 15)
    engines = {"TCP": "linnet", "Unix socket": "linnet_unix", "shared memory": "linnet_shm"}
    with tempfile.TemporaryDirectory() as folder:
        for medium, listen in listens(folder).items():
            with host(listen, "--threads", "1") as there:
                session = linnet.Session(graph, threads=1, **there.all)
                session.run(feeds)
                ms = (median_us(lambda s=session: s.run(feeds), 15) - alone) / 1e3
            sync = bench_sync.run_case("dense", 1, [engines[medium]], 5, Path(folder))["ms"][engines[medium]]
            found[medium] = {"run_ms": ms, "sync_ms": sync, "rate / rate of sync": sync / ms}
    return found


def chain() -> dict[str, float]:
    """A value that goes to and fro between two hosts ten times, beside one border."""
    found = {}
    for borders in (1, 10):
        graph = node(count=borders + 1)
        with host("127.0.0.1:0", "--threads", "1") as one, host("127.0.0.1:0", "--threads", "1") as two:
            names = [step.name for step in linnet.Session(graph).steps]
            places = {name: (one, two)[i % 2].name for i, name in enumerate(names)}
            session = linnet.Session(graph, threads=1, devices=[one.name, two.name], placement=places)
            feeds = {"x": np.ones((1, VALUE // 4), np.float32)}
            found[f"{borders} borders, us"] = median_us(lambda s=session, f=feeds: s.run(f), 1000)
    return found


def peers(ray: str = sys.executable) -> dict[str, float]:
    """The same small node as a call of torch.distributed.rpc and of a Ray actor, and from Python on a host. Microseconds.
    `ray`: an interpreter that has Ray."""
    found = {}
    feeds = {"x": np.ones((1, VALUE // 4), np.float32)}
    with host("127.0.0.1:0", "--threads", "1") as there:
        session = linnet.Session(node(), threads=1, **there.all)
        found["linnet"] = median_us(lambda: session.run(feeds))
    for name, (python, code) in {"torch rpc": (sys.executable, _TORCH), "ray": (ray, _RAY)}.items():
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 0:
            found[name] = float(done.stdout.split()[-1])
        else:
            print(f"{name}: not measured: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return found


_TORCH = """
import os, time, statistics, torch, torch.distributed.rpc as rpc, torch.multiprocessing as mp
def relu(x): return torch.softmax(x, -1)
def work(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=2)
    if rank == 0:
        x, times = torch.ones(1, 512), []
        for _ in range(2000):
            begin = time.perf_counter()
            rpc.rpc_sync("w1", torch.softmax, args=(x, -1))
            times.append(time.perf_counter() - begin)
        print(1e6 * statistics.median(times), flush=True)
    rpc.shutdown()
if __name__ == "__main__":
    import socket
    s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
    pids = []
    for rank in (1, 0):
        pid = os.fork()
        if pid == 0:
            work(rank, port)
            os._exit(0)
        pids.append(pid)
    for pid in pids: os.waitpid(pid, 0)
"""
_RAY = """
import time, statistics, numpy as np, ray
ray.init(num_cpus=2, logging_level="error")
@ray.remote
class Actor:
    def run(self, x):
        e = np.exp(x - x.max()); return e / e.sum()
a = Actor.remote(); x, times = np.ones((1, 512), np.float32), []
for _ in range(1000):
    begin = time.perf_counter(); ray.get(a.run.remote(x)); times.append(time.perf_counter() - begin)
print(1e6 * statistics.median(times))
"""


def runs_a_second(sessions: Sequence[linnet.Session], feeds: dict[str, Any], seconds: float = SECONDS) -> float:
    """Of all sessions together, each with a thread of its own."""
    for session in sessions:
        session.run(feeds)
    counts, end = [0] * len(sessions), time.monotonic() + seconds

    def work(i: int) -> None:
        while time.monotonic() < end:
            sessions[i].run(feeds)
            counts[i] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def halved(task: Task, feeds: dict[str, Any]) -> dict[str, str]:
    """Nodes on the first and on the second of two hosts: of the cuts between fused steps that divide the measured time by 46
    to 54 %, the one that the fewest bytes cross."""
    costs = task.costs
    session = linnet.Session(task.model, threads=1, trace=True)
    for _ in range(30):
        session.run(feeds)
    at = {node.name: i for i, node in enumerate(costs.nodes)}
    ns, whole = np.zeros(len(at)), np.ones(len(at), bool)
    for step in session.steps:
        names = [name for name in (step.name, *step.fused.split("+")) if name in at]
        if names:
            begin, end = min(map(at.__getitem__, names)), max(map(at.__getitem__, names))
            ns[end] += step.ms
            whole[begin:end] = False
    done = np.cumsum(ns) / ns.sum()
    last = {value: i for i, node in enumerate(costs.nodes) for value in node.reads}

    def crossing(cut: int) -> int:
        return sum(costs.sizes[v] for v, made in costs.makers.items() if made <= cut < last.get(v, -1))

    cuts = [i for i in range(len(at)) if whole[i] and 0.46 <= done[i] <= 0.54]
    best = min(cuts, key=crossing, default=int(np.abs(done - 0.5).argmin()))
    return task.places([1 if i <= best else 2 for i in range(len(done))])


def pipelined_network(name: str, flying: int = 4) -> dict[str, float]:
    """Runs a second of one host with the whole network, of two hosts with a half each, and of two hosts that have the
    whole network and know nothing of each other, which is the most that this machine has to give. Several runs are in
    flight. Then the processor milliseconds of a run: of the client, and of each host."""
    graph = linnet.from_onnx(zoo.at_hand(lambda: zoo.fetch(name)), input_shapes=zoo.input_shapes(name))
    feeds, found = zoo.inputs(name), {}
    with host("127.0.0.1:0", "--threads", "1") as one, host("127.0.0.1:0", "--threads", "1") as two:
        task = Task(graph, "infer", {}, linnet.SessionOptions.of(None, threads=1, devices=(one.name, two.name)))
        halves = halved(task, feeds)
        for label, placements in {
            "one host": [{"*": one.name}],
            "a half each": [{**halves, "*": two.name}],
            "all of it each": [{"*": one.name}, {"*": two.name}],
        }.items():
            sessions = [
                linnet.Session(
                    graph,
                    threads=1,
                    devices=[one.name, two.name],
                    placement=placements[i % len(placements)],
                )
                for i in range(flying)
            ]
            before = (time.process_time(), one.processor_seconds(), two.processor_seconds())
            found[label] = runs_a_second(sessions, feeds)
            after = (time.process_time(), one.processor_seconds(), two.processor_seconds())
            for who, *took in zip(("client", "one", "two"), before, after, strict=True):
                found[f"{label}: {who}, ms"] = 1e3 * (took[1] - took[0]) / (SECONDS * found[label] + flying)
    found["a half each / one host"] = found["a half each"] / found["one host"]
    found["all of it each / one host"] = found["all of it each"] / found["one host"]
    return found


def pipelined() -> dict[str, dict[str, float]]:
    return {name: pipelined_network(name) for name in ("scrfd_500m", "ppocr_v4_det", "minilm_int8")}


PARTS: dict[str, Callable[[], Any]] = {
    "small": small, "large": large, "chain": chain, "peers": peers, "pipelined": pipelined, "clusters": clusters,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--ray", default=sys.executable, help="a Python that has Ray, for peers")
    given = parser.parse_args()
    found = {}
    for name in given.parts or PARTS:
        found[name] = peers(given.ray) if name == "peers" else PARTS[name]()
        print(name, json.dumps(found[name], indent=1), flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
