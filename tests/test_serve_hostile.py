"""linnet serve against requests that mean no good: those that schemathesis makes of the served OpenAPI description, mutations
of good requests, and broken HTTP. Each gets a 4xx that says what, or a closed connection, and the server serves on."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

import linnet
from tests.serving import Client, binary_request, mlp, request, serving

X = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = mlp(tmp_path_factory.mktemp("models") / "mlp.lnt")
    with serving(path, poll=0, max_body=1 << 20, body_timeout=2, header_timeout=2) as made:
        made.expected = linnet.Session(path).run({"x": X})["y"]
        yield made


def alive(server: Any) -> None:
    np.testing.assert_array_equal(Client(server.url).binary("mlp", {"x": X})["y"], server.expected)


def memory() -> int:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) << 10


def test_requests_made_from_the_description(server: Any) -> None:
    """Valid and invalid requests for every operation, half of them for the model that exists: no 500, and every refusal is
    JSON with an error."""
    schema = schemathesis.openapi.from_url(server.url + "/openapi.json")
    sent = {"all": 0, "refused": 0}

    def check(case: Any) -> None:
        if "name" in (case.path_parameters or {}) and sent["all"] % 2 and not case.operation.path.endswith("unload"):
            case.path_parameters["name"] = "mlp"
        answer = case.call(base_url=server.url)
        sent["all"] += 1
        assert answer.status_code < 500 or answer.status_code in (503, 504), answer.content
        if answer.status_code >= 400:
            sent["refused"] += 1
            error = json.loads(answer.content)["error"]
            assert isinstance(error, str) and error and "Traceback" not in error

    for operation in schema.get_all_operations():
        for mode in schemathesis.GenerationMode:
            strategy = operation.ok().as_strategy(generation_mode=mode)
            with contextlib.suppress(Unsatisfiable):  # nothing invalid can be made for an operation without parameters
                settings(
                    max_examples=20, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )(given(strategy)(check))()  # fmt: skip
    assert sent["all"] >= 300 and sent["refused"] >= 100, sent
    alive(server)


def mutated(rng: random.Random, body: bytes) -> bytes:
    """A request that somebody has damaged: bytes changed, dropped, repeated, or cut off."""
    data = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randint(1, 20)]
        elif kind == 2:
            data[at:at] = data[at : at + 40]
        else:
            data = data[: max(at, 1)]
    return bytes(data)


def test_damaged_requests(server: Any) -> None:
    """In JSON and binary. What is still a valid request may be answered."""
    rng, length = random.Random(1), "inference-header-content-length"
    plain = json.dumps(request({"x": X})).encode()
    binary, size = binary_request({"x": X})
    refused = 0
    for i in range(400):
        headers = {} if i % 2 else {length: str(rng.choice([size, size, size - 1, 0, len(binary)]))}
        status, _, data = Client(server.url).raw(
            "POST", "/v2/models/mlp/infer", mutated(rng, plain if i % 2 else binary), headers
        )
        assert status == 200 or 400 <= status < 500, (status, data)
        if status != 200:
            refused += 1
            assert json.loads(data)["error"]
    assert refused > 200
    alive(server)


def lines(server: Any, data: bytes) -> bytes:
    """What the server answers to these bytes until it closes the connection, or all that it says within 10 seconds."""
    parts = urlsplit(server.url)
    found = b""
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as line:
        try:
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            while part := line.recv(1 << 16):
                found += part
        except OSError:
            pass
    return found


INFER = b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: x\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(100)),  # the beginning of TLS
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        INFER + b"content-length: -5\r\n\r\n",
        INFER + b"content-length: 99999999999999999999\r\n\r\n{}",
        INFER + b"content-length: 5\r\ncontent-length: 6\r\n\r\n{}{}{}",
        INFER + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        INFER + b"transfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
        INFER + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        INFER + b"content-length: 1000\r\n\r\n{",  # truncated
        INFER + b"inference-header-content-length: \xff\xfe\r\ncontent-length: 2\r\n\r\n{}",
        b"GET /v2/models/" + b"a" * 300_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /v2/models/%00%ff%2e%2e/ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\n" + b"x: y\r\n" * 100_000 + b"\r\n",
        b"BREW /v2 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    ],
    ids=lambda data: data[:40].decode("latin-1").encode("unicode_escape").decode()[:50],
)  # fmt: skip
def test_broken_http(server: Any, data: bytes) -> None:
    found = lines(server, data)
    status = int(found.split()[1]) if found.startswith(b"HTTP/1.1 ") else 0
    assert found == b"" or 400 <= status < 500, found[:300]
    assert b"Traceback" not in found
    alive(server)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b'{"a":' * 180_000,
        b'{"inputs":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"inputs":[{"name":"x","shape":[2,8],"datatype":"FP32","data":' + b"[" * 500 + b"1" + b"]" * 500 + b"}]}",
        b'{"inputs":[{"name":"x","shape":[281474976710655,281474976710655],"datatype":"FP32","data":[1]}]}',
        b'{"inputs":[{"name":"x","shape":[2,8],"datatype":"FP32","data":[1e999,' + b"9" * 5000 + b"]}]}",
        b'{"inputs":[{"name":"x","shape":[99999999999999,8],"datatype":"FP32","parameters":{"binary_data_size":-1}}]}',
        b'{"inputs":[' + b'{"name":"x","shape":[],"datatype":"FP32","data":[]},' * 15_000 + b"{}]}",
        b'{"id":"' + b"\\ud800" + b'","inputs":[]}',
    ],
    ids=range(9),
)  # fmt: skip
def test_json_that_is_too_much(server: Any, body: bytes) -> None:
    before = memory()
    status, answer = Client(server.url).ask("POST", "/v2/models/mlp/infer", body)
    assert 400 <= status < 500 and answer["error"]
    assert memory() - before < 200 << 20
    alive(server)


def test_many_slow_clients_hold_nothing_up(server: Any) -> None:
    """200 connections that never finish what they began: others are answered meanwhile, and the slow ones are closed."""
    parts = urlsplit(server.url)
    slow = [socket.create_connection((parts.hostname, parts.port), timeout=30) for _ in range(200)]
    try:
        for i, line in enumerate(slow):
            line.sendall(INFER + b"content-length: 1000\r\n\r\n{" if i % 2 else b"GET /v2 HTTP/1.1\r\nx:")
        alive(server)
        for line in slow:
            found = b""
            while part := line.recv(1 << 12):
                found += part
            assert found.startswith(b"HTTP/1.1 408")
    finally:
        for line in slow:
            line.close()
    alive(server)
