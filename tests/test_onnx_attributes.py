"""Every attribute that changes a result, at a non-default value, against ONNX Runtime, so that a converter or kernel that ignores
one fails. Models have one node; sizes are odd, so that halves, remainders and edges occur."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import linnet
from tests.test_onnx_rules import build, check, node

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


X2, X3, X4 = floats(3, 7), floats(2, 5, 7), floats(2, 4, 7, 9)


def one(
    op: str, inputs: dict[str, Array], outputs: int = 1, opset: int = 18, constants: Any = None, **attributes: Any
) -> None:
    """Compares the node's results in fast and reference kernels with ONNX Runtime.

    inputs: by name, in order. constants: further ones."""
    names = [*inputs, *(constants or {})]
    results = [f"y{i}" for i in range(outputs)]
    types = {name: (onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in inputs.items()}
    proto = build([node(op, " ".join(names), " ".join(results), **attributes)], types, results, constants, opset)
    graph = check(proto, inputs)
    fast, plain = (linnet.Session(graph, reference=reference).run(inputs) for reference in (False, True))
    for name, value in plain.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(fast[name], value, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(fast[name], value)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters(reduction: str) -> None:
    indices = np.array([[0, -1, 2], [-2, 1, -3]], np.int64)
    one("ScatterElements", {"x": X2, "i": indices, "u": floats(2, 3)}, axis=0, reduction=reduction)
    one("ScatterElements", {"x": X2, "i": indices, "u": floats(2, 3)}, axis=-1, reduction=reduction)
    one("ScatterND", {"x": X3, "i": np.array([[-1, 2], [0, -5]]), "u": floats(2, 7)}, reduction=reduction)


def test_gathers() -> None:
    indices = np.array([[0, -1], [2, -3]], np.int64)
    for axis in (0, 1, -1):
        one("Gather", {"x": X3[:, :3, :3].copy(), "i": indices % 2 - 1}, axis=axis)
    for axis in (0, 1):
        one("GatherElements", {"x": floats(3, 3), "i": indices}, axis=axis)
    one("GatherND", {"x": X3, "i": np.array([[-1, 2], [0, -5]])})
    one("GatherND", {"x": X3, "i": np.array([[2], [-5]])}, batch_dims=1)


REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions(kind: str) -> None:
    x = np.abs(X3) + 0.1 if kind == "LogSum" else X3
    for axes in ([0], [-1], [1, 2], [0, -1]):
        for keep in (0, 1):
            one(f"Reduce{kind}", {"x": x}, constants={"a": np.array(axes)}, keepdims=keep)
    one(f"Reduce{kind}", {"x": x}, constants={"a": np.zeros(0, np.int64)}, keepdims=0)
    if kind != "LogSumExp":
        one(f"Reduce{kind}", {"x": x}, constants={"a": np.zeros(0, np.int64)}, noop_with_empty_axes=1)
    one(f"Reduce{kind}", {"x": x}, opset=11, axes=[-2], keepdims=0)


@pytest.mark.parametrize("op", ["CumSum"])
@pytest.mark.parametrize("axis", [0, 2, -2])
def test_running_sums(op: str, axis: int) -> None:
    for exclusive in (0, 1):
        for reverse in (0, 1):
            one(op, {"x": X3}, constants={"a": np.array(axis)}, exclusive=exclusive, reverse=reverse)


def test_reductions_of_u64() -> None:
    """ONNX Runtime has none: use NumPy"""
    x = np.array([[1, 2**63 + 5, 2**64 - 1], [2**63, 3, 2**62]], np.uint64)
    for kind in ("max", "min"):
        graph = linnet.Graph()
        given = graph.placeholder("x", x.shape, "u64")
        y = linnet.ops.reduce(given, kind=kind, axis=[1], keep_dims=False)
        graph.signature("infer", {"x": given}, {"y": y})
        found = linnet.Session(graph).run({"x": x})["y"]
        assert found.tolist() == getattr(x, kind)(1).tolist()


@pytest.mark.parametrize("largest", [0, 1])
def test_indices_of_extremes(largest: int) -> None:
    x = RNG.integers(0, 4, (3, 17)).astype(np.float32)  # many equal values
    x[:, -1] = 9 if largest else -9  # the last one counts too
    for k in (1, 5, 17):
        one("TopK", {"x": x}, 2, constants={"k": np.array([k])}, axis=-1, largest=largest)
    one("TopK", {"x": x}, 2, constants={"k": np.array([2])}, axis=0, largest=largest)
    for last in (0, 1):
        for axis in (0, 1, -1):
            one("ArgMax" if largest else "ArgMin", {"x": x}, axis=axis, keepdims=last, select_last_index=last)


SLICES = [
    ([1], [6], [2], [2]), ([-3], [1 << 62], [2], [1]), ([6], [-(1 << 62)], [2], [-1]), ([5], [0], [2], [-2]),
    ([0, 1], [2, 7], [0, 2], [1, 3]),
    ([0], [7], [-1], [3]), ([0], [6], [-1], [3]), ([-100], [100], [1], [1]), ([4], [2], [1], [1]),
    ([-1], [-8], [2], [-3]),
]  # fmt: skip


@pytest.mark.parametrize("numbers", SLICES)
def test_slices(numbers: tuple[list[int], ...]) -> None:
    names = ("starts", "ends", "axes", "steps")
    one("Slice", {"x": X3}, constants={n: np.array(v) for n, v in zip(names, numbers, strict=True)})
    one("Slice", {"x": X3, **{n: np.array(v) for n, v in zip(names, numbers, strict=True)}})


def test_movements() -> None:
    one("Transpose", {"x": X3}, perm=[2, 0, 1])
    one("Concat", {"x": X3, "y": floats(2, 5, 3)}, axis=-1)
    one("Concat", {"x": X3, "y": floats(2, 2, 7)}, axis=1)
    one("Split", {"x": X3}, 2, constants={"s": np.array([2, 5])}, axis=-1)
    one("Split", {"x": X3}, 3, axis=2, num_outputs=3)
    one("Flatten", {"x": X4}, axis=2)
    one("Flatten", {"x": X4}, axis=-1)
    one("DepthToSpace", {"x": floats(2, 12, 3, 2)}, blocksize=2, mode="CRD")
    one("DepthToSpace", {"x": floats(2, 12, 3, 2)}, blocksize=2, mode="DCR")
    one("SpaceToDepth", {"x": floats(1, 2, 6, 4)}, blocksize=2)
    one("Trilu", {"x": floats(5, 5)}, constants={"k": np.array(1)}, upper=0)
    one("Trilu", {"x": floats(5, 5)}, constants={"k": np.array(-1)}, upper=1)
    one("Reshape", {"x": X3}, constants={"s": np.array([0, -1])})
    one("Reshape", {"x": floats(0, 3)}, constants={"s": np.array([3, 0])}, allowzero=1)
    for first, end, step in ((0, 5, 2), (0, 6, 2), (5, -2, -3), (3, 3, 1)):
        one("Range", {"a": np.array(first), "b": np.array(end), "c": np.array(step)})
    for mode in ("reflect", "edge", "wrap"):
        one("Pad", {"x": X3}, opset=19, constants={"p": np.array([0, 1, 2, 0, 3, 1])}, mode=mode)
    one("Pad", {"x": X3}, constants={"p": np.array([0, 1, 2, 0, -1, 1]), "v": np.float32(2.5)})
    one("ReverseSequence", {"x": X2, "n": np.array([1, 7, 4])}, batch_axis=0, time_axis=1)
    one("EyeLike", {"x": X2}, k=2)
    one("OneHot", {"i": np.array([0, -1, 2]), "d": np.array(4), "v": floats(2)}, axis=0)


POOLS: list[dict[str, Any]] = [
    {}, {"strides": [2, 3]}, {"pads": [1, 0, 1, 1]}, {"pads": [1, 1, 0, 2], "ceil_mode": 1, "strides": [2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"auto_pad": "VALID", "strides": [3, 2]}, {"dilations": [2, 1]}, {"ceil_mode": 1, "strides": [3, 3]},
    {"pads": [0, 0, 2, 2], "ceil_mode": 1, "strides": [3, 3]},
]  # fmt: skip


@pytest.mark.parametrize("attributes", POOLS, ids=str)
def test_pools(attributes: dict[str, Any]) -> None:
    kernel = [3, 2] if "auto_pad" in attributes else [3, 3]
    one("MaxPool", {"x": X4}, kernel_shape=kernel, **attributes)
    if "ceil_mode" not in attributes or "pads" not in attributes:  # ONNX Runtime's averages differ from ONNX here
        one("AveragePool", {"x": X4}, opset=19, kernel_shape=kernel, **attributes)
        one("AveragePool", {"x": X4}, opset=19, kernel_shape=kernel, count_include_pad=1, **attributes)
    one("LpPool", {"x": X4}, kernel_shape=kernel, p=3, **attributes)


def test_indices_of_pools() -> None:
    x = RNG.integers(0, 3, (2, 3, 7, 9)).astype(np.float32)
    for order in (0, 1):
        one("MaxPool", {"x": x}, 2, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1], storage_order=order)


CONVOLUTIONS: list[dict[str, Any]] = [
    {}, {"strides": [2, 3]}, {"pads": [1, 0, 2, 1]}, {"dilations": [2, 1]}, {"dilations": [1, 3], "pads": [0, 1, 0, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, {"auto_pad": "VALID"},
    {"group": 2}, {"group": 4, "pads": [1, 1, 1, 1]},
]  # fmt: skip


@pytest.mark.parametrize("attributes", CONVOLUTIONS, ids=str)
def test_convolutions(attributes: dict[str, Any]) -> None:
    group = attributes.get("group", 1)
    kernel = (3, 2) if "auto_pad" in attributes else (3, 3)
    one("Conv", {"x": X4}, constants={"w": floats(8, 4 // group, *kernel), "b": floats(8)}, **attributes)
    one("ConvTranspose", {"x": X4}, constants={"w": floats(4, 6 // group if group == 2 else 3, *kernel)}, **attributes)


def test_outputs_of_transposed_convolutions() -> None:
    w = floats(4, 3, 3, 3)
    for attributes in (
        {"output_padding": [1, 0], "strides": [2, 2]}, {"output_shape": [15, 19], "strides": [2, 2]},
        {"output_padding": [0, 1], "strides": [3, 2], "pads": [1, 1, 0, 1]},
    ):  # fmt: skip
        one("ConvTranspose", {"x": X4}, constants={"w": w}, **attributes)


@pytest.mark.parametrize("transposes", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_products(transposes: tuple[int, int]) -> None:
    a, b = floats(3, 5), floats(5, 4)
    a, b = (a.T.copy() if transposes[0] else a), (b.T.copy() if transposes[1] else b)
    flags = {"transA": transposes[0], "transB": transposes[1]}
    one("Gemm", {"a": a, "b": b, "c": floats(3, 4)}, alpha=0.5, beta=-2.0, **flags)
    one("Gemm", {"a": a}, constants={"b": b, "c": floats(4)}, alpha=0.5, beta=-2.0, **flags)
    one("Gemm", {"a": a}, constants={"b": b, "c": floats(4)}, beta=3.0, **flags)
    one("Gemm", {"a": a}, constants={"b": b, "c": floats(3, 1)}, beta=3.0, **flags)
    one("Gemm", {"a": a}, constants={"b": b}, alpha=0.25, **flags)
    one("Gemm", {"a": a, "b": b}, alpha=0.25, **flags)


ACTIVATIONS: list[tuple[str, dict[str, float]]] = [
    ("LeakyRelu", {"alpha": 0.3}), ("Elu", {"alpha": 0.7}), ("Celu", {"alpha": 1.5}), ("Selu", {"alpha": 1.2, "gamma": 0.8}),
    ("HardSigmoid", {"alpha": 0.4, "beta": 0.3}), ("ThresholdedRelu", {"alpha": 0.4}), ("Shrink", {"lambd": 0.6, "bias": 0.2}),
    ("Softplus", {}), ("Softsign", {}), ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Erf", {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attributes"), ACTIVATIONS)
def test_activations(op: str, attributes: dict[str, float]) -> None:
    one(op, {"x": np.concatenate([X2, [[-30.0, 30, 0.4, -0.4, 0.6, -0.6, 0]]]).astype(np.float32)}, **attributes)


def test_gelu() -> None:
    for approximate in ("none", "tanh"):
        one("Gelu", {"x": X2 * 3}, opset=20, approximate=approximate)
    one("PRelu", {"x": X3}, constants={"s": floats(5, 1)})
    one("Clip", {"x": X2}, constants={"low": np.float32(-0.3), "high": np.float32(0.9)})


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_softmaxes(axis: int) -> None:
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        one(op, {"x": X3}, axis=axis)


def test_normalizations() -> None:
    vector = {k: np.abs(floats(4)) + 0.5 for k in ("s", "b", "m", "v")}
    one("BatchNormalization", {"x": X4}, constants=vector, epsilon=0.3)
    one("InstanceNormalization", {"x": X4}, constants={"s": vector["s"], "b": vector["b"]}, epsilon=0.3)
    one("LayerNormalization", {"x": X3}, constants={"s": floats(7), "b": floats(7)}, epsilon=0.3)
    one("LayerNormalization", {"x": X3}, constants={"s": floats(5, 7), "b": floats(5, 7)}, axis=1, epsilon=0.3)
    one("LayerNormalization", {"x": X3}, constants={"s": floats(5, 7), "b": floats(5, 7)}, axis=-2)
    one("LRN", {"x": X4}, size=3, alpha=0.4, beta=0.6, bias=1.5)
    one("LpNormalization", {"x": X3}, axis=1, p=1)
    one("LpNormalization", {"x": X3}, axis=-1, p=2)
    one("MeanVarianceNormalization", {"x": X4}, axes=[0, 2])


RESIZES: list[dict[str, Any]] = [
    {"mode": "linear"}, {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
    {"mode": "nearest", "nearest_mode": "ceil"}, {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    {"mode": "nearest", "nearest_mode": "round_prefer_floor"},
    {"mode": "cubic", "cubic_coeff_a": -0.5}, {"mode": "cubic", "exclude_outside": 1},
    {"mode": "linear", "antialias": 1}, {"mode": "cubic", "antialias": 1},
]  # fmt: skip


@pytest.mark.parametrize("attributes", RESIZES, ids=str)
def test_resizes(attributes: dict[str, Any]) -> None:
    for scale in (2.0, 1.5, 0.5):
        scales = np.array([1, 1, scale, scale], np.float32)
        if attributes["mode"] == "nearest" and scale == 0.5:
            scales[2:] = 0.375  # 2 / 0.4 is 5 in f32, as ONNX Runtime computes it, and less in ONNX's reference
        x = X4[:, :, :6, :8].copy()
        if attributes.get("antialias") and scale > 1:
            continue
        one("Resize", {"x": x}, constants={"r": np.zeros(0, np.float32), "s": scales}, opset=19, **attributes)


def test_quantization() -> None:
    """Halves, ends of the range, and quotients that x * (1 / scale) would round differently."""
    scale = np.float32(0.1)
    x = np.concatenate([np.arange(-300, 300) * scale / 2, np.float32([1e9, -1e9, 0, 0.05])]).astype(np.float32)
    for zero in (np.int8(3), np.uint8(100), np.int8(-128)):
        one("QuantizeLinear", {"x": x}, constants={"s": scale, "z": zero})
        integers = np.arange(256).astype(np.uint8).view(zero.dtype)
        one("DequantizeLinear", {"x": integers}, constants={"s": scale, "z": zero})
    scales = np.float32([0.1, 0.3, 0.7])
    for axis in (0, -2):
        rows = x[:591].reshape(3, 197)
        one("QuantizeLinear", {"x": rows}, constants={"s": scales, "z": np.int8([0, 1, -2])}, axis=axis)
    wide = RNG.uniform(-12, 12, 20_000).astype(np.float32)
    for number in (0.1, 0.7, 0.013, 1 / 3):
        one("QuantizeLinear", {"x": wide}, constants={"s": np.float32(number), "z": np.uint8(128)})


def test_recurrent_attributes() -> None:
    x, w, r = floats(5, 2, 3), floats(1, 16, 3), floats(1, 16, 4)
    for attributes in ({}, {"direction": "reverse"}, {"clip": 0.3}, {"input_forget": 1}):
        one("LSTM", {"x": x}, 3, constants={"w": w, "r": r}, hidden_size=4, **attributes)
    for linear in (0, 1):
        one(
            "GRU", {"x": x}, 2, constants={"w": w[:, :12], "r": r[:, :12], "b": floats(1, 24)}, hidden_size=4,
            linear_before_reset=linear,
        )  # fmt: skip
    lengths = {"b": floats(1, 8), "n": np.array([5, 3], np.int32)}
    one("RNN", {"x": x}, 2, constants={"w": w[:, :4], "r": r[:, :4], **lengths}, hidden_size=4, activations=["Relu"])


def test_global_pools() -> None:
    for p in (1, 2, 3):
        one("GlobalLpPool", {"x": X4}, p=p)
    one("GlobalMaxPool", {"x": X4})
    one("GlobalAveragePool", {"x": X4})


def test_boxes() -> None:
    """Boxes with an overlap at the threshold stay, boxes with a score at theirs go; two classes, each with its own limit."""
    boxes = np.float32([[[0, 0, 1, 2], [0, 0, 1, 1], [0, 1, 1, 2], [4, 4, 5, 5], [4, 4, 5, 5.25]]])
    scores = np.float32([[[0.9, 0.8, 0.7, 0.5, 0.4], [0.1, 0.5, 0.9, 0.2, 0.6]]])
    for most in (1, 2, 5):
        for overlap in (0.5, 0.49, 0.8, 0.79):
            for least in (0.0, 0.4, 0.5):
                limits = {"m": np.array([most]), "o": np.float32([overlap]), "s": np.float32([least])}
                one("NonMaxSuppression", {"b": boxes, "c": scores}, constants=limits)
    limits = {"m": np.array([5]), "o": np.float32([0.3])}
    one("NonMaxSuppression", {"b": boxes, "c": scores}, constants=limits, center_point_box=1)


@pytest.mark.parametrize(("size", "beta"), [(1, 0.6), (2, 0.75), (3, 0.75), (4, 0.5), (7, 1.0)])
def test_windows_of_channels(size: int, beta: float) -> None:
    """LRN by its formula. An even window, which ONNX Runtime refuses, has its longer half at the end."""
    x = floats(2, 6, 3, 2)
    proto = build([node("LRN", "x", "y", size=size, alpha=0.4, beta=beta, bias=1.5)], {"x": list(x.shape)}, ["y"])
    found = linnet.Session(linnet.from_onnx(proto)).run({"x": x})["y"]
    expected = np.empty_like(x)
    for c in range(6):
        window = x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1]
        expected[:, c] = x[:, c] / (1.5 + 0.4 / size * (window.astype(np.float64) ** 2).sum(1)) ** beta
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
