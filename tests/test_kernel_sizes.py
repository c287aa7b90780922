"""Sizes beyond those of tests/c, for which fast kernels split channels, rows and sums, against the references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from linnet.ir.function import Tensor
from linnet.session.model import isa_names

RNG = np.random.default_rng(4)


def same(make: Any, *shape: int, tolerance: float = 1e-5) -> None:
    """Results on every ISA equal the reference."""
    graph = Graph()
    x = graph.placeholder("x", shape, "f32")
    graph.signature("infer", {"x": x}, {"y": make(x)})
    given = RNG.standard_normal(shape).astype(np.float32)
    expected = linnet.Session(graph, reference=True).run({"x": given})["y"]
    for isa in isa_names():
        for threads in (1, 3):
            found = linnet.Session(graph, isa_max=isa, threads=threads).run({"x": given})["y"]
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=f"{isa}, {threads}")


@pytest.mark.parametrize("channels", [3, 64, 255, 256, 257, 300, 513, 1029])
@pytest.mark.parametrize("kind", ["max", "average"])
def test_pools_of_many_channels(kind: str, channels: int) -> None:
    def make(x: Tensor) -> Tensor:
        return ops.pool(x, kind=kind, kernel=[2, 3], strides=[1, 2], pads=[1, 0, 0, 1], channel_axis=-1)[0]

    same(make, 2, 4, 5, channels)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 2047, 2048, 2049, 4113])
def test_long_lines(size: int) -> None:
    same(lambda x: ops.softmax(x, axis=1), 3, size)
    same(lambda x: ops.softmax(x * 60.0, axis=1), 3, size)  # most are negligible compared with the largest
    same(lambda x: ops.layer_norm(x, axis=1)[0], 3, size)
    same(lambda x: ops.reduce(x - 5.0, kind="max", axis=[1]), 3, size)
    same(lambda x: ops.reduce(x, kind="sum", axis=[0]), size, 9, tolerance=1e-4)


@pytest.mark.parametrize("k", [33, 500, 2000])
def test_long_sums_are_of_short_ones(k: int) -> None:
    """The sum of a thousand times 0.1: added one by one in f32 it is off by 1e-5, in blocks by less than 1e-6."""
    graph = Graph()
    x = graph.placeholder("x", (5, k), "f32")
    tenth = np.float32(0.1)
    graph.signature("infer", {"x": x}, {"y": x @ graph.constant(np.full((k, 40), tenth))})
    for isa in isa_names():
        found = linnet.Session(graph, isa_max=isa).run({"x": np.ones((5, k), np.float32)})["y"]
        error = np.abs(found / (k * float(tenth)) - 1).max()
        assert error < 1.5e-6, (isa, error)
