"""Traces of distributed steps: both sides on one timeline whatever their clocks show, consistent spans, and predictions from
them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.cli.main import _main
from linnet.sync import timeline
from linnet.sync.timeline import Timeline
from linnet.sync.worker import LinkInfo, WorkerInfo


def link(shard: int, offset: float, delay: float | None, clock: list[float]) -> LinkInfo:
    """Times in ms."""
    times = tuple(t / 1e3 for t in clock)
    return LinkInfo(
        "127.0.0.1:1", shard, True, 1, 1, 0, 0, 0, offset / 1e3, None if delay is None else delay / 1e3, times
    )


def info(
    worker: int, step: int, links: list[LinkInfo], compute: float, push: float, wait: float, pull: float, end: float
) -> WorkerInfo:
    """A report after a step; times in ms."""
    return WorkerInfo(
        worker, step, step, "applied", "plain", "plain", 0, step, 0, 0, 0, 0, 0, 0, compute / 1e3, push / 1e3, wait / 1e3,
        pull / 1e3, end / 1e3, None, 2, 0, tuple(links),
    )  # fmt: skip


def traces(skew: dict[int, int], shards: int = 2, steps: int = 3) -> list[dict[str, Any]]:
    """Two workers and servers with known steps on one true clock (ms): pull 0-2, compute 2-10 (worker 1: 2-14), push 2 ms
    each. Servers gather until 16, update 17-19 and answer at 20, which arrives at 21. skew: how far a machine's clock is
    ahead, in ms; workers are 0 and 1, servers 10 and 11."""
    found = []
    for worker, computed in ((0, 10), (1, 14)):
        recorder = Timeline("box")
        for step in range(steps):
            base = step * 21
            links = []
            for shard in range(shards):
                clock = [float(base + t + skew[10 + shard]) for t in (12, 16, 17, 19, 20)]
                right = link(shard, skew[10 + shard] - skew[worker], 0.001, clock)
                worse = dataclasses.replace(right, offset=right.offset + 0.02, delay=0.05)
                links.append(worse if step == 1 else right)
            end = base + 21 + skew[worker]
            made = info(worker, step + 1, links, computed - 2, 2, 21 - computed - 2, 2, end)
            recorder.record(made)
        found.append(recorder._content())
    return found


SKEWS = [{0: 0, 1: 0, 10: 0, 11: 0}, {0: 5, 1: 3_000, 10: 77, 11: 12_345}]


@pytest.mark.parametrize("skew", SKEWS, ids=["same", "different"])
def test_both_sides_are_on_one_clock(skew: dict[int, int]) -> None:
    found = timeline.events(traces(skew))
    spans = [e for e in found if e["ph"] == "X"]
    at = {(e["pid"], e["name"], e["args"].get("step")): (e["ts"] / 1e3, (e["ts"] + e["dur"] * 1) / 1e3) for e in spans}
    assert at[0, "others", 0] == pytest.approx((12, 16)) and at[0, "values", 0] == pytest.approx((19, 21))
    assert (1, "others", 0) not in at, "nobody was slower"
    assert at[0, "compute", 0] == pytest.approx((2, 10)) and at[1, "compute", 2] == pytest.approx((44, 56))
    server = 1_000_000
    for shard in (0, 1):
        assert at[server + shard, "collect", 1] == pytest.approx((33, 37))
        assert at[server + shard, "update", 1] == pytest.approx((38, 40))
    assert len([e for e in spans if e["pid"] >= server]) == 2 * 2 * 3, (
        "each server's step once, though two workers saw it"
    )
    assert {e["args"]["name"] for e in found if e["name"] == "process_name"} == {
        "worker 0 box",
        "worker 1 box",
        "server 0",
        "server 1",
    }


def test_answers_bound_a_clock_that_heartbeats_measured_badly() -> None:
    """An exchange of 10 ms has an error of 4. An answer that took 0.2 ms from push to arrival leaves at most 0.1."""
    recorder = Timeline()
    recorder.record(info(0, 1, [link(0, 54, 10, [0.0] * 5)], 1, 0.1, 0.1, 0, 1000))
    assert recorder._content()["clocks"] == {"0": 54_000_000}
    recorder.record(info(0, 1, [link(0, 54, 10, [0, 0, 0, 0, 1049.9])], 1, 0.1, 0.1, 0, 1000))  # ahead by 49.9 to 50.1
    assert recorder._content()["clocks"] == {"0": pytest.approx(50_000_000, abs=1)}
    recorder.record(
        info(0, 1, [link(0, 54, 10, [0, 0, 0, 0, 5000])], 1, 1, 0.2, 0, 1100)
    )  # impossible: the clock was set
    assert recorder._content()["clocks"] == {"0": pytest.approx(50_000_000, abs=1)}


def test_flows_join_a_push_with_its_update() -> None:
    found = timeline.events(traces(SKEWS[1]))
    starts = {e["id"]: e for e in found if e["ph"] == "s"}
    ends = {e["id"]: e for e in found if e["ph"] == "f"}
    assert len(starts) == len(ends) == 2 * 2 * 3 and starts.keys() == ends.keys()
    assert all(starts[i]["ts"] <= ends[i]["ts"] for i in starts)


@pytest.mark.parametrize("skew", SKEWS, ids=["same", "different"])
def test_summary_adds_up_and_predicts(skew: dict[int, int]) -> None:
    found = timeline.summary(traces(skew))
    assert found.workers == 2 and found.steps == 4
    assert found.step == pytest.approx(0.021)
    assert found.compute == pytest.approx((8 + 12) / 2e3)
    # Worker 0 has pushed at 12 and waits until 16 for worker 1, the last. The update ends at 19; 2 of 21 remain.
    assert found.others == pytest.approx(2e-3) and found.update == pytest.approx(3e-3)
    assert found.transfer == pytest.approx((4 + 2) / 1e3)
    assert found.ratio == pytest.approx(10 / 9) and found.speedup == pytest.approx(2 * 10 / 21)


def test_ops_of_a_traced_session_lie_inside_the_computing() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 8))
    graph.signature("infer", {"x": x}, {"y": linnet.ops.tanh(x @ x.transpose((1, 0)))})
    session = linnet.Session(graph, trace=True)
    session.run({"x": [[1.0] * 8] * 4})
    recorder = Timeline()
    recorder.record(info(3, 1, [], 50, 1, 1, 1, 100), session)
    spans = [e for e in timeline.events([recorder._content()]) if e["ph"] == "X"]
    compute = next(e for e in spans if e["name"] == "compute")
    ops = [e for e in spans if e["tid"] == 1]
    assert ops and all(e["args"]["op"] for e in ops)
    assert all(compute["ts"] <= e["ts"] and e["ts"] + e["dur"] <= compute["ts"] + compute["dur"] for e in ops)


def test_files_are_chrome_traces_and_can_be_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i, worker in enumerate(traces(SKEWS[1])):
        timeline.write([worker], tmp_path / f"{i}.json")
    arguments = ["timeline", str(tmp_path / "0.json"), str(tmp_path / "1.json"), "-o", str(tmp_path / "all.json")]
    assert _main(arguments) == 0
    text = capsys.readouterr().out
    assert "ratio of computation to transfer" in text and "1.11" in text and "0.95" in text
    made = json.loads((tmp_path / "all.json").read_text())
    assert made["traceEvents"] == timeline.events(traces(SKEWS[1]))
    for event in made["traceEvents"]:  # required by Perfetto's importer
        assert event["ph"] in "XsfM" and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0
    assert _main([*arguments[:3], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["speedup"] == pytest.approx(2 * 10 / 21)


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert _main(["timeline", *arguments]) == 1
    return capsys.readouterr().err


def test_wrong_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere.json" in failure(capsys, str(tmp_path / "nowhere.json"))
    for text in ("{", "[]", '{"format": "other"}', '{"traceEvents": []}'):
        (tmp_path / "bad.json").write_text(text)
        assert "not a trace written by linnet" in failure(capsys, str(tmp_path / "bad.json"))
    Timeline().save(tmp_path / "empty.json")
    assert "no steps" in failure(capsys, str(tmp_path / "empty.json"))


def test_values_that_came_with_the_answer_are_no_pull_of_their_own() -> None:
    recorder = Timeline()
    recorder.record(info(0, 1, [], 5, 1, 2, 3.01, 100))
    recorder.record(info(0, 2, [], 5, 1, 2, 2.5, 200))
    assert [e["name"] for e in timeline.events([recorder._content()]) if e["ph"] == "X"] == [
        "compute", "push", "wait", "pull", "compute", "push", "wait",
    ]  # fmt: skip


def test_a_server_that_never_answered_leaves_no_span() -> None:
    recorder = Timeline()
    recorder.record(info(0, 1, [link(0, 0, None, [0.0] * 5)], 1, 1, 1, 0, 10))
    found = timeline.events([recorder._content()])
    assert [e["name"] for e in found if e["ph"] == "X"] == ["compute", "push", "wait"]
    assert not [e for e in found if e["ph"] == "s"]
