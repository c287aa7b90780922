"""Straight-through gradients of quantize and dequantize: against PyTorch's learned step size (per tensor, per axis) and against
their definition (per block). No other op passes a gradient into integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from linnet.ir.dtypes import Quantization
from linnet.ir.function import Tensor

LIMITS = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767), "u16": (0, 65535)}


def slopes(x: Any, scale: Any, zero: Any, weights: Any, dtype: str, **attributes: Any) -> dict[str, Any]:
    """The gradients of sum(dequantize(quantize(x)) * weights)."""
    graph = Graph()
    main = graph.main
    inputs = {"x": graph.placeholder("x", x.shape), "scale": graph.placeholder("scale", scale.shape)}
    stored = main.constant(zero.astype(ops_dtype(dtype)))
    q = ops.quantize(inputs["x"], inputs["scale"], stored, dtype=dtype, **attributes)
    back = ops.dequantize(ops.transpose(ops.transpose(q)), inputs["scale"], stored, **attributes)
    loss = (back * weights).sum()
    graph.signature("train", inputs, dict(zip(inputs, linnet.gradients(loss, list(inputs.values())), strict=True)))
    return linnet.Session(graph, "train").run({"x": x, "scale": scale})


def ops_dtype(dtype: str) -> Any:
    return {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16}[dtype]


def defined(x: Any, scale: Any, zero: Any, weights: Any, dtype: str) -> tuple[Any, Any]:
    """The gradients of x and, element by element, of the scale, all of one shape (Esser et al. 2020, equations 3 and 5)."""
    low, high = LIMITS[dtype]
    stored = np.round(x / scale) + zero
    inside = (stored >= low) & (stored <= high)
    return inside * weights, (np.clip(stored, low, high) - zero - inside * x / scale) * weights


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("how", ["tensor", "axis", "block"])
def test_as_defined(dtype: str, how: str) -> None:
    rng = np.random.default_rng(3)
    x, weights = rng.normal(0, 1, (4, 6)).astype(np.float32), rng.normal(0, 1, (4, 6)).astype(np.float32)
    small = {"tensor": (), "axis": (6,), "block": (4, 2)}[how]
    reach = 0.5 * 2.0 / (LIMITS[dtype][1] - LIMITS[dtype][0])  # some values are outside the range
    scale = (rng.uniform(0.7, 1.3, small) * reach).astype(np.float32)
    zero = rng.integers(0, 5, small)

    def wide(v: Any) -> Any:
        return np.repeat(v, 3, axis=1) if how == "block" else np.broadcast_to(v, x.shape)

    found = slopes(x, scale, zero, weights, dtype, axis=1, block=3 if how == "block" else 0)
    by_x, by_scale = defined(x, wide(scale), wide(zero), weights, dtype)
    assert 0 < np.count_nonzero(by_x) < x.size
    np.testing.assert_allclose(found["x"], by_x, rtol=1e-6)
    total = (
        by_scale.sum() if how == "tensor" else by_scale.sum(0) if how == "axis" else by_scale.reshape(4, 2, 3).sum(2)
    )
    rounding = 1e-6 * LIMITS[dtype][1] * x.size  # stored numbers and x / scale are summed separately, in f32
    np.testing.assert_allclose(found["scale"], total, rtol=1e-4, atol=rounding)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_as_pytorch(axis: int | None, torch: Any) -> None:
    rng = np.random.default_rng(0)
    x, weights = rng.normal(0, 1, (5, 3)).astype(np.float32), rng.normal(0, 1, (5, 3)).astype(np.float32)
    count = 1 if axis is None else x.shape[axis]
    scale, zero = rng.uniform(0.004, 0.008, count).astype(np.float32), np.zeros(count)
    t, s, z = torch.tensor(x, requires_grad=True), torch.tensor(scale, requires_grad=True), torch.zeros(count)
    if axis is None:
        y = torch._fake_quantize_learnable_per_tensor_affine(t, s, z, -128, 127, 1.0)
    else:
        y = torch._fake_quantize_learnable_per_channel_affine(t, s, z, axis, -128, 127, 1.0)
    (y * torch.tensor(weights)).sum().backward()
    given = (scale[0], zero[0]) if axis is None else (scale, zero)
    found = slopes(x, *(np.asarray(v) for v in given), weights, "i8", axis=axis or 0)
    np.testing.assert_allclose(found["x"], t.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(found["scale"].reshape(-1), s.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_a_tensor_with_its_quantization() -> None:
    graph = Graph()
    x = graph.placeholder("x", (2, 3))
    grid = Quantization(np.float32([0.01, 0.02, 0.5]), np.int32([0, 3, 0]), axis=1)
    y = ops.dequantize(ops.quantized(x, "i8", grid))
    graph.signature("train", {"x": x}, {"y": y, "slope": linnet.gradients((y * 2.0).sum(), [x])[0]})
    found = linnet.Session(graph, "train").run({"x": np.float32([[1.0, 1.0, 1.0], [5.0, 5.0, 5.0]])})
    np.testing.assert_array_equal(found["slope"], [[2, 2, 2], [0, 0, 2]])


def test_products_of_integers_say_what_to_do() -> None:
    graph = Graph()
    x = graph.placeholder("x", (2, 3))
    grid = Quantization(np.float32([0.1]), np.int32([0]))

    def quantized(t: Tensor) -> Tensor:
        return ops.quantized(t, "i8", grid)

    w = graph.main.constant(np.ones((3, 2), np.int8), quantization=grid)
    y = ops.dequantize(
        ops.matmul(quantized(x), w, name="product", output_dtype="i32"), graph.main.constant(np.float32(0.1))
    )
    with pytest.raises(linnet.GraphError, match=r"'product'.*computes in integers.*i8.*dequantize its operands first"):
        linnet.gradients(y.sum(), [x])
