"""Quantized ONNX models on integer kernels: random networks quantized by ONNX Runtime, and com.microsoft's ops.
The reference is ONNX Runtime's integer result: at most one quantum apart, and in at most one of 1,000 elements."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as ortq

import linnet
from linnet._fetch import fetch_member
from tests.exact import EXACT
from tests.zoo import at_hand

Array = np.ndarray[Any, Any]
S8, U8 = ortq.QuantType.QInt8, ortq.QuantType.QUInt8


KINDS = {"s8s8": (S8, S8), "u8s8": (U8, S8), "u8u8": (U8, U8)}


class Builder:
    """A float network, built node by node."""

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


def zoo_of_ops(seed: int) -> onnx.ModelProto:
    """Other ops between integers: other ranks, transposed convolutions, resizing, splits, and float islands."""
    b = Builder(seed)
    x = b("HardSwish", b("Conv", "x", b.weight(8, 3, 3, 3), b.weight(8), pads=[1, 1, 1, 1], dilations=[1, 1]))
    up = b("ConvTranspose", x, b.weight(8, 6, 2, 2), b.weight(6), strides=[2, 2])
    up = b("Tanh", b("MaxPool", up, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    near = b("Resize", x, "", "", b.constant(np.array([2, 8, 23, 23])), mode="nearest")
    # a factor of 2 would make every 16th element a tie, decided by the order of sums in f32
    wide = b("Resize", x, "", "", b.constant(np.array([2, 8, 23, 23])), mode="linear")
    x = b("Sub", near, wide)
    x = b("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = b("Conv", b("Concat", x, up, axis=1), b.weight(16, 14, 1, 1), b.weight(16))
    b.nodes.append(
        helper.make_node("Split", [x, b.constant(np.array([6, 10]))], ["left", "right"], name="split", axis=1)
    )
    x = b("Concat", "right", b("Elu", "left"), axis=1)
    x = b("Add", x, b("PRelu", x, b.weight(16, 1, 1)))
    x = b("Reshape", x, b.constant(np.array([0, 16, -1])))
    x = b("Relu", b("Conv", x, b.weight(12, 16, 5, spread=0.1), b.weight(12), strides=[3]))
    x = b("Transpose", x, perm=[0, 2, 1])
    x = b("LayerNormalization", x, b.weight(12), b.weight(12))
    x = b("Mul", b("MatMul", x, b.weight(12, 12)), b.constant(np.float32(0.5)))
    x = b("MatMul", b("Transpose", x, perm=[0, 2, 1]), b("Div", x, b.constant(np.float32(3))))
    x = b("Unsqueeze", b("ReduceMean", x, axes=[2], keepdims=0), b.constant(np.array([1])))
    return b.model({"x": (2, 3, 12, 12)}, [b("Squeeze", x, b.constant(np.array([1])))])


class Reader(ortq.CalibrationDataReader):  # type: ignore[misc]
    """Calibration batches for the quantizer."""

    def __init__(self, feeds: list[dict[str, Array]]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:
        return next(self.feeds, None)


def quantized(
    proto: onnx.ModelProto, path: Path, style: str, kind: str, per_channel: bool, seed: int
) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    source, target = path / "float.onnx", path / "integer.onnx"
    onnx.save(proto, source)
    activation, weight = KINDS[kind]
    ortq.quantize_static(
        source, target, Reader(feeds), activation_type=activation, weight_type=weight, per_channel=per_channel,
        reduce_range=not EXACT, quant_format=ortq.QuantFormat.QDQ if style == "QDQ" else ortq.QuantFormat.QOperator,
    )  # fmt: skip
    return onnx.load(target)


def integer_tensors(proto: onnx.ModelProto) -> dict[str, tuple[float, int]]:
    """The scale and zero point of every activation that the model stores as integers."""
    constants = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    found = {}
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[1] in constants:
            found[node.output[0]] = float(constants[node.input[1]]), int(constants[node.input[2]])
    return found


def reference(
    proto: onnx.ModelProto, feeds: dict[str, Array], extra: Sequence[str] = (), floats: bool = False
) -> dict[str, Array]:
    """`floats`: ONNX Runtime computes what lies between DequantizeLinear and QuantizeLinear in f32."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if (
        not EXACT
    ):  # no sums that saturate, where it can; with VNNI there are none, and ONNX Runtime 1.32 fails with this entry
        options.add_session_config_entry("session.x64quantprecision", "1")
    if floats:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def differences(mine: Array, theirs: Array) -> Array:
    return np.abs(mine.astype(np.int64) - theirs.astype(np.int64))


def everything(proto: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """The value of every tensor, as ONNX Runtime computes it node by node."""
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    del whole.graph.output[:]
    whole.graph.output.extend(onnx.ValueInfoProto(name=o) for n in proto.graph.node for o in n.output)
    return reference(whole, feeds) | feeds


def layers(proto: onnx.ModelProto, values: dict[str, Array]) -> list[tuple[str, onnx.ModelProto, dict[str, Array]]]:
    """One model per op between integers, with the integers it reads, so that errors do not accumulate."""
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
    for net in ("cnn", "mlp", "zoo_of_ops")
    for style in ("QDQ", "QOperator")
    for kind in KINDS
    for per_channel in (False, True)
    if not (style == "QOperator" and kind == "s8s8" and net == "mlp" and per_channel)
]


@pytest.mark.parametrize(("net", "style", "kind", "per_channel"), CASES)
def test_integers_equal_those_of_onnx_runtime(
    net: str, style: str, kind: str, per_channel: bool, tmp_path: Path
) -> None:
    """Compares layer by layer, on the network's integers and on random ones; no product may remain in floats."""
    seed = sum(map(ord, f"{net}{style}{kind}{per_channel}"))
    proto = quantized(
        {"cnn": cnn, "mlp": mlp, "zoo_of_ops": zoo_of_ops}[net](seed), tmp_path, style, kind, per_channel, seed
    )
    random = np.random.default_rng(seed)
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": random.standard_normal(shape).astype(np.float32)}

    graph = linnet.from_onnx(proto)
    session = linnet.Session(graph)
    mine = next(iter(session.run(feeds).values()))
    theirs = next(iter(reference(proto, feeds).values()))
    assert np.abs(mine - theirs).max() <= 0.02 * np.abs(theirs).max()  # a few quanta of the last layers
    heavy = (
        ("conv", "matmul", "conv_transpose") if style == "QDQ" else ("conv", "matmul")
    )  # there is no QLinearConvTranspose
    products = [n for n in graph.functions[0].nodes if n.op in heavy]
    assert products
    for node in products:
        assert all(t is not None and t.dtype in ("i8", "u8") for t in node.inputs[:2]), node.source
    kernels = [s.kernel for s in session.steps if s.kernel.startswith(("conv_i", "matmul"))]
    assert len(kernels) == sum(n.op != "conv_transpose" for n in products)
    assert not [k for k in kernels if "f32" in k or "reference" in k], kernels

    checked = 0
    for name, layer, real in layers(proto, everything(proto, feeds)):
        full = {n: random.integers(np.iinfo(v.dtype).min, np.iinfo(v.dtype).max + 1, v.shape) for n, v in real.items()}
        for given in (real, {n: v.astype(real[n].dtype) for n, v in full.items()}):
            stored = next(iter(linnet.Session(linnet.from_onnx(layer)).run(given).values()))
            expected = next(iter(reference(layer, given).values()))
            assert stored.dtype == expected.dtype
            apart = differences(stored, expected)
            assert apart.max() <= 1, name
            # ONNX Runtime computes coordinates of Resize in f32; linnet's are exact.
            share = 3e-3 if name.startswith("Resize") else 1e-3
            assert np.count_nonzero(apart) <= share * apart.size, name
            checked += 1
    assert checked >= 14


def test_relu_that_the_range_does_not_express_is_an_epilogue() -> None:
    """A symmetric i8 result keeps its negative half, so the clamp must be computed; still one step on integers."""
    b = Builder(1)
    scale, zero = b.constant(np.float32(0.05)), b.constant(np.int8(0))
    weight = b.constant(weights("i8", 6, 4, 3, 3))
    w_scale, w_zero = b.constant(np.linspace(0.002, 0.01, 6, dtype=np.float32)), b.constant(np.zeros(6, np.int8))
    bias = b.constant(b.random.standard_normal(6).astype(np.float32))
    x = b("DequantizeLinear", "x", scale, zero)
    y = b("Relu", b("Conv", x, b("DequantizeLinear", weight, w_scale, w_zero, axis=0), bias))
    y = b("QuantizeLinear", y, scale, zero)
    proto = b.model({"x": (TensorProto.INT8, (1, 4, 9, 9))}, [y], microsoft=True)
    feeds = {"x": b.random.integers(-128, 128, (1, 4, 9, 9)).astype(np.int8)}
    session = linnet.Session(linnet.from_onnx(proto))
    mine, theirs = session.run(feeds)[y], reference(proto, feeds)[y]
    assert differences(mine, theirs).max() <= 1
    assert np.count_nonzero(mine != theirs) <= 1
    assert mine.min() == 0
    assert [s.kernel.split("_")[1] for s in session.steps if s.kernel.startswith("conv")] in (["int8"], ["int"])


def test_weights_quantized_in_the_graph_and_moved() -> None:
    """float weights -> QuantizeLinear -> DequantizeLinear -> Transpose, as training tools write them."""
    b = Builder(2)
    scale, zero = b.constant(np.float32(0.03)), b.constant(np.uint8(120))
    w_scale, w_zero = b.constant(np.linspace(0.002, 0.01, 160, dtype=np.float32)), b.constant(np.zeros(160, np.int8))
    w = b("QuantizeLinear", b.weight(160, 200), w_scale, w_zero, axis=0)
    w = b("Transpose", b("DequantizeLinear", w, w_scale, w_zero, axis=0), perm=[1, 0])
    y = b("MatMul", b("DequantizeLinear", "x", scale, zero), w)
    proto = b.model(
        {"x": (TensorProto.UINT8, (5, 200))}, [b("QuantizeLinear", y, b.constant(np.float32(0.4)), zero)], True
    )
    feeds = {"x": b.random.integers(0, 256, (5, 200)).astype(np.uint8)}
    graph = linnet.from_onnx(proto)
    product = next(n for n in graph.functions[0].nodes if n.op == "matmul")
    assert [t.dtype for t in product.inputs if t is not None] == ["u8", "i8"]
    mine = next(iter(linnet.Session(graph).run(feeds).values()))
    assert differences(mine, next(iter(reference(proto, feeds).values()))).max() <= 1


def test_movement_passes_integers_and_requantizes_only_where_scales_differ() -> None:
    b = Builder(3)
    scale, zero = b.constant(np.float32(0.05)), b.constant(np.uint8(7))
    other = b.constant(np.float32(0.083))
    x = b("DequantizeLinear", "x", scale, zero)
    x = b("Transpose", b("Reshape", x, b.constant(np.array([2, 3, 4, 8]))), perm=[0, 1, 3, 2])
    x = b("Pad", x, b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])))
    x = b("Resize", x, "", b.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    same = b("QuantizeLinear", b("Slice", x, b.constant(np.array([1])), b.constant(np.array([9])),
                                 b.constant(np.array([2]))), scale, zero)  # fmt: skip
    apart = b("QuantizeLinear", x, other, zero)
    proto = b.model({"x": (TensorProto.UINT8, (2, 96))}, [same, apart], True)
    feeds = {"x": b.random.integers(0, 256, (2, 96)).astype(np.uint8)}
    graph = linnet.from_onnx(proto)
    assert not [t for n in graph.functions[0].nodes for t in n.outputs if t.dtype == "f32"]
    assert sum(n.op == "map" for n in graph.functions[0].nodes) == 1
    expected = reference(proto, feeds)
    for name, value in linnet.Session(graph).run(feeds).items():
        assert np.count_nonzero(value != expected[name]) == 0


def microsoft(
    op: str, inputs: dict[str, Array], constants: dict[str, Array], outputs: int = 1, **attributes: Any
) -> None:
    """One com.microsoft node against ONNX Runtime, with operands in the given order; "" is omitted."""
    b = Builder(0)
    order = attributes.pop("order", [*inputs, *constants])
    names = [f"y{i}" for i in range(outputs)]
    if op == "SkipLayerNormalization" and outputs == 2:
        names = ["y0", "", "", "y1"]
    b.nodes = [helper.make_node(op, order, names, domain="com.microsoft", **attributes)]
    b.constants = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    infos = {n: (int(helper.np_dtype_to_tensor_dtype(v.dtype)), v.shape) for n, v in inputs.items()}
    proto = b.model(infos, [n for n in names if n], microsoft=True)
    expected = reference(proto, inputs)
    for name, value in linnet.Session(linnet.from_onnx(proto)).run(inputs).items():
        assert value.shape == expected[name].shape
        assert value.dtype == expected[name].dtype
        if value.dtype == np.float32:
            np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=2e-5)
        else:
            assert differences(value, expected[name]).max(initial=0) == 0


RANDOM = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def own_numbers(request: pytest.FixtureRequest) -> None:
    """Every test draws the same numbers, independent of the order of tests."""
    RANDOM.bit_generator.state = np.random.default_rng(zlib.crc32(request.node.name.encode())).bit_generator.state


def f32(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Array:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def weights(dtype: str, *shape: int) -> Array:
    low, high = {("i8", True): (-128, 128), ("u8", True): (0, 256), ("i8", False): (-64, 64), ("u8", False): (64, 192)}[
        dtype, EXACT
    ]
    return RANDOM.integers(low, high, shape).astype(np.int8 if dtype == "i8" else np.uint8)


def i8(*shape: int) -> Array:
    return RANDOM.integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("b", [weights("i8", 24, 10), weights("u8", 24, 10)], ids=["i8", "u8"])
@pytest.mark.parametrize("columns", [False, True])
def test_products_with_computed_parameters(b: Array, columns: bool) -> None:
    scale = np.linspace(0.01, 0.02, 10).astype(np.float32) if columns else np.float32(0.013)
    zero = RANDOM.integers(0, 5, 10).astype(b.dtype) if columns else np.array(3, b.dtype)
    microsoft("DynamicQuantizeMatMul", {"x": f32(2, 7, 24)}, {"b": b, "s": scale, "z": zero, "bias": f32(10)})
    for a in (u8(7, 24), i8(7, 24)) if b.dtype == np.int8 else (u8(7, 24),):
        microsoft(
            "MatMulIntegerToFloat", {"a": a, "sa": np.array(0.02, np.float32), "za": np.array(9, a.dtype)},
            {"b": b, "sb": scale, "zb": zero, "bias": f32(10)}, order=["a", "b", "sa", "sb", "za", "zb", "bias"],
        )  # fmt: skip


@pytest.mark.parametrize("stored", [True, False])
def test_qgemm(stored: bool) -> None:
    constants = {
        "sa": np.float32(0.02), "za": np.uint8(100), "b": weights("i8", 10, 24),
        "sb": np.linspace(0.01, 0.02, 10).astype(np.float32),
        "zb": np.zeros(10, np.int8), "c": RANDOM.integers(-5000, 5000, 10).astype(np.int32),
    }  # fmt: skip
    constants |= {"sy": np.float32(0.4), "zy": np.uint8(120)} if stored else {}
    microsoft("QGemm", {"a": u8(7, 24)}, constants, transB=1)


def test_qlinear_where() -> None:
    parameters = {"sx": np.float32(0.1), "zx": np.uint8(3), "sy": np.float32(0.07), "zy": np.uint8(90)}
    end = {"sz": np.float32(0.12), "zz": np.uint8(60)}
    order = ["c", "x", "sx", "zx", "y", "sy", "zy", "sz", "zz"]
    inputs = {"c": RANDOM.random((4, 9)) > 0.5, "x": u8(4, 9), "y": u8(9)}
    microsoft("QLinearWhere", inputs, parameters | end, order=order)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"])
def test_fused_conv(activation: str) -> None:
    numbers = {"LeakyRelu": [0.2], "Clip": [-0.5, 0.75], "HardSigmoid": [0.3, 0.4]}.get(activation)
    extra = {"activation_params": numbers} if numbers else {}
    microsoft(
        "FusedConv", {"x": f32(1, 4, 8, 8), "sum": f32(1, 6, 8, 8)}, {"w": f32(6, 4, 3, 3), "b": f32(6)},
        order=["x", "w", "b", "sum"], activation=activation, pads=[1, 1, 1, 1], **extra,
    )  # fmt: skip


def test_fused_products() -> None:
    microsoft("FusedMatMul", {"a": f32(3, 5, 7), "b": f32(3, 5, 4)}, {}, transA=1, alpha=0.25)
    microsoft("FusedMatMul", {"a": f32(5, 3, 7), "b": f32(3, 4, 7)}, {}, transBatchA=1, transB=1)
    microsoft("FusedGemm", {"a": f32(5, 7)}, {"b": f32(4, 7), "c": f32(4)}, transB=1, activation="Relu")


def test_gelus() -> None:
    microsoft("Gelu", {"x": f32(3, 8)}, {})
    microsoft("BiasGelu", {"x": f32(3, 8)}, {"b": f32(8)})
    microsoft("FastGelu", {"x": f32(3, 8)}, {"b": f32(8)})
    microsoft("FastGelu", {"x": f32(3, 8)}, {})
    microsoft("QuickGelu", {"x": f32(3, 8)}, {}, alpha=1.5)


def test_skip_and_embedding_norms() -> None:
    x, norm = {"x": f32(2, 5, 16), "skip": f32(2, 5, 16)}, {"gamma": f32(16), "beta": f32(16), "bias": f32(16)}
    microsoft("SkipLayerNormalization", x, norm, epsilon=1e-6)
    microsoft("SkipLayerNormalization", x, norm, outputs=2, epsilon=1e-6)
    microsoft("SkipSimplifiedLayerNormalization", x, {"gamma": f32(16), "bias": f32(16)}, epsilon=1e-6)
    ids = {
        "ids": RANDOM.integers(0, 30, (2, 5)).astype(np.int32),
        "segments": RANDOM.integers(0, 2, (2, 5)).astype(np.int32),
    }
    mask = {"mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)}
    tables = {"words": f32(30, 16), "places": f32(12, 16), "kinds": f32(2, 16), "gamma": f32(16), "beta": f32(16)}
    order = [*ids, *tables, "mask"]
    microsoft("EmbedLayerNormalization", ids | mask, tables, outputs=2, order=order)


@pytest.mark.parametrize("mask", ["none", "raw", "lengths"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, causal: int) -> None:
    raw = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], np.int32)
    extra = {"none": {}, "raw": {"mask": raw}, "lengths": {"mask": raw.sum(1).astype(np.int32)}}[mask]
    constants = {"w": f32(16, 48) * np.float32(0.3), "b": f32(48)}
    order = ["x", "w", "b", *extra]
    microsoft("Attention", {"x": f32(2, 6, 16)} | extra, constants, order=order, num_heads=4, unidirectional=causal)


@pytest.mark.parametrize("mask", [False, True])
def test_multi_head_attention(mask: bool) -> None:
    inputs = {"q": f32(2, 5, 16), "k": f32(2, 7, 16), "v": f32(2, 7, 24)}
    raw = np.array([[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]], np.int32)
    inputs |= {"mask": raw} if mask else {}
    order = ["q", "k", "v", "b", *(["mask"] if mask else [])]
    microsoft("MultiHeadAttention", inputs, {"b": f32(56)}, order=order, num_heads=4)


def test_norm_that_onnx_runtime_puts_into_the_main_domain() -> None:
    b = Builder(0)
    b.nodes = [helper.make_node("SimplifiedLayerNormalization", ["x", "s"], ["y"], axis=-1, epsilon=1e-5)]
    b.constants = [numpy_helper.from_array(f32(16), "s")]
    proto, feeds = b.model({"x": (3, 16)}, ["y"], microsoft=True), {"x": f32(3, 16)}
    mine = linnet.Session(linnet.from_onnx(proto)).run(feeds)["y"]
    np.testing.assert_allclose(mine, reference(proto, feeds)["y"], rtol=1e-5, atol=1e-6)


def test_qattention() -> None:
    constants = {
        "w": weights("i8", 16, 48), "b": f32(48), "sx": np.float32(0.01), "sw": np.float32(0.004), "zx": np.uint8(120),
        "zw": np.int8(0),
    }  # fmt: skip
    order = ["x", "w", "b", "sx", "sw", "mask", "zx", "zw"]
    mask = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], np.int32)
    microsoft("QAttention", {"x": u8(2, 6, 16), "mask": mask}, constants, order=order, num_heads=4)


@pytest.mark.parametrize(("bits", "k", "zeros"), [(4, 64, True), (4, 48, False), (8, 64, True)])
def test_matmul_of_few_bits(bits: int, k: int, zeros: bool) -> None:
    n, block = 12, 32
    blocks = -(-k // block)
    constants = {"b": u8(n, blocks, block * bits // 8), "s": RANDOM.random((n * blocks,)).astype(np.float32) * 0.1}
    if zeros:
        constants["z"] = u8(n * -(-blocks * bits // 8))
    microsoft("MatMulNBits", {"x": f32(3, k)}, constants, K=k, N=n, bits=bits, block_size=block)


def test_real_quantized_network_equals_onnx_runtime() -> None:
    """A ResNet-50 in QDQ form from another project: every convolution uses integers, and the embedding is the same."""
    path = at_hand(lambda: fetch_member("ovos-ww-plugin-efficientword-net", "*/resnet_50_arc_qint8.onnx", "0.0.1a2"))
    feeds = {"input": np.random.default_rng(4).standard_normal((1, 1, 149, 64)).astype(np.float32)}
    session = linnet.Session(linnet.from_onnx(path))
    mine = next(iter(session.run(feeds).values()))
    theirs = next(iter(reference(onnx.load(path), feeds, floats=not EXACT).values()))
    assert np.abs(mine - theirs).max() <= (1e-5 if EXACT else 0.02) * np.abs(theirs).max()  # in floats, ties differ
    kernels = [s.kernel for s in session.steps if s.kernel.startswith("conv")]
    assert len(kernels) == 53
    assert all("int8" in k or "_int_" in k or "integer" in k or "reference" in k for k in kernels), kernels


@pytest.mark.parametrize("kind", ["i16", "u16"])
def test_activations_of_16_bits(kind: str) -> None:
    """i16 by i8 is an integer product. u16, which no kernel supports, is computed on the real numbers."""
    b = Builder(5, opset=21)
    dtype = np.int16 if kind == "i16" else np.uint16
    scale, zero = b.constant(np.float32(0.001)), b.constant(np.array(0 if kind == "i16" else 30000, dtype))
    y_scale = b.constant(np.float32(0.0007))
    weight = b.constant(weights("i8", 6, 4, 3, 3))
    w_scale, w_zero = b.constant(np.linspace(0.002, 0.01, 6, dtype=np.float32)), b.constant(np.zeros(6, np.int8))
    x = b("DequantizeLinear", "x", scale, zero)
    y = b("Conv", x, b("DequantizeLinear", weight, w_scale, w_zero, axis=0), b.constant(f32(6)))
    y = b("QuantizeLinear", y, y_scale, zero)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = b.model({"x": (int(element), (1, 4, 9, 9))}, [y], microsoft=True)
    low = np.iinfo(dtype).min
    feeds = {"x": b.random.integers(low + 20000, low + 45000, (1, 4, 9, 9)).astype(dtype)}
    graph = linnet.from_onnx(proto)
    assert differences(linnet.Session(graph).run(feeds)[y], reference(proto, feeds)[y]).max() <= 1
    assert [n.inputs[0].dtype for n in graph.functions[0].nodes if n.op == "conv" and n.inputs[0] is not None] == [
        "i16" if kind == "i16" else "f32"
    ]


@pytest.mark.parametrize("op", ["Conv", "MatMul", "activations"])
def test_weights_of_16_bits(op: str) -> None:
    """i16 by i16 is an integer product, also of two activations. The bias has the scale of x times that of w."""
    b = Builder(8, opset=21)
    zero, scale, y_scale = b.constant(np.int16(0)), b.constant(np.float32(3e-4)), b.constant(np.float32(1.5e-3))
    w_scale, axis = b.constant(np.linspace(2e-5, 3e-5, 6, dtype=np.float32)), {"axis": 0 if op == "Conv" else 1}
    shape = (6, 4, 3, 3) if op == "Conv" else (64, 6)
    stored = b.random.integers(-32768, 32768, shape).astype(np.int16)
    x = b("DequantizeLinear", "x", scale, zero)
    if op == "activations":
        y = b("MatMul", x, b("DequantizeLinear", "w", scale, zero))
    else:
        zeros = b.constant(np.zeros(6, np.int16))
        w = b("DequantizeLinear", b.constant(stored), w_scale, zeros, **axis)
        y = b("Conv", x, w, b.constant(f32(6))) if op == "Conv" else b("MatMul", x, w)
    y = b("QuantizeLinear", y, b.constant(np.float32(0.05)) if op == "activations" else y_scale, zero)
    x_shape, element = (1, 4, 9, 9) if op == "Conv" else (5, 64), int(onnx.TensorProto.INT16)
    feeds = {"x": b.random.integers(-30000, 30000, x_shape).astype(np.int16)}
    inputs = {"x": (element, x_shape)}
    if op == "activations":
        inputs, feeds = {**inputs, "w": (element, shape)}, {**feeds, "w": stored}
    proto = b.model(inputs, [y], microsoft=True)
    graph = linnet.from_onnx(proto)
    assert differences(linnet.Session(graph).run(feeds)[y], reference(proto, feeds)[y]).max() <= 1
    (node,) = [n for n in graph.functions[0].nodes if n.op in ("conv", "matmul")]
    assert [t.dtype for t in node.inputs[:2] if t is not None] == ["i16", "i16"]
    assert node.outputs[0].dtype == "i16"


def test_values_that_are_read_in_both_forms() -> None:
    """Integer inputs and outputs, a float output that is also quantized, one tensor at two scales, an input returned as
    output."""
    b = Builder(6)
    s1, z1 = b.constant(np.float32(0.05)), b.constant(np.uint8(128))
    s2, z2 = b.constant(np.float32(0.031)), b.constant(np.uint8(3))
    weight, w_scale = b.constant(weights("i8", 8, 8)), b.constant(np.float32(0.01))
    x = b("DequantizeLinear", "x", s1, z1)
    again = b("QuantizeLinear", x, s1, z1)
    y = b("MatMul", x, b("DequantizeLinear", weight, w_scale))
    first, second = b("QuantizeLinear", y, s1, z1), b("QuantizeLinear", y, s2, z2)
    z = b("Relu", b("DequantizeLinear", first, s1, z1))
    third = b("QuantizeLinear", b("Add", z, x), s2, z2)
    other = b("DequantizeLinear", "x", s2, z2)
    outputs = [again, y, first, second, z, third, other]
    proto = b.model({"x": (TensorProto.UINT8, (5, 8))}, outputs, microsoft=True)
    feeds = {"x": b.random.integers(0, 256, (5, 8)).astype(np.uint8)}
    expected = reference(proto, feeds)
    results = linnet.Session(linnet.from_onnx(proto)).run(feeds)
    assert list(results) == outputs
    for name in outputs:
        assert results[name].dtype == expected[name].dtype
        if results[name].dtype == np.float32:
            np.testing.assert_allclose(results[name], expected[name], rtol=1e-5, atol=1e-5)
        else:
            assert np.count_nonzero(differences(results[name], expected[name])) <= 1, name


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_lstm_that_the_dynamic_quantizer_writes(direction: str, per_channel: bool, tmp_path: Path) -> None:
    """The inputs are quantized as in ONNX Runtime; it also rounds the state to 8 bits at every step, and linnet to 12."""
    b = Builder(7)
    directions = 2 if direction == "bidirectional" else 1
    names = [b.weight(directions, 64, 12), b.weight(directions, 64, 16, spread=0.1), b.weight(directions, 128)]
    b.nodes.append(
        helper.make_node("LSTM", ["x", *names, "", "h"], ["y", "y_h", "y_c"], direction=direction, hidden_size=16)
    )
    outputs = ["y", "y_h", "y_c"]
    source, target = tmp_path / "float.onnx", tmp_path / "integer.onnx"
    onnx.save(b.model({"x": (9, 3, 12), "h": (directions, 3, 16)}, outputs), source)
    ortq.quantize_dynamic(source, target, weight_type=S8, per_channel=per_channel)
    proto = onnx.load(target)
    assert [n.op_type for n in proto.graph.node] == ["DynamicQuantizeLSTM"]
    values = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    dequantized = b.model({"x": (9, 3, 12), "h": (directions, 3, 16)}, outputs)
    for place, name in ((1, names[0]), (2, names[1])):
        stored, scale = (values[proto.graph.node[0].input[i]] for i in (place, 6 + 2 * place))
        zero = values[proto.graph.node[0].input[7 + 2 * place]]
        per = (directions, 1, -1) if scale.ndim > 1 else (-1, 1, 1)
        real = (stored.astype(np.float32) - zero.reshape(per)) * scale.reshape(per)
        (initializer,) = [t for t in dequantized.graph.initializer if t.name == name]
        initializer.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(real.swapaxes(1, 2), np.float32), name))
    feeds = {"x": f32(9, 3, 12), "h": 0.3 * f32(directions, 3, 16)}
    theirs, truth = reference(proto, feeds), reference(dequantized, feeds)
    mine = linnet.Session(linnet.from_onnx(proto)).run(feeds)
    for name in outputs:
        own, other = (np.abs(v[name] - truth[name]) for v in (mine, theirs))
        assert mine[name].shape == theirs[name].shape
        assert own.mean() < 1.05 * other.mean() and own.max() < 0.001 + 1.05 * other.max(), (own.max(), other.max())
        assert np.abs(mine[name] - theirs[name]).max() < 0.003


@pytest.mark.parametrize("per_channel", [True, False])
def test_weights_alone_stay_as_narrow_as_they_came(per_channel: bool, tmp_path: Path) -> None:
    """i8 weights of float products take 1 byte each in the file; the results agree with ONNX Runtime."""
    stored = RANDOM.integers(-127, 128, (96, 1024)).astype(np.int8)
    scale = RANDOM.uniform(0.001, 0.002, 1024 if per_channel else ()).astype(np.float32)
    node = helper.make_node
    nodes = [
        node("DequantizeLinear", ["codes", "scale"], ["weights"], axis=1),
        node("Transpose", ["weights"], ["turned"], perm=[1, 0]),
        node("MatMul", ["x", "weights"], ["inner"]), node("Add", ["inner", "bias"], ["moved"]),
        node("MatMul", ["moved", "turned"], ["y"]),
    ]  # fmt: skip
    constants = {"codes": stored, "scale": scale, "bias": f32(1024)}
    graph = helper.make_graph(
        nodes, "weights", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 96])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 96])],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    linnet.from_onnx(model).save(tmp_path / "narrow.lnt")
    assert (tmp_path / "narrow.lnt").stat().st_size < 2.2 * stored.nbytes  # as they are, and transposed
    session = linnet.Session(tmp_path / "narrow.lnt")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    for rows in (1, 5):
        x = f32(rows, 96)
        wanted = peer.run(None, {"x": x})[0]
        np.testing.assert_allclose(session.run({"x": x})["y"], wanted, atol=1e-5 * np.ptp(wanted))
