"""Models that ONNX Runtime's quantizer has given unsigned 16-bit activations and weights of 4 and 8 bits: all products multiply
integers, the file is no larger than ONNX's, and the results are those of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import linnet
from linnet.ir.function import Node

Array = npt.NDArray[Any]
SHAPE = (1, 3, 12, 12)


def network(path: Path) -> None:
    """Convolutions with padding, by depth, with a window of one, and a product: 9 KB of weights."""
    rng = np.random.default_rng(0)
    nodes, constants = [], []

    def constant(name: str, *shape: int, scale: float = 1.0) -> str:
        values = (rng.standard_normal(shape) * scale + 0.3 * scale).astype(np.float32)  # not symmetric
        constants.append(numpy_helper.from_array(values, name))
        return name

    def conv(x: str, name: str, inputs: int, outputs: int, kernel: int, group: int = 1, **attributes: Any) -> str:
        w = constant(f"{name}_w", outputs, inputs // group, kernel, kernel, scale=(inputs // group * kernel**2) ** -0.5)
        b = constant(f"{name}_b", outputs)
        nodes.append(helper.make_node("Conv", [x, w, b], [f"{name}_y"], name, group=group, **attributes))
        nodes.append(helper.make_node("Relu", [f"{name}_y"], [name], f"{name}_relu"))
        return name

    x = conv("x", "first", 3, 24, 3, pads=[1, 1, 1, 1])
    x = conv(x, "depth", 24, 24, 3, 24, pads=[0, 1, 1, 0], strides=[2, 2])
    x = conv(x, "point", 24, 200, 1)
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    nodes.append(
        helper.make_node(
            "Gemm", ["flat", constant("fc_w", 10, 200, scale=0.1), constant("fc_b", 10)], ["y"], "fc", transB=1
        )
    )
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))], constants,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self.left = [{"x": sample(i)} for i in range(4)]

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


def sample(seed: int) -> Array:
    return (np.random.default_rng(seed).standard_normal(SHAPE) + 0.5).astype(np.float32)


def quantized(folder: Path, weights: str, per_channel: bool, symmetric: bool) -> Path:
    network(folder / "float.onnx")
    extra = {"ActivationSymmetric": symmetric, "WeightSymmetric": False if weights == "QUInt8" else None}
    quantize_static(
        folder / "float.onnx", folder / "small.onnx", Samples(), quant_format=QuantFormat.QDQ, per_channel=per_channel,
        activation_type=QuantType.QUInt16, weight_type=QuantType[weights],
        extra_options={key: value for key, value in extra.items() if value is not None},
    )  # fmt: skip
    return folder / "small.onnx"


def operands(node: Node) -> tuple[str, str]:
    x, w = node.inputs[:2]
    assert x is not None and w is not None and x.quantization is not None
    assert not np.any(x.quantization.zero), "the fast kernels take no zero point"
    return x.dtype, w.dtype


@pytest.mark.parametrize(
    ("weights", "per_channel", "symmetric", "kind"),
    [
        ("QInt4", True, False, "i8"), ("QUInt4", False, False, "i16"), ("QUInt8", False, False, "i16"),
        ("QInt8", True, False, "i8"), ("QInt8", True, True, "i8"),
    ],
)  # fmt: skip
def test_activations_of_u16(weights: str, per_channel: bool, symmetric: bool, kind: str, tmp_path: Path) -> None:
    path = quantized(tmp_path, weights, per_channel, symmetric)
    graph = linnet.from_onnx(path)
    products = [n for n in graph.signatures["infer"].function.nodes if n.op in ("conv", "matmul")]
    found = [operands(n) for n in products]
    assert len(found) == 4 and {x for x, _ in found} == {"i16"} and kind in {w for _, w in found}, found
    graph.save(tmp_path / "small.lnt")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    session = linnet.Session(tmp_path / "small.lnt")
    for seed in range(10, 14):
        (wanted,), (got,) = theirs.run(None, {"x": sample(seed)}), session.run({"x": sample(seed)}).values()
        # ONNX Runtime multiplies floats, whose rounding moves a few results by one of 65536 steps.
        np.testing.assert_allclose(got, wanted, rtol=0, atol=4e-4 * np.abs(wanted).max())
    kernels = {step.kernel for step in session.steps if step.op in ("conv", "matmul")}
    assert not [name for name in kernels if name.endswith("reference")], kernels


@pytest.mark.parametrize("weights", ["QInt4", "QUInt8"])
def test_files_stay_as_small(weights: str, tmp_path: Path) -> None:
    path = quantized(tmp_path, weights, False, False)
    linnet.from_onnx(path).save(tmp_path / "small.lnt")
    bits = 4 if weights == "QInt4" else 8
    numbers = 24 * 27 + 24 * 9 + 24 * 200 + 200 * 10
    size = (tmp_path / "small.lnt").stat().st_size
    assert size < (tmp_path / "float.onnx").stat().st_size
    # 24 KB: names, steps that unpack, and biases of 64 bits
    assert size < numbers * bits / 8 + 24_000


def test_unsigned_tensors_that_something_else_reads_stay() -> None:
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])]
    nodes.append(helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]))
    outputs = [
        helper.make_tensor_value_info(n, t, (4,)) for n, t in (("y", TensorProto.FLOAT), ("q", TensorProto.UINT16))
    ]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,))], outputs,
        [numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.uint16(40000), "z")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    made = linnet.Session(linnet.from_onnx(model)).run({"x": np.array([0, 1, -3.25, 1e9], np.float32)})
    np.testing.assert_array_equal(made["q"], np.array([40000, 40002, 39994, 65535], np.uint16))
    np.testing.assert_array_equal(made["y"], np.array([0, 1, -3, 12767.5], np.float32))
