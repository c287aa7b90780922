"""Steps that run side by side: the branches of a graph on several threads. Which graphs fall into branches, the same bits as on
one thread, exact memory, errors, ends of runs, traces. tests/branch_nets.py has the networks."""

from __future__ import annotations

import functools
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from tests import branch_nets
from tests.command import run_here as linnet_command
from tests.graphs import in_integers
from tests.native import SANITIZED, build, run

# Giving work to another thread costs next to nothing, so that small graphs fork on every machine.
TUNING = b"linnet-tuning 1 library 0.1.0 machine any threads 1\nmachine fork = 40\n"


@functools.cache
def feeds(name: str) -> dict[str, np.ndarray]:
    [x] = linnet.Session(branch_nets.ALL[name]()).inputs
    random = np.random.default_rng(2)
    if x.dtype == "i64":
        return {"x": random.integers(0, 50, x.shape)}
    return {"x": random.standard_normal(x.shape).astype(np.float32)}


def session_of(graph: linnet.Graph, **options: Any) -> linnet.Session:
    return linnet.Session(graph, tuning=TUNING, **options)


def forks(session: linnet.Session) -> dict[int, dict[int, list[str]]]:
    """{fork: {branch: names of its steps}}."""
    found: dict[int, dict[int, list[str]]] = {}
    for step in session.steps:
        if step.fork:
            found.setdefault(step.fork, {}).setdefault(step.branch, []).append(step.name)
    return found


@pytest.mark.parametrize("name", branch_nets.ALL)
def test_the_same_bits_as_on_one_thread(name: str) -> None:
    graph = branch_nets.ALL[name]()
    alone = linnet.Session(graph, threads=1)
    wanted = alone.run(feeds(name))
    assert forks(alone) == {}
    for threads in (2, 3, 8):
        session = session_of(graph, threads=threads)
        found = session.run(feeds(name))
        if threads == 2:  # more threads may do better with one step at a time
            assert forks(session) and all(len(branches) > 1 for branches in forks(session).values()), session.steps
            assert session.plan_info["modelled_ms"] < sum(step.modelled_ms for step in session.steps)
        for _ in range(4):
            for output, value in wanted.items():
                np.testing.assert_array_equal(np.asarray(found[output]), np.asarray(value), strict=True)
            found = session.run(feeds(name))
        if threads == 2:  # and any value inside a branch can be had
            for step in session.steps[:: max(len(session.steps) // 8, 1)]:
                if "(" in step.name:
                    continue  # a copy that planning added
                inner = session_of(graph, threads=2, fetches=[step.name]).run(feeds(name))
                expected = linnet.Session(graph, threads=1, fetches=[step.name]).run(feeds(name))
                for output, value in expected.items():
                    np.testing.assert_array_equal(np.asarray(inner[output]), np.asarray(value))


@pytest.mark.parametrize("dtype", ["i8", "i16", "f16"])
def test_the_same_bits_in_few_bits(dtype: str) -> None:
    graph = branch_nets.towers(3, 3)
    small = in_integers(graph, [feeds("towers")], dtype)
    one, three = linnet.Session(small, threads=1), session_of(small, threads=3)
    for _ in range(3):
        found = three.run(feeds("towers"))
        np.testing.assert_array_equal(np.asarray(found["y"]), np.asarray(one.run(feeds("towers"))["y"]))
    assert forks(three)
    if dtype == "f16":  # its convolutions share scratch among threads, so each lane has its own
        apart = session_of(small, threads=3, max_bytes=three.memory["total"] - 1)
        assert forks(apart) == {} and apart.memory["scratch"] < three.memory["scratch"]


def test_graphs_without_branches_stay_as_they_are() -> None:
    """A chain, short branches, and a branch beside which hardly anything runs."""
    for graph in (branch_nets.towers(1), branch_nets.towers(2, 1, 1, 2), branch_nets.uneven()):
        assert forks(linnet.Session(graph, threads=2)) == {}


def test_the_longest_branch_comes_first() -> None:
    session = session_of(branch_nets.interleaved(), threads=2)
    [branches] = forks(session).values()
    assert [len(steps) for steps in branches.values()] == [6, 3, 3]
    assert [step.branch for step in session.steps if step.fork] == [1] * 6 + [2] * 3 + [3] * 3


def test_memory_is_counted_and_given_up_for_a_bound() -> None:
    """Branches are alive together, so they need more memory. With too small a bound they run one after another."""
    graph = branch_nets.towers()
    alone, beside = linnet.Session(graph, threads=1), session_of(graph, threads=2)
    assert beside.memory["activations"] > alone.memory["activations"]
    assert beside.memory["scratch"] > alone.memory["scratch"]
    bounded = session_of(graph, threads=2, max_bytes=beside.memory["total"])
    assert forks(bounded) and bounded.memory["total"] == beside.memory["total"]
    tight = session_of(graph, threads=2, max_bytes=beside.memory["total"] - 1)
    assert forks(tight) == {} and tight.memory["activations"] == alone.memory["activations"]
    for session in (bounded, tight):
        np.testing.assert_array_equal(
            np.asarray(session.run(feeds("towers"))["y"]), np.asarray(alone.run(feeds("towers"))["y"])
        )


def test_the_first_step_that_fails_is_named() -> None:
    """In the order of the steps, whichever thread was faster."""
    session = session_of(branch_nets.looks_up(), threads=2)
    assert len(forks(session)) == 1
    for _ in range(20):
        with pytest.raises(linnet.Error, match=r"words0.*50"):  # a word of the second table alone
            session.run({"x": np.full((1, 20), 50)})
        with pytest.raises(linnet.Error, match=r"words0.*99"):
            session.run({"x": np.full((1, 20), 99)})
        session.run({"x": np.full((1, 20), 49)})


def test_a_run_ends_inside_a_fork() -> None:
    graph = branch_nets.towers(3, 8, 32, 40)
    session = session_of(graph, threads=2)
    feed = {"x": np.zeros((1, 32, 40, 40), np.float32)}
    wanted = np.asarray(session.run(feed)["y"]).copy()
    with pytest.raises(linnet.DeadlineExceeded):
        session.run(feed, timeout=1e-6)
    stop = threading.Event()

    def cancel() -> None:
        while not stop.is_set():
            session.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        with pytest.raises(linnet.Cancelled):
            for _ in range(10_000):
                session.run(feed)
    finally:
        stop.set()
        canceller.join()
    np.testing.assert_array_equal(np.asarray(session.run(feed)["y"]), wanted)


def test_every_step_is_traced() -> None:
    session = session_of(branch_nets.nested(), threads=2, trace=True)
    for _ in range(3):
        session.run(feeds("nested"))
    assert all(step.runs == 3 and step.start_ns > 0 for step in session.steps)
    last = max(session.steps, key=lambda step: step.start_ns)
    assert last.fork == 0 and last.name == session.steps[-1].name


def test_tools_say_which_steps_run_side_by_side(tmp_path: Path) -> None:
    path, tuning = tmp_path / "net.lnt", tmp_path / "tuning"
    branch_nets.interleaved().save(path)
    tuning.write_bytes(TUNING)
    words = (str(path), "--threads", "2", "--tuning", str(tuning))
    assert "12 steps side by side with others" in linnet_command("plan", *words).stdout
    assert "12 of them run side by side" in linnet_command("bench", *words, "--seconds", "0.01").stdout
    native = str(build("release", "linnet-bench") / "linnet-bench")
    assert "12 of them run side by side" in run([native, *words, "--seconds", "0.01", "--ops"])
    for report in (
        json.loads(linnet_command("bench", *words, "--seconds", "0.01", "--json").stdout),
        json.loads(run([native, *words, "--seconds", "0.01", "--json"])),
    ):
        assert [op["branch"] for op in report["ops"] if "fork" in op] == [1] * 6 + [2] * 3 + [3] * 3


def test_branches_are_tracks_of_a_trace(tmp_path: Path) -> None:
    path, tuning = tmp_path / "net.lnt", tmp_path / "tuning"
    branch_nets.towers().save(path)
    tuning.write_bytes(TUNING)
    words = (str(path), "--threads", "2", "--tuning", str(tuning), "--trace", str(tmp_path / "trace.json"))
    for command in (
        lambda: linnet_command("run", *words, "--random"),
        lambda: run([str(build("release", "linnet-run") / "linnet-run"), *words, "--random"]),
    ):
        command()
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        assert names == {0: "phases", 1: "steps", **{1 + b: f"branch {b}" for b in range(1, 5)}}
        assert {e["tid"] for e in events if e["ph"] == "X"} == set(names)
        (tmp_path / "trace.json").unlink()


@pytest.mark.parametrize("kind", ["address", pytest.param("thread", marks=pytest.mark.more)])
def test_under_sanitizers(kind: str, tmp_path: Path) -> None:
    """AddressSanitizer's build checks after every pass that no branch touches memory that another one writes, however the
    threads are scheduled."""
    folder = build(kind, "linnet-bench")
    tuning = tmp_path / "tuning"
    tuning.write_bytes(TUNING)
    for name, net in branch_nets.ALL.items():
        path = tmp_path / f"{name}.lnt"
        path.write_bytes(net().to_bytes())
        words = [path, "--threads", "2", "--tuning", tuning, "--seconds", "0.05"]
        run([str(folder / "linnet-bench"), *map(str, words)], env=SANITIZED)
