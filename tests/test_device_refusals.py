"""A device may refuse a step that it has offered to run. The plan is then made again without the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from tests.capi import ffi, lib
from tests.py_device import PyDevice, fail_each_allocation, op_of

ROWS = {"x": np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)}
COSTS = {"matmul": 1.0, "map": 1.0}


def layers(count: int = 4) -> Graph:
    """`count` products."""
    graph = Graph()
    y = x = graph.placeholder("x", (8, 64))
    for i in range(count):
        w = np.random.default_rng(i).standard_normal((64, 64)).astype(np.float32) / 8
        y = ops.matmul(y, graph.constant(w, f"w{i}"), name=f"layer{i}")
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def name_of(step: Any) -> str:
    return ffi.string(lib().linnet_step_name(step)).decode()


class Refuses(PyDevice):
    """Refuses steps when it claims or offers them. builds: how often a program was built."""

    def __init__(self, refuses: Callable[[Any], bool], stage: str = "claim", **fields: int) -> None:
        super().__init__(COSTS, **fields)
        self.refuses, self.stage, self.asked = refuses, stage, list[str]()

    def _claim(self, steps: Any, count: int, claim: Any) -> int:
        self.asked.append(name_of(steps[0]))
        if self.stage == "claim" and self.refuses(steps[0]):
            claim.count = 0
        return 0

    def _offer(self, steps: Any, count: int, offer: Any) -> int:
        if self.stage == "offer" and self.refuses(steps[0]):
            offer.count = 0
        return 0


def placed(session: Any) -> dict[str, tuple[str, str]]:
    return {step.name: (step.device, step.placed) for step in session.steps if step.op == "matmul"}


def agrees(graph: Graph, session: Any, device: PyDevice) -> None:
    want = linnet.Session(graph).run(ROWS)["y"]
    for _ in range(2):
        np.testing.assert_allclose(session.run(ROWS)["y"], want, rtol=1e-4, atol=1e-5)
    assert not device.faults


@pytest.mark.parametrize("stage", ["claim", "offer"])
@pytest.mark.parametrize("hint", [{}, {"layer*": "python"}])
def test_the_other_steps_stay_on_the_device(stage: str, hint: dict[str, str]) -> None:
    graph, device = layers(), Refuses(lambda step: name_of(step) in ("layer1", "layer3"), stage)
    session = linnet.Session(graph, devices=[device], placement=hint)
    there = ("python", "hint" if hint else "chosen")
    assert placed(session) == {
        "layer0": there, "layer1": ("cpu", "refused"), "layer2": there, "layer3": ("cpu", "refused")
    }  # fmt: skip
    assert session.plan_info["fallbacks"] == 2
    agrees(graph, session, device)
    assert device.count("run") == 2 * 2


def test_all_refusals_of_a_build_count_at_once() -> None:
    device = Refuses(lambda step: name_of(step) != "layer2")
    session = linnet.Session(layers(), devices=[device])
    assert device.asked == ["layer0", "layer1", "layer2", "layer3", "layer2"]
    agrees(layers(), session, device)


@pytest.mark.parametrize("stage", ["claim", "offer"])
def test_a_device_that_refuses_everything_gets_nothing(stage: str) -> None:
    device = Refuses(lambda _: True, stage)
    session = linnet.Session(layers(), devices=[device])
    assert set(placed(session).values()) == {("cpu", "refused")} and device.count("run") == 0
    agrees(layers(), session, device)


class OneByOne(Refuses):
    """Refuses one step of each build: the first that it would run."""

    def __init__(self) -> None:
        super().__init__(self.next)
        self.due, self.builds = False, 0

    def _cost(self, step: Any) -> float:
        self.due = True  # a build begins with costs
        return super()._cost(step)

    def next(self, step: Any) -> bool:
        due, self.due = self.due, False
        self.builds += due
        return due


def test_a_device_that_refuses_again_and_again_is_left_out_at_last() -> None:
    device, graph = OneByOne(), layers(30)
    session = linnet.Session(graph, devices=[device])
    assert set(placed(session).values()) == {("cpu", "refused")} and device.builds == 9
    agrees(graph, session, device)


def test_a_step_with_an_epilogue_can_be_refused() -> None:
    """The product goes to the CPU, with or without its map."""
    graph = Graph()
    x = graph.placeholder("x", (8, 64))
    w = graph.constant(np.eye(64, dtype=np.float32), "w")
    y = ops.matmul(ops.softmax(x), w, name="layer0")
    graph.signature("infer", {"x": x}, {"y": y + 1.0})
    device = Refuses(lambda step: lib().linnet_step_get_map(step, MAP) == 0 and op_of(step) == "matmul", epilogues=1)
    session = linnet.Session(graph, devices=[device])
    assert placed(session) == {"layer0": ("cpu", "refused")} and device.asked.count("layer0") == 1
    agrees(graph, session, device)


MAP = ffi.new("linnet_map *", {"struct_size": ffi.sizeof("linnet_map")})


def test_a_later_segment_is_planned_again_too() -> None:
    graph = Graph()
    x = graph.placeholder("x", (8, 64))
    rows = ops.gather(x, ops.reshape(ops.nonzero(x.sum(1)), (-1,)), axis=0)
    y = rows
    for i in range(2):
        y = ops.matmul(y, graph.constant(np.eye(64, dtype=np.float32), f"w{i}"), name=f"layer{i}")
    graph.signature("infer", {"x": x}, {"y": y})
    device = Refuses(lambda step: name_of(step) == "layer0")
    session = linnet.Session(graph, devices=[device])
    for left in (3, 8, 3):
        values = np.where(np.arange(8)[:, None] < left, np.abs(ROWS["x"]), 0).astype(np.float32)
        np.testing.assert_allclose(session.run({"x": values})["y"], values[:left], rtol=1e-5, atol=1e-6)
    assert device.count("run") == 3 and device.asked.count("layer0") == 2 and not device.faults


def test_the_log_says_that_a_device_has_refused(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="linnet"):
        linnet.Session(layers(), devices=[Refuses(lambda step: name_of(step) == "layer1")])
    assert "a device refused steps that it had offered to run, such as layer1" in caplog.text


def test_every_failing_allocation_is_reported() -> None:
    device = fail_each_allocation(
        layers().to_bytes(), lambda: Refuses(lambda step: name_of(step) in ("layer1", "layer2"))
    )
    assert isinstance(device, Refuses) and len(device.asked) > 4


class Miscounts(Refuses):
    def __init__(self, count: int) -> None:
        super().__init__(lambda _: False)
        self.given = count

    def _claim(self, steps: Any, count: int, claim: Any) -> int:
        claim.count = self.given
        return 0


@pytest.mark.parametrize("count", [-1, 5])
def test_a_claim_that_is_none_is_an_error(count: int) -> None:
    with pytest.raises(linnet.DeviceError, match=r"claim a step.*a count of 0 to 4"):
        linnet.Session(layers(), devices=[Miscounts(count)])
