"""Sums of f16 on ARM (`precision="f16"`): the bits of the rule in docs/numerics.md, which NumPy computes here, at the edges of
tiles and blocks. Cores without f16 arithmetic, and plans that do not permit it, compute in f32. Run under qemu."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet import ops
from tests.native import build, run
from tests.test_cross import emulated, run_emulated

BLOCK = 64
WINOGRAD = 2e-3
"""The error of Winograd's method, of the largest input times the sum of an output's absolute weights."""
SIZES = [(1, 130, 24), (7, 63, 23), (8, 64, 24), (9, 65, 25), (15, 127, 7), (16, 128, 48), (17, 130, 49), (5, 1, 31)]
"""Rows, products of a sum, and columns, around tiles of 8 x 24 and blocks of 64."""
Array = np.ndarray


def summed(x: Array, w: Array, bias: Array) -> Array:
    """The rule: x [rows, k] and w [k, columns] in the order of the sums, f16. A fused product is exact in f64 here."""
    total = np.broadcast_to(bias.astype(np.float32), (len(x), w.shape[1]))
    for first in range(0, x.shape[1], BLOCK):
        part = np.zeros(total.shape, np.float16)
        for k in range(first, min(first + BLOCK, x.shape[1])):
            part = (part.astype(float) + x[:, k, None].astype(float) * w[k].astype(float)).astype(np.float16)
        total = total + part.astype(np.float32)
    return total


def _operands(rows: int, k: int, columns: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(rows * k + columns)
    x, w, bias = rng.standard_normal((rows, k)), rng.standard_normal((k, columns)) / 8, rng.standard_normal(columns)
    return x.astype(np.float16), w.astype(np.float16), bias.astype(np.float16)


@pytest.mark.parametrize("size", SIZES)
def test_products_have_the_bits_of_the_rule(size: tuple[int, int, int], tmp_path: Path) -> None:
    x, w, bias = _operands(*size)
    graph = linnet.Graph()
    given = graph.placeholder("x", x.shape, "f16")
    graph.signature("infer", {"x": given}, {"y": ops.matmul(given, graph.constant(w), graph.constant(bias))})
    expected = summed(x, w, bias).astype(np.float16)
    np.testing.assert_array_equal(run_emulated(graph, x, "cortex-a76", "f16", tmp_path), expected)
    exact = (x.astype(float) @ w.astype(float) + bias).astype(np.float16)
    for cpu, precision in (("cortex-a76", "f32"), ("cortex-a72", "f16")):
        found = run_emulated(graph, x, cpu, precision, tmp_path)
        np.testing.assert_allclose(found.astype(float), exact.astype(float), rtol=2**-10, atol=1e-6)


@pytest.mark.parametrize(("channels", "columns"), [(32, 24), (20, 25), (24, 9)])
def test_convolutions_sum_a_position_after_another(channels: int, columns: int, tmp_path: Path) -> None:
    """Kernel positions row by row, and the channels of each. The value between two convolutions is f16, and it is
    added to the result of the second one in f32."""
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((1, channels, 7, 9)).astype(np.float16)
    w = (rng.standard_normal((columns, channels, 3, 3)) / 8).astype(np.float16)
    bias = rng.standard_normal(columns).astype(np.float16)
    graph = linnet.Graph()
    given = graph.placeholder("x", x.shape, "f16")
    last = (rng.standard_normal((columns, columns, 1, 1)) / 8).astype(np.float16)
    first = ops.relu(ops.conv(given, graph.constant(w), graph.constant(bias), strides=(2, 2), pads=(1, 1, 1, 1)))
    y = ops.relu(first + ops.conv(first, graph.constant(last), strides=(1, 1), pads=(0, 0, 0, 0)))
    graph.signature("infer", {"x": given}, {"y": y})
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[0, :, ::2, ::2]
    _, high, wide, _, _ = windows.shape
    rows = windows.transpose(1, 2, 3, 4, 0).reshape(high * wide, -1)
    inner = np.maximum(summed(rows, w.transpose(2, 3, 1, 0).reshape(-1, columns), bias), 0).astype(np.float16)
    total = summed(inner, last[:, :, 0, 0].T, np.zeros(columns)) + inner
    expected = np.maximum(total, 0).astype(np.float16).T.reshape(1, columns, high, wide)
    np.testing.assert_array_equal(run_emulated(graph, x, "cortex-a76", "f16", tmp_path), expected)


@pytest.mark.parametrize("scale", [1, 40])
@pytest.mark.parametrize(
    "size", [(16, 64, 23, 22), (31, 95, 17, 19), (64, 49, 16, 13), (67, 71, 13, 9), (129, 97, 8, 7)]
)
def test_winograds_method_with_products_of_f16(size: tuple[int, int, int, int], scale: int, tmp_path: Path) -> None:
    """Around tiles of 24 columns, blocks of 64 channels, and tiles of 4 x 4 outputs, on values of about 1 and of 40."""
    channels, columns, height, width = size
    rng = np.random.default_rng(channels)
    x = np.maximum(rng.standard_normal((1, channels, height, width)) * scale, 0).astype(np.float16)
    w = (rng.standard_normal((columns, channels, 3, 3)) / (2 * channels**0.5)).astype(np.float16)
    bias = rng.standard_normal(columns).astype(np.float16)
    graph = linnet.Graph()
    given = graph.placeholder("x", x.shape, "f16")
    y = ops.relu(ops.conv(ops.relu(given), graph.constant(w), graph.constant(bias), pads=(1, 1, 1, 1)))
    graph.signature("infer", {"x": given}, {"y": y})
    found = run_emulated(graph, x, "cortex-a76", "f16", tmp_path).astype(float)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3))
    exact = np.einsum("nchwij,ocij->nohw", windows.astype(float), w.astype(float), optimize=True)
    exact = np.maximum(exact + bias.astype(float)[:, None, None], 0)
    bound = WINOGRAD * x.max() * np.abs(w.astype(float)).sum((1, 2, 3))[:, None, None]
    assert (np.abs(found - exact) <= bound).all()
    assert np.sqrt(np.mean((found - exact) ** 2)) < 0.01 * exact.std()
    tool = [*emulated("cortex-a76"), str(build("aarch64") / "linnet-bench"), str(tmp_path / "m.lnt")]
    steps = json.loads(run([*tool, "--json", "--seconds", "0.01", "--precision", "f16"]))["ops"]
    assert any("f16_winograd" in step["kernel"] for step in steps)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(8, 9, 8), (7, 6, 5), (9, 4, 61), (31, 7, 58), (64, 16, 17), (96, 3, 4)])
def test_depthwise_convolutions_sum_all_products_in_f16(
    size: tuple[int, int, int], stride: int, tmp_path: Path
) -> None:
    """The sum begins with the bias. Vectors of 8 channels, pairs of rows, and segments of 56 pixels. Fewer channels are left to
    f32."""
    channels, height, width = size
    rng = np.random.default_rng(channels * stride)
    x = rng.standard_normal((1, channels, height, width)).astype(np.float16)
    w = rng.standard_normal((channels, 1, 3, 3)).astype(np.float16)
    bias = rng.standard_normal(channels).astype(np.float16)
    padded = np.pad(np.maximum(x, 0), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::stride, ::stride].astype(float)
    exact = np.einsum("nchwij,cij->nchw", windows, w[:, 0].astype(float)) + bias.astype(float)[:, None, None]
    for high in (6.0, 0.7):
        graph = linnet.Graph()
        given = graph.placeholder("x", x.shape, "f16")
        y = ops.conv(
            ops.relu(given),
            graph.constant(w),
            graph.constant(bias),
            group=channels,
            strides=(stride,) * 2,
            pads=[1] * 4,
        )
        graph.signature("infer", {"x": given}, {"y": ops.clip(y, 0.0, high)})
        found = run_emulated(graph, x, "cortex-a76", "f16", tmp_path)
        if channels >= 8:
            total = np.broadcast_to(bias[:, None, None], exact.shape)
            for i, j in np.ndindex(3, 3):
                total = (total.astype(float) + windows[..., i, j] * w[:, 0, i, j].astype(float)[:, None, None]).astype(
                    np.float16
                )
            np.testing.assert_array_equal(found, np.clip(total, 0, np.float16(high)))
        else:
            np.testing.assert_allclose(found.astype(float), np.clip(exact, 0, high), rtol=2**-10, atol=1e-6)
        assert found.max() <= np.float16(high)
