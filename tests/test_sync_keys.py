"""`linnet sync-key`, and how the command line and the C library treat keys that are valid, missing or readable by others."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import string
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from linnet import SGD
from linnet.cli.sync_key import write_key
from linnet.clib.errors import FileError, GraphError, SyncError, UsageError
from linnet.facade import Graph
from linnet.sync import Link, Ring, Server, Worker, status
from tests.native import need
from tests.test_sync_ring import ranks
from tests.test_sync_server import feed
from tests.test_sync_signatures import build, plain


def _linnet(*words: str, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "linnet", *words], capture_output=True, text=True, check=False, timeout=60, umask=umask
    )


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_the_command_makes_a_key_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "job.key"
    done = _linnet("sync-key", str(path), umask=umask)
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert len(text) == 65 and text.endswith("\n") and set(text[:-1]) <= set(string.hexdigits.lower())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert text[:-1] not in done.stdout + done.stderr  # secrets are not printed


def test_two_keys_differ(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_key(tmp_path / name)
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "job.key"
    path.write_text("mine")
    done = _linnet("sync-key", str(path))
    assert done.returncode == 1 and "exists" in done.stderr and len(done.stderr.splitlines()) == 1
    assert path.read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="exists"):
        write_key(link)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        write_key(tmp_path / "nowhere" / "job.key")


def test_nothing_is_left_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FileError, match="No space left"):
        write_key(tmp_path / "job.key")
    assert list(tmp_path.iterdir()) == []


# ---- keys in use ---------------------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    write_key(tmp_path / "one")
    write_key(tmp_path / "two")
    return tmp_path / "one", tmp_path / "two"


@pytest.fixture(scope="module")
def graph() -> Graph:
    return build(plain, lambda: SGD(0.1))


def _losses(graph: Graph, server: Server, link: Link, steps: int = 3) -> list[float]:
    with Worker(graph.to_bytes(), server.address, number=0, timeout=30, lost=10, link=link) as worker:
        return [float(worker.step(feed(graph, step, 0, 1))["loss"]) for step in range(steps)]


@pytest.mark.parametrize("address", [":0", "[::1]:0", "unix:{}/s", "shm:{}/m"])
def test_a_job_with_a_key(address: str, graph: Graph, keys: tuple[Path, Path], tmp_path: Path) -> None:
    """Training works over TLS as without it, and a client without the key is refused at once, for every kind of address."""
    address = address.format(tmp_path)
    with Server(graph, listen=address) as server:
        expected = _losses(graph, server, Link())
        with pytest.raises(SyncError, match="TLS handshake failed") as refused:
            _losses(graph, server, Link(keys[0]))
        assert refused.value.status == "not_authenticated"
    with Server(graph, listen=address, link=Link(keys[0])) as server:
        for link, words in ((Link(keys[1]), "TLS handshake failed"), (Link(), "no key was given here")):
            with pytest.raises(SyncError, match=words) as refused:
                _losses(graph, server, link)
            assert refused.value.status == "not_authenticated" and "--key FILE" in refused.value.hint
        assert _losses(graph, server, Link(keys[0])) == expected
        assert server.status()["version"] == 3


def test_beyond_this_machine_a_key_is_needed(graph: Graph, keys: tuple[Path, Path]) -> None:
    with pytest.raises(SyncError, match="--insecure"):
        Server(graph, listen="*:0")
    with pytest.raises(SyncError, match="connections to other machines need a key"):
        Worker(graph.to_bytes(), "192.0.2.1:9", lost=1)
    for link in (Link(keys[0]), Link(insecure=True)):
        Server(graph, listen="*:0", link=link).close()


@pytest.mark.parametrize("part", ["certificate", "private_key", "authority", "server_name"])
def test_half_a_set_of_certificates_is_an_error(part: str, graph: Graph) -> None:
    """There is never an unprotected connection that the user believes to be protected."""
    with pytest.raises(UsageError, match="complete set of certificates"):
        Server(graph, link=Link(**{part: "x.pem"}))


def test_a_key_that_others_may_read(graph: Graph, keys: tuple[Path, Path]) -> None:
    keys[0].chmod(0o644)
    with pytest.raises(SyncError, match=r"expected mode 600 or 400, got mode 644; run chmod 600 on it"):
        Server(graph, link=Link(keys[0]))


def test_without_openssl(graph: Graph, keys: tuple[Path, Path]) -> None:
    with pytest.raises(GraphError, match=r"cannot load OpenSSL.*install OpenSSL"):
        Server(graph, link=Link(keys[0], libssl="/nowhere/libssl.so.3"))


@pytest.mark.parametrize("content", [bytes(32), b"0" * 64 + b"\n", b"0" * 65, b"0" * 33 + b"\n", bytes(100)])
def test_a_key_that_is_no_secret(content: bytes, graph: Graph, tmp_path: Path) -> None:
    """A key of zeros, as from an empty disk or a template, in bytes or digits: both sides refuse it before sending anything."""
    path = tmp_path / "zeros"
    path.write_bytes(content)
    path.chmod(0o600)
    for refuse in (
        lambda: Server(graph, link=Link(path)),
        lambda: Worker(graph.to_bytes(), "127.0.0.1:9", link=Link(path), lost=1),
        lambda: status("127.0.0.1:9", Link(path)),
        lambda: Ring("127.0.0.1:9", 0, 2, link=Link(path), timeout=1),
    ):
        with pytest.raises(SyncError, match=r"all zeros.*linnet sync-key FILE") as refused:
            refuse()
        assert refused.value.status == "not_authenticated"


# ---- certificates ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority; a server's certificate for 127.0.0.1 and a name, another server's, and a worker's."""
    need("openssl")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=us")
    for name, names, purpose in (
        ("server", "DNS:server.example,DNS:localhost,IP:127.0.0.1", "serverAuth"),
        ("other", "DNS:other.example", "serverAuth"),
        ("worker", "DNS:worker.example", "clientAuth"),
        ("posing", "DNS:localhost,IP:127.0.0.1", "clientAuth"),
        ("plain", "DNS:worker.example", ""),
        ("peer", "DNS:ring.example", "serverAuth,clientAuth"),
    ):
        openssl("req", "-new", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "ext").write_text(f"subjectAltName={names}\n" + f"extendedKeyUsage={purpose}\n" * bool(purpose))
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", "ext", "-out", f"{name}.pem")  # fmt: skip
        (folder / f"{name}.key").chmod(0o600)
    return folder


def _link(folder: Path, name: str, server_name: str | None = None) -> Link:
    return Link(
        certificate=folder / f"{name}.pem",
        private_key=folder / f"{name}.key",
        authority=folder / "ca.pem",
        server_name=server_name,
    )


@pytest.mark.parametrize("address", [":0", "localhost:0", "unix:{}/s", "shm:{}/m"])
def test_a_job_with_certificates(address: str, graph: Graph, certified: Path, tmp_path: Path) -> None:
    address = address.format(tmp_path)
    with Server(graph, listen=address) as server:
        expected = _losses(graph, server, Link())
    with Server(graph, listen=address, link=_link(certified, "server")) as server:
        assert _losses(graph, server, _link(certified, "worker")) == expected
        assert status(server.address, _link(certified, "worker", "server.example"))["version"] == 3
        with pytest.raises(
            SyncError, match=r"mismatch.*expected a certificate for other.example.*--server-name"
        ) as refused:
            _losses(graph, server, _link(certified, "worker", "other.example"))
        assert refused.value.status == "not_authenticated"


def test_who_is_no_server(graph: Graph, certified: Path) -> None:
    """A worker's certificate from the same authority: for another name, for another purpose, or without a purpose."""
    for name, words in (
        ("other", "expected a certificate for 127.0.0.1"), ("plain", "expected a certificate for 127.0.0.1"),
        ("worker", "purpose"), ("posing", "purpose"),
    ):  # fmt: skip
        with Server(graph, link=_link(certified, name)) as server:
            with pytest.raises(SyncError, match=words) as refused:
                _losses(graph, server, _link(certified, "worker"))
            assert refused.value.status == "not_authenticated", name
            with pytest.raises(SyncError, match=words):
                status(server.address, _link(certified, "worker"))
    with Server(graph, link=_link(certified, "other")) as server:
        assert len(_losses(graph, server, _link(certified, "plain", "other.example"))) == 3


def test_a_server_is_no_worker(graph: Graph, certified: Path) -> None:
    with Server(graph, link=_link(certified, "server")) as server:
        with pytest.raises(SyncError, match=r"handshake|closed the connection") as refused:
            _losses(graph, server, _link(certified, "server"))
        assert refused.value.status in ("not_authenticated", "connection_lost")
        assert server.status()["version"] == 0


def test_who_shows_no_certificate(graph: Graph, certified: Path) -> None:
    """Another TLS implementation, which trusts the server but shows no certificate: it gets no data and no connection."""
    context = ssl.create_default_context(cafile=str(certified / "ca.pem"))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with Server(graph, link=_link(certified, "server")) as server:
        host, port = server.address.rsplit(":", 1)
        for shows in (False, True):
            if shows:
                context.load_cert_chain(certified / "worker.pem", certified / "worker.key")
            plain = socket.create_connection((host, int(port)), timeout=20)
            with context.wrap_socket(plain, server_hostname=host) as made:
                made.sendall(bytes(64))  # no frame: an accepted client would get one
                if shows:
                    assert made.recv(4) == b"LNSY"
                    continue
                with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
                    made.recv(4)
        assert server.status()["version"] == 0


def test_a_ring_with_certificates(certified: Path, tmp_path: Path) -> None:
    """Every rank is a server for its left neighbour: one name for all, or the hosts of their addresses."""

    def work(rank: int, server_name: str | None = "ring.example") -> float:
        link = _link(certified, "peer", server_name)
        with Ring(f"unix:{tmp_path}/ring", rank, 2, link=link, timeout=3) as ring:
            return float(ring.all_reduce(np.ones(1, np.float32))[0])

    assert ranks(2, work) == [2.0, 2.0]
    found = ranks(2, lambda rank: work(rank, None))
    assert all(isinstance(error, SyncError) for error in found)
    assert any("expected a certificate for localhost" in str(error) for error in found), found


def test_the_command_takes_a_name(graph: Graph, certified: Path) -> None:
    with Server(graph, link=_link(certified, "other")) as server:
        words = [
            "top", server.address, "--json", "--certificate", str(certified / "worker.pem"), "--private-key",
            str(certified / "worker.key"), "--authority", str(certified / "ca.pem"),
        ]  # fmt: skip
        done = _linnet(*words)
        assert done.returncode == 1 and "--server-name" in done.stderr
        done = _linnet(*words, "--server-name", "other.example")
        assert done.returncode == 0 and '"version": 0' in done.stdout, done.stderr
