"""Observing a running job: `linnet top`, Prometheus' text, shares by speed, and a trace of both sides, with real servers over
loopback."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import pty
import re
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.cli.main import _main
from linnet.cli.top import Watch
from linnet.sync import Server, Timeline, Worker, status, timeline
from tests.test_sync_server import together

BATCH = 24


def graph() -> linnet.Graph:
    made = linnet.Graph(seed=1)
    x = made.placeholder("x", ("batch", 16))
    t = made.placeholder("t", ("batch",), "i32")
    loss = linnet.softmax_cross_entropy(nn.dense(nn.dense(x, 8, activation="tanh"), 4), t).mean()
    linnet.sync.signatures(made, loss, linnet.SGD(0.1), {"x": x, "t": t})
    return made


def batch(step: int, count: int = BATCH) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {"x": rng.standard_normal((count, 16), np.float32), "t": rng.integers(0, 4, count).astype(np.int32)}


def train(address: str | list[str], number: int, steps: int, each: Callable[[Worker, int], None] | None = None) -> None:
    with Worker(graph(), address, number=number, name=f"box{number}", timeout=30) as worker:
        for step in range(steps):
            worker.step(batch(10 * step + number, 8))
            if each is not None:
                each(worker, step)


# ---- linnet top


def test_top_shows_a_running_job(capsys: pytest.CaptureFixture[str]) -> None:
    go_on = threading.Event()
    with Server(graph(), workers=2, quorum=2) as server:

        def each(worker: Worker, step: int) -> None:
            if step == 3:
                go_on.wait(30)

        with_workers = threading.Thread(target=together, args=(2, lambda k: train(server.address, k, 8, each)))
        with_workers.start()
        try:
            until = time.monotonic() + 30
            while server.status()["version"] < 4 and time.monotonic() < until:
                time.sleep(0.01)
            assert _main(["top", server.address, "--once", "--interval", "0.05"]) == 0
            text = capsys.readouterr().out
            assert _main(["top", server.address, "--json"]) == 0
            (report,) = json.loads(capsys.readouterr().out)
        finally:
            go_on.set()
            with_workers.join()
    assert "2 of 2 workers" in text and "2 of 2 complete a step" in text and report["job"][:12] in text
    lines = {number: next(line for line in text.splitlines() if f"box{number}" in line) for number in (0, 1)}
    for number, line in lines.items():
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        assert cells[0] == str(number) and cells[3] == "4" and "127.0.0.1:" in cells[2]
    assert report["version"] == 4 and {w["name"] for w in report["workers"]} == {"box0", "box1"}


def test_top_follows_several_servers_and_says_who_is_gone() -> None:
    files = linnet.sync.shard(graph(), servers=2).servers
    with Server(files[1], workers=1) as second:
        with Server(files[0], workers=1) as first:
            watch = Watch([second.address, first.address, "127.0.0.1:1"], status)
            watch.refresh()
            train([first.address, second.address], 0, 3)
            watch.refresh()
            assert [report["shard"] for report in watch.reports] == [0, 1] and watch.reports[0]["version"] == 3
            assert len(watch.trouble) == 1 and "127.0.0.1:1" in watch.trouble[0]
            gone = first.address
        watch.refresh()
        assert len(watch.trouble) == 2 and any(gone in line for line in watch.trouble)
        assert [report["shard"] for report in watch.reports] == [0, 1], "the last report stays"
        assert watch.view() is not None


def _frames(seen: bytes) -> list[list[str]]:
    """What the terminal showed: the lines of each frame, without colours."""
    shown = seen.partition(b"\x1b[?1049h")[2].partition(b"^C")[0]
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode(errors="replace")).replace("\r", "")
    return [re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", part).split("\n") for part in text.split("\x1b[H")]


# Makes its standard input the terminal that Ctrl-C comes from, and becomes linnet. A background shell ignores the signal.
_ON_A_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "linnet", *sys.argv[1:]])
"""


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_top_draws_on_a_terminal_until_interrupted(columns: int, lines: int) -> None:
    with Server(graph(), workers=30, elastic=True) as server:
        terminal, inside = pty.openpty()
        termios.tcsetwinsize(inside, (lines, columns))
        # Readline, if pytest has loaded it, puts another size into the C library's environment.
        env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
        words = [sys.executable, "-c", _ON_A_TERMINAL, "top", server.address, "--interval", "0.05"]
        # Not by os.fork: the copy of a test process would go on with the tests if anything failed in it.
        process = subprocess.Popen(words, stdin=inside, stdout=inside, stderr=inside, start_new_session=True, env=env)
        os.close(inside)
        seen, code, until = b"", None, time.monotonic() + 60
        while code is None and time.monotonic() < until:
            if select.select([terminal], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):  # the child has gone
                    seen += os.read(terminal, 1 << 16)
            if seen.count(b"synchronous") >= 2 and b"^C" not in seen:  # the first picture is whole
                os.write(terminal, b"\x03")
                seen += b"^C"
            code = process.poll()
        process.kill()
        process.wait()
        os.close(terminal)
    assert code == 0, seen[-500:]
    frames = [frame for frame in _frames(seen) if any("synchronous" in line for line in frame)]
    assert frames and all(len(frame) <= lines and max(map(len, frame)) <= columns for frame in frames), frames
    whole = "\n".join(line for frame in frames for line in frame)
    assert "updates/s" in whole and "steps/s" in whole and ("refused" in whole) == (columns == 120), whole
    assert b"\x1b[?1049h" in seen and seen.rstrip().endswith(b"\x1b[?1049l"), "the screen as it was before"


def test_top_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["top", "127.0.0.1:1", "--once"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
    begun = time.monotonic()
    assert _main(["top", "127.0.0.1:1"]) == 1, "on the terminal too, before it shows anything"
    out, err = capsys.readouterr()
    assert time.monotonic() - begun < 60 and not out
    assert (
        "no server answers: " in err
        and "; check the addresses; `linnet parameter-server` and `linnet launch` print them" in err
    )


# ---- Prometheus

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parse(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Prometheus' text format 0.0.4, strictly: HELP and TYPE once before a metric's samples; no sample twice."""
    types: dict[str, str] = {}
    helped: set[str] = set()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helped and name not in found and line.split(" ", 3)[3]
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types and name not in found and kind in ("counter", "gauge")
            assert name.endswith("_total") == (kind == "counter")
            types[name] = kind
        else:
            match = _SAMPLE.fullmatch(line)
            assert match is not None, line
            assert list(types)[-1] == match[1], "samples of a metric stand together, behind its TYPE"
            labels = _LABEL.findall(match[2] or "")
            assert "".join(f'{k}="{v}",' for k, v in labels).rstrip(",") == (match[2] or ""), line
            key = tuple((k, v.replace('\\"', '"').replace("\\\\", "\\")) for k, v in labels)
            assert key not in found.setdefault(match[1], {})
            found[match[1]][key] = float(match[3])
    assert set(found) <= set(types) == helped
    return found


def fetch(address: str, path: str = "/metrics") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_metrics_are_prometheus_text_and_agree_with_the_report() -> None:
    with Server(graph(), workers=2, metrics="127.0.0.1:0") as server:
        assert server.metrics_address is not None and not server.metrics_address.endswith(":0")
        empty = parse(fetch(server.metrics_address)[2])
        assert empty["linnet_sync_version"][()] == 0 and empty["linnet_sync_members"][()] == 0
        arrived, looked = threading.Barrier(3), threading.Event()

        def work(number: int) -> None:
            name = 'a "b"\\c' if number else "box"
            with Worker(graph(), server.address, number=number, name=name, timeout=30) as worker:
                for step in range(5):
                    worker.step(batch(step, 8))
                arrived.wait(30)
                looked.wait(30)

        working = threading.Thread(target=together, args=(2, work))
        working.start()
        try:
            arrived.wait(30)
            code, kind, text = fetch(server.metrics_address)
            report = server.status()
            assert fetch(server.metrics_address, "/other")[0] == 404
        finally:
            looked.set()
            working.join()
    assert code == 200 and kind.startswith("text/plain; version=0.0.4")
    found = {name.removeprefix("linnet_sync_"): samples for name, samples in parse(text).items()}
    for name, key in (("version", "version"), ("members", "members"), ("applied_total", "applied"), ("late_total", "late"),
                      ("refused_total", "refused"), ("epoch", "epoch"), ("saved_version", "saved_version")):  # fmt: skip
        assert found[name][()] == report[key], name
    assert found["version"][()] == 5 and found["applied_total"][()] == 10
    assert found["received_bytes_total"][()] > 5 * 2 * 4 * (16 * 8 + 8 + 8 * 4 + 4)
    applied = dict(found["worker_applied_total"])
    assert applied == {(("worker", "0"), ("name", "box")): 5, (("worker", "1"), ("name", 'a "b"\\c')): 5}
    assert all(value > 0 and math.isfinite(value) for value in found["worker_examples_per_second"].values())


def test_servers_without_metrics_have_no_address_for_them() -> None:
    with Server(graph()) as server:
        assert server.metrics_address is None


# ---- shares by speed


def shares(rates: tuple[float, ...], steps: int) -> tuple[list[list[tuple[int, int, int]]], dict[str, np.ndarray]]:
    """Workers that take `rates` seconds per example and compute the part of the global batch that the server assigns.

    Returns the shares of each step by worker, and the trained variables."""
    found: list[list[tuple[int, int, int]]] = [[] for _ in rates]

    def work(number: int) -> None:
        with Worker(graph(), server.address, number=number, timeout=30) as worker:
            for step in range(steps):
                share = worker.info.share
                if share is None or not share[1]:  # equal parts before the first answer
                    part = BATCH // len(rates)
                    share = number * part, part, BATCH
                found[number].append(share)
                whole = batch(step)
                mine = {name: value[share[0] : share[0] + share[1]] for name, value in whole.items()}
                time.sleep(rates[number] * share[1])
                worker.step(mine)

    with Server(graph(), workers=len(rates), batch=BATCH) as server:
        together(len(rates), work)
        return found, {spec.name: server.store[spec.name] for spec in server.model.variables}


def test_a_worker_of_half_the_speed_gets_half_the_examples() -> None:
    rates = (0.004, 0.008)
    found, trained = shares(rates, 12)
    for step, parts in enumerate(zip(*found, strict=True)):
        assert sum(part[1] for part in parts) == BATCH, "all examples"
        assert parts[0][0] == 0 and parts[1][0] == parts[0][1], f"each once, in step {step}"
        assert all(part[2] == BATCH for part in parts)
    fast, slow = (np.mean([part[1] for part in parts[6:]]) for parts in found)
    assert 1.5 < fast / slow < 2.6
    # A step takes as long as the slowest worker: 12 examples at half speed if shared out evenly.
    even, now = 12 * rates[1], max(fast * rates[0], slow * rates[1])
    assert now < 0.8 * even

    # Means are weighted by examples: the same as one process with the whole batch.
    store = linnet.Store(linnet.Model(graph()))
    alone = linnet.Session(store.model, "train", store=store)
    for step in range(12):
        alone.run(batch(step))
    for spec in store.model.variables:
        np.testing.assert_allclose(trained[spec.name], store[spec.name], rtol=1e-4, atol=1e-6, err_msg=spec.name)


# ---- a trace of both sides


def test_trace_of_a_job_has_both_sides_on_one_clock(tmp_path: Path) -> None:
    steps, recorders = 6, [Timeline(f"box{k}") for k in range(2)]
    files = linnet.sync.shard(graph(), servers=2).servers
    with Server(files[0], workers=2) as first, Server(files[1], workers=2) as second:
        addresses = [first.address, second.address]
        link = linnet.sync.Link(heartbeat=0.05)
        offsets = []

        def work(number: int) -> None:
            with Worker(graph(), addresses, number=number, timeout=30, link=link) as worker:
                worker.pull()
                for step in range(steps):
                    time.sleep(0.02)
                    worker.step(batch(step, 8))
                    recorders[number].record(worker.info)
                offsets.extend((entry.offset, entry.delay) for entry in worker.info.links)

        together(2, work)
    for (
        offset,
        delay,
    ) in offsets:  # all use one clock here, so the measured offset is at most the error bound of RFC 5905
        assert delay is not None and delay > 0 and abs(offset) <= delay / 2 + 1e-6
    for number, recorder in enumerate(recorders):
        recorder.save(tmp_path / f"{number}.json")
    workers = timeline.read(tmp_path / f"{number}.json" for number in range(2))
    events = timeline.events(workers)
    error = 1e6 * max(delay for _, delay in offsets if delay is not None)
    spans = [e for e in events if e["ph"] == "X"]
    for step in range(steps):
        updates = [e for e in spans if e["name"] == "update" and e["pid"] >= 1_000_000 and e["args"]["step"] == step]
        assert len(updates) == 2, "one of each server"
        for number in range(2):
            mine = {e["name"]: e for e in spans if e["pid"] == number and e["args"].get("step") == step}
            assert mine["compute"]["dur"] >= 20_000, "it slept so long"
            for update in updates:
                end = update["ts"] + update["dur"]
                assert mine["compute"]["ts"] + mine["compute"]["dur"] <= update["ts"] + error
                assert end <= mine["wait"]["ts"] + mine["wait"]["dur"] + error
    found = timeline.summary(workers)
    assert found.workers == 2 and found.steps == 2 * (steps - 1) and found.compute >= 0.02
    assert found.step == pytest.approx(found.compute + found.transfer + found.others + found.update)
    assert 0 < found.speedup <= 2 and found.transfer > 0


# ---- both in linnet.fit


def test_fit_shares_batches_out_by_speed_and_records_its_steps(tmp_path: Path) -> None:
    rates, size = (0.002, 0.006), 16
    address = f"unix:{tmp_path}/server"
    rng = np.random.default_rng(1)
    data = {"x": rng.standard_normal((160, 16), np.float32), "t": rng.integers(0, 4, 160).astype(np.int32)}
    counts: list[list[int]] = [[] for _ in rates]

    class Slow(linnet.Callback):
        """A machine that takes this long per example; its sleep is part of the next step's computing."""

        def __init__(self, number: int) -> None:
            self.number = number

        def on_step(self, run: object, metrics: object) -> None:
            share = run.worker.info.share  # type: ignore[attr-defined]
            counts[self.number].append(share[1])
            time.sleep(share[1] * rates[self.number])

    def work(number: int) -> object:
        place = linnet.sync.Cluster("worker", number, 2, (address,), hosts_server=not number, source="test")
        return linnet.fit(
            graph(), data, batch_size=size, epochs=3, seed=2, cluster=place, strategy=linnet.sync.Strategy(by_speed=True),
            callbacks=[Slow(number), Timeline(path=tmp_path / "{worker}.json")],
        )  # fmt: skip

    histories = together(2, work)
    assert len(counts[0]) == len(counts[1]) == 3 * 5
    assert all(a + b == 2 * size for a, b in zip(*counts, strict=True))
    fast, slow = (np.mean(found[5:]) for found in counts)
    assert 2 < fast / slow < 4.5
    alone = linnet.fit(graph(), data, batch_size=2 * size, epochs=3, seed=2)
    for name in ("dense/weight", "dense_1/bias"):
        np.testing.assert_allclose(histories[0].store[name], alone.store[name], rtol=1e-4, atol=1e-6)
    found = timeline.summary(timeline.read(tmp_path / f"{number}.json" for number in range(2)))
    assert found.workers == 2 and found.steps == 2 * 14 and found.compute > 10 * min(rates)


def test_what_cannot_be_shared_out_by_speed() -> None:
    for options in ({"mode": "asynchronous"}, {"groups": 2}, {"own_data": True}, {"mode": "federated"}):
        with pytest.raises(linnet.UsageError, match="by_speed"):
            linnet.sync.Strategy(by_speed=True, **options)  # type: ignore[arg-type]
