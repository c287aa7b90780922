"""Servers for the tests of linnet serve: in a thread of the test, or as a process. Requests are sent by http.client, which
changes nothing on their way."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

import linnet
from linnet import nn
from linnet.ir.dtypes import dtype_of
from linnet.serve import Settings, app
from linnet.serve.listen import Address, server_of
from linnet.serve.tensors import DATATYPES

COMMAND = (sys.executable, "-m", "linnet", "serve")


def mlp(path: Path, inputs: int = 8, units: int = 16, seed: int = 1) -> Path:
    """A model with an open batch: f32 x [batch, inputs] -> f32 y [batch, 3]."""
    graph = linnet.Graph(seed=seed)
    x = graph.placeholder("x", ("batch", inputs))
    graph.signature("infer", {"x": x}, {"y": nn.dense(nn.dense(x, units, activation="relu"), 3)})
    graph.freeze().save(path)
    return path


class Client:
    """One connection."""

    def __init__(self, url: str, key: str = "") -> None:
        parts = urlsplit(url)
        self.connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """(status, the answer's JSON)."""
        status, _, data = self.raw(method, path, body, headers)
        return status, json.loads(data)

    def raw(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        if isinstance(body, dict):
            body = json.dumps(body)
        self.connection.request(method, path, body, self.headers | dict(headers or {}))
        answer = self.connection.getresponse()
        data = answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, data

    def infer(self, model: str, feeds: Mapping[str, np.ndarray], **more: Any) -> tuple[int, Any]:
        return self.ask("POST", f"/v2/models/{model}/infer", request(feeds, **more))

    def binary(self, model: str, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs, sent and received as binary data. Only for f32 outputs."""
        body, size = binary_request(feeds)
        length = "inference-header-content-length"
        status, headers, data = self.raw("POST", f"/v2/models/{model}/infer", body, {length: str(size)})
        assert status == 200, data[:300]
        found, at = {}, int(headers[length])
        for entry in json.loads(data[:at])["outputs"]:
            end = at + entry["parameters"]["binary_data_size"]
            found[entry["name"]] = np.frombuffer(data[at:end], np.float32).reshape(entry["shape"])
            at = end
        assert at == len(data)
        return found


def request(feeds: Mapping[str, np.ndarray], **more: Any) -> dict[str, Any]:
    inputs = [
        {"name": name, "shape": list(value.shape), "datatype": DATATYPES[dtype_of(value.dtype)], "data": value.tolist()}
        for name, value in feeds.items()
    ]
    return {"inputs": inputs, **more}


def binary_request(feeds: Mapping[str, np.ndarray], **more: Any) -> tuple[bytes, int]:
    """(body, bytes of its header)."""
    inputs = [
        {
            "name": name, "shape": list(value.shape), "datatype": DATATYPES[dtype_of(value.dtype)],
            "parameters": {"binary_data_size": value.nbytes},
        }
        for name, value in feeds.items()
    ]  # fmt: skip
    header = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}, **more}).encode()
    return header + b"".join(value.tobytes() for value in feeds.values()), len(header)


@contextmanager
def serving(*models: Path, header_timeout: float = 20.0, **settings: Any) -> Iterator[Any]:
    """A server in a thread, once all models are loaded. Its `url` and its `repository` are given."""
    made = app(list(models), Settings(**settings))
    server = server_of(made, Address(port=0, grace=20), header_timeout)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait(lambda: made.state.server.ready or not thread.is_alive())
        assert thread.is_alive()
        server.repository = made.state.server.repository
        yield server
    finally:
        server.should_exit = True
        thread.join()


def wait(until: Any, seconds: float = 60) -> None:
    """Waits for something that another thread or process does."""
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Process:
    """`linnet serve` as a process, once its models are loaded. command: what starts it."""

    def __init__(
        self, *arguments: object, command: Sequence[str] = COMMAND, env: Mapping[str, str] | None = None
    ) -> None:
        words = [*command, *map(str, arguments), "--log", "json"]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=env)
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)  # or the pipe would fill up
        self._reader.start()
        self.url = self.until("listening")["url"].replace("0.0.0.0", "127.0.0.1")
        self.until("ready")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.events.append(json.loads(line) if line.startswith("{") else {"event": line})

    def until(self, event: str) -> dict[str, Any]:
        """The first event of this name in the log; waits for it."""

        def found() -> list[dict[str, Any]]:
            return [each for each in self.events if each["event"] == event]

        wait(lambda: found() or not self._reader.is_alive())
        assert found(), self.events
        return found()[0]

    def most_bytes(self) -> int:
        """The most memory that the process has had in use."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmHWM:")[1].split()[0]) * 1024

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self._reader.join()


@contextmanager
def served(
    arguments: Sequence[str], command: Sequence[str] = COMMAND, env: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """A process for a while. It takes a free port instead of that in its arguments."""
    words = list(arguments)
    words[words.index("--port") + 1] = "0"
    made = Process(*words, command=command, env=env)
    try:
        yield made
    finally:
        made.stop()
