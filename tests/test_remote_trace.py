"""A trace over machines: what hosts did is on one clock and within the run, arrows join the right steps, the longest step is
found, and sessions without a trace send nothing more."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import nn
from linnet.clib.errors import FileError
from linnet.facade import Graph
from linnet.report import critical_path
from linnet.session.step import Span, Step
from linnet.session.trace import Trace
from tests.command import run_here
from tests.native import build, run
from tests.remote_counts import counted
from tests.remote_host import Host, host

WIDTH, BIG = 64, 1024
PLACES = ("matmul_2={two}", "map_2={two}", "*={one}")


def net() -> Graph:
    """Four products, of which the third takes most of the time."""
    graph = Graph()
    main = graph.function()
    rng = np.random.default_rng(3)
    x = main.placeholder("x", "f32", (128, WIDTH))
    for layer, (n, m) in enumerate([(WIDTH, WIDTH), (WIDTH, BIG), (BIG, BIG), (BIG, WIDTH)]):
        x = nn.relu(x @ main.constant(rng.standard_normal((n, m)).astype(np.float32) / n**0.5, f"w{layer}"))
    main.outputs.append(x)
    graph.signature("infer", main)
    return graph


X = np.ones((128, WIDTH), np.float32)


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host]]:
    with host("127.0.0.1:0", "--threads", "1") as one, host("127.0.0.1:0", "--threads", "1") as two:
        yield one, two


def cut(hosts: tuple[Host, Host]) -> dict[str, Any]:
    """The first two layers on one host, the third on the other, the last on the first."""
    one, two = (there.name for there in hosts)
    places = dict(place.format(one=one, two=two).split("=") for place in PLACES)
    return {"devices": [one, two], "placement": places}


@pytest.fixture(scope="module")
def traced(hosts: tuple[Host, Host], tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Step], Path]:
    trace = Trace()
    session = linnet.Session(net(), **cut(hosts), trace=True)
    trace.phase("plan")
    expected = linnet.Session(net()).run({"x": X})
    got = session.run({"x": X})
    assert all(np.array_equal(got[name], expected[name]) for name in expected)
    path = tmp_path_factory.mktemp("trace") / "run.json"
    trace.phase("run")
    trace.write(path, "net", session.steps)
    return session.steps, path


def test_hosts_say_when_their_steps_ran(traced: tuple[list[Step], Path]) -> None:
    steps, _ = traced
    pieces = [step for step in steps if step.spans]
    assert len(pieces) == 3 and len({step.device for step in pieces}) == 2
    begin, end = steps[0].start_ns, max(step.start_ns + step.ms * 1e6 for step in steps)
    ended = begin
    for piece in pieces:
        whole, *inner = piece.spans
        assert whole.ms == piece.device_ms > 0 and 0 < whole.error_ns < 1e9
        assert begin - whole.error_ns <= whole.begun_ns <= whole.start_ns
        assert whole.start_ns + whole.ms * 1e6 <= end + whole.error_ns
        # The next piece needs the result of the last one.
        assert whole.start_ns >= ended - 2 * whole.error_ns
        ended = whole.start_ns + whole.ms * 1e6
        assert inner and all(span.kernel for span in inner)
        for span in inner:
            assert whole.start_ns <= span.start_ns
            assert span.start_ns + span.ms * 1e6 <= whole.start_ns + whole.ms * 1e6 + 1
    big = pieces[1]  # waits for the first host, and gets its value from there
    assert big.spans[0].waited_bytes == X.nbytes // WIDTH * BIG
    assert big.spans[0].waited_ms > 0 and big.ms < big.device_ms


def test_the_longest_step_is_found(hosts: tuple[Host, Host]) -> None:
    """By the least of several runs, because other programs may interrupt one."""
    session = linnet.Session(net(), **cut(hosts), trace=True)
    least: dict[str, float] = {}
    for _ in range(5):
        session.run({"x": X})
        for span in (span for step in session.steps for span in step.spans[1:]):
            least[span.name] = min(span.ms, least.get(span.name, span.ms))
    assert {"matmul", "matmul_1", "matmul_2", "matmul_3"} <= least.keys()
    assert max(least, key=lambda name: least[name]) == "matmul_2"


def test_arrows_join_the_steps_between_which_values_travel(traced: tuple[list[Step], Path]) -> None:
    _, path = traced
    events = json.loads(path.read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert len(names) == 3
    begun = {e["id"]: e for e in events if e["ph"] == "s"}
    ended = {e["id"]: e for e in events if e["ph"] == "f"}
    assert begun.keys() == ended.keys() and len(begun) == 4  # there, to the other host, back, and home
    ways = []
    for i, start in begun.items():
        end = ended[i]
        for e in (start, end):  # each is at a span of its own track
            assert any(
                s["pid"] == e["pid"] and s["tid"] == e["tid"] and s["ts"] - 1 <= e["ts"] <= s["ts"] + s["dur"] + 1
                for s in spans
            )
        ways.append((start["pid"], end["pid"], start["args"]["bytes"]))
    middle = X.nbytes // WIDTH * BIG
    assert ways == [(0, 1, X.nbytes), (1, 2, middle), (2, 1, middle), (1, 0, X.nbytes)]
    assert {e["name"] for e in spans if e["pid"] == 2} >= {"matmul_2", "wait for values"}


def test_the_path_goes_over_the_hosts_and_has_no_gaps(traced: tuple[list[Step], Path]) -> None:
    _, path = traced
    found = critical_path.read(path)
    at = found.path[0].begin
    for part in found.path:
        assert part.begin == pytest.approx(at) and part.end >= part.begin
        at = part.end
    assert sum(part.us for part in found.path) == pytest.approx(found.us)
    assert found.shares[0].machine == critical_path.HERE
    one, two = (share.machine for share in found.shares[1:])
    steps = [(part.machine, part.to) for part in found.path if part.machine != critical_path.HERE]
    assert steps[-4:] == [(two, ""), (two, one), (one, ""), (one, critical_path.HERE)]
    big = next(part for part in found.path if part.machine == two and not part.to)
    assert big.steps[0][0] == "matmul_2"
    text = run_here("timeline", str(path)).stdout
    assert f"{two}: matmul_2" in text and "clock is known to" in text
    assert json.loads(run_here("timeline", str(path), "--json").stdout)["us"] == found.us


def test_the_path_of_a_known_run(tmp_path: Path) -> None:
    """This machine sends 1 MB in 1 ms to a host, which computes for 4 ms, and gets 2 MB back in 3 ms."""
    ms = 1_000_000
    step = Step("x", "transfer", "upload", "dense", "remote:a", "", 1_000_000, 0, 1, 0.1, start_ns=10 * ms)
    spans = (
        Span("conv", "piece", "host", 11 * ms, 4.0, 1000, 11 * ms), Span("conv", "conv", "fast", 11 * ms, 3.0),
        Span("add", "map", "any", 14 * ms, 1.0),
    )  # fmt: skip
    steps = [
        step,
        dataclasses.replace(step, name="conv", op="conv", kernel="remote", device_ms=4.0, spans=spans, ms=0.0),
        dataclasses.replace(step, name="y", kernel="download", bytes=2_000_000, ms=0.0),
        dataclasses.replace(step, name="y", kernel="wait", ms=8.0),
        dataclasses.replace(step, name="dense", op="matmul", kernel="fast", device="cpu", start_ns=18 * ms, ms=2.0),
    ]
    trace = Trace()
    trace.phase("run")
    trace.write(tmp_path / "run.json", "net", steps)
    found = critical_path.read(tmp_path / "run.json")
    parts = [(part.machine, part.to, round(part.us), part.bytes) for part in found.path]
    here = critical_path.HERE
    assert parts == [
        (here, "remote:a", 1000, 1_000_000), ("remote:a", "", 4000, 0), ("remote:a", here, 3000, 2_000_000),
        (here, "", 2000, 0),
    ]  # fmt: skip
    assert found.us == pytest.approx(10_000)
    assert critical_path.shorter(found) == [
        "  half the time of conv on remote:a would save up to 1.5 ms",
        f"  30% of the path is the way from remote:a to {here}, once: 2 MB at 667 MB/s",
        f"  half the time of dense on {here} would save up to 1 ms",
    ]
    assert found.shares[1].computed == pytest.approx(4000) and found.shares[1].received == 1_000_000


def test_the_path_of_a_known_run_over_two_hosts(tmp_path: Path) -> None:
    """Both hosts get their messages at 11 ms. The second one waits for the first until 15 ms, or not at all."""
    ms, here = 1_000_000, critical_path.HERE
    for first, path in {
        3.0: [(here, "a", 1000), ("a", "", 3000), ("a", "b", 1000), ("b", "", 2000), ("b", here, 3000)],
        0.0: [(here, "b", 1000), ("b", "", 6000), ("b", here, 3000)],
    }.items():
        waits = 4.0 if first else 0.0
        move = Step("v", "transfer", "copy", "dense", "b", "", 1000, 0, 1, 0.0, start_ns=10 * ms, source="a")
        upload = dataclasses.replace(move, name="x", kernel="upload", device="a", source="")
        one = dataclasses.replace(
            upload, op="conv", kernel="remote", spans=(Span("a", "piece", "", 11 * ms, first, 0, 11 * ms),)
        )
        start = round((11 + (waits or 4)) * ms)
        two = dataclasses.replace(
            one, device="b", spans=(Span("b", "piece", "", start, 2.0, 0, 11 * ms, waits, 1000),)
        )  # fmt: skip
        home = dataclasses.replace(upload, name="y", device="b", kernel="download")
        wait = dataclasses.replace(home, kernel="wait", ms=10.0)
        trace = Trace()
        trace.phase("run")
        trace.write(tmp_path / "run.json", "net", [upload, one, move, two, home, wait])
        found = critical_path.read(tmp_path / "run.json").path
        assert [(part.machine, part.to, round(part.us)) for part in found] == path


def test_files_that_are_no_traces_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"format": "linnet run 1", "traceEvents": [{"ph": "X"}]}')
    with pytest.raises(FileError, match="not a trace"):
        critical_path.read(tmp_path / "bad.json")
    (tmp_path / "list.json").write_text("[]")
    assert "not a trace" in run_here("timeline", tmp_path / "list.json").stderr
    assert "cannot read" in run_here("timeline", tmp_path / "none.json").stderr


def test_only_traced_sessions_ask_for_times(hosts: tuple[Host, Host]) -> None:
    with counted(hosts[0].address) as counts:
        sent = []
        for trace in (False, True, False):
            session = linnet.Session(net(), devices=[counts.name], placement={"*": counts.name}, trace=trace)
            session.run({"x": X})
            for _ in range(3):
                counts.clear()
                session.run({"x": X})
                assert counts.by["HELLO"].messages["SUBMIT"] == (3 if trace else 1)  # its clock, and its steps
                sent.append(counts.by["HELLO"].sizes["SUBMIT"])
        whole = 64 + 32 + X.nbytes + 16 + 32  # a header, UPLOAD, RUN and DOWNLOAD
        assert sent[:3] == sent[-3:] == [whole] * 3


@pytest.mark.parametrize("native", [False, True])
def test_run_writes_the_trace_and_timeline_reads_it(native: bool, hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """linnet run and linnet-run write the same events."""
    net().save(tmp_path / "net.lnt")
    np.save(tmp_path / "x.npy", X)
    one, two = (there.name for there in hosts)
    words = [
        "--device",
        one,
        "--device",
        two,
        *(w for p in PLACES for w in ("--placement", p.format(one=one, two=two))),
    ]
    words = [str(tmp_path / "net.lnt"), "--input", f"x={tmp_path}/x.npy", *words, "--trace", str(tmp_path / "run.json")]
    if native:
        run([str(build("release") / "linnet-run"), *words])
    else:
        done = run_here("run", *words)
        assert done.returncode == 0, done.stderr
    text = run_here("timeline", tmp_path / "run.json").stdout
    assert f"{two}: matmul_2" in text
    assert f"{two} -> {one}: 524 KB" in text and f"{one} -> this machine: 32.8 KB" in text
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    arrows = [e["pid"] for e in events if e["ph"] in "sf"]
    assert arrows == [0, 1, 1, 2, 2, 1, 1, 0]
    assert [e["name"] for e in events if e["ph"] == "X" and e["pid"] == 2][:2] == ["matmul_2", "wait for values"]
    assert run_here("timeline", tmp_path / "run.json", "-o", tmp_path / "out.json").returncode == 2


def test_a_host_whose_clock_is_a_day_ahead() -> None:
    """In a time namespace, which not every machine lets a test make."""
    ahead = ["unshare", "--time", "--fork", "--kill-child", "--monotonic", "86400"]
    if shutil.which("unshare") is None or subprocess.run([*ahead, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespaces here")
    command = [*ahead, str(build("release", "linnet-host") / "linnet-host"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            name = "remote:" + process.stdout.readline().split()[1]
            session = linnet.Session(net(), devices=[name], placement={"*": name}, trace=True)
            for _ in range(3):
                begin = time.monotonic_ns()
                session.run({"x": X})
                end = time.monotonic_ns()
                (piece,) = (step.spans[0] for step in session.steps if step.spans)
                assert begin - piece.error_ns <= piece.begun_ns <= piece.start_ns
                assert piece.start_ns + piece.ms * 1e6 <= end + piece.error_ns
        finally:
            process.kill()  # and, by --kill-child, the host
