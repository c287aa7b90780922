"""Where nodes run if costs are nanoseconds: the conversions at the border of an island count."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from tests.capi import ffi, lib
from tests.py_device import PyDevice, op_of

FEEDS = {"x": np.random.default_rng(0).standard_normal((1, 32, 48, 48)).astype(np.float32)}


def convolutions(work: int) -> Graph:
    """Four convolutions, with a map of `work` multiplications after each but the last."""
    graph = Graph()
    y = x = graph.placeholder("x", (1, 32, 48, 48))
    for i in range(4):
        w = (np.random.default_rng(i).standard_normal((32, 32, 3, 3)) / 20).astype(np.float32)
        y = ops.conv(y, graph.constant(w, f"w{i}"), pads=[1, 1, 1, 1])
        for _ in range(work if i < 3 else 0):
            y = y * 1.001
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


class Share(PyDevice):
    """Takes one op, in a share of the CPU's modelled time."""

    def __init__(self, op: str, share: float) -> None:
        super().__init__()
        self.op, self.share = op, share

    def _cost(self, step: Any) -> float:
        counts = ffi.new("linnet_step_counts *", {"struct_size": ffi.sizeof("linnet_step_counts")})
        assert lib().linnet_step_get_counts(step, counts) == 0
        return self.share * float(counts.cpu_ns) if op_of(step) == self.op else -1.0


def count(session: Any) -> Counter[str]:
    """Steps by op, and those that are no transfers by device."""
    return Counter(step.op for step in session.steps) + Counter(s.device for s in session.steps if s.op != "transfer")


def test_maps_stay_where_their_layout_is() -> None:
    """Transfers are free and the device takes a nanosecond, but each map would add two conversions of its layout."""
    alone = count(linnet.Session(convolutions(1), threads=1))
    session = linnet.Session(convolutions(1), threads=1, devices=[PyDevice({"map": 1.0})])
    assert count(session) == alone and alone["copy"] == 2


@pytest.mark.parametrize(("share", "moves"), [(0.01, True), (0.2, True), (1.2, False)])
def test_maps_move_if_the_device_saves_more_than_the_conversions(share: float, moves: bool) -> None:
    graph = convolutions(32)
    session = linnet.Session(graph, threads=1, devices=[Share("map", share)])
    steps = count(session)
    assert (steps["python"], steps["copy"]) == ((3, 8) if moves else (0, 2))
    got, want = session.run(FEEDS)["y"], linnet.Session(graph, threads=1).run(FEEDS)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_a_convolution_that_moves_saves_its_conversions() -> None:
    """One convolution between a dense input and a dense output: the CPU would convert twice, the device need not."""
    graph = Graph()
    x = graph.placeholder("x", (1, 32, 48, 48))
    w = np.ones((32, 32, 3, 3), np.float32)
    graph.signature("infer", {"x": x}, {"y": ops.conv(x, graph.constant(w, "w"), pads=[1, 1, 1, 1])})
    alone = linnet.Session(graph, threads=1)
    assert [step.op for step in alone.steps] == ["copy", "conv", "copy"]
    own, whole = alone.steps[1].modelled_ms * 1e6, sum(step.modelled_ms for step in alone.steps) * 1e6
    for cost, moves in (((own + whole) / 2, True), (whole * 1.02, False)):
        session = linnet.Session(graph, threads=1, devices=[PyDevice({"conv": cost})])
        assert count(session)["python"] == moves, (cost, own, whole)


def norms(work: int) -> Graph:
    """Batch normalizations of f16, which the CPU computes in f32, with maps between them that read them in f32."""
    graph = Graph()
    y = x = graph.placeholder("x", (2, 8, 64, 64), "f16")
    parameters = [graph.constant((np.arange(8) % 3 + 1).astype(np.float16)) for _ in range(4)]
    for _ in range(3):
        y = ops.batch_norm(y, *parameters)
        for _ in range(work):
            y = y * 1.001
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


@pytest.mark.parametrize(("work", "share", "moves"), [(1, 0.7, False), (32, 0.1, True)])
def test_maps_stay_where_their_values_are_f32(work: int, share: float, moves: bool) -> None:
    """On a device, the map reads f16, so the CPU casts what it has computed before it sends it."""
    graph = norms(work)
    assert Counter(step.op for step in linnet.Session(graph, threads=1).steps)["cast"] == 3
    steps = count(linnet.Session(graph, threads=1, devices=[Share("map", share)]))
    assert (steps["python"], steps["cast"]) == ((3, 6) if moves else (0, 3))
