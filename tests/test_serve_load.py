"""linnet serve under load: 32 clients at once, more requests than it can answer, and the same for a minute (`make soak`). Every
answer is that of Session.run for the rows that its client sent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from tests.native import ROOT
from tests.serving import Client, Process, binary_request, mlp

CLIENTS = 32


def inputs(client: int, number: int) -> dict[str, np.ndarray]:
    """What no other request has: 1 to 3 rows."""
    rng = np.random.default_rng([client, number])
    return {"x": rng.standard_normal((int(rng.integers(1, 4)), 8)).astype(np.float32)}


def resident(process: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{process}/status").read_text().split("VmRSS:")[1].split()[0]) << 10


class Load:
    """Clients that ask two models in turn, and check every answer."""

    def __init__(self, url: str, files: dict[str, Path]) -> None:
        self.url = url
        self.sessions = {name: linnet.Session(path) for name, path in files.items()}
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []
        self.ended = threading.Event()

    def one(self, client: int, most: int) -> int:
        """Sends requests until there were `most`, or until `ended`. Returns how many were answered."""
        line, answered = Client(self.url), 0
        for number in range(most):
            if self.ended.is_set():
                break
            name = sorted(self.sessions)[(client + number) % len(self.sessions)]
            feeds = inputs(client, number)
            body, size = binary_request(feeds, id=f"{client}-{number}")
            length = "inference-header-content-length"
            started = time.perf_counter()
            status, headers, data = line.raw("POST", f"/v2/models/{name}/infer", body, {length: str(size)})
            self.times.append(time.perf_counter() - started)
            self.statuses[status] += 1
            if status == 200:
                assert f'"id":"{client}-{number}"'.encode() in data
                y = np.frombuffer(data[int(headers[length]) :], np.float32).reshape(-1, 3)
                np.testing.assert_allclose(y, self.sessions[name].run(feeds)["y"], 1e-5, 1e-6)
                answered += 1
        return answered

    def all(self, most: int, clients: int = CLIENTS) -> int:
        with ThreadPoolExecutor(clients) as pool:
            return sum(pool.map(self.one, range(clients), [most] * clients))


def models(folder: Path) -> dict[str, Path]:
    return {name: mlp(folder / f"{name}.lnt", units=units, seed=units) for name, units in (("a", 16), ("b", 2048))}


def test_no_answer_is_lost_mixed_up_or_changed(tmp_path: Path) -> None:
    files = models(tmp_path)
    server = Process(tmp_path, "--port", 0, "--poll", 0)
    load = Load(server.url, files)
    assert load.all(50) == 50 * CLIENTS
    assert load.statuses == {200: 50 * CLIENTS}
    stats = Client(server.url).ask("GET", "/v2/models/stats")[1]["model_stats"]
    assert sum(entry["inference_stats"]["success"]["count"] for entry in stats) == 50 * CLIENTS
    server.stop()


def test_too_many_requests_are_429_and_memory_stays(tmp_path: Path) -> None:
    """32 requests at once where 2 may wait: what is answered is right, the others get 429, and memory does not grow with
    them."""
    path = mlp(tmp_path / "mlp.lnt", inputs=2048, units=2048)
    feeds = {"x": np.random.default_rng(0).standard_normal((32, 2048)).astype(np.float32)}
    expected = linnet.Session(path).run(feeds)["y"]
    body, size = binary_request(feeds)
    head = f"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    request = (head + f"inference-header-content-length: {size}\r\n\r\n").encode() + body
    server = Process(path, "--port", 0, "--max-queue", 2, "--poll", 0)
    statuses: Counter[int] = Counter()

    def wave() -> None:
        """Sends all requests before it reads an answer."""
        lines = [
            socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 60) for _ in range(CLIENTS)
        ]
        for line in lines:
            line.sendall(request)
        for line in lines:
            answer = b""
            while part := line.recv(1 << 16):
                answer += part
            line.close()
            status = int(answer.split()[1])
            statuses[status] += 1
            if status == 200:
                y = np.frombuffer(answer[-expected.nbytes :], np.float32).reshape(32, 3)
                np.testing.assert_allclose(y, expected, 1e-4, 1e-5)
            else:
                assert b"--max-queue" in answer and b"retry-after: 1" in answer

    for _ in range(5):
        wave()
    before = resident(server.process.pid)
    rounds = 0
    while rounds < 15 or (not statuses[429] and rounds < 300):
        wave()
        rounds += 1
    assert set(statuses) == {200, 429}
    assert resident(server.process.pid) - before < 32 << 20
    server.stop()


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_minute_under_load(tmp_path: Path, capsys: Any) -> None:
    """60 seconds of 32 clients, during which a model's file is replaced by the same bytes every two seconds."""
    files = models(tmp_path)
    server = Process(tmp_path, "--port", 0, "--poll", 0.1)
    load = Load(server.url, files)
    load.all(20)
    before, load.times = resident(server.process.pid), []
    with ThreadPoolExecutor(CLIENTS) as pool:
        asking = [pool.submit(load.one, client, 1 << 30) for client in range(CLIENTS)]
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(2)
            content = files["a"].read_bytes()
            (tmp_path / "new").write_bytes(content)
            os.replace(tmp_path / "new", files["a"])
        load.ended.set()
        answered = sum(each.result() for each in asking)
    assert set(load.statuses) == {200}
    grown = resident(server.process.pid) - before
    assert grown < 32 << 20
    times = sorted(load.times)
    with capsys.disabled():
        print(
            f"\n{answered} answers in 60 s, p50 {1e3 * times[len(times) // 2]:.1f} ms, "
            f"p99 {1e3 * times[int(0.99 * len(times))]:.1f} ms, memory grew by {grown >> 10} kB"
        )
    server.stop()


@pytest.mark.soak
@pytest.mark.network
@pytest.mark.timeout(600)
def test_the_client_of_kserve(tmp_path: Path) -> None:
    """It works as it is, in an environment of its own (450 MB)."""
    path = mlp(tmp_path / "mlp.lnt")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "kserve"], check=True)
    server = Process(path, "--port", 0)
    script = """
import asyncio, sys
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig

async def main(url):
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_ready(url) and await client.is_model_ready(url, "mlp")
    for binary in (False, True):
        x = InferInput("x", [2, 8], "FP32")
        x.set_data_from_numpy(np.ones((2, 8), np.float32), binary_data=binary)
        answer = await client.infer(url, InferRequest("mlp", [x]), model_name="mlp")
        print(*answer.outputs[0].as_numpy().ravel())

asyncio.run(main(sys.argv[1]))
"""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", script, server.url], env=clean, cwd=ROOT, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = linnet.Session(path).run({"x": np.ones((2, 8), np.float32)})["y"].ravel()
    for line in done.stdout.splitlines()[-2:]:
        np.testing.assert_allclose(np.array(line.split(), float), expected, 1e-5)
    server.stop()
