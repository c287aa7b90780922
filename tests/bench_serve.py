"""Measures linnet serve: what HTTP costs above Session.run, and requests a second with and without shared runs, beside ONNX
Runtime behind the same application. `python -m tests.bench_serve`; the machine should be quiet."""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import linnet
from tests import zoo
from tests.serving import binary_request, serving


def mlp_onnx(path: Path, sizes: tuple[int, ...] = (1024, 2048, 2048, 10)) -> Path:
    """f32 x [batch, 1024] -> y [batch, 10], 26 MB of weights."""
    rng, nodes, weights, last = np.random.default_rng(0), [], [], "x"
    for i, (inputs, units) in enumerate(pairwise(sizes)):
        scale = np.sqrt(2 / inputs)
        weights.append(
            numpy_helper.from_array((scale * rng.standard_normal((inputs, units))).astype(np.float32), f"w{i}")
        )
        out = f"h{i}" if i < len(sizes) - 2 else "y"
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}" if out != "y" else "y"]))
        if out != "y":
            nodes.append(helper.make_node("Relu", [f"m{i}"], [out]))
        last = out
    graph = helper.make_graph(
        nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", sizes[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", sizes[-1]])], weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


class OnnxRuntime:
    """ONNX Runtime in the place of a lane's session."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.names = [output.name for output in self.session.get_outputs()]

    def run(self, feeds: Any, timeout: float) -> dict[str, np.ndarray]:
        return dict(zip(self.names, self.session.run(self.names, feeds), strict=True))

    def _check_shape(self, spec: Any, shape: Any) -> None:
        return

    def cancel(self) -> None:
        return

    def close(self) -> None:
        return


def _server(pipe: Any, lnt: Path, peer: Path | None, settings: dict[str, Any]) -> None:
    with serving(lnt, poll=0, **settings) as server:
        if peer is not None:
            (loaded,) = [one.loaded for one in server.repository.all()]
            loaded.lane.session = OnnxRuntime(peer, settings.get("threads") or os.cpu_count() or 1)
        pipe.send(server.url)
        while (asked := pipe.recv()) is not None:
            usage = Path("/proc/self/status").read_text()
            pipe.send((asked, time.process_time(), int(usage.split("VmRSS:")[1].split()[0])))


@contextmanager
def server(lnt: Path, peer: Path | None = None, **settings: Any) -> Any:
    """A server in a process of its own: (url, a function that gives (its CPU seconds, its kB of memory))."""
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    process = context.Process(target=_server, args=(other, lnt, peer, settings))
    process.start()

    def used() -> tuple[float, int]:
        mine.send("usage")
        return mine.recv()[1:]

    try:
        yield mine.recv(), used
    finally:
        mine.send(None)
        process.join()


def message(url: str, model: str, feeds: dict[str, np.ndarray]) -> bytes:
    """A whole request, as it is sent again and again."""
    body, size = binary_request(feeds)
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    return (head + f"inference-header-content-length: {size}\r\n\r\n").encode() + body


def one_client(url: str, request: bytes, count: int) -> list[float]:
    """Seconds of each request over one connection."""
    parts = urlsplit(url)
    times = []
    with socket.create_connection((parts.hostname, parts.port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            started = time.perf_counter()
            line.sendall(request)
            data = line.recv(1 << 16)
            while not complete(data):
                data += line.recv(1 << 16)
            times.append(time.perf_counter() - started)
            assert data.startswith(b"HTTP/1.1 200"), data[:200]
    return times


def complete(data: bytes) -> bool:
    head, found, body = data.partition(b"\r\n\r\n")
    return bool(found) and len(body) >= int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])


class _Line(asyncio.Protocol):
    """One client: sends the next request when the last is answered, or at its times (`gap` seconds between two)."""

    def __init__(self, request: bytes, results: list[tuple[float, int]], gap: float = 0) -> None:
        self.request, self.results, self.gap, self.data = request, results, gap, b""
        self.due = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport, self.loop = transport, asyncio.get_running_loop()
        self.due = self.loop.time() + self.gap * np.random.default_rng().random()
        self.loop.call_at(self.due, self.send) if self.gap else self.send()

    def send(self) -> None:
        if not self.gap:
            self.due = self.loop.time()
        if not self.transport.is_closing():
            self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.data += data
        if complete(self.data):
            self.results.append((self.loop.time() - self.due, int(self.data[9:12])))
            self.data = b""
            if self.gap:
                self.due += self.gap
                self.loop.call_at(max(self.due, self.loop.time()), self.send)
            else:
                self.send()


def many_clients(url: str, request: bytes, clients: int, seconds: float, rate: float = 0) -> list[tuple[float, int]]:
    """(seconds, status) of each request of `clients` connections. rate: requests a second of all together; the time of a
    request then counts from when it was due. 0: each client sends as soon as it has its answer."""
    import uvloop

    results: list[tuple[float, int]] = []

    async def go() -> None:
        parts = urlsplit(url)
        loop = asyncio.get_running_loop()
        made = [
            await loop.create_connection(
                lambda: _Line(request, results, clients / rate if rate else 0), parts.hostname, parts.port
            )
            for _ in range(clients)
        ]
        await asyncio.sleep(seconds)
        for transport, _ in made:
            transport.abort()

    uvloop.run(go())
    return results


def rate_of(url: str, request: bytes, clients: int, seconds: float) -> tuple[float, float]:
    """(requests a second, 99th percentile in ms)."""
    many_clients(url, request, clients, 0.5)
    found = many_clients(url, request, clients, seconds)
    assert {status for _, status in found} == {200}
    return len(found) / seconds, 1e3 * sorted(t for t, _ in found)[int(0.99 * len(found))]


def overhead(folder: Path, count: int) -> dict[str, float]:
    """A model that does almost nothing with 4 KB: the median of a request, and of Session.run, in ms."""
    graph = linnet.Graph()
    x = graph.placeholder("x", ("batch", 1024))
    graph.signature("infer", {"x": x}, {"y": x.sum(1)})
    graph.save(folder / "small.lnt")
    feeds = {"x": np.ones((1, 1024), np.float32)}
    with server(folder / "small.lnt") as (url, used):
        request = message(url, "small", feeds)
        one_client(url, request, 500)
        before = used()[0]
        times = one_client(url, request, count)
        cpu, kept = used()
    session, runs = linnet.Session(folder / "small.lnt"), []
    for _ in range(count):
        started = time.perf_counter()
        session.run(feeds)
        runs.append(time.perf_counter() - started)
    request_ms, run_ms = 1e3 * statistics.median(times), 1e3 * statistics.median(runs)
    return {
        "request_ms": request_ms, "run_ms": run_ms, "overhead_ms": request_ms - run_ms,
        "server_cpu_ms": 1e3 * (cpu - before) / count, "server_mb": kept / 1e3,
    }  # fmt: skip


def words(count: int, length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ids = rng.integers(1000, 20000, (count, length))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def throughput(folder: Path, name: str, clients: int, seconds: float) -> dict[str, Any]:
    """Requests a second: with shared runs, one request a run, ONNX Runtime with shared runs, and with one request a run."""
    if name == "mlp":
        peer, feeds, settings = mlp_onnx(folder / "mlp.onnx"), {"x": np.ones((1, 1024), np.float32)}, {}
    else:
        peer, feeds = zoo.fetch("minilm_int8"), words(1, 8)
        settings = {"bounds": dict.fromkeys(feeds, "1..32,1..32")}
    lnt = folder / f"{name}.lnt"
    linnet.from_onnx(peer).save(lnt)
    found: dict[str, Any] = {}
    for label, other, batch in (
        ("shared", None, 32),
        ("alone", None, 1),
        ("ort shared", peer, 32),
        ("ort alone", peer, 1),
    ):
        with (
            server(lnt, other, max_batch=32, **settings)
            if batch > 1
            else server(lnt, other, max_batch=1, **settings) as (url, _)
        ):
            rate, p99 = rate_of(url, message(url, name, feeds), clients, seconds)
            found[label] = {"requests_a_second": rate, "p99_ms": p99}
            print(f"{name} {label}: {rate:.0f} requests/s, p99 {p99:.1f} ms", flush=True)
            for percent in (65, 80) if label == "shared" else ():
                steady = many_clients(url, message(url, name, feeds), clients, seconds, percent / 100 * rate)
                times = sorted(t for t, status in steady if status == 200)
                assert len(times) == len(steady)
                at = found[f"at {percent} %"] = {
                    "requests_a_second": len(times) / seconds,
                    "p99_ms": 1e3 * times[int(0.99 * len(times))],
                }
                print(f"{name} at {percent} % of that: {at}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--models", default="mlp,minilm")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found: dict[str, Any] = {"overhead": overhead(folder, 3000)}
        print("overhead: " + ", ".join(f"{name} {value:.3f}" for name, value in found["overhead"].items()), flush=True)
        for name in filter(None, given.models.split(",")):
            found[name] = throughput(folder, name, given.clients, given.seconds)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
