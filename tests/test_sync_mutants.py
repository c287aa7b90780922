"""Faults of servers and workers that only a specific test notices: a journal with changed values, a client without a
certificate, a weight of NaN."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from linnet import SGD
from linnet.clib.errors import Error, UsageError
from linnet.facade import Graph
from linnet.sync import Link, Server, Worker
from tests.native import need
from tests.test_sync_server import feed
from tests.test_sync_signatures import build, plain


@pytest.fixture(scope="module")
def graph() -> Graph:
    return build(plain, lambda: SGD(0.1))


def test_values_in_a_journal_are_under_its_checksum(graph: Graph, tmp_path: Path) -> None:
    """Any byte of a record before others: a changed gradient is not applied."""
    path = tmp_path / "job" / "journal"
    with Server(graph, folder=path.parent) as server, Worker(graph, server.address, number=0, timeout=30) as worker:
        start = path.stat().st_size
        worker.step(feed(graph, 0, 0, 1), weight=1.0)
        end = path.stat().st_size
        worker.step(feed(graph, 1, 0, 1), weight=1.0)
        data = path.read_bytes()
    (tmp_path / "copy").mkdir()
    for at in range(start, end, max(1, (end - start) // 25)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        shutil.rmtree(tmp_path / "copy")
        (tmp_path / "copy").mkdir()
        (tmp_path / "copy" / "journal").write_bytes(damaged)
        with pytest.raises(Error, match="corrupt"):
            Server(graph, folder=tmp_path / "copy").close()
    (tmp_path / "copy" / "journal").write_bytes(data)
    with Server(graph, folder=tmp_path / "copy") as server:
        assert server.status()["version"] == 2


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server certificate signed by it, and a self-signed one."""
    need("openssl")
    folder = tmp_path_factory.mktemp("certificates")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for command in (
        ["req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca"],
        ["req", "-new", *new, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost"],
        ["x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
         "-extfile", "names", "-out", "server.pem"],
        ["req", "-x509", *new, "-keyout", "own.key", "-out", "own.pem", "-days", "2", "-subj", "/CN=own"],
    ):  # fmt: skip
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True, timeout=60)
    (folder / "server.key").chmod(0o600)
    return folder


def refused(address: str, context: ssl.SSLContext) -> str:
    """What a client with the standard library's TLS receives after its handshake."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        try:
            with context.wrap_socket(raw, server_hostname="localhost") as tls:
                tls.settimeout(1.5)
                return f"went on: {tls.recv(1)!r}"
        except TimeoutError:
            return "went on: it waits for our HELLO"
        except OSError as e:
            return str(e).lower()


def test_a_client_shows_a_certificate_of_the_authority(certificates: Path, graph: Graph) -> None:
    at = {name: str(certificates / name) for name in ("ca.pem", "server.pem", "server.key", "own.pem", "own.key")}
    link = Link(certificate=at["server.pem"], private_key=at["server.key"], authority=at["ca.pem"])
    with Server(graph, listen="127.0.0.1:0", link=link) as server:
        for own, words in ((None, "certificate"), (("own.pem", "own.key"), "ca|authority|certificate")):
            context = ssl.create_default_context(cafile=at["ca.pem"])
            if own:
                context.load_cert_chain(at[own[0]], at[own[1]])
            said = refused(server.address, context)
            assert "went on" not in said and any(w in said for w in words.split("|")), said
        context = ssl.create_default_context(cafile=at["ca.pem"])
        context.load_cert_chain(at["server.pem"], at["server.key"])
        assert "went on: it waits" in refused(server.address, context)


def test_a_key_belongs_to_its_identity(graph: Graph, tmp_path: Path) -> None:
    """A client with the right key but another key name is refused."""
    need("openssl")
    key = tmp_path / "key"
    key.write_text("0123456789abcdef" * 4)
    key.chmod(0o600)
    with Server(graph, listen="127.0.0.1:0", link=Link(key)) as server:
        for identity, good in (("linnet", True), ("other", False), ("linne", False), ("linnetx", False)):
            command = ["openssl", "s_client", "-connect", server.address, "-tls1_3", "-psk_identity", identity]
            done = subprocess.run(
                [*command, "-psk", key.read_text()], input="", capture_output=True, text=True, timeout=30, check=False
            )
            assert ("Cipher is TLS_AES_128_GCM_SHA256" in done.stdout) == good, (identity, done.stdout, done.stderr)


@pytest.mark.parametrize("weight", [float("inf"), float("nan"), -float("inf"), 0.0, -1.0, 1e301])
def test_a_weight_is_a_finite_number_above_nothing(weight: float, graph: Graph) -> None:
    with Server(graph) as server, Worker(graph, server.address, number=0, timeout=30) as worker:
        with pytest.raises(UsageError, match="weight"):
            worker.step(feed(graph, 0, 0, 1), weight=weight)
        worker.step(feed(graph, 0, 0, 1), weight=1.0)
        assert server.status()["version"] == 1
