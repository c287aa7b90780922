"""Large values, which a client sends without a copy, and which a host on the same machine receives in their buffers."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from tests.host_document_client import Client, Failed, frame, part, upload
from tests.remote_host import host

HEAD = 32  # bytes of UPLOAD before the value
SIZE = (5 << 20) // 4 + 3  # numbers of a value that is sent in several parts, the last one of which is short


def listen(kind: str, folder: Path) -> str:
    return {"tcp": "127.0.0.1:0", "unix": f"unix:{folder}/u", "shm": f"shm:{folder}/s"}[kind]


def begin(client: Client, message: bytes, cuts: tuple[int, ...]) -> None:
    """Sends the frames of a SUBMIT, which end at these offsets."""
    for at, end in zip((0, *cuts), cuts, strict=False):
        client.sock.sendall(frame("SUBMIT", message[at:end], total=len(message), offset=at))


@pytest.mark.parametrize("kind", ["tcp", "unix", "shm"])
def test_large_values_arrive(kind: str, tmp_path: Path) -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (SIZE,))
    graph.signature("infer", {"x": x}, {"y": ops.relu(x)})
    feeds = [{"x": np.random.default_rng(seed).standard_normal(SIZE, np.float32)} for seed in range(2)]
    with host(listen(kind, tmp_path), "--threads", "1") as there, ThreadPoolExecutor(2) as pool:
        sessions = [linnet.Session(graph, threads=1, **there.all) for _ in feeds]  # they are one client
        for _ in range(3):
            for feed, made in zip(feeds, pool.map(lambda s, f: s.run(f)["y"], sessions, feeds), strict=True):
                assert (made == np.maximum(feed["x"], 0)).all()


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_value_in_frames_of_its_own(kind: str, tmp_path: Path) -> None:
    data = bytes(range(1, 65))
    with host(listen(kind, tmp_path)) as there:
        client = Client(there.address)
        client.submit(part("ALLOCATE", buffer=1, bytes=80))
        begin(client, upload(1, data, 8), (HEAD, HEAD + 16, HEAD + 64))
        client.answer(1)
        assert client.submit(part("DOWNLOAD", buffer=1, bytes=80), downloads=[80]) == [bytes(8) + data + bytes(8)]
        message = upload(1, data, 16) + part("COPY", buffer=1, offset=16, to_buffer=1, to_offset=0, bytes=8)
        begin(client, message, (HEAD, HEAD + 64, len(message)))  # not alone in its message
        client.answer(2)
        assert client.submit(part("DOWNLOAD", buffer=1, bytes=80), downloads=[80]) == [
            data[:8] + bytes([*data[:8], *data])
        ]
        begin(client, upload(1, data, 24), (HEAD, HEAD + 64))  # longer than the buffer
        with pytest.raises(Failed):
            client.answer(1)
        assert client.submit(part("DOWNLOAD", buffer=1, bytes=8), downloads=[8]) == [data[:8]]
        client.close()


def test_a_connection_that_ends_within_a_value_holds_nothing_up(tmp_path: Path) -> None:
    token = os.urandom(16)
    with host(f"unix:{tmp_path}/u") as there:
        clients = [Client(there.address, token=token) for _ in range(2)]
        clients[0].submit(part("ALLOCATE", buffer=1, bytes=64))
        begin(clients[0], upload(1, bytes(64)), (HEAD, HEAD + 16))
        clients[0].close()
        assert clients[1].submit(part("DOWNLOAD", buffer=1, bytes=64), downloads=[64]) == [bytes(64)]
        clients[1].close()
