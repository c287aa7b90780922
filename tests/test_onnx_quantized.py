"""Quantized ONNX models on integer kernels: random networks that ONNX Runtime's quantizer writes, and com.microsoft's ops.
The reference is ONNX Runtime's integer result: at most one quantum away, and that in at most one of 1,000 elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as ortq

import linnet

Array = np.ndarray[Any, Any]
S8, U8 = ortq.QuantType.QInt8, ortq.QuantType.QUInt8
KINDS = {"s8s8": (S8, S8), "u8s8": (U8, S8), "u8u8": (U8, U8)}


class Builder:
    """A float network, node by node."""

    def __init__(self, seed: int, opset: int = 17) -> None:
        self.random, self.opset = np.random.default_rng(seed), opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def weight(self, *shape: int, spread: float = 0.3) -> str:
        name = f"w{len(self.constants)}"
        scales = 2.0 ** self.random.uniform(-2, 1, (shape[0], *[1] * (len(shape) - 1)))
        values = self.random.standard_normal(shape) * spread * scales
        self.constants.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def __call__(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{len(self.nodes)}", domain=domain, **attributes))
        return name

    def model(self, inputs: dict[str, Any], outputs: list[str], microsoft: bool = False) -> onnx.ModelProto:
        infos = [
            helper.make_tensor_value_info(n, *(s if isinstance(s[0], int) and isinstance(s[1], tuple) else (1, s)))
            for n, s in inputs.items()
        ]
        made = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", infos, made, self.constants)
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid("com.microsoft", 1)] if microsoft else []
        proto = helper.make_model(graph, opset_imports=imports, ir_version=8)
        return proto if microsoft else onnx.shape_inference.infer_shapes(proto)


def cnn(seed: int) -> onnx.ModelProto:
    """A stem, a residual block, a depthwise block, branches joined by Concat, and a head."""
    b = Builder(seed)
    x = b("Relu", b("Conv", "x", b.weight(12, 3, 3, 3), b.weight(12), pads=[1, 1, 1, 1], strides=[2, 2]))
    y = b("Relu", b("Conv", x, b.weight(12, 12, 3, 3, spread=0.1), b.weight(12), pads=[1, 1, 1, 1]))
    y = b("Conv", y, b.weight(12, 12, 1, 1), b.weight(12))
    x = b("Relu", b("Add", x, y))
    y = b("Conv", x, b.weight(12, 1, 3, 3), b.weight(12), group=12, pads=[1, 1, 1, 1])
    y = b("Clip", y, b.constant(np.float32(0)), b.constant(np.float32(6)))
    z = b("LeakyRelu", b("Conv", x, b.weight(8, 12, 1, 1), b.weight(8)), alpha=0.1)
    x = b("Concat", b("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]),
          b("AveragePool", z, kernel_shape=[2, 2], strides=[2, 2]), axis=1)  # fmt: skip
    x = b("Mul", x, b("Sigmoid", b("Conv", x, b.weight(20, 20, 1, 1, spread=0.2), b.weight(20))))
    x = b("Flatten", b("GlobalAveragePool", x))
    return b.model({"x": (2, 3, 24, 24)}, [b("Gemm", x, b.weight(10, 20), b.weight(10), transB=1)])


def mlp(seed: int) -> onnx.ModelProto:
    """Products of every kind: Gemm, MatMul with a bias by Add, activation by activation, a softmax."""
    b = Builder(seed)
    x = b("Relu", b("Gemm", "x", b.weight(32, 24), b.weight(32), transB=1))
    y = b("Sigmoid", b("Add", b("MatMul", x, b.weight(32, 32)), b.weight(32)))
    x = b("Add", x, y)
    q, k = b("MatMul", x, b.weight(32, 16)), b("MatMul", x, b.weight(32, 16))
    scores = b("Softmax", b("MatMul", q, b("Transpose", k, perm=[1, 0])), axis=-1)
    x = b("MatMul", scores, b("Reshape", x, b.constant(np.array([-1, 32]))))
    return b.model({"x": (40, 24)}, [b("Gemm", x, b.weight(32, 10), b.weight(10))])


class Reader(ortq.CalibrationDataReader):  # type: ignore[misc]
    """Batches for the quantizer."""

    def __init__(self, feeds: list[dict[str, Array]]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:
        return next(self.feeds, None)


def quantized(proto: onnx.ModelProto, path: Path, style: str, kind: str, per_channel: bool, seed: int) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    source, target = path / "float.onnx", path / "integer.onnx"
    onnx.save(proto, source)
    activation, weight = KINDS[kind]
    ortq.quantize_static(
        source, target, Reader(feeds), activation_type=activation, weight_type=weight, per_channel=per_channel,
        quant_format=ortq.QuantFormat.QDQ if style == "QDQ" else ortq.QuantFormat.QOperator,
    )  # fmt: skip
    return onnx.load(target)


def integer_tensors(proto: onnx.ModelProto) -> dict[str, tuple[float, int]]:
    """Every activation that the model stores as integers: its scale and zero point."""
    constants = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    found = {}
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[1] in constants:
            found[node.output[0]] = float(constants[node.input[1]]), int(constants[node.input[2]])
    return found


def reference(proto: onnx.ModelProto, feeds: dict[str, Array], extra: list[str] = []) -> dict[str, Array]:  # noqa: B006
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def differences(mine: Array, theirs: Array) -> Array:
    return np.abs(mine.astype(np.int64) - theirs.astype(np.int64))


def everything(proto: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """The value of every tensor, node by node as ONNX Runtime computes it."""
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=o) for n in proto.graph.node for o in n.output)
    return reference(whole, feeds) | feeds


def layers(proto: onnx.ModelProto, values: dict[str, Array]) -> list[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    """One model per op between integers, with the integers that it reads, so that no error is carried on."""
    made = []
    constants = {t.name: t for t in proto.graph.initializer}
    makers = {o: n for n in proto.graph.node for o in n.output}

    def info(name: str) -> Any:
        value = values[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)

    for last in proto.graph.node:
        if last.op_type == "DequantizeLinear" or values[last.output[0]].dtype not in (np.int8, np.uint8):
            continue
        nodes: list[Any] = []
        inputs: dict[str, None] = {}
        pending = [last]
        while pending:
            node = pending.pop()
            nodes.append(node.output[0])
            for name in node.input:
                if name in makers and values[name].dtype == np.float32:
                    pending.append(makers[name])
                elif name and name not in constants:
                    inputs[name] = None
        if any(values[name].dtype == np.float32 for name in inputs):
            continue
        order = [n for n in proto.graph.node if n.output[0] in nodes]
        used = [constants[c] for c in dict.fromkeys(i for n in order for i in n.input) if c in constants]
        graph = helper.make_graph(order, "layer", [info(i) for i in inputs], [info(last.output[0])], used)
        name = "+".join(n.op_type for n in order if n.op_type not in ("QuantizeLinear", "DequantizeLinear"))
        model = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=8)
        made.append((name or last.op_type, model, {i: values[i] for i in inputs}))
    return made


CASES = [
    (net, style, kind, per_channel)
    for net in ("cnn", "mlp")
    for style in ("QDQ", "QOperator")
    for kind in KINDS
    for per_channel in (False, True)
    if not (style == "QOperator" and kind == "s8s8" and net == "mlp" and per_channel)
]
