"""Products and convolutions of the CUDA device by its own kernels, on the stand-ins, at sizes around their tiles: each dtype,
transposes, batches, both places of the channels, groups, zero points. The CPU has the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet import Graph, ops
from tests.cuda_device import clean, cuda_device

RNG = np.random.default_rng(12)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def check(
    graph: Graph, feeds: dict[str, np.ndarray], kernel: str, op: str, tolerance: float, precision: str = "f32"
) -> None:
    """Every step of the op runs by this kernel, and the results agree."""
    with clean():
        session = linnet.Session(graph, device=cuda_device(f"kernel={kernel}"), precision=precision)
        used = {(step.device, step.kernel) for step in session.steps if step.op == op}
        assert used == {("cuda", kernel)}, used
        got, want = session.run(feeds), linnet.Session(graph).run(feeds)
        del session
    for name, value in want.items():
        limit = tolerance * max(1e-6, float(np.abs(value).max()))
        np.testing.assert_allclose(got[name], value, rtol=0, atol=limit, err_msg=name)


SIZES = [(1, 1, 1), (3, 5, 7), (31, 33, 16), (64, 64, 64), (65, 63, 72), (129, 17, 40), (1, 131, 96)]


@pytest.mark.parametrize(
    ("kernel", "dtype", "tolerance", "precision"),
    [
        ("matmul_tiles", "f32", 2e-5, "f32"),
        ("matmul_tensor", "f32", 3e-3, "tf32"),
        ("matmul_tensor", "f16", 3e-3, "f32"),
        ("matmul_tensor", "bf16", 2e-2, "f32"),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_products(kernel: str, dtype: str, tolerance: float, precision: str, constant: bool) -> None:
    graph, feeds, outputs, inputs = Graph(), {}, {}, {}
    for i, (m, n, k) in enumerate(SIZES):
        ta, tb = i % 2 == 1, i % 3 == 1
        a = inputs[f"a{i}"] = graph.placeholder(f"a{i}", (k, m) if ta else (m, k))
        feeds[f"a{i}"] = floats(*((k, m) if ta else (m, k)))
        shape = (n, k) if tb else (k, n)
        if constant:
            b = graph.constant(floats(*shape), f"b{i}")
        else:
            b = inputs[f"b{i}"] = graph.placeholder(f"b{i}", shape)
            feeds[f"b{i}"] = floats(*shape)
        a, b = (ops.cast(v, dtype=dtype) if dtype != "f32" else v for v in (a, b))
        bias = graph.constant(floats(n), f"c{i}")
        y = ops.matmul(a, b, ops.cast(bias, dtype=dtype) if dtype != "f32" else bias, transpose_a=ta, transpose_b=tb)
        outputs[f"y{i}"] = ops.cast(y, dtype="f32") if dtype != "f32" else y
    graph.signature("infer", inputs, outputs)
    check(graph, feeds, kernel, "matmul", tolerance, precision)


@pytest.mark.parametrize(("kernel", "dtype", "tolerance", "precision"), [
    ("conv_tiles", "f32", 2e-5, "f32"), ("conv_tensor", "f32", 3e-3, "tf32"), ("conv_tensor", "f16", 3e-3, "f32"),
])  # fmt: skip
@pytest.mark.parametrize("axis", [1, -1])
def test_convolutions(kernel: str, dtype: str, tolerance: float, precision: str, axis: int) -> None:
    graph, feeds, outputs, inputs = Graph(), {}, {}, {}
    cases: list[dict[str, Any]] = [
        {"w": (8, 3, 3, 3), "x": (7, 9), "pads": [1, 1, 1, 1]},
        {"w": (9, 4, 3, 3), "x": (8, 11), "strides": [2, 2], "auto_pad": "same_upper"},
        {"w": (66, 16, 2, 3), "x": (9, 7), "dilations": [2, 1]},
        {"w": (17, 8, 5, 1), "x": (6, 4), "pads": [2, 0, 2, 0]},
        {"w": (40, 64, 1, 1), "x": (6, 5)},
        {"w": (32, 16, 1, 1), "x": (7, 7), "strides": [2, 2]},
        {"w": (32, 16, 3, 3), "x": (5, 5), "pads": [1, 1, 1, 1], "group": 2},
        {"w": (24, 128, 3, 3), "x": (4, 4), "pads": [1, 1, 1, 1]},
    ]
    for i, case in enumerate(cases):
        channels = case["w"][1] * case.get("group", 1)
        shape = (2, channels, *case["x"]) if axis == 1 else (2, *case["x"], channels)
        x = inputs[f"x{i}"] = graph.placeholder(f"x{i}", shape)
        feeds[f"x{i}"] = floats(*shape)
        w, b = graph.constant(floats(*case["w"]), f"w{i}"), graph.constant(floats(case["w"][0]), f"b{i}")
        if dtype != "f32":
            x, w, b = (ops.cast(v, dtype=dtype) for v in (x, w, b))
        more = {k: v for k, v in case.items() if k not in ("w", "x")}
        y = ops.relu(ops.conv(x, w, b, channel_axis=axis, **more))
        outputs[f"y{i}"] = ops.cast(y, dtype="f32") if dtype != "f32" else y
    graph.signature("infer", inputs, outputs)
    check(graph, feeds, kernel, "conv", tolerance, precision)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 2e-5), ("f16", 3e-3)])
def test_depthwise(dtype: str, tolerance: float, axis: int) -> None:
    graph, feeds, outputs, inputs = Graph(), {}, {}, {}
    cases: list[dict[str, Any]] = [
        {"w": (8, 1, 3, 3), "x": (7, 9), "pads": [1, 1, 1, 1]},
        {"w": (13, 1, 3, 3), "x": (8, 11), "strides": [2, 2], "auto_pad": "same_upper"},
        {"w": (6, 1, 5, 2), "x": (9, 6), "strides": [1, 2]},
        {"w": (12, 1, 7, 7), "x": (7, 8), "pads": [3, 3, 3, 3], "groups": 6},
        {"w": (5, 1, 1, 3), "x": (1, 17), "pads": [0, 2, 0, 1]},
    ]
    for i, case in enumerate(cases):
        channels = case.get("groups", case["w"][0])
        shape = (2, channels, *case["x"]) if axis == 1 else (2, *case["x"], channels)
        x = inputs[f"x{i}"] = graph.placeholder(f"x{i}", shape)
        feeds[f"x{i}"] = floats(*shape)
        w, b = graph.constant(floats(*case["w"]), f"w{i}"), graph.constant(floats(case["w"][0]), f"b{i}")
        if dtype != "f32":
            x, w, b = (ops.cast(v, dtype=dtype) for v in (x, w, b))
        more = {k: v for k, v in case.items() if k not in ("w", "x", "groups")}
        y = ops.relu(ops.conv(x, w, b, channel_axis=axis, group=channels, **more))
        outputs[f"y{i}"] = ops.cast(y, dtype="f32") if dtype != "f32" else y
    graph.signature("infer", inputs, outputs)
    check(graph, feeds, "depthwise", "conv", tolerance)


@pytest.mark.parametrize("axis", [1, -1])
def test_integers_are_the_cpus(axis: int) -> None:
    """8-bit convolutions and products, with zero points and padding, give the CPU's bits."""
    graph, feeds, outputs, inputs = Graph(), {}, {}, {}
    for i, (n, channels, kernel, stride) in enumerate([(24, 16, 3, 1), (40, 32, 1, 1), (10, 3, 3, 2), (72, 48, 3, 2)]):
        shape = (2, channels, 9, 7) if axis == 1 else (2, 9, 7, channels)
        x = inputs[f"x{i}"] = graph.placeholder(f"x{i}", shape)
        feeds[f"x{i}"] = floats(*shape) + 0.7  # not around 0, so there are zero points
        w, b = graph.constant(floats(n, channels, kernel, kernel), f"w{i}"), graph.constant(floats(n), f"b{i}")
        pads = [kernel // 2] * 4
        outputs[f"y{i}"] = ops.relu(ops.conv(x, w, b, channel_axis=axis, strides=[stride] * 2, pads=pads))
    for i, (m, n, k) in enumerate([(33, 40, 64), (5, 70, 19)]):
        x = inputs[f"a{i}"] = graph.placeholder(f"a{i}", (m, k))
        feeds[f"a{i}"] = floats(m, k) - 0.4
        outputs[f"z{i}"] = ops.matmul(x, graph.constant(floats(k, n), f"v{i}"))
    graph.signature("infer", inputs, outputs)
    quantized = linnet.quantize(graph, [feeds], dtype="i8", effort="fast")
    with clean():
        session = linnet.Session(quantized, device=cuda_device())
        used = {(step.op, step.kernel) for step in session.steps if step.op in ("conv", "matmul")}
        assert used == {("conv", "conv_tensor"), ("matmul", "matmul_tensor")}, used
        got, want = session.run(feeds), linnet.Session(quantized).run(feeds)
        del session
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
