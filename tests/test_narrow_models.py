"""A transformer with 4-bit and 8-bit weights in blocks, as exporters write MiniLM: GatherBlockQuantized and MatMulNBits.
Results equal ONNX Runtime's, and the weights stay as narrow in memory as in the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import linnet

Array = npt.NDArray[Any]
WORDS, HEADS, LENGTH = 40, 4, 7


class Encoder:
    """Builds the ONNX model: an embedding and one layer of attention and feed-forward. weights counts the bytes of the
    narrow weights, scales those of their scales and zero points as linnet holds them (f32 and i32)."""

    def __init__(self, bits: int, block: int, zeros: bool, hidden: int) -> None:
        self.bits, self.block, self.zeros, self.hidden = bits, block, zeros, hidden
        self.random = np.random.default_rng(block + bits)
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}
        self.weights = self.scales = 0

    def constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def node(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], domain=domain, **attributes))
        return name

    def dense(self, x: str, n: int, k: int) -> str:
        grid, block, bits = -(-k // self.block), self.block, self.bits
        stored = self.random.integers(0, 256, (n, grid, block * bits // 8), np.uint8)
        scale = ((self.random.random((n, grid)) + 0.5) * 2 / (1 << bits) / np.sqrt(k)).astype(np.float32)
        operands = [self.constant(stored), self.constant(scale.reshape(-1))]
        if self.zeros:
            operands.append(self.constant(self.random.integers(0, 256, n * -(-grid * bits // 8), np.uint8)))
        self.weights += n * k * bits // 8
        self.scales += n * grid * 8
        y = self.node("MatMulNBits", x, *operands, domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
        return self.node("Add", y, self.constant(self.random.standard_normal(n).astype(np.float32) * 0.1))

    def look_up(self, ids: str) -> str:
        grid, hidden = -(-self.hidden // self.block), self.hidden
        table = self.constant(self.random.integers(0, 256, (WORDS, hidden // 2), np.uint8))
        scale = self.constant((self.random.random((WORDS, grid)) * 0.2 + 0.05).astype(np.float32))
        self.weights += WORDS * hidden // 2
        self.scales += WORDS * grid * 8
        return self.node(
            "GatherBlockQuantized", table, ids, scale, domain="com.microsoft", bits=4, block_size=self.block,
            gather_axis=0, quantize_axis=1,
        )  # fmt: skip

    def norm(self, x: str) -> str:
        scale, bias = (self.constant(self.random.standard_normal(self.hidden).astype(np.float32)) for _ in range(2))
        return self.node("LayerNormalization", x, scale, bias, axis=-1)

    def heads(self, x: str) -> str:
        parts = self.constant(np.array([0, LENGTH, HEADS, self.hidden // HEADS], np.int64))
        return self.node("Transpose", self.node("Reshape", x, parts), perm=[0, 2, 1, 3])

    def model(self) -> ModelProto:
        h = self.hidden
        x = self.norm(self.look_up("ids"))
        q, k, v = (self.heads(self.dense(x, h, h)) for _ in range(3))
        logits = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        weights = self.node("Softmax", self.node("Mul", logits, self.constant(np.array(0.3, np.float32))), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        mixed = self.node("Reshape", mixed, self.constant(np.array([0, LENGTH, h], np.int64)))
        x = self.norm(self.node("Add", x, self.dense(mixed, h, h)))
        wide = self.node("Gelu", self.dense(x, 2 * h, h))
        self.node("Identity", self.norm(self.node("Add", x, self.dense(wide, h, 2 * h))))
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(
            self.nodes, "encoder",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", LENGTH])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", LENGTH, h])],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits, block", [(4, 16), (4, 32), (4, 64), (4, 128), (8, 32)])
@pytest.mark.parametrize("hidden", [128, 72])
def test_an_encoder_keeps_its_weights_narrow(bits: int, block: int, zeros: bool, hidden: int) -> None:
    encoder = Encoder(bits, block, zeros, hidden)
    proto = encoder.model()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    graph = linnet.from_onnx(proto)
    session = linnet.Session(graph, threads=1)
    for batch in (1, 3):
        ids = encoder.random.integers(0, WORDS, (batch, LENGTH))
        (expected,) = theirs.run(None, {"ids": ids})
        y = session.run({"ids": ids})["y"]
        # every product rounds as a sum of floats does; three norms and a softmax follow each other
        assert np.abs(y - expected).max() <= 2e-5 * np.abs(expected).max()
        for isa in linnet.isa_names():
            y = linnet.Session(graph, threads=1, isa_max=isa).run({"ids": ids})["y"]
            assert np.abs(y - expected).max() <= 2e-5 * np.abs(expected).max(), isa
    narrow = [
        t for f in graph.functions for t in f.tensors() if t.data is not None and t.dtype in ("i4", "u4", "i8", "u8")
    ]
    assert len(narrow) == 7 and all(t.quantization is not None and t.quantization.block == block for t in narrow)
    assert (
        sum(linnet.ir.dtypes.bytes_of(t.dtype, t.data.shape) for t in narrow if t.data is not None) == encoder.weights
    )
    memory = session.memory
    assert memory["packed_weights"] == memory["constants"] == 0  # nothing is widened or kept a second time
    others = sum(v.nbytes for v in encoder.constants.values() if v.dtype == np.float32 and v.ndim == 1)
    assert len(graph.to_bytes()) <= encoder.weights + encoder.scales + others + (24 << 10)  # and the structure


def _blocked(op: str, dtype: str, axis: int, zeros: bool, turned: bool = False) -> tuple[ModelProto, Array]:
    """One op that reads a constant DequantizeLinear with block_size 16 (opset 21), and its feed."""
    random, shape = np.random.default_rng(3), (48, 32)
    kind = {name: getattr(TensorProto, name) for name in ("INT4", "UINT4", "INT8", "UINT8")}[dtype]
    low, high = {"INT4": (-8, 7), "UINT4": (0, 15), "INT8": (-128, 127), "UINT8": (0, 255)}[dtype]
    grid = tuple(d // 16 if i == axis else d for i, d in enumerate(shape))
    constants = [
        helper.make_tensor("w", kind, shape, random.integers(low, high + 1, shape).reshape(-1)),
        numpy_helper.from_array((random.random(grid) + 0.1).astype(np.float32), "s"),
    ]
    if zeros:
        constants.append(helper.make_tensor("z", kind, grid, random.integers(low, high + 1, grid).reshape(-1)))
    names = [c.name for c in constants]
    nodes = [helper.make_node("DequantizeLinear", names, ["r"], axis=axis, block_size=16)]
    w = "r"
    if turned:
        nodes.append(helper.make_node("Transpose", ["r"], ["rt"], perm=[1, 0]))
        w, shape = "rt", shape[::-1]
    if op == "Gather":
        x: Array = random.integers(-shape[0], shape[0], (2, 3))
        nodes.append(helper.make_node("Gather", [w, "x"], ["y"], axis=0))
    else:
        x = random.standard_normal((5, shape[1 if op == "Gemm" else 0])).astype(np.float32)
        nodes.append(helper.make_node(op, ["x", w], ["y"], **({"transB": 1} if op == "Gemm" else {})))
    kinds = (TensorProto.INT64 if op == "Gather" else TensorProto.FLOAT, TensorProto.FLOAT)
    ports = [helper.make_tensor_value_info("x", kinds[0], x.shape), helper.make_tensor_value_info("y", kinds[1], None)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), x


@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Gather"])
@pytest.mark.parametrize("dtype", ["INT4", "UINT4", "INT8", "UINT8"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_constant_blocks_stay_narrow(op: str, dtype: str, axis: int, turned: bool, zeros: bool) -> None:
    proto, x = _blocked(op, dtype, axis, zeros, turned)
    graph = linnet.from_onnx(proto)
    assert [n.op for f in graph.functions for n in f.nodes] == ["gather" if op == "Gather" else "matmul"]
    (w,) = (t for f in graph.functions for t in f.tensors() if t.quantization is not None)
    assert w.dtype in ("i4", "u4") if "4" in dtype else w.dtype in ("i8", "u8")
    session = linnet.Session(graph)
    assert session.memory["packed_weights"] == session.memory["constants"] == 0
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    y = session.run({"x": x})["y"]
    assert y.shape == expected.shape and np.abs(y - expected).max() <= 1e-5 * np.abs(expected).max()
