"""A device may refuse to prepare a claim. The session then makes a plan of its own, without the claim's steps there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from tests.capi import Allocator, Chain, Failure, ffi, lib, new_struct
from tests.py_device import PyDevice
from tests.test_device_bodies import FEEDS, Floats, agree, recurrent
from tests.test_device_refusals import COSTS, ROWS, agrees, layers, name_of, placed

REFUSES = 1000002  # LINNET_DEVICE_REFUSES


class Picky(Floats):
    """Refuses to prepare claims whose first step `refuses` names. together: steps per claim."""

    def __init__(self, refuses: Callable[[str], bool], together: int = 1) -> None:
        super().__init__(COSTS)
        self.refuses, self.together = refuses, together

    def _claim(self, steps: Any, count: int, claim: Any) -> int:
        claim.count = min(count, self.together)
        return 0

    def _prepare(self, queue: int, work: Any, state: Any) -> int:
        return REFUSES if self.refuses(name_of(work.steps[0])) else self._new(state)

    def _unprepare(self, state: int) -> None:
        self.objects.remove(state)


def test_the_other_steps_stay_on_the_device() -> None:
    graph, device = layers(), Picky(lambda name: name in ("layer1", "layer3"))
    session = linnet.Session(graph, devices=[device])
    there = ("python", "chosen")
    assert placed(session) == {
        "layer0": there, "layer1": ("cpu", "refused"), "layer2": there, "layer3": ("cpu", "refused")
    }  # fmt: skip
    assert session.plan_info["fallbacks"] == 2 and session.plan_info["steps"] == len(session.steps)
    agrees(graph, session, device)
    assert device.count("run") == 2 * 2 and device.count("open") == device.count("close") + 1
    del session
    assert device.nothing_left()


def test_a_traced_session_has_times_of_its_own_steps() -> None:
    graph, device = layers(), Picky(lambda name: name == "layer1")
    session = linnet.Session(graph, devices=[device], trace=True)
    session.run(ROWS)
    assert all(step.runs == 1 for step in session.steps)
    assert [step.device for step in session.steps if step.op == "matmul"] == ["python", "cpu", "python", "python"]


def test_all_steps_of_the_claim_leave_the_device() -> None:
    graph, device = layers(), Picky(lambda name: name == "layer0", together=2)
    session = linnet.Session(graph, devices=[device])
    assert [where for where, _ in placed(session).values()] == ["cpu", "cpu", "python"]  # the last claim has two steps
    agrees(graph, session, device)


def test_a_device_that_refuses_everything_gets_nothing_in_the_end() -> None:
    graph, device = layers(20), Picky(lambda _: True)
    session = linnet.Session(graph, devices=[device])
    assert {where for where, _ in placed(session).values()} == {"cpu"}
    assert device.count("prepare") <= 10
    agrees(graph, session, device)
    del session
    assert device.nothing_left()


def test_a_second_device_gets_what_the_first_refuses() -> None:
    graph, first, second = layers(), Picky(lambda name: name == "layer2"), PyDevice(COSTS, "second")
    session = linnet.Session(graph, devices=[first, second])
    assert [where for where, _ in placed(session).values()] == ["python", "python", "second", "python"]
    agrees(graph, session, first)
    del session
    assert first.nothing_left() and second.nothing_left()


def test_steps_of_a_body_and_of_a_later_segment_may_be_refused() -> None:
    for dynamic in (False, True):
        count = [0]

        def second(_: str, count: list[int] = count) -> bool:
            count[0] += 1
            return count[0] == 2

        device, alone = Picky(second), linnet.Session(recurrent(dynamic))
        session = linnet.Session(recurrent(dynamic), devices=[device])
        feeds = {**FEEDS, "n": np.int64(3)} if dynamic else FEEDS
        for _ in range(2):
            agree(session.run(feeds), alone.run(feeds))
        assert count[0] > 5 and device.count("run") > 0 and not device.faults
        del session
        assert device.nothing_left()


def test_a_segment_that_is_planned_in_a_run_is_planned_again() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (8, 64))
    y = ops.gather(x, ops.reshape(ops.nonzero(x.sum(1)), (-1,)), axis=0)
    for i in range(3):
        y = ops.matmul(y, graph.constant(np.eye(64, dtype=np.float32), f"w{i}"), name=f"layer{i}")
    graph.signature("infer", {"x": x}, {"y": y})
    device = Picky(lambda name: name in ("layer0", "layer2"))
    session = linnet.Session(graph, devices=[device])
    for left in (3, 8, 3):
        values = np.where(np.arange(8)[:, None] < left, np.abs(ROWS["x"]), 0).astype(np.float32)
        np.testing.assert_allclose(session.run({"x": values})["y"], values[:left], rtol=1e-5, atol=1e-6)
    assert device.count("run") == 3 and not device.faults
    del session
    assert device.nothing_left()


def test_the_plan_that_the_session_made_has_the_same_config() -> None:
    """Everything that the config points to is gone by then."""
    device = Picky(lambda name: name == "layer1")
    data = layers().to_bytes()
    with Chain(data) as chain:
        names = [ffi.new("char[]", text) for text in (b"y", b"layer0", b"python", b"x")]
        fetches, hints = ffi.new("char *[]", names[:1]), ffi.new("linnet_placement *")
        hints.node, hints.device = names[1], names[2]
        bounds = ffi.new("linnet_shape *", {"input": names[3], "rank": 2})
        bounds.dims[0:2] = [8, 64]
        chain.make_plan(
            devices=device.pointers, device_count=1, fetches=fetches, fetch_count=1, placement=hints,
            placement_count=1, bounds=bounds, bound_count=1, isa_max="scalar", shapes={"x": (8, 64)},
        )  # fmt: skip
        for text in names:
            ffi.memmove(text, b"?" * (len(text) - 1), len(text) - 1)
        fetches[0] = ffi.NULL
        ffi.memmove(hints, b"\0" * ffi.sizeof(hints[0]), ffi.sizeof(hints[0]))
        ffi.memmove(bounds, b"\0" * ffi.sizeof(bounds[0]), ffi.sizeof(bounds[0]))
        chain.make_session().set(ROWS).run()
        np.testing.assert_allclose(chain.output(), linnet.Session(data).run(ROWS)["y"], rtol=1e-4, atol=1e-5)
        own, info = lib().linnet_session_plan(chain.session), new_struct("linnet_step_info")
        assert own != chain.plan and lib().linnet_session_plan(ffi.NULL) == ffi.NULL
        found = {}
        total = new_struct("linnet_plan_info")
        lib().linnet_plan_get_info(own, total)
        assert ffi.string(total.isa) == b"scalar"
        for i in range(total.steps):
            assert lib().linnet_plan_get_step(own, i, info) == 0
            if ffi.string(info.op) == b"matmul":
                found[ffi.string(info.name).decode()] = ffi.string(info.placed).decode()
        assert found["layer0"] == "hint" and found["layer1"] == "refused"
    assert device.nothing_left()


def test_a_session_of_an_accepted_plan_runs_that_plan() -> None:
    device = Picky(lambda _: False)
    with Chain(layers().to_bytes()) as chain:
        chain.make_plan(devices=device.pointers, device_count=1).make_session()
        assert lib().linnet_session_plan(chain.session) == chain.plan


def test_each_host_allocation_may_fail_while_the_plan_is_made_again() -> None:
    data = layers().to_bytes()
    for fail_at in range(1000):
        device, allocator = Picky(lambda name: name == "layer1"), Allocator(fail_at)
        try:
            with Chain(data, allocator) as chain:
                chain.make_plan(devices=device.pointers, device_count=1).make_session().set(ROWS).run()
        except Failure as error:
            assert error.status == 401 and allocator.failed, error
        assert device.nothing_left() and not allocator.live and not allocator.faults, fail_at
        if not allocator.failed:
            break
    assert 10 < fail_at < 999


def test_the_log_names_the_step(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="linnet"):
        linnet.Session(layers(), devices=[Picky(lambda name: name == "layer1")])
    assert "a device refused steps that it had offered to run, such as layer1" in caplog.text
