"""More ops of com.microsoft against ONNX Runtime, or against their formula in NumPy if it runs them only on GPUs.
Attention is in test_onnx_attention.py, integer ops are in test_onnx_quantized.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import linnet
from tests.exact import weights_for_peers
from tests.test_onnx_quantized import microsoft

Array = np.ndarray
RANDOM = np.random.default_rng(31)


def f32(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Array:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def mine(
    op: str, inputs: dict[str, Array], outputs: int = 1, order: list[str] | None = None, **attributes: Any
) -> list[Array]:
    """linnet's results of one node."""
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, order or list(inputs), names, domain="com.microsoft", **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()
    ]
    results = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", infos, results), opset_imports=imports)
    return list(linnet.Session(linnet.from_onnx(model)).run(inputs).values())


def close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_older_names() -> None:
    microsoft("GatherND", {"x": f32(3, 4, 5)}, {"i": np.array([[0, 1], [2, -1]])})
    grid = {"x": f32(1, 2, 5, 6), "grid": (RANDOM.random((1, 3, 4, 2)) * 2 - 1).astype(np.float32)}
    microsoft("GridSample", grid, {}, mode="bilinear", padding_mode="zeros", align_corners=1)
    microsoft("Trilu", {"x": f32(3, 5, 4)}, {"k": np.array(1)}, upper=0)
    microsoft("Range", {}, {"a": np.float32(1), "b": np.float32(4), "c": np.float32(0.5)})
    microsoft("Range", {}, {"a": np.array(2), "b": np.array(7)})
    microsoft("ExpandDims", {"x": f32(3, 4)}, {"axis": np.array(1, np.int32)})
    microsoft("TransposeMatMul", {"a": f32(3, 7, 5), "b": f32(3, 7, 4)}, {}, transA=1, alpha=0.5)
    for metric in ("euclidean", "sqeuclidean"):
        microsoft("CDist", {"a": f32(6, 5), "b": f32(4, 5)}, {}, metric=metric)


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_inverse(n: int) -> None:
    x = f32(3, n, n) + np.eye(n, dtype=np.float32)
    if n > 1:
        x[0, 0, 0] = 0  # needs pivoting
    (found,) = mine("Inverse", {"x": x})
    np.testing.assert_allclose(found @ x, np.broadcast_to(np.eye(n), x.shape), atol=2e-3)


def test_channels_behind() -> None:
    pool: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    microsoft("NhwcMaxPool", {"x": u8(2, 9, 8, 5)}, {}, **pool)
    x, w = u8(1, 8, 9, 4), weights_for_peers(RANDOM.integers(-100, 100, (6, 4, 3, 3)).astype(np.int8))
    constants = {
        "sx": np.float32(0.02), "zx": np.uint8(100), "w": w, "sw": np.float32(0.01), "zw": np.int8(0), "sy": np.float32(0.1),
        "zy": np.uint8(120), "b": RANDOM.integers(-500, 500, 6).astype(np.int32),
    }  # fmt: skip
    order = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    microsoft("QLinearConv", {"x": x}, constants, order=order, channels_last=1, pads=[1, 1, 1, 1], strides=[2, 1])
    first = {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2))}
    microsoft("QLinearConv", first, constants, order=order, channels_last=0, pads=[1, 1, 1, 1])
    image, kernel, bias = f32(2, 6, 7, 4), f32(5, 3, 3, 4), f32(5)
    (found,) = mine("NhwcConv", {"x": image, "w": kernel, "b": bias}, pads=[1, 1, 1, 1])
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    close(found, np.einsum("nyxcij,oijc->nyxo", windows, kernel) + bias)


def gelu(x: Array) -> Array:
    from math import erf

    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def test_around_norms_and_activations() -> None:
    x, mask = f32(2, 3, 4, 5), f32(2, 1, 1, 5)
    e = np.exp(x + mask)
    close(mine("BiasSoftmax", {"x": x, "b": mask}, axis=3, is_inner_broadcast=0)[0], e / e.sum(-1, keepdims=True))
    rows = np.exp(x + mask)
    flat = rows / rows.sum((2, 3), keepdims=True)
    close(mine("BiasSoftmax", {"x": x, "b": mask}, axis=2, is_inner_broadcast=0)[0], flat)
    a, b, s = f32(2, 6, 8), f32(8), f32(2, 6, 8)
    close(mine("BiasAdd", {"x": a, "b": b, "s": s})[0], a + b + s)
    summed = a + b
    close(mine("BiasSplitGelu", {"x": a, "b": b})[0], summed[..., :4] * gelu(summed[..., 4:]))
    image, gamma, beta = f32(2, 4, 5, 6), f32(6), f32(6)
    skip, bias = f32(2, 4, 5, 6), f32(6)
    for extra in (False, True):
        inputs = {"x": image, "gamma": gamma, "beta": beta} | ({"skip": skip, "bias": bias} if extra else {})
        total = image + skip + bias if extra else image
        groups = total.reshape(2, 20, 3, 2)
        mean, var = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
        y = ((groups - mean) / np.sqrt(var + 1e-5)).reshape(image.shape) * gamma + beta
        op = "SkipGroupNorm" if extra else "GroupNorm"
        found = mine(op, inputs, 1 + extra, groups=3, activation=1, channels_last=1)
        close(found[0], y / (1 + np.exp(-y)))
        if extra:
            close(found[1], total)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_quantize_lstm(direction: str, per_channel: bool) -> None:
    """In every step, ONNX Runtime rounds the hidden state to 8 bits and linnet to 12: they differ by that rounding."""
    from tests.test_onnx_quantized import Builder, reference

    d, n, hidden, batch, time = 2 if direction == "bidirectional" else 1, 12, 8, 3, 6
    constants: dict[str, Array] = {}
    for name, width in (("w", n), ("r", hidden)):
        constants[name] = RANDOM.integers(-120, 120, (d, width, 4 * hidden)).astype(np.int8)
        shape = (d, 4 * hidden) if per_channel else (d,)
        constants[f"{name}_scale"] = (RANDOM.random(shape) * 0.004 + 0.002).astype(np.float32)
        constants[f"{name}_zero"] = np.zeros(shape, np.int8)
    constants["b"] = f32(d, 8 * hidden) * np.float32(0.1)
    order = ["x", "w", "r", "b", "", "h", "c", "", "w_scale", "w_zero", "r_scale", "r_zero"]
    inputs = {"x": f32(time, batch, n), "h": f32(d, batch, hidden) * np.float32(0.3), "c": f32(d, batch, hidden)}
    b = Builder(0)
    names = ["y", "y_h", "y_c"]
    b.nodes = [
        helper.make_node(
            "DynamicQuantizeLSTM", order, names, domain="com.microsoft", hidden_size=hidden, direction=direction
        )
    ]
    b.constants = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    infos = {k: (int(helper.np_dtype_to_tensor_dtype(v.dtype)), v.shape) for k, v in inputs.items()}
    proto = b.model(infos, names, microsoft=True)
    expected = reference(proto, inputs)
    for name, value in linnet.Session(linnet.from_onnx(proto)).run(inputs).items():
        assert value.shape == expected[name].shape
        assert np.abs(value - expected[name]).max() < 0.02, name


def test_quantized_embeddings() -> None:
    ids = {
        "ids": RANDOM.integers(0, 30, (2, 5)).astype(np.int32),
        "segments": RANDOM.integers(0, 2, (2, 5)).astype(np.int32),
        "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    }
    tables = {"words": u8(30, 16), "places": u8(12, 16), "kinds": u8(2, 16), "gamma": u8(16), "beta": u8(16)}
    scales = {f"s{i}": np.float32(0.01 + 0.003 * i) for i in range(5)}
    zeros = {f"z{i}": np.uint8(120 + i) for i in range(5)}
    order = ["ids", "segments", *tables, "mask", *scales, *zeros]
    microsoft("QEmbedLayerNormalization", ids, tables | scales | zeros, outputs=2, order=order)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_gather_of_quantized_blocks(bits: int, zeros: bool) -> None:
    width = 32 if bits == 4 else 64
    constants: dict[str, Array] = {"table": u8(10, width), "scales": (RANDOM.random((10, 4)) + 0.1).astype(np.float32)}
    if zeros:
        constants["zeros"] = u8(10, 2 if bits == 4 else 4)
    order = ["table", "i", "scales", *(["zeros"] if zeros else [])]
    indices = {"i": RANDOM.integers(0, 10, (2, 3))}
    microsoft(
        "GatherBlockQuantized",
        indices,
        constants,
        order=order,
        bits=bits,
        block_size=16,
        gather_axis=0,
        quantize_axis=1,
    )


def test_layer_norm_that_onnx_runtime_fuses_into_an_old_model() -> None:
    """The optimizer writes ai.onnx's LayerNormalization even if the model's opset is older than the op."""
    node = helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"], epsilon=1e-5, axis=-1)
    tensors = [numpy_helper.from_array(f32(6), n) for n in ("scale", "bias")]
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 6]) for n in ("x", "y")]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=7)
    x = f32(2, 6)
    scale, bias = (numpy_helper.to_array(t) for t in tensors)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale + bias
    close(linnet.Session(linnet.from_onnx(model)).run({"x": x})["y"], expected)
