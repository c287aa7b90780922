"""A machine as a device: linnet-host in other processes gives the bits of the same plan in one process, by TCP, Unix sockets,
shared memory and TLS; it stays within its owner's limits; and what goes wrong is said by name."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.facade import Graph
from linnet.session.planner import Planner
from tests import zoo
from tests.command import run_here, run_process
from tests.native import build, run
from tests.remote_host import host, new_key

FEW = ("ppocr_cls", "magika", "silero_vad", "minilm_int8", "dtln_2", "kaldi_fbank", "mtcnn_pnet", "nakdimon")


def small(width: int = 64) -> Graph:
    """Two layers of a network, with fixed weights."""
    graph = Graph()
    main = graph.function()
    rng = np.random.default_rng(3)
    x = main.placeholder("x", "f32", (8, width))
    for layer in range(2):
        weights = main.constant(rng.standard_normal((width, width)).astype(np.float32) / 8, f"w{layer}")
        x = nn.relu(x @ weights)
    main.outputs.append(x)
    graph.signature("infer", main)
    return graph


def values(outputs: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in (outputs.values() if isinstance(outputs, dict) else outputs)]


def same(a: Any, b: Any) -> bool:
    return all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(values(a), values(b), strict=True))


def nodes_of(session: linnet.Session) -> list[str]:
    """The names of the nodes of a plan, in their order, without copies that planning adds."""
    names = [name for step in session.steps for name in (step.name, *(step.fused.split("+") if step.fused else ()))]
    return [name for name in names if "(" not in name]


def on(session: linnet.Session, device: str) -> int:
    return sum(step.device == device for step in session.steps)


@pytest.mark.parametrize("medium", ["tcp", "unix", "shm", "tls"])
def test_the_quick_cases_agree(medium: str, tmp_path: Path) -> None:
    listen = {"tcp": "127.0.0.1:0", "tls": "127.0.0.1:0"}.get(medium, f"{medium}:{tmp_path}/host")
    with host(listen, key=new_key(tmp_path) if medium == "tls" else None) as there:
        report = linnet.check_device(there.name, cases="quick")
        assert report.ok, report.failures
        assert report.count("agrees") > 20 * report.count("refused")


def test_the_quick_cases_agree_under_sanitizers() -> None:
    with host(kind="address") as there:
        report = linnet.check_device(there.name, cases="quick")
        assert report.ok, report.failures


@pytest.mark.more
def test_all_cases_agree() -> None:
    with host() as there:
        report = linnet.check_device(there.name, cases="all")
        assert report.ok, report.failures


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(n, marks=pytest.mark.more) for n in zoo.names() if n not in FEW)]
)
def test_models_cut_at_random_keep_their_bits(name: str) -> None:
    """Over two hosts and this process."""
    graph = linnet.from_onnx(zoo.at_hand(lambda: zoo.fetch(name)), input_shapes=zoo.input_shapes(name))
    feeds, rng = zoo.inputs(name), random.Random(name)
    whole = linnet.Session(graph, threads=1)
    names = nodes_of(whole)
    expected = whole.run(feeds)
    with host() as one, host("127.0.0.1:0", "--threads", "1") as two:
        for pieces in (1, 2, 3):
            borders = sorted(rng.sample(range(len(names) + 1), min(pieces - 1, len(names))))
            places = [one.name, two.name, "cpu"][:pieces]
            placement: dict[str, str] = {}
            for i, step in enumerate(names):
                placement[step] = places[sum(border <= i for border in borders)]
            cut = linnet.Session(graph, threads=1, devices=[one.name, two.name], placement=placement)
            assert same(cut.run(feeds), expected), f"{name} in {pieces} pieces at {borders}"
            assert same(cut.run(feeds), expected)


def test_nodes_go_where_they_cost_less() -> None:
    """The host has faster kernels than this process may use; a message there and back takes longer than a small product."""
    graph = Graph()
    main = graph.function()
    rng = np.random.default_rng(6)
    x = main.placeholder("x", "f32", (256, 512))
    y = nn.relu(x @ main.constant(rng.standard_normal((512, 512)).astype(np.float32), "w0"))
    main.outputs.append(y @ main.constant(rng.standard_normal((512, 256)).astype(np.float32), "w1"))
    graph.signature("infer", main)
    lowest = linnet.isa_names()[0]
    slow = linnet.Session(graph, threads=1, isa_max=lowest)
    with host("127.0.0.1:0", "--threads", "1") as there:
        moved = linnet.Session(graph, threads=1, isa_max=lowest, devices=[there.name])
        assert {step.op for step in moved.steps if step.device == there.name} == {"transfer", "matmul"}
        assert {step.placed for step in moved.steps if step.op != "transfer"} == {"chosen"}
        assert all(step.modelled_ms > 0 for step in moved.steps if step.kernel != "wait")
        assert moved.plan_info["modelled_ms"] < slow.plan_info["modelled_ms"]
        stayed = linnet.Session(small(), threads=1, devices=[there.name])
        assert on(stayed, there.name) == 0 and {step.placed for step in stayed.steps} == {"cost"}


def test_a_second_start_sends_no_piece(tmp_path: Path) -> None:
    graph, feeds = small(256), {"x": np.ones((8, 256), np.float32)}
    folder = tmp_path / "pieces"
    folder.mkdir()
    for start in range(2):
        with host("127.0.0.1:0", "--folder", str(folder)) as there:
            session = linnet.Session(graph, **there.all)
            session.run(feeds)
            files = sorted(folder.glob("*.lnt"))
            assert len(files) == 1 and on(session, there.name) > 0
            if start == 0:
                first = files[0].stat().st_mtime_ns
    assert re.fullmatch(r"[0-9a-f]{64}\.lnt", files[0].name)
    assert files[0].stat().st_mtime_ns > first  # used again
    assert linnet.Graph.load(files[0]).signatures["infer"]  # a model like any other
    files[0].write_bytes(files[0].read_bytes()[:-64] + b"x" * 64)  # a damaged piece is sent again
    with host("127.0.0.1:0", "--folder", str(folder)) as there:
        assert same(linnet.Session(graph, **there.all).run(feeds), linnet.Session(graph).run(feeds))


def test_the_folder_stays_within_its_limit(tmp_path: Path) -> None:
    with host("127.0.0.1:0", "--folder", str(tmp_path), "--folder-bytes", "600kB") as there:
        for width in (200, 204, 208, 212):
            linnet.Session(small(width), **there.all).run({"x": np.ones((8, width), np.float32)})
    assert 1 <= len(list(tmp_path.glob("*.lnt"))) <= 2
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 600_000


def test_a_host_lends_no_more_than_its_owner_says() -> None:
    with host("127.0.0.1:0", "--max-bytes", "2MB") as there:
        with pytest.raises(linnet.Error, match="out_of_memory"):
            linnet.Session(small(600), **there.all)
        with pytest.raises(linnet.Error, match="out_of_memory"):  # before anything is made
            Planner(small(600), **there.all).plan({})
        session = linnet.Session(small(64), **there.all)  # and goes on
        assert values(session.run({"x": np.ones((8, 64), np.float32)}))[0].shape == (8, 64)
        assert there.resident() < 12_000
        (memory,) = session.device_memory
        assert memory.device == there.name and (memory.steps, memory.nodes) == (1, 4)
        assert 0 < 2 * 4 * 64 * 64 < memory.own < memory.total < 2_000_000


def test_several_clients_have_memory_of_their_own() -> None:
    graph, rng = small(), np.random.default_rng(1)
    with host() as there:
        sessions = [linnet.Session(graph, **there.all) for _ in range(4)]
        feeds = [{"x": rng.standard_normal((8, 64)).astype(np.float32)} for _ in sessions]
        for session, feed in zip(sessions, feeds, strict=True):
            session.run(feed)
        here = linnet.Session(graph)
        for session, feed in zip(sessions, feeds, strict=True):
            assert same(session.run(feed), here.run(feed))
        code = (
            "import sys, numpy as np, linnet; from tests.test_remote import small; "
            "s = linnet.Session(small(), devices=[sys.argv[1]], placement={'*': sys.argv[1]}); "
            "print(float(np.asarray(list(s.run({'x': np.ones((8, 64), np.float32)}).values())[0]).sum()))"
        )
        others = [
            subprocess.Popen([sys.executable, "-c", code, there.name], stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        texts = {other.communicate(timeout=120)[0] for other in others}
        assert len(texts) == 1 and float(texts.pop()) > 0


def test_an_idle_host_is_small_and_still() -> None:
    with host() as there:
        assert there.resident() <= 3 * 1024
        session = linnet.Session(small(), **there.all)
        session.run({"x": np.ones((8, 64), np.float32)})
        before = there.processor_seconds()
        time.sleep(1)
        assert there.processor_seconds() - before <= 0.02


def test_a_dead_host_is_named() -> None:
    with host() as there:
        session = linnet.Session(small(), **there.all)
        feed = {"x": np.ones((8, 64), np.float32)}
        session.run(feed)
        there.process.send_signal(signal.SIGKILL)
        there.process.wait()
        with pytest.raises(linnet.DeviceError, match=re.escape(there.address)):
            session.run(feed)
        with pytest.raises(linnet.Error, match=re.escape(there.address)):
            linnet.Session(small(128), **there.all)


def test_a_new_session_finds_a_host_that_came_back(tmp_path: Path) -> None:
    feed = {"x": np.ones((8, 64), np.float32)}
    with host(f"unix:{tmp_path}/host") as there:
        expected = linnet.Session(small(), **there.all).run(feed)
        there.process.send_signal(signal.SIGKILL)
        there.process.wait()
    with host(f"unix:{tmp_path}/host") as again:
        assert again.name == there.name
        assert same(linnet.Session(small(), **again.all).run(feed), expected)


def test_a_stopped_host_says_so() -> None:
    with host() as there:
        session = linnet.Session(small(), **there.all)
        session.run({"x": np.ones((8, 64), np.float32)})
        there.stop()
        with pytest.raises(linnet.DeviceError, match="the host is stopped"):
            session.run({"x": np.ones((8, 64), np.float32)})


def test_wrong_names_are_refused(tmp_path: Path) -> None:
    for name, text in (
        ("remote:", "give the address of a host"),
        ("remote:127.0.0.1:1", "127.0.0.1:1"),
        ("remote:127.0.0.1:1,kee=x", "'kee' is not an option of a host"),
        ("remote:127.0.0.1:1,key=/nowhere", "/nowhere"),
        ("remote:" + "x" * 2000, "too long"),
    ):
        with pytest.raises(linnet.Error, match=text):
            linnet.Session(small(), devices=[name])
    key, other = new_key(tmp_path), tmp_path / "other"
    other.mkdir()
    with host("127.0.0.1:0", key=key) as there:
        for name in (f"remote:{there.address},key={new_key(other)}", f"remote:{there.address}"):
            with pytest.raises(linnet.Error, match=re.escape(there.address)):
                linnet.Session(small(), devices=[name])
        linnet.Session(small(), **there.all)


def test_other_machines_need_a_key() -> None:
    command = [str(build("release", "linnet-host") / "linnet-host"), "--listen", "*:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "not_authenticated" in done.stderr and "key" in done.stderr


def test_what_is_not_linnet_is_hung_up_on() -> None:
    rng = random.Random(5)
    with host() as there:
        address, _, port = there.address.rpartition(":")
        for _ in range(50):
            with socket.create_connection((address, int(port))) as raw:
                raw.sendall(rng.randbytes(rng.choice((1, 63, 64, 65, 4096))))
                raw.shutdown(socket.SHUT_WR)
                raw.settimeout(20)
                while raw.recv(4096):
                    pass
        session = linnet.Session(small(), **there.all)
        assert on(session, there.name) > 0


def test_training_keeps_its_bits() -> None:
    """Variables are on the host between runs, and their updates are computed there."""

    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", (16, 20)), graph.placeholder("t", (16,), "i32")
    loss = linnet.softmax_cross_entropy(nn.dense(nn.dense(x, 32, activation="relu"), 4), t).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Adam(0.01).minimize(loss))
    rng = np.random.default_rng(4)
    feeds = {"x": rng.standard_normal((16, 20)).astype(np.float32), "t": rng.integers(0, 4, 16).astype(np.int32)}
    with host() as there:
        losses = []
        for where in ({}, there.all):
            session = linnet.Session(graph, "train", **where)
            losses.append([session.run(feeds)["loss"].tobytes() for _ in range(10)])
            assert not where or on(session, there.name) > 0
    assert losses[0] == losses[1] and len(set(losses[0])) == 10


def test_commands_take_hosts(tmp_path: Path) -> None:
    small().save(tmp_path / "m.lnt")
    with host() as there:
        everything = ("--device", there.name, "--placement", f"*={there.name}")
        done = run_here("plan", str(tmp_path / "m.lnt"), *everything)
        assert done.returncode == 0 and there.name in done.stdout
        (tmp_path / "places.json").write_text(json.dumps({"*": there.name}))
        done = run_here("plan", str(tmp_path / "m.lnt"), *everything[:3], str(tmp_path / "places.json"))
        assert done.returncode == 0 and there.name in done.stdout
        tool = str(build("release", "linnet-run", "linnet_remote") / "linnet-run")
        command = [tool, str(tmp_path / "m.lnt"), "--random", "--json"]
        text, alone = run([*command, *everything]), run(command)
        assert json.loads(text)["outputs"] == json.loads(alone)["outputs"]
        done = run_here("devices", there.name)
        assert done.returncode == 0 and os.uname().machine in done.stdout
        assert [info.name for info in linnet.devices(there.name)] == [there.name]


def test_a_run_ends_after_the_hosts_time_limit() -> None:
    with host("127.0.0.1:0", "--timeout", "0.00001") as there:
        session = linnet.Session(small(2048), **there.all)
        with pytest.raises(linnet.DeviceError, match="time"):
            for _ in range(200):
                session.run({"x": np.ones((8, 2048), np.float32)})


def test_the_command_starts_the_program(tmp_path: Path) -> None:
    done = run_process("host", "--version")
    assert done.returncode == 0 and done.stdout == f"linnet-host {linnet.__version__}\n"
