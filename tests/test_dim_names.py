"""Open dimensions with one name but several sizes: a warning and the true sizes, or a refusal on request.
The model resembles published video matting: image and states share axis names, and states start as 1x1x1x1."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession, SessionOptions

import linnet
from linnet._generated.fb import Model
from linnet.cli.main import cli
from linnet.file import layout, tables
from tests.capi import Chain, Failure
from tests.test_tools import FAILED, _tool

F32 = TensorProto.FLOAT
START = np.zeros((1, 1, 1, 1), np.float32)
SHAPES = {"src": (1, 3, 16, 20), "r1i": (1, 1, 1, 1)}


def matting() -> onnx.ModelProto:
    """A convolutional GRU after a strided convolution, whose first state is expanded to the size of the features."""
    named = ["batch_size", "channels", "height", "width"]
    rng = np.random.default_rng(3)
    shapes = {"w1": (4, 3, 3, 3), "wz": (4, 8, 3, 3), "wh": (4, 8, 3, 3), "wo": (1, 4, 1, 1)}
    weights = {name: rng.standard_normal(shape) * 0.3 for name, shape in shapes.items()} | {"one": np.array(1.0)}
    node = helper.make_node
    nodes = [
        node("Conv", ["src", "w1"], ["f"], pads=[1] * 4, strides=[2, 2]), node("Relu", ["f"], ["x"]),
        node("Shape", ["x"], ["s"]), node("Expand", ["r1i", "s"], ["h"]), node("Concat", ["x", "h"], ["xh"], axis=1),
        node("Conv", ["xh", "wz"], ["z0"], pads=[1] * 4), node("Sigmoid", ["z0"], ["z"]),
        node("Conv", ["xh", "wh"], ["c0"], pads=[1] * 4), node("Tanh", ["c0"], ["c"]),
        node("Sub", ["one", "z"], ["rest"]), node("Mul", ["rest", "h"], ["kept"]), node("Mul", ["z", "c"], ["new"]),
        node("Add", ["kept", "new"], ["r1o"]), node("Conv", ["r1o", "wo"], ["p"]), node("Sigmoid", ["p"], ["pha"]),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "matting",
        [info("src", F32, ["batch_size", 3, "height", "width"]), info("r1i", F32, named)],
        [info("r1o", F32, named), info("pha", F32, ["batch_size", 1, "height", "width"])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def frame(i: int, height: int = 16, width: int = 20) -> np.ndarray:
    return np.random.default_rng(i).random((1, 3, height, width)).astype(np.float32)


def test_video_matting_runs_with_the_true_sizes_and_warns_once() -> None:
    model = matting()
    reference = InferenceSession(model.SerializeToString())
    session = linnet.Session(linnet.from_onnx(model))
    state, said = START, []
    for i, size in enumerate([(16, 20)] * 3 + [(8, 12)] * 2):
        if i == 3:
            state = START
        feeds = {"src": frame(i, *size), "r1i": state}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = session.run(feeds)
        said += [str(w.message) for w in caught]
        expected = dict(zip(("r1o", "pha"), reference.run(["r1o", "pha"], feeds), strict=True))
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
        state = expected["r1o"]
    assert len(said) == 1
    for part in (
        "'height' is 16 as axis 2 of input 'src' and 1 as axis 2 of input 'r1i'",
        "'width' is 20",
        "strict_dims",
    ):
        assert part in said[0], said[0]


def test_shapes_of_one_name_may_differ_while_converting() -> None:
    model = matting()
    with pytest.warns(UserWarning, match="'height', 'width'"):
        graph = linnet.from_onnx(model, SHAPES)
    expected = InferenceSession(model.SerializeToString()).run(["pha"], {"src": frame(0), "r1i": START})[0]
    np.testing.assert_allclose(linnet.Session(graph).run({"src": frame(0), "r1i": START})["pha"], expected, rtol=1e-5)


def test_strict_in_python() -> None:
    session = linnet.Session(linnet.from_onnx(matting()), strict_dims=True)
    with pytest.raises(linnet.UsageError) as caught:
        session.run({"src": frame(0), "r1i": START})
    assert caught.value.status == "wrong_shape" and caught.value.tensor == "r1i" and "'height'" in str(caught.value)
    same = np.zeros((1, 4, 16, 20), np.float32)
    with pytest.raises(linnet.GraphError, match="broadcast"):  # the names agree, but the op does not allow it
        session.run({"src": frame(0), "r1i": same})


@pytest.mark.parametrize("strict", [0, 1])
def test_strict_in_c(strict: int) -> None:
    data = linnet.from_onnx(matting()).to_bytes()
    with Chain(data) as chain:
        if not strict:
            chain.make_plan(shapes=SHAPES)
            return
        with pytest.raises(Failure) as caught:
            chain.make_plan(shapes=SHAPES, strict_dims=1)
    assert "wrong_shape" in str(caught.value) and "'height'" in caught.value.text and "'src'" in caught.value.text


def test_strict_on_the_command_line(tmp_path: Path) -> None:
    linnet.from_onnx(matting()).save(tmp_path / "m.lnt")
    given = [a for name, shape in SHAPES.items() for a in ("--shape", f"{name}={','.join(map(str, shape))}")]
    for tool in ("linnet-run", "linnet-bench"):
        more = ["--random"] if tool == "linnet-run" else ["--seconds", "0.01"]
        assert _tool(tool, "m.lnt", *more, *given, cwd=tmp_path).returncode == 0
        done = _tool(tool, "m.lnt", *more, *given, "--strict-dims", cwd=tmp_path)
        assert done.returncode == FAILED and "'height'" in done.stderr, done.stderr
    for command in (["plan"], ["run", "--random"]):
        with pytest.warns(UserWarning, match="'height'"):
            assert CliRunner().invoke(cli, [*command, str(tmp_path / "m.lnt"), *given]).exit_code == 0
        done = CliRunner().invoke(cli, [*command, str(tmp_path / "m.lnt"), *given, "--strict-dims"])
        assert done.exit_code != 0 and isinstance(done.exception, linnet.UsageError | SystemExit)


def two(op: str, **attributes: object) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Relu", ["a"], ["r"]), helper.make_node(op, ["r", "b"], ["m"], **attributes),
        helper.make_node("Tanh", ["m"], ["t"]), helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("Expand", ["b", "s"], ["e"]), helper.make_node("Add", ["t", "e"], ["y"]),
    ]  # fmt: skip
    inputs = [info("a", F32, ["n", "k"]), info("b", F32, ["n", "k"])]
    graph = helper.make_graph(nodes, "two", inputs, [info("y", F32, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.filterwarnings("ignore:open dimensions")
@pytest.mark.parametrize("op", ["Add", "Mul", "MatMul", "Concat"])
def test_a_broken_name_is_never_computed_wrongly(op: str) -> None:
    """Fusion and shape arithmetic use the same names: every pair of shapes gives ONNX Runtime's result, or an error if it
    gives one."""
    model = two(op, **({"axis": 0} if op == "Concat" else {}))
    options = SessionOptions()
    options.log_severity_level = 4  # it also prints its exceptions
    reference = InferenceSession(model.SerializeToString(), options)
    session = linnet.Session(linnet.from_onnx(model))
    rng, computed = np.random.default_rng(0), 0
    sizes = [(1, 1), (1, 3), (3, 1), (3, 3), (2, 3), (3, 2)]
    for a in sizes:
        for b in sizes:
            feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("a", a), ("b", b))}
            try:
                expected = reference.run(None, feeds)[0]
            except Exception:
                expected = None
            if expected is None:
                with pytest.raises(linnet.GraphError):
                    session.run(feeds)
                continue
            computed += 1
            np.testing.assert_allclose(session.run(feeds)["y"], expected, rtol=1e-5, atol=1e-6)
    assert computed >= 2


def test_a_training_step_takes_names_at_their_word() -> None:
    """Gradients were once built without checking whether one of two equal names was broadcast."""
    graph = linnet.Graph()
    x, target = graph.placeholder("x", ("batch", 3)), graph.placeholder("target", ("batch", 1))
    w = graph.variable("w", np.ones((3, 1), np.float32))
    loss = ((x @ w - target) * (x @ w - target)).mean()
    updates = linnet.SGD(0.1).minimize(loss)
    graph.signature("train", {"x": x, "target": target}, {"loss": loss}, updates=updates)
    feeds = {"x": np.ones((4, 3), np.float32), "target": np.ones((1, 1), np.float32)}
    with pytest.raises(linnet.UsageError, match="batch"):
        linnet.Session(graph, "train").run(feeds)
    with pytest.warns(UserWarning, match="'batch' is 4"):
        linnet.Session(graph, "train", strict_dims=False).run(feeds)


def test_the_field_ids_are_those_of_the_schema() -> None:
    """file/tables.py reads the structure without flatc's code, which is the reference here."""
    graph = linnet.Graph()
    x, y = graph.placeholder("x", ("n", 3, "width")), graph.placeholder("y", (2,))
    v = graph.variable("v", np.zeros(2, np.float32))
    graph.signature("infer", {"x": x}, {"z": x + 1})
    graph.signature("both", {"first": y, "second": x}, {"z": x.sum() + y}, updates={v: v + y})
    graph.metadata["author"] = "somebody"
    content = graph.to_bytes()
    start, size = layout.HEADER.unpack_from(content)[3:5]
    expected = Model.Model.GetRootAs(content[start : start + size])
    found = tables.root(content[start : start + size])
    functions = list(found.tables(tables.MODEL_FUNCTIONS))
    assert len(functions) == expected.FunctionsLength() == 2
    for i, signature in enumerate(found.tables(tables.MODEL_SIGNATURES)):
        other = expected.Signatures(i)
        assert signature.text(tables.SIGNATURE_NAME) == other.Name().decode()
        assert signature.number(tables.SIGNATURE_FUNCTION) == other.Function()
        assert signature.texts(tables.SIGNATURE_INPUTS) == [
            other.Inputs(k).decode() for k in range(other.InputsLength())
        ]
    for i, function in enumerate(functions):
        same = expected.Functions(i)
        assert function.numbers(tables.FUNCTION_INPUTS) == same.InputsAsNumpy().tolist()
        for j, tensor in enumerate(function.tables(tables.FUNCTION_TENSORS)):
            names = [same.Tensors(j).DimNames(k).decode() for k in range(same.Tensors(j).DimNamesLength())]
            assert tensor.texts(tables.TENSOR_DIM_NAMES) == names
        ops = [node.short(tables.NODE_OP) for node in function.tables(tables.FUNCTION_NODES)]
        assert ops == [same.Nodes(j).Op() for j in range(same.NodesLength())]
    pairs = {p.text(tables.PAIR_KEY): p.text(tables.PAIR_VALUE) for p in found.tables(tables.MODEL_METADATA)}
    assert pairs["author"] == "somebody"
    assert linnet.Model(content).dim_names("both") == {"second": ("n", "", "width")}
    assert [linnet.Model(content).assigns(name) for name in ("infer", "both")] == [False, True]
