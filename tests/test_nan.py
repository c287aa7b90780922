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


@pytest.mark.parametrize("order", ["min max", "max min"])
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (5.0, 2.0), (-5.0, -2.0), (0.0, 0.0)])
def test_the_later_of_two_limits_decides(order: str, low: float, high: float) -> None:
    """Also if they exclude each other."""
    a, b = (np.random.default_rng(2).standard_normal(shape).astype(np.float32) for shape in ((6, 9), (9, 20)))
    graph = Graph()
    x = graph.placeholder("x", a.shape, "f32")
    y, expected = x @ graph.constant(b), a @ b
    for word in order.split():
        y = ops.minimum(y, high) if word == "min" else ops.maximum(y, low)
        expected = np.minimum(expected, high) if word == "min" else np.maximum(expected, low)
    graph.signature("infer", {"x": x}, {"y": y})
    for isa in isa_names():
        session = linnet.Session(graph, isa_max=isa)
        np.testing.assert_allclose(session.run({"x": a})["y"], expected, rtol=1e-4, atol=1e-5, err_msg=isa)
    assert [step.op for step in session.steps] == ["matmul"]


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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 4, 11, 12])
def test_nan_is_the_largest_when_values_are_ordered(dtype: type, k: int) -> None:
    """As np.sort has it: NaN comes first among the largest and last among the smallest, and equal values keep their order."""
    x = np.array([[3, np.nan, -1, np.inf, np.nan, 3, 0, -np.inf, np.nan, 2, 7, -1]] * 3, dtype)
    x[1] = x[1, ::-1]
    x[2] = np.roll(x[2], 5)
    key = np.where(np.isnan(x), 1e9, np.clip(x.astype(np.float64), -1e8, 1e8))
    graph = Graph()
    given = graph.placeholder("x", x.shape, {2: "f16", 4: "f32", 8: "f64"}[x.itemsize])
    outputs = {}
    for name, largest in (("largest", True), ("smallest", False)):
        made = ops.top_k(given, graph.constant(np.int64(k)), axis=1, largest=largest)
        outputs |= {name: made[0], f"{name}_places": made[1]}
    graph.signature("infer", {"x": given}, outputs)
    found = linnet.Session(graph).run({"x": x})
    for name, order in (("largest", -key), ("smallest", key)):
        places = np.argsort(order, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(found[f"{name}_places"], places)
        np.testing.assert_array_equal(found[name], np.take_along_axis(x, places, 1))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(7, 9), (2, 5), (1, 4)])
def test_padding_is_not_multiplied_with_infinite_weights(size: tuple[int, int], stride: int) -> None:
    """Depthwise: a tap in the padding adds nothing, even if its weight is not finite."""
    rng = np.random.default_rng(stride)
    x = rng.uniform(0.5, 1.5, (1, 8, *size)).astype(np.float32)
    w = rng.uniform(0.5, 1.5, (8, 1, 3, 3)).astype(np.float32)
    w[0, 0, 0], w[1, 0, 2, 1], w[2, 0, :, 0], w[3, 0, 1, 2] = np.inf, -np.inf, np.inf, np.nan
    graph = Graph()
    a = graph.placeholder("x", x.shape, "f32")
    y = ops.conv(a, graph.constant(w), strides=[stride, stride], pads=[1, 1, 1, 1], group=8)
    graph.signature("infer", {"x": a}, {"y": y})
    expected = linnet.Session(graph, reference=True).run({"x": x})["y"]
    assert np.isfinite(expected[:, :2]).any() and not np.isnan(expected[:, :3]).any()
    for isa in isa_names():
        found = linnet.Session(graph, isa_max=isa).run({"x": x})["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=isa)
