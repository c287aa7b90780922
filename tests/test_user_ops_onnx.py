"""ONNX nodes of custom domains: user ops take them, with their attributes; without one the report says which op is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import linnet
from linnet.ir.user_op import unpack

Array = np.ndarray[Any, Any]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _model(
    node: onnx.NodeProto, version: int = 1, outputs: Sequence[tuple[str, Sequence[int | str]]] = (("y", (2, 3)),)
) -> onnx.ModelProto:
    """Relu, then the node, then a negation of each of its outputs."""
    nodes = [helper.make_node("Relu", ["x"], ["h"]), node]
    nodes += [helper.make_node("Neg", [name], [f"-{name}"]) for name, _ in outputs]
    infos = [helper.make_tensor_value_info(f"-{name}", TensorProto.FLOAT, shape) for name, shape in outputs]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])]
    inner = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs]
    graph = helper.make_graph(nodes, "g", given, infos, value_info=inner)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _scale(x: Array, **attributes: Any) -> Array:
    return x * np.float32(attributes["factor"])


def _same(x: Any, **_: Any) -> Any:
    return x.dtype, x.shape


SCALE = helper.make_node("Scale", ["h"], ["y"], "scale", domain="com.example", factor=2.0)


def test_a_node_of_a_custom_domain_is_taken_with_its_attributes(tmp_path: Path) -> None:
    attributes = {
        "factor": 2.0, "count": 7, "many": [1, 2], "floats": [0.5, 1.5], "word": "abc", "words": ["a", "b"],
        "raw": b"\xff\xfe",
    }  # fmt: skip
    node = helper.make_node("Scale", ["h"], ["y"], "scale", domain="com.example", **attributes)
    op = linnet.UserOp("com.example.Scale", _scale, _same)
    path = tmp_path / "scale.onnx"
    onnx.save(_model(node, outputs=[("y", ("n", 3))]), path)
    graph = linnet.from_onnx(path, user_ops=[op])
    user = next(n for n in graph.signatures["infer"].function.nodes if n.op == "user")
    assert (user.name, user.outputs[0].name, user.outputs[0].shape) == ("scale", "y", ("n", 3))
    assert unpack(user.attributes) == {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
    for n in (1, 4):
        x = np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3)
        np.testing.assert_array_equal(linnet.Session(graph).run({"x": x})["-y"], -2 * np.maximum(x, 0))
    graph.save(tmp_path / "scale.lnt")
    with pytest.raises(linnet.GraphError, match=r"needs user op com\.example\.Scale"):
        linnet.Session(tmp_path / "scale.lnt")
    linnet.Session(tmp_path / "scale.lnt", user_ops=[op]).run({"x": X})


def test_several_outputs_absent_operands_and_a_node_in_a_branch() -> None:
    def run(x: Array, y: Array | None, z: Array) -> list[Array]:
        assert y is None
        return [x + z, x - z]

    op = linnet.UserOp("com.example.Both", run, lambda x, y, z: [(x.dtype, x.shape)] * 2, outputs=2)
    node = helper.make_node("Both", ["h", "", "x"], ["y", "z"], domain="com.example")
    got = linnet.Session(linnet.from_onnx(_model(node, outputs=[("y", (2, 3)), ("z", (2, 3))]), user_ops=[op])).run(
        {"x": X}
    )
    np.testing.assert_array_equal(got["-y"], -2 * X)
    np.testing.assert_array_equal(got["-z"], 0 * X)

    scale = linnet.UserOp("com.example.Scale", _scale, _same)
    info = [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)]
    branches = [
        helper.make_graph([helper.make_node("Scale", ["h"], ["b"], domain="com.example", factor=f)], "b", [], info)
        for f in (2.0, 3.0)
    ]
    test = [
        helper.make_node("ReduceSum", ["h"], ["s"], keepdims=0), helper.make_node("Constant", [], ["t"], value_float=9.0),
        helper.make_node("Greater", ["s", "t"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]  # fmt: skip
    model = _model(test[0])
    del model.graph.node[1:]
    model.graph.node.extend([*test, helper.make_node("Neg", ["y"], ["-y"])])
    session = linnet.Session(linnet.from_onnx(model, user_ops=[scale]))
    for x in (X, X / 10):
        np.testing.assert_allclose(session.run({"x": x})["-y"], -x * (2 if x.sum() > 9 else 3), rtol=1e-6)


def test_without_the_op_the_report_says_which_op_of_which_domain_is_missing() -> None:
    with pytest.raises(linnet.ConversionError) as raised:
        linnet.from_onnx(_model(SCALE))
    (problem,) = raised.value.problems
    assert (problem.node, problem.op) == ("scale", "Scale")
    assert "no rule for op 'Scale' in domain 'com.example'" in problem.reason
    assert "user_ops=[linnet.UserOp('com.example.Scale', ...)]" in problem.hint
    other = linnet.UserOp("com.example.scale", _scale, _same)  # names are compared with case
    with pytest.raises(linnet.ConversionError):
        linnet.from_onnx(_model(SCALE), user_ops=[other])


def test_the_version_of_the_domain_is_the_version_of_the_op() -> None:
    old = linnet.UserOp("com.example.Scale", _scale, _same, version=2)
    graph = linnet.from_onnx(_model(SCALE, version=2), user_ops=[old])
    assert next(n for n in graph.functions[0].nodes if n.op == "user").attribute("version") == 2
    with pytest.raises(
        linnet.ConversionError, match=r"uses version 3 of domain 'com.example', and user op .* version 2"
    ):
        linnet.from_onnx(_model(SCALE, version=3), user_ops=[old])


def test_a_rule_may_come_from_the_declared_shape() -> None:
    op = linnet.UserOp("com.example.Scale", _scale)
    got = linnet.Session(linnet.from_onnx(_model(SCALE), user_ops=[op])).run({"x": X})
    np.testing.assert_array_equal(got["-y"], -2 * X)
    with pytest.raises(
        linnet.ConversionError, match="has no shape rule, and the model does not declare the shape of 'y'"
    ):
        linnet.from_onnx(_model(SCALE, outputs=[("y", ("n", 3))]), user_ops=[op])


def test_an_op_of_the_main_domain_can_be_replaced() -> None:
    op = linnet.UserOp("ai.onnx.Relu", lambda x: x + 1, _same, version=20)
    scale = linnet.UserOp("com.example.Scale", _scale, _same)
    got = linnet.Session(linnet.from_onnx(_model(SCALE), user_ops=[op, scale])).run({"x": X})
    np.testing.assert_array_equal(got["-y"], -2 * (X + 1))


@pytest.mark.parametrize(
    "attributes, rule, text",
    [
        (
            {"factor": 1.0, "t": helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])},
            _same,
            "'t' of type tensor cannot",
        ),
        ({"factor": 1.0}, lambda x, factor: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_problems_of_a_node(attributes: dict[str, Any], rule: Any, text: str) -> None:
    node = helper.make_node("Scale", ["h"], ["y"], domain="com.example", **attributes)
    with pytest.raises(linnet.ConversionError, match=text):
        linnet.from_onnx(_model(node), user_ops=[linnet.UserOp("com.example.Scale", _scale, rule)])
