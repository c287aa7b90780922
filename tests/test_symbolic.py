"""Named open dimensions: through conversion, into the file, and checked for equality in a run; partly known shape vectors.
Names are those of the ONNX file. C does not use them; Python checks them in every run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet.ir import symbolic
from linnet.ir.dtypes import Dim
from linnet.ir.function import Tensor, emit

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
Shape = Sequence[int | str | None]


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, Shape], outputs: Sequence[str], values: dict[str, np.ndarray]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info(name, F32, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, F32, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def heads() -> onnx.ModelProto:
    """x [N, S, 64] -> Reshape [N, S, 8, 8], with the shape built from Shape -> Transpose -> Reshape [N, 8, -1]: y."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Gather", ["s", "one"], ["t"]),
        helper.make_node("Concat", ["n", "t", "eights"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["h"]),
        helper.make_node("Transpose", ["h"], ["p"], perm=[0, 2, 1, 3]),
        helper.make_node("Concat", ["n", "eight", "t", "minus"], ["back"], axis=0),
        helper.make_node("Reshape", ["p", "back"], ["q"]),
        helper.make_node("MatMul", ["q", "w"], ["y"]),
    ]
    values = {
        "zero": ints(0), "one": ints(1), "eights": ints(8, 8), "eight": ints(8), "minus": ints(-1),
        "w": np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32),
    }  # fmt: skip
    return model_of(nodes, {"x": ["N", "S", 64]}, ["y"], values)


def test_names_and_known_elements_go_through_shape_arithmetic(tmp_path: Path) -> None:
    graph = linnet.from_onnx(heads())
    function = graph.signatures["infer"].function
    shapes = {t.name: t.shape for node in function.nodes for t in node.outputs}
    assert function.outputs[0].shape == ("N", 8, "S", 3)
    assert shapes["h"] == ("N", "S", 8, 8) and shapes["q"] == ("N", 8, "S", 8)
    graph.save(tmp_path / "heads.lnt")
    again = linnet.Graph.load(tmp_path / "heads.lnt").signatures["infer"].function
    assert again.inputs[0].shape == ("N", "S", 64) and again.outputs[0].shape == ("N", 8, "S", 3)
    from onnxruntime import InferenceSession

    reference, session = InferenceSession(heads().SerializeToString()), linnet.Session(tmp_path / "heads.lnt")
    for shape in ((1, 5, 64), (3, 2, 64)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], reference.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_an_element_that_is_known_is_a_constant() -> None:
    """The channels of x [N, 3, H, W], taken from its Shape, are folded while N is open."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["c"]),
        helper.make_node("Cast", ["c"], ["f"], to=F32),
        helper.make_node("Mul", ["x", "f"], ["y"]),
    ]
    graph = linnet.from_onnx(model_of(nodes, {"x": ["N", 3, "H", "W"]}, ["y"], {"one": np.array(1, np.int64)}))
    function = graph.signatures["infer"].function
    assert [node.op for node in function.nodes] == ["map"] and function.outputs[0].shape == ("N", 3, "H", "W")


def two_inputs() -> onnx.ModelProto:
    nodes = [helper.make_node("Concat", ["a", "b"], ["y"], axis=1)]
    return model_of(nodes, {"a": ["batch", "left"], "b": ["batch", "right"]}, ["y"], {})


@pytest.mark.parametrize("from_file", [False, True])
def test_one_name_is_one_size(tmp_path: Path, from_file: bool) -> None:
    graph = linnet.from_onnx(two_inputs())
    graph.save(tmp_path / "two.lnt")
    session = linnet.Session(tmp_path / "two.lnt" if from_file else graph, strict_dims=True)
    assert session.model.dim_names() == {"a": ("batch", "left"), "b": ("batch", "right")}
    a, b = np.zeros((2, 3), np.float32), np.ones((2, 4), np.float32)
    assert session.run({"a": a, "b": b})["y"].shape == (2, 7)
    with pytest.raises(linnet.UsageError) as caught:
        session.run({"a": a, "b": b[:1]})
    error = caught.value
    assert error.status == "wrong_shape" and error.tensor == "b" and "'batch'" in str(error)
    assert error.expected == "2, the size of axis 0 of input 'a'" and error.got == "1 at axis 0 of input 'b'"
    with pytest.raises(linnet.UsageError, match="batch"):
        linnet.Session(graph, input_shapes={"a": (2, 3), "b": (5, 3)}, strict_dims=True)
    assert session.run({"a": a[:1], "b": b[:1]})["y"].shape == (1, 7)  # the session still works


def test_names_only_where_the_size_is_that_for_sure() -> None:
    graph = linnet.Graph()
    main = graph.function("main")
    x, y = main.placeholder("x", "f32", ("n", 4, "h")), main.placeholder("y", "f32", ("n", 4, "w"))

    def shape(inputs: Sequence[Tensor], **attributes: object) -> tuple[Dim, ...] | None:
        return emit("copy", list(inputs), attributes)[0].shape

    assert shape([x, x], kind="concat", axis=0) == (None, 4, "h")  # 2n
    assert shape([x, y], kind="concat", axis=2) == ("n", 4, None)
    assert shape([x], kind="transpose", perm=[2, 0, 1]) == ("h", "n", 4)
    assert shape([x], kind="reshape", shape=[0, -1]) == ("n", None)  # 4h
    assert shape([x], kind="slice", axes=[2], starts=[1], ends=[9], steps=[1]) == ("n", 4, None)


@pytest.mark.parametrize(
    ("whole", "parts", "rest"),
    [
        (("n", 4, 6), ("n", 8), 3), (("n", 4), (2, 2), "n"), (("n", 4), (2,), None), (("n", 4), (3,), None),
        (("n", "n", 2), ("n", 2), "n"), (("n", 2), ("m",), None), ((None, 2), (2,), None), ((6, 4), (-1,), None),
    ],
)  # fmt: skip
def test_the_rest_of_a_reshape(whole: tuple[Dim, ...], parts: tuple[Dim, ...], rest: Dim) -> None:
    assert symbolic._rest(whole, parts) == rest


def test_inspect_shows_names(tmp_path: Path) -> None:
    from linnet.report.inspect import details

    linnet.from_onnx(heads()).save(tmp_path / "heads.lnt")
    (signature,) = details(tmp_path / "heads.lnt")["signatures"]
    assert signature["inputs"][0]["shape"] == ["N", "S", 64] and signature["outputs"][0]["shape"] == ["N", 8, "S", 3]
