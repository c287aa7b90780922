"""Steps, errors and timings are named after the nodes of the source model, also where a pass has merged several of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet.file.node_names import node_names
from linnet.file.reader import read
from linnet.ir.function import emit

RNG = np.random.default_rng(3)


def _weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32) / 4, name)


def _norm(name: str, source: str, result: str, count: int) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
    parts = [numpy_helper.from_array(RNG.uniform(0.5, 1, count).astype(np.float32), f"{name}_{i}") for i in range(4)]
    return helper.make_node("BatchNormalization", [source, *(p.name for p in parts)], [result], name), parts


def _net() -> onnx.ModelProto:
    first, parts = _norm("norm_1", "t0", "t1", 8)
    second, more = _norm("norm_2", "t4", "y", 5)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t0"], "stem", pads=[1, 1, 1, 1]), first,
        helper.make_node("Relu", ["t1"], ["t2"], "stem_relu"),
        helper.make_node("GlobalAveragePool", ["t2"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["t3"], "flatten"),
        helper.make_node("Gemm", ["t3", "v"], ["t4"], "classes"), second,
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [_weight("w", 8, 3, 3, 3), _weight("v", 8, 5), *parts, *more],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_convolution_keeps_its_name_when_it_takes_in_a_norm(tmp_path: Path) -> None:
    graph = linnet.from_onnx(_net())
    steps = {step.op: step for step in linnet.Session(graph).steps if step.op in ("conv", "matmul")}
    assert steps["conv"].name == "stem" and steps["matmul"].name == "classes"
    assert steps["conv"].fused == "stem_relu"
    graph.save(tmp_path / "m.lnt")
    again = read(tmp_path / "m.lnt", type(graph))
    assert {"stem", "classes"} <= {node.name for node in again.signatures["infer"].function.nodes}
    assert {s.name for s in linnet.Session(again).steps} == {s.name for s in linnet.Session(graph).steps}


def test_quantized_steps_keep_the_names() -> None:
    graph = linnet.from_onnx(_net())
    batches = [{"x": RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    steps = linnet.Session(linnet.quantize(graph, batches, "i8", effort="fast")).steps
    assert {"stem", "classes"} <= {step.name for step in steps if step.op in ("conv", "matmul")}


def test_names_are_unique_and_the_heaviest_node_has_the_plain_one() -> None:
    function = linnet.Graph().function()
    x = function.placeholder("x", "f32", (1, 4))
    w = function.constant(np.eye(4, dtype=np.float32), "w")
    function.source = "LSTM:cell"
    for _ in range(2):
        x = emit("copy", [x], {"kind": "identity"})[0]
    x = emit("matmul", [x, w], {})[0]
    function.source = ""
    emit("copy", [x], {"kind": "identity"}, name="y")
    emit("copy", [x], {"kind": "identity"}, name="z")[0].node.name = "cell"
    assert node_names(function.nodes) == ["cell/copy", "cell/copy_2", "cell/matmul", "y", "cell"]
    assert node_names(function.nodes[:4]) == ["cell/copy", "cell/copy_2", "cell", "y"]
