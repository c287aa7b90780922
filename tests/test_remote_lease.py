"""A host that hangs or is cut off fails the run within its lease, with an error that names it; a slow host does not; and a
client that does not read does not hold a host."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import linnet
from tests.host_document_client import Client, part
from tests.remote_counts import counted
from tests.remote_host import Host, host
from tests.test_remote import same
from tests.test_remote_messages import feed, layers, placed

LEASE = ",lease=1"
HUGE = 32 << 20  # more than the buffers of a connection hold


@pytest.mark.parametrize("medium", ["127.0.0.1:0", "shm"])
def test_a_host_that_hangs_is_named(medium: str, tmp_path: Path) -> None:
    graph = layers(2)
    with host(medium if ":" in medium else f"shm:{tmp_path}/host") as there:
        session = linnet.Session(graph, devices=[there.name + LEASE], placement={"*": there.name})
        expected = session.run(feed(0))
        there.pause()
        with pytest.raises(linnet.DeviceError, match=f"{re.escape(there.address)} did not ans"):
            session.run(feed(0))
        session.close()
        with pytest.raises(linnet.Error, match="did not ans"):
            linnet.Session(graph, devices=[there.name + LEASE], placement={"*": there.name})
        there.process.send_signal(signal.SIGCONT)
        again = linnet.Session(graph, devices=[there.name + LEASE], placement={"*": there.name})
        assert same(again.run(feed(0)), expected)


def test_a_host_that_reads_nothing_is_named() -> None:
    """It hangs while a value is sent that its connection cannot hold."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (HUGE // 4,))
    graph.signature("infer", {"x": x}, {"y": linnet.ops.relu(x)[:4]})
    given = {"x": np.ones(HUGE // 4, np.float32)}
    with host() as there:
        session = linnet.Session(graph, devices=[there.name + LEASE], placement={"*": there.name})
        session.run(given)
        there.pause()
        with pytest.raises(linnet.DeviceError, match="did not answer for 1 s"):
            session.run(given)


def test_a_host_that_is_cut_off_is_named() -> None:
    graph = layers(2)
    with host() as there, counted(there.address) as net:
        session = linnet.Session(graph, devices=[net.name + LEASE], placement={"*": net.name})
        session.run(feed(0))
        net.cut = True
        with pytest.raises(linnet.DeviceError, match="did not answer for 1 s"):
            session.run(feed(0))


def test_a_host_that_waits_for_a_lost_host_goes_on() -> None:
    """The second host fetches a value of the first one, which hangs; the second one answers that it got none."""
    graph = layers(2)
    with host() as one, host() as two:
        devices = [one.name + LEASE, two.name + LEASE]
        session = linnet.Session(graph, devices=devices, placement=placed(one.name, two.name))
        expected = session.run(feed(0))
        one.pause()
        with pytest.raises(linnet.DeviceError, match=f"{re.escape(one.address)} .*did not answer for 1 s"):
            session.run(feed(0))
        alone = linnet.Session(graph, devices=devices[1:], placement=placed(two.name, two.name))
        assert same(alone.run(feed(0)), expected)
        one.process.send_signal(signal.SIGCONT)


def test_a_run_may_take_longer_than_the_lease() -> None:
    graph = linnet.Graph()
    x = y = graph.placeholder("x", (512, 1024))
    weights = graph.constant(np.eye(1024, dtype=np.float32), "w")
    for _ in range(150):
        y = linnet.ops.relu(y @ weights)
    graph.signature("infer", {"x": x}, {"y": y})
    given = {"x": np.ones((512, 1024), np.float32)}
    with host("127.0.0.1:0", "--threads", "1") as there, counted(there.address) as net:
        session = linnet.Session(graph, devices=[net.name + LEASE], placement={"*": net.name})
        net.clear()
        assert same(session.run(given), {"y": given["x"]})
        assert net.by["HELLO"].messages["SUBMIT"] > 1  # it was asked, and answered while it computed
        net.clear()
        time.sleep(2)
        assert not net.by["HELLO"].messages  # an idle session says nothing


def wait_for_threads(there: Host, count: int) -> bool:
    for _ in range(600):
        if len(list(Path(f"/proc/{there.process.pid}/task").iterdir())) <= count:
            return True
        time.sleep(0.05)
    return False


def do_not_read(there: Host) -> Client:
    client = Client(there.address)
    commands = (part("ALLOCATE", buffer=1, bytes=HUGE), part("DOWNLOAD", buffer=1, offset=0, bytes=HUGE))
    client.send("SUBMIT", b"".join(commands))
    client.sock.recv(64)  # the answer has begun
    return client


def test_a_client_that_does_not_read_holds_no_thread() -> None:
    with host("127.0.0.1:0", "--send-timeout", "1") as there, contextlib.closing(do_not_read(there)):
        assert wait_for_threads(there, 1)


def test_a_client_that_does_not_read_does_not_keep_a_host_from_ending() -> None:
    with host() as there, contextlib.closing(do_not_read(there)):
        there.stop()


def test_leases_that_are_not_valid_are_refused() -> None:
    for lease in ("0", "-1", "x", "", "1e9"):
        with pytest.raises(linnet.Error, match=r"lease is a number of seconds from 0\.1 to 86400"):
            linnet.Session(layers(1), devices=[f"remote:127.0.0.1:1,lease={lease}"])
