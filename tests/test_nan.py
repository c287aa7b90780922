"""NaN inputs give NaN outputs on every ISA, at every width, and with an activation's limits after the op."""

from __future__ import annotations

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from linnet.session.model import isa_names


@pytest.mark.parametrize("columns", [1, 7, 32, 45])
def test_limits_keep_nan(columns: int) -> None:
    rng = np.random.default_rng(columns)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 9), (9, columns)))
    a[2, 3] = np.nan
    graph = Graph()
    x = graph.placeholder("x", a.shape, "f32")
    y = ops.clip(x @ graph.constant(b), -1.0, 1.0)
    graph.signature("infer", {"x": x}, {"y": y})
    expected = np.clip(a @ b, -1, 1)
    assert np.isnan(expected[2]).all() and not np.isnan(expected[3]).any()
    for isa in isa_names():
        for reference in (False, True):
            found = linnet.Session(graph, isa_max=isa, reference=reference).run({"x": a})["y"]
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=isa)


@pytest.mark.parametrize("k", [1000, 3000, 20_001])
def test_limits_come_after_the_whole_sum(k: int) -> None:
    """Long sums are computed in parts: the limits of an activation apply to the end result, not to a part."""
    a = np.concatenate([np.full(k // 2, 1.0), np.full(k - k // 2, -1.0)]).astype(np.float32)[None].repeat(20, 0)
    b = np.linspace(0.5, 1.5, k * 40).reshape(k, 40).astype(np.float32)
    graph = Graph()
    x = graph.placeholder("x", a.shape, "f32")
    graph.signature("infer", {"x": x}, {"y": ops.clip(x @ graph.constant(b), -1e9, 10.0)})
    expected = np.minimum(a.astype(np.float64) @ b, 10)
    for threads in (1, 2):
        found = linnet.Session(graph, threads=threads).run({"x": a})["y"]
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=0.05)


@pytest.mark.parametrize("op", ["conv", "depthwise", "grouped", "conv_transpose", "depthwise_transpose"])
def test_limits_of_pictures_keep_nan(op: str) -> None:
    """Some kernels apply limits themselves, others pass their tile to a map."""
    rng = np.random.default_rng(1)
    graph = Graph()
    picture = rng.standard_normal((1, 8, 6, 6)).astype(np.float32)
    picture[0, 3, 2, 2] = np.nan
    x = graph.placeholder("x", picture.shape, "f32")
    group = {"depthwise": 8, "grouped": 4, "depthwise_transpose": 8}.get(op, 1)
    channels = 8 // group
    w = graph.constant(rng.standard_normal((8, channels, 3, 3)).astype(np.float32))
    make = ops.conv_transpose if "transpose" in op else ops.conv
    y = make(x, w, group=group, pads=[1, 1, 1, 1])
    graph.signature("infer", {"x": x}, {"y": ops.clip(y, -0.5, 0.5), "raw": y})
    raw = linnet.Session(graph, fetches=["raw"], reference=True).run({"x": picture})["raw"]
    assert np.isnan(raw).sum() == 9 * channels
    for isa in isa_names():
        found = linnet.Session(graph, isa_max=isa, fetches=["y"]).run({"x": picture})["y"]
        np.testing.assert_allclose(found, np.clip(raw, -0.5, 0.5), rtol=1e-4, atol=1e-5, err_msg=isa)
