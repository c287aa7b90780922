"""Runs that end early: cancelled by another thread, by a deadline, by Ctrl-C. They stop between two steps or iterations,
change no variable, and the session can run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from linnet.ir.function import Tensor
from tests.capi import NULL, Chain, Failure, check, ffi, lib, new_struct
from tests.native import ROOT, build
from tests.py_device import PyDevice

ENDLESS = np.int64(1 << 60)
SOON = 30.0  # 0.05 s on an idle machine; without the deadline, never
PACE = np.float32(1e-9)


def spin(x: Tensor, limit: Tensor, start: Any = 0) -> Tensor:
    """Counts x up `limit` times, with a step of four floats each."""
    count, last = linnet.while_loop(lambda s: s[0] < limit, lambda s: (s[0] + 1, s[1] + PACE), (np.int64(start), x))
    return last + ops.cast(count, dtype="f32") * 0.0


def nested(x: Tensor, limit: Tensor) -> Tensor:
    return linnet.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, spin(s[1], limit)), (np.int64(0), x))[1]


def nothing(x: Tensor, limit: Tensor) -> Tensor:
    """A loop body without steps."""
    holds = x.sum() > -1.0
    return linnet.while_loop(lambda s: holds, lambda s: (s[1], s[0]), (x, x * 2.0), maximum=limit)[0]


def branch(x: Tensor, limit: Tensor) -> Tensor:
    return linnet.cond(limit > 0, lambda: spin(x, limit), lambda: x)


def late(x: Tensor, limit: Tensor) -> Tensor:
    """The loop is in a segment whose shapes depend on data."""
    found = ops.nonzero(x).sum()
    return spin(x, limit, 0) + ops.cast(found, dtype="f32") * 0.0


def tight(x: Tensor, limit: Tensor) -> Tensor:
    """The loop gives one result per iteration."""
    return linnet.scan(lambda s, _: (s + PACE, s.sum()), x, length=ops.minimum(limit, np.int64(1 << 24)))[1].max()


def graph_of(make: Callable[[Tensor, Tensor], Tensor]) -> Graph:
    graph = Graph()
    x, limit = graph.placeholder("x", (4,)), graph.placeholder("limit", (), "i64")
    w = graph.variable("w", np.zeros(4, np.float32))
    y = make(x, limit)
    graph.signature("infer", {"x": x, "limit": limit}, {"y": y})
    graph.signature("train", {"x": x, "limit": limit}, {"y": y}, updates={w: w + y.mean() + 1.0})
    return graph


X = np.ones(4, np.float32)
SHAPES = [spin, nested, nothing, branch, late]


def soon(began: float) -> None:
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize("signature", ["infer", "train"])
@pytest.mark.parametrize("make", SHAPES)
def test_a_deadline_ends_a_run(make: Callable[[Tensor, Tensor], Tensor], signature: str) -> None:
    session = linnet.Session(graph_of(make), signature, threads=2)
    began = time.monotonic()
    with pytest.raises(
        linnet.DeadlineExceeded, match=r"deadline_exceeded: .*at most 50 ms.* ms so far.*run again"
    ) as error:
        session.run({"x": X, "limit": ENDLESS}, timeout=0.05)
    soon(began)
    assert time.monotonic() - began >= 0.05
    assert isinstance(error.value, TimeoutError) and error.value.op
    assert not session.variables["w"].any()
    session.run({"x": X, "limit": np.int64(3)}, timeout=60.0)
    assert session.variables["w"].any() == (signature == "train")


@pytest.mark.parametrize("signature", ["infer", "train"])
@pytest.mark.parametrize("make", SHAPES)
def test_another_thread_cancels_a_run(make: Callable[[Tensor, Tensor], Tensor], signature: str) -> None:
    session = linnet.Session(graph_of(make), signature)
    session.cancel()  # nothing is running: no effect
    first = session.run({"x": X, "limit": np.int64(3)})["y"]
    before = session.variables["w"]
    timer = threading.Timer(0.1, session.cancel)
    timer.start()
    began = time.monotonic()
    with pytest.raises(linnet.Cancelled, match=r"cancelled: .*the run was cancelled; no variable has changed") as error:
        session.run({"x": X, "limit": ENDLESS})
    soon(began + 0.1)
    assert error.value.op and not isinstance(error.value, TimeoutError)
    np.testing.assert_array_equal(session.variables["w"], before)
    np.testing.assert_array_equal(session.run({"x": X, "limit": np.int64(3)})["y"], first)


def test_a_loop_whose_results_grow() -> None:
    session = linnet.Session(graph_of(tight))
    with pytest.raises(linnet.DeadlineExceeded):
        session.run({"x": X, "limit": ENDLESS}, timeout=0.02)
    assert session.run({"x": X, "limit": np.int64(5)})["y"] > 3.9


def test_a_traced_run_ends_too() -> None:
    session = linnet.Session(graph_of(spin), trace=True, count_special=True)
    with pytest.raises(linnet.DeadlineExceeded):
        session.run({"x": X, "limit": ENDLESS}, timeout=0.02)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), "1", True])
def test_what_is_no_time_is_refused(timeout: Any) -> None:
    session = linnet.Session(graph_of(spin))
    with pytest.raises(linnet.UsageError, match="timeout must be a positive number; expected a number of seconds"):
        session.run({"x": X, "limit": np.int64(1)}, timeout=timeout)


# ---- all or nothing --------------------------------------------------------------------------------------------------


def test_an_update_is_whole_or_not_at_all() -> None:
    """A step of many updates, cancelled at every moment: all variables have changed, or none."""
    graph = Graph()
    names = [graph.variable(f"v{i}", np.zeros((64, 64), np.float32)) for i in range(40)]
    x = total = graph.placeholder("x", (64, 64))
    for v in names:
        total = ops.matmul(total, v + 0.001)
    updates = {v: v + 1.0 + total.mean() * 0.0 for v in names}
    graph.signature("train", {"x": x}, {"y": total}, updates=updates)
    session = linnet.Session(graph, "train", threads=1)
    feeds = {"x": np.zeros((64, 64), np.float32)}
    session.run(feeds)
    began = time.perf_counter()
    session.run(feeds)
    usual, ended, done = time.perf_counter() - began, 0, 0
    for i in range(400):
        before = float(session.variables["v0"][0, 0])
        try:
            session.run(feeds, timeout=usual * (i % 100 + 1) / 50)
            done += 1
        except linnet.DeadlineExceeded:
            ended += 1
            expected = before
        else:
            expected = before + 1
        values = {name: session.variables[name] for name in session.variables}
        assert all((value == expected).all() for value in values.values()), i
    assert ended > 5 and done > 5, (ended, done)


def test_loops_that_write_variables_are_whole_too() -> None:
    """Two loops: one whose carried value is assigned at its end, and one whose rows are assigned as they are computed."""
    graph = Graph()
    a, b = graph.variable("a", np.zeros(64, np.float32)), graph.variable("b", np.zeros((200, 64), np.float32))
    trips = graph.placeholder("trips", (), "i64")
    (_, grown) = linnet.while_loop(lambda s: s[0] < trips, lambda s: (s[0] + 1, s[1] + 1.0), (np.int64(0), a))
    _, rows = linnet.scan(lambda s, row: (s, row + 200.0), graph.constant(np.zeros(1, np.float32)), b)
    graph.signature("train", {"trips": trips}, {}, updates={a: grown, b: rows})
    session = linnet.Session(graph, "train")
    feeds = {"trips": np.int64(200)}
    session.run(feeds)
    began = time.perf_counter()
    session.run(feeds)
    usual, ended, value = time.perf_counter() - began, 0, 400.0
    for i in range(200):
        try:
            session.run(feeds, timeout=usual * (i % 50 + 1) / 25)
            value += 200
        except linnet.DeadlineExceeded:
            ended += 1
        assert (session.variables["a"] == value).all() and (session.variables["b"] == value).all(), i
    assert 5 < ended < 195, ended


# ---- waiting for the store -------------------------------------------------------------------------------------------


def test_waiting_for_another_run_ends_too() -> None:
    graph = graph_of(spin)
    w = graph.variables["w"]
    graph.signature("read", {}, {"w": w * 2.0})
    model = linnet.Model(graph)
    trains = linnet.Session(model, "train")
    reads = linnet.Session(model, "read", store=trains.variables)
    reads.run({})
    caught: list[BaseException] = []

    def train() -> None:
        try:
            trains.run({"x": X, "limit": ENDLESS})
        except linnet.Error as error:
            caught.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        time.sleep(0.2)
        began = time.monotonic()
        with pytest.raises(linnet.DeadlineExceeded, match="while it waited for other runs of the same store"):
            reads.run({}, timeout=0.05)
        soon(began)
        threading.Timer(0.1, reads.cancel).start()
        with pytest.raises(linnet.Cancelled, match="while it waited for other runs of the same store"):
            reads.run({})
    finally:
        trains.cancel()
        thread.join(30)
    assert isinstance(caught[0], linnet.Cancelled)
    assert not reads.run({})["w"].any()


# ---- the C API -------------------------------------------------------------------------------------------------------


def run_with(chain: Chain, **fields: Any) -> None:
    config = new_struct("linnet_run_config")
    for name, value in fields.items():
        setattr(config, name, value)
    check(lib().linnet_run_with(chain.session, config, chain.error), chain.error)


@pytest.fixture
def chain() -> Any:
    with Chain(graph_of(spin).to_bytes()) as made:
        yield made.make_store().make_plan().make_session().set({"x": X, "limit": np.array(3, np.int64)})


def test_a_configuration_of_no_known_size_is_refused(chain: Chain) -> None:
    with pytest.raises(Failure, match="struct_size") as error:
        run_with(chain, struct_size=5)
    assert error.value.status == 101
    run_with(chain)


def test_a_flag_that_is_set_before_ends_the_run_at_its_first_step(chain: Chain) -> None:
    flag = ffi.new("int *", 7)
    with pytest.raises(Failure) as error:
        run_with(chain, cancel=flag)
    assert error.value.status == 701 and flag[0] == 7
    flag[0] = 0
    run_with(chain, cancel=flag)
    run_with(chain, timeout_ns=(1 << 64) - 1)


def test_poll_is_asked_some_twenty_times_a_second(chain: Chain) -> None:
    asked: list[float] = []

    @ffi.callback("bool(void *)")
    def poll(context: Any) -> int:
        asked.append(time.monotonic())
        return int(ffi.cast("intptr_t", context) == 5 and len(asked) == 6)

    run_with(chain, poll=poll)
    assert not asked  # a short run does not check
    chain.set({"limit": np.array(ENDLESS)})
    with pytest.raises(Failure) as error:
        run_with(chain, poll=poll, poll_context=ffi.cast("void *", 5))
    assert error.value.status == 701 and len(asked) == 6
    assert 0.2 < asked[5] - asked[0] < 0.25 + SOON


def test_rows_that_are_stored_in_a_variable_are_stored_completely() -> None:
    """A loop assigns its rows to a variable as they are computed. The flag is set in an iteration, which is too late."""
    size, rounds = 1 << 17, 10  # rows enough for two threads, rounds enough for a step of its own
    graph = Graph()
    x = graph.placeholder("x", (size,))
    w = graph.variable("w", np.zeros((rounds, size), np.float32))
    _, rows = linnet.scan(lambda s, _: (s + 1.0, s * 2.0), x, length=rounds)
    graph.signature("train", {"x": x}, {}, updates={w: rows})
    flag, calls = ffi.new("int *"), []

    @ffi.callback("void(void *, void (*)(void *, int), void *, int)")
    def parallel_for(context: object, task: Any, argument: object, count: int) -> None:
        calls.append(count)
        flag[0] = len(calls) == set_at
        for i in range(count):
            task(argument, i)

    with Chain(graph.to_bytes()) as made:
        made.make_store().make_plan("train", threads=2).make_session(parallel_for=parallel_for)
        memory = ffi.cast("char *", lib().linnet_store_data(made.store, b"w", lib().LINNET_READ, NULL))
        values = np.frombuffer(ffi.buffer(memory, 4 * rounds * size), np.float32).reshape(rounds, size)
        for set_at in range(1, 2 * rounds):
            before = values.copy()
            calls.clear()
            flag[0] = 0
            made.set({"x": np.full(size, set_at, np.float32)})
            if set_at == 1:  # before the first row
                with pytest.raises(Failure, match="cancelled"):
                    run_with(made, cancel=flag)
                np.testing.assert_array_equal(values, before)
                continue
            run_with(made, cancel=flag)
            assert len(calls) == 2 * rounds
            np.testing.assert_array_equal(
                values, np.repeat(2.0 * (set_at + np.arange(rounds)), size).reshape(rounds, size)
            )


def test_no_device_step_follows_once_the_run_is_cancelled() -> None:
    """A device that runs every step and sets the cancel flag in its second."""
    ran: list[int] = []
    flag = ffi.new("int *")

    def run(_: object) -> int:
        ran.append(1)
        flag[0] = len(ran) == 2
        return 0

    device = PyDevice()
    device.on_run = run
    from tests.graphs import bytes_of, feeds

    with Chain(bytes_of("mlp")) as made:
        made.make_plan(devices=device.pointers, device_count=1).make_session().set(feeds("mlp"))
        with pytest.raises(Failure) as error:
            run_with(made, cancel=flag)
        assert error.value.status == 701 and len(ran) == 2
        made.run()
        assert len(ran) > 4


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, threading, time
import linnet
from tests.test_ending_runs import ENDLESS, X, graph_of, spin

session = linnet.Session(graph_of(spin), "train")
feeds = {"x": X, "limit": ENDLESS}
session.run({"x": X, "limit": 3 * ENDLESS // ENDLESS})
before = session.variables["w"]
for attempt in range(3):
    sent = []
    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.2, send).start()
    try:
        session.run(feeds)
    except KeyboardInterrupt:
        assert time.monotonic() - sent[0] < 30, "too late"
    else:
        raise AssertionError("not interrupted")
    assert (session.variables["w"] == before).all()
heard = []
signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))  # one that does not raise
threading.Timer(0.2, send).start()
try:
    session.run(feeds, timeout=0.6)
except linnet.DeadlineExceeded:
    print(len(heard), "handled")

signal.signal(signal.SIGINT, signal.default_int_handler)
other = threading.Thread(target=lambda: session.run(feeds), daemon=True)  # not the main thread's: it goes on
other.start()
threading.Timer(0.2, send).start()
try:
    time.sleep(30)
except KeyboardInterrupt:
    assert other.is_alive()
    print("still running")
"""


def test_control_c_ends_a_run_of_the_main_thread() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[:2] == ["1 handled", "still running"]


def saved(folder: Path) -> list[str]:
    (folder / "spin.lnt").write_bytes(graph_of(spin).to_bytes())
    np.save(folder / "x.npy", X)
    np.save(folder / "limit.npy", ENDLESS)
    return [str(folder / "spin.lnt"), *(f"--input={name}={folder / name}.npy" for name in ("x", "limit"))]


def tools(folder: Path) -> dict[str, list[str]]:
    model, *inputs = saved(folder)
    split = [word for text in inputs for word in text.split("=", 1)]
    out = str(folder / "out")
    native = build("release", "linnet-run", "linnet-bench")
    graph = Graph()
    x = graph.placeholder("x", (4,))  # for random inputs: this one never ends
    y = linnet.while_loop(lambda s: s.sum() < 1e9, lambda s: s * 0.5, x)
    graph.signature("infer", {"x": x}, {"y": y})
    (folder / "endless.lnt").write_bytes(graph.to_bytes())
    return {
        "linnet run": [sys.executable, "-m", "linnet", "run", model, *inputs, "--output-dir", out],
        "linnet-run": [str(native / "linnet-run"), model, *split, "--output-dir", out],
        "linnet-bench": [str(native / "linnet-bench"), str(folder / "endless.lnt")],
        "linnet bench": [sys.executable, "-m", "linnet", "bench", str(folder / "endless.lnt")],
    }


@pytest.mark.parametrize("tool", ["linnet run", "linnet-run", "linnet-bench"])
def test_tools_keep_a_time_limit(tool: str, tmp_path: Path) -> None:
    command = [*tools(tmp_path)[tool], "--timeout", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "deadline_exceeded" in done.stderr and done.stderr.count("\n") == 1, done
    assert not (tmp_path / "out").exists()
    done = subprocess.run([*command[:-1], "-3"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2) and "seconds" in done.stderr


@pytest.mark.parametrize("tool", ["linnet run", "linnet-run", "linnet-bench", "linnet bench"])
def test_control_c_ends_the_tools(tool: str, tmp_path: Path) -> None:
    command = tools(tmp_path)[tool]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            status = Path(f"/proc/{process.pid}/stat")
            while (used := sum(map(int, status.read_text().rsplit(")", 1)[1].split()[11:13]))) < (
                os.sysconf("SC_CLK_TCK") * (1.2 if command[0] == sys.executable else 0.2)
            ):
                assert process.poll() is None, (used, process.stderr and process.stderr.read())
                time.sleep(0.05)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.wait(30)
            soon(began)
        finally:
            process.kill()
        assert process.stderr is not None
        text = process.stderr.read()
    assert process.returncode == 130 and text.strip().endswith("interrupted") and "\n" not in text.strip(), text
    assert not (tmp_path / "out").exists()
