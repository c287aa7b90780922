"""Products and convolutions of the OpenCL device at sizes around the tiles of its kernels, each kernel by its name, with
transposes, batches, strides, padding, groups and both places of the channels. The CPU has the results."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import Graph, ops
from tests.opencl_device import opencl_device
from tests.tree import ROOT

RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def check(graph: Graph, feeds: dict[str, np.ndarray], kernel: str, op: str, options: str = "") -> None:
    """Every step of the op runs on the device, by this kernel, and the results agree."""
    session = linnet.Session(graph, device=opencl_device(options))
    used = {(step.device, step.kernel) for step in session.steps if step.op == op}
    assert used == {("opencl", kernel)}, used
    got, want = session.run(feeds), linnet.Session(graph).run(feeds)
    for name, value in want.items():
        np.testing.assert_allclose(
            got[name], value, rtol=0, atol=2e-5 * max(1e-6, float(np.abs(value).max())), err_msg=name
        )


# Tiles: 4 columns of 8, 4, 2 or 1 rows; vectors of 4 along the sum; 64 x 64 in steps of 16.
SIZES = [(1, 1, 1), (1, 5, 3), (2, 3, 4), (3, 4, 5), (4, 7, 16), (7, 8, 17), (8, 9, 15), (9, 12, 31), (13, 17, 32)]
LARGE = [(63, 64, 16), (64, 65, 15), (65, 63, 17), (97, 131, 33)]


@pytest.mark.parametrize("kernel", ["matmul", "matmul_dot", "matmul_local"])
def test_products(kernel: str) -> None:
    graph, feeds, outputs, inputs = Graph(), {}, {}, {}
    for i, (m, n, k) in enumerate(SIZES + LARGE * (kernel == "matmul_local")):
        if kernel == "matmul_dot" and k < 4:
            continue
        a = inputs[f"a{i}"] = graph.placeholder(f"a{i}", (m, k))
        feeds[f"a{i}"] = floats(m, k)
        turned = kernel == "matmul_dot"
        b = graph.constant(floats(n, k) if turned else floats(k, n), f"b{i}")
        outputs[f"y{i}"] = ops.matmul(a, b, transpose_b=turned)
    graph.signature("infer", inputs, outputs)
    check(graph, feeds, kernel, "matmul", f"kernel={kernel}")


@pytest.mark.parametrize("kernel", ["conv", "conv_pointwise"])
@pytest.mark.parametrize("axis", [1, -1])
def test_convolutions(kernel: str, axis: int) -> None:
    graph, feeds, outputs, inputs = Graph(), {}, {}, {}
    cases: list[dict[str, Any]] = [
        {"w": (8, 3), "x": (7, 5)}, {"w": (9, 8), "x": (4, 13)}, {"w": (16, 5), "x": (1, 1), "bias": True},
    ]  # fmt: skip
    if kernel == "conv":
        cases = [
            {"w": (8, 3, 3, 3), "x": (7, 9), "pads": [1, 1, 1, 1]},
            {"w": (9, 4, 3, 3), "x": (8, 11), "strides": [2, 2], "auto_pad": "same_upper", "bias": True},
            {"w": (9, 4, 4, 3), "x": (8, 11), "strides": [1, 2], "auto_pad": "same_lower"},
            {"w": (15, 2, 2, 3), "x": (9, 7), "group": 1, "dilations": [2, 1]},
            {"w": (17, 3, 5, 1), "x": (6, 4), "pads": [2, 0, 2, 0], "auto_pad": "explicit"},
        ]
    for i, case in enumerate(cases):
        channels = case["w"][1] * case.get("group", 1)
        shape = (2, channels, *case["x"]) if axis == 1 else (2, *case["x"], channels)
        inputs[f"x{i}"] = graph.placeholder(f"x{i}", shape)
        feeds[f"x{i}"] = floats(*shape)
        weights = floats(*case["w"]) if len(case["w"]) == 4 else floats(*case["w"], 1, 1)
        how = {key: value for key, value in case.items() if key not in ("w", "x", "bias")}
        bias = [graph.constant(floats(case["w"][0]), f"bias{i}")] if case.get("bias") else []
        outputs[f"y{i}"] = ops.conv(inputs[f"x{i}"], graph.constant(weights, f"w{i}"), *bias, channel_axis=axis, **how)
    graph.signature("infer", inputs, outputs)
    check(graph, feeds, kernel, "conv", f"kernel={kernel}")


@pytest.mark.parametrize("axis", [1, -1])
def test_groups_and_transposed_convolutions(axis: int) -> None:
    graph, feeds, outputs, inputs = Graph(), {}, {}, {}
    for i, (channels, group, out) in enumerate([(7, 7, 7), (6, 3, 12), (5, 5, 10)]):
        shape = (2, channels, 6, 9) if axis == 1 else (2, 6, 9, channels)
        x = inputs[f"x{i}"] = graph.placeholder(f"x{i}", shape)
        feeds[f"x{i}"] = floats(*shape)
        w = graph.constant(floats(out, channels // group, 3, 3), f"w{i}")
        outputs[f"y{i}"] = ops.conv(x, w, group=group, pads=[1, 1, 1, 1], channel_axis=axis)
        v = graph.constant(floats(channels, out // group, 3, 2), f"v{i}")
        outputs[f"z{i}"] = ops.conv_transpose(
            x, v, group=group, strides=[2, 3], output_padding=[1, 0], channel_axis=axis
        )
        for side in ("same_upper", "same_lower"):
            outputs[f"{side}{i}"] = ops.conv_transpose(
                x, v, group=group, strides=[2, 1], auto_pad=side, channel_axis=axis
            )
    graph.signature("infer", inputs, outputs)
    check(graph, feeds, "conv", "conv")
    check(graph, feeds, "conv_transpose", "conv_transpose")


def test_batches_are_broadcast() -> None:
    graph, feeds, outputs, inputs = Graph(), {}, {}, {}
    shapes = [
        ((3, 4, 5), (5, 6)),
        ((2, 3, 4, 5), (3, 5, 6)),
        ((2, 1, 4, 5), (1, 3, 5, 6)),
        ((5,), (2, 5, 3)),
        ((2, 4, 5), (5,)),
    ]
    for i, pair in enumerate(shapes):
        for side, shape in zip("ab", pair, strict=True):
            inputs[f"{side}{i}"] = graph.placeholder(f"{side}{i}", shape)
            feeds[f"{side}{i}"] = floats(*shape)
        outputs[f"y{i}"] = ops.matmul(inputs[f"a{i}"], inputs[f"b{i}"])
    graph.signature("infer", inputs, outputs)
    check(graph, feeds, "matmul", "matmul", "kernel=matmul")


def test_maps_behind_products_of_f16_are_fused() -> None:
    """The map reads the f32 sum, as on the CPU, so results differ by the last bit of the f16 that is stored."""
    graph = Graph()
    x = graph.placeholder("x", (2, 8, 5, 6))
    hidden = ops.relu(ops.conv(x, graph.constant(floats(6, 8, 1, 1), "w"), graph.constant(floats(6), "bias")))
    rows = ops.reshape(hidden, (2, 180))
    graph.signature("infer", {"x": x}, {"y": ops.tanh(ops.matmul(rows, graph.constant(0.1 * floats(180, 4), "v")))})
    half, feeds = linnet.quantize(graph, None, dtype="f16"), {"x": floats(2, 8, 5, 6)}
    session = linnet.Session(half, device=opencl_device())
    steps = [step for step in session.steps if step.op in ("conv", "matmul")]
    assert len(steps) == 2 and all(step.device == "opencl" and step.fused for step in steps), steps
    np.testing.assert_allclose(session.run(feeds)["y"], linnet.Session(half).run(feeds)["y"], rtol=0, atol=2e-3)


def test_rates_are_rounded_to_5() -> None:
    """A rate of 41 beside 40 would be a preference, not a measurement; equal kernels are preferred in the order of the list."""
    for path in ("common", "cuda"):
        lines = re.findall(
            r"^LG_LINE\((.*)\)$", (ROOT / "kernels_gpu" / path / "kernels.inc").read_text(), re.MULTILINE
        )
        rates = [int(line.rpartition(",")[2]) for line in lines]
        assert len(rates) > 5 and [rate for rate in rates if rate <= 0 or rate % 5 != 0] == []


def test_vectors_along_the_sum_are_preferred() -> None:
    """Where b is stored transposed, and the products take longer than reading the operands."""
    graph = Graph()
    x, w = graph.placeholder("x", (16, 128)), graph.constant(floats(128, 128), "w")
    graph.signature("infer", {"x": x}, {"y": ops.matmul(x, w, transpose_b=True)})
    check(graph, {"x": floats(16, 128)}, "matmul_dot", "matmul")
