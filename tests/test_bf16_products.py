"""Products of bf16 on ARM (`precision="bf16"`): factors are rounded to bf16, and their products are added up in f32, as NumPy
computes it. Cores without such products, and plans that do not permit them, compute in f32. Run under qemu."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import linnet
from linnet import ops
from tests.test_cross import run_emulated

SIZES = [
    (1, 130, 8),
    (2, 2, 2),
    (3, 20, 9),
    (5, 3, 31),
    (7, 63, 7),
    (8, 64, 8),
    (9, 65, 4),
    (15, 127, 13),
    (17, 5000, 5),
]
"""Rows, products of a sum, and columns, around tiles of 8 x 8 and steps of 4 products."""
Array = np.ndarray


def _rounded(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(float)


def _check(found: Array, x: Array, w: Array, bias: Array, unit: float) -> None:
    """The sums are those of x [rows, k] and w [k, columns]. f32 sums may err by 2^-20 of the sum of magnitudes, and stored
    results by `unit` of themselves."""
    exact, most = x @ w + bias, np.abs(x) @ np.abs(w) + np.abs(bias)
    assert (np.abs(found - exact) <= 2.0**-20 * most + unit * np.abs(exact)).all()


@pytest.mark.parametrize("weights", ["f32", "bf16"])
@pytest.mark.parametrize("size", SIZES)
def test_products_are_those_of_rounded_factors(size: tuple[int, int, int], weights: str, tmp_path: Path) -> None:
    rows, k, columns = size
    rng = np.random.default_rng(rows * k + columns)
    x = rng.standard_normal((rows, k)).astype(np.float32)
    w, bias = rng.standard_normal((k, columns)).astype(np.float32), rng.standard_normal(columns).astype(np.float32)
    graph = linnet.Graph()
    given = graph.placeholder("x", x.shape, "f32")
    if weights == "bf16":  # constants of a bf16 graph
        narrow = [graph.constant(value.astype(ml_dtypes.bfloat16)) for value in (w, bias)]
        y = ops.cast(ops.matmul(ops.cast(given, dtype="bf16"), *narrow), dtype="f32")
        x_used, w, bias, unit = _rounded(x), _rounded(w), _rounded(bias), 2.0**-8
    else:
        y, x_used, unit = ops.matmul(given, graph.constant(w), graph.constant(bias)), x.astype(float), 0.0
    graph.signature("infer", {"x": given}, {"y": y})
    _check(run_emulated(graph, x, "max,sve=off", "bf16", tmp_path), _rounded(x), _rounded(w), bias, unit)
    for cpu, precision in (("max,sve=off", "f32"), ("cortex-a76", "bf16")):
        _check(run_emulated(graph, x, cpu, precision, tmp_path), x_used, w, bias, unit)


@pytest.mark.parametrize(("channels", "columns"), [(32, 8), (3, 9), (5, 12), (24, 4)])
def test_convolutions_of_rounded_factors(channels: int, columns: int, tmp_path: Path) -> None:
    """With padding and strides, and the input of the convolution's tile added to a second one's result."""
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((1, channels, 7, 9)).astype(np.float32)
    w = (rng.standard_normal((columns, channels, 3, 3)) / 8).astype(np.float32)
    bias = rng.standard_normal(columns).astype(np.float32)
    last = (rng.standard_normal((columns, columns, 1, 1)) / 8).astype(np.float32)
    graph = linnet.Graph()
    given = graph.placeholder("x", x.shape, "f32")
    first = ops.relu(ops.conv(given, graph.constant(w), graph.constant(bias), strides=(2, 2), pads=(1, 1, 1, 1)))
    y = ops.relu(first + ops.conv(first, graph.constant(last), strides=(1, 1), pads=(0, 0, 0, 0)))
    graph.signature("infer", {"x": given}, {"y": y})
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(_rounded(x), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    windows = windows[0, :, ::2, ::2]
    _, high, wide, _, _ = windows.shape
    rows = windows.transpose(1, 2, 3, 4, 0).reshape(high * wide, -1)
    inner = np.maximum(rows @ _rounded(w).transpose(2, 3, 1, 0).reshape(-1, columns) + bias, 0)
    total = np.maximum(_rounded(inner) @ _rounded(last)[:, :, 0, 0].T + inner, 0)
    expected = total.T.reshape(1, columns, high, wide)
    # A sum near the middle of two bf16 numbers may round to either of them for the second convolution.
    found = run_emulated(graph, x, "max,sve=off", "bf16", tmp_path)
    np.testing.assert_allclose(found, expected, atol=2.0**-8)
    assert np.abs(found - expected).mean() < 1e-4
    assert np.abs(run_emulated(graph, x, "max,sve=off", "f32", tmp_path) - expected).max() > 1e-4
