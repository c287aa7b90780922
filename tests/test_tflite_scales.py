"""Products and averages of quantized tensors at scales that expose TFLite's own roundings: a quarter of a million results
each, all equal to LiteRT's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from tests.test_tflite_ops import Case, c, q, random, reference
from tests.tflite_models import O, T


def check(op: str, tensors: list[T], feed: np.ndarray[Any, Any] | None = None, **options: Any) -> None:
    inputs = [t.name for t in tensors if t.name != "y"]
    case = Case(op, tensors, O(op, inputs, ["y"], options))
    model = case.model()
    feed = random(tensors[0], np.random.default_rng(3)) if feed is None else feed
    (expected,) = reference(model, [feed])
    (found,) = linnet.Session(linnet.from_tflite(model)).run({tensors[0].name: feed}).values()
    assert expected.min() != expected.max(), "the case says nothing"
    if expected.dtype == np.float32:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, expected)


def scales(seed: int) -> tuple[float, float, float]:
    """Scales of x, of the weight, and of results that fill their range."""
    rng = np.random.default_rng(seed)
    sx, sw = (float(np.float32(rng.uniform(0.001, 0.1))) for _ in range(2))
    return sx, sw, float(np.float32(sx * sw * rng.uniform(200, 600)))


def weight(dtype: str, shape: tuple[int, ...], scale: float, seed: int) -> T:
    limits = np.iinfo({"u8": np.uint8, "i8": np.int8}[dtype])
    value = np.random.default_rng(seed + 100).integers(limits.min, limits.max + 1, shape).astype(limits.dtype)
    return T("w", dtype, shape, scale, 117 if dtype == "u8" else 0, value=value)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_convolutions(dtype: str, seed: int) -> None:
    sx, sw, sy = scales(seed)
    tensors = [
        q("x", dtype, [1, 64, 64, 4], sx, 3), weight(dtype, (64, 1, 1, 4), sw, seed), c("b", np.arange(64)),
        q("y", dtype, [1, 64, 64, 64], sy, -5),
    ]  # fmt: skip
    tensors[2].scale = sx * sw
    check("CONV_2D", tensors, padding=1, stride_w=1, stride_h=1, dilation_w=1, dilation_h=1, activation="none")


# Scales of x, the weight and the result, found by search: at some sum x * w, rounding the product of the first two to a float, as
# TFLite does for u8, gives another integer than the exact product.
ROUNDED = [
    (0.018957391381263733, 0.047496285289525986, 0.13442616164684296),
    (0.010634946636855602, 0.08737795799970627, 0.13606436550617218),
    (0.04721890762448311, 0.09280407428741455, 0.3537601828575134),
    (0.00907331332564354, 0.09537287801504135, 0.10154103487730026),
]


@pytest.mark.parametrize("sx, sw, sy", ROUNDED)
def test_every_product_of_two_bytes(sx: float, sw: float, sy: float) -> None:
    every = np.arange(256, dtype=np.uint8)
    tensors = [
        q("x", "u8", [1, 16, 16, 1], sx, 3), T("w", "u8", [256, 1, 1, 1], sw, 117, value=every.reshape(256, 1, 1, 1)),
        c("b", np.zeros(256)), q("y", "u8", [1, 16, 16, 256], sy, 0),
    ]  # fmt: skip
    tensors[2].scale = sx * sw
    options = {"padding": 1, "stride_w": 1, "stride_h": 1, "dilation_w": 1, "dilation_h": 1, "activation": "none"}
    check("CONV_2D", tensors, every.reshape(1, 16, 16, 1), **options)


@pytest.mark.parametrize("seed", range(3))
def test_matrix_products(seed: int) -> None:
    sx, sw, sy = scales(seed)
    tensors = [
        q("x", "i8", [2048, 8], sx, 3), weight("i8", (64, 8), sw, seed), c("b", np.arange(64)), q("y", "i8", [2048, 64], sy, -5)
    ]  # fmt: skip
    tensors[2].scale = sx * sw
    check("FULLY_CONNECTED", tensors, activation="none")


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums(exclusive: bool, reverse: bool) -> None:
    tensors = [T("x", "f32", [3, 7]), c("axis", 1), T("y", "f32", [3, 7])]
    check("CUMSUM", tensors, exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("dtype", ["u8", "i8", "i16"])
def test_averages(dtype: str, padding: int) -> None:
    size = [1, 32, 33, 8] if padding == 0 else [1, 31, 31, 8]
    check("AVERAGE_POOL_2D", [q("x", dtype, [1, 32, 33, 8], 0.05, 4), q("y", dtype, size, 0.05, 4)], padding=padding,
          stride_w=1, stride_h=1, filter_w=3, filter_h=2, activation="none")  # fmt: skip
