"""Steps, errors and timings are named after the nodes of the source model, also where a pass has merged several of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet.cli.main import cli
from linnet.file.reader import read
from linnet.ir.function import emit
from linnet.ir.node_names import merged_into, node_names
from linnet.quantization.debug import debug_quantization
from linnet.quantization.table import Row, Table
from linnet.report import debug_text
from tests.native import build

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


def test_names_of_many_equal_nodes() -> None:
    """The first of several steps that weigh the same has the plain name, and each of the others has a number of its own."""
    function = linnet.Graph().function()
    x = function.placeholder("x", "f32", (1, 4))
    function.source = "Loop:body"
    for _ in range(5):
        x = emit("copy", [x], {"kind": "identity"})[0]
    assert node_names(function.nodes) == ["body", "body/copy", "body/copy_2", "body/copy_3", "body/copy_4"]


def test_a_source_node_with_a_step_of_its_own_is_merged_into_no_other() -> None:
    steps = {"a": "Conv:a+Mul:b", "b": "Mul:b", "c": "Add:d+Add:a+Relu:e", "f": "Relu:e+:"}
    assert merged_into(steps) == {"d": "c", "e": "c"}


def _batches(count: int = 4) -> list[dict[str, np.ndarray]]:
    return [{"x": RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


def test_tables_plans_and_files_have_one_name_for_a_step(tmp_path: Path) -> None:
    graph, table = linnet.from_onnx(_net()), tmp_path / "table.txt"
    small = linnet.quantize(graph, _batches(), "i8", effort="fast", table_out=table)
    small.save(tmp_path / "m.lnt")
    names = [step.name for step in linnet.Session(small).steps]
    assert len(set(names)) == len(names)
    layers = [row.pattern for row in Table.read(table).rows if isinstance(row, Row)]
    assert layers == ["stem", "classes"] and set(layers) < set(names)
    assert [s.name for s in linnet.Session(tmp_path / "m.lnt").steps] == names
    report = debug_quantization(graph, small, _batches(2))
    assert {layer.layer for layer in report.layers} == {"stem", "stem_relu", "pool", "flatten", "classes"}
    assert any("worst layer: stem" in line or "worst layer: classes" in line for line in debug_text.lines(report))


def test_a_row_with_the_name_of_a_step_counts() -> None:
    graph = linnet.from_onnx(_net())
    for name in ("stem", "t1"):  # the step, or its result
        made = linnet.quantize(graph, _batches(), "i8", effort="fast", table=Table([Row(name, "f32")]))
        dtypes = {node.name: node.inputs[1].dtype for node in made.functions[0].nodes if node.op in ("conv", "matmul")}
        assert dtypes == {"stem": "f32", "classes": "i8"}


def test_added_steps_are_named_after_the_tensor_that_they_convert() -> None:
    made = linnet.quantize(linnet.from_onnx(_net()), _batches(), "i8", effort="fast")
    names = [node.name for node in made.functions[0].nodes]
    assert names[0] == "quantize(x)" and [n for n in names if "(" in n] == ["quantize(x)", "quantize(p)"]
    steps = linnet.Session(made).steps
    assert [s.name for s in steps if s.op == "copy" and not s.fused] in ([], ["copy(x/i8)"])
    half = linnet.quantize(linnet.from_onnx(_net()), None, "f16")
    assert [n.name for n in half.functions[0].nodes if "(" in n.name] == ["cast(x)", "cast(y)"]


def test_a_step_can_be_fetched_and_fed() -> None:
    session = linnet.Session(linnet.from_onnx(_net()))
    feeds = _batches(1)[0]
    found = session.run(feeds, ["t1", "stem_relu", "pool", "y"])
    np.testing.assert_array_equal(found["stem_relu"], np.maximum(found["t1"], 0))
    np.testing.assert_allclose(found["pool"], found["stem_relu"].mean((2, 3), keepdims=True), 1e-5, 1e-6)
    again = session.run({"stem_relu": found["stem_relu"]}, ["y"])
    np.testing.assert_allclose(again["y"], found["y"], rtol=1e-5, atol=1e-6)
    for run in (({**feeds}, ["stem"]), ({"stem": found["t1"]}, ["y"])):  # its own result exists no longer
        with pytest.raises(linnet.UsageError, match="'stem'; expected t1, the result of step 'stem', of which"):
            session.run(*run)


def test_steps_whose_names_begin_alike_are_fetched() -> None:
    """Also if one of them has become a part of another step, whose provenance has both names."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "z")]
    nodes = [
        helper.make_node("Softmax", ["x"], ["y"], name="n4"),
        helper.make_node("MatMul", ["y", "w"], ["m"], name="n40"),
        helper.make_node("Add", ["m", "b"], ["s"], name="n41"),
        helper.make_node("Softmax", ["s"], ["z"], name="n"),
    ]
    constants = [numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"), _weight("b", 4)]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], constants)
    made = linnet.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    session, x = linnet.Session(made), np.array([[1, 2, 3, 4]], np.float32)
    soft = np.exp(x) / np.exp(x).sum()
    np.testing.assert_allclose(session.run({"x": x}, ["n4"])["n4"], soft, rtol=1e-5)
    np.testing.assert_allclose(session.run({"x": x}, ["n"])["n"].sum(), 1, rtol=1e-5)
    with pytest.raises(linnet.Error, match="n40"):
        session.run({"x": x}, ["n40"])


def test_the_error_of_an_unknown_name_lists_the_nearest() -> None:
    graph = linnet.from_onnx(_net())
    session, feeds = linnet.Session(graph), _batches(1)[0]
    with pytest.raises(linnet.UsageError, match=r"step or tensor named 'clases'; expected classes"):
        session.run(feeds, ["clases"])
    with pytest.raises(linnet.UsageError, match=r"step or tensor named 'nothing'; expected y;"):
        session.run(feeds, ["nothing"])
    with pytest.raises(linnet.UsageError, match=r"'norm_1'; expected stem, of which it has become a part;"):
        session.run(feeds, ["norm_1"])
    with pytest.raises(
        linnet.UsageError, match=r"no layer of the model; expected classes, of which it has become a part"
    ):
        linnet.quantize(graph, _batches(), "i8", effort="fast", table=Table([Row("norm_2", "f32")]))
    with pytest.raises(linnet.UsageError, match=r"step or tensor named 'stem_rel'; expected stem_relu"):
        session.run({"stem_rel": feeds["x"]})
    with pytest.raises(linnet.UsageError, match=r"placement matches no step.*expected stem or stem_relu"):
        linnet.Session(graph, placement={"steem": "cpu"})
    small, wrong = linnet.quantize(graph, _batches(), "i8", effort="fast"), Table([Row("clases", "f32")])
    with pytest.raises(linnet.UsageError, match=r"matches no layer of the model; expected classes"):
        debug_quantization(graph, small, _batches(1), table=wrong)
    with pytest.raises(linnet.UsageError, match=r"matches no layer of the model; expected classes"):
        linnet.quantize(graph, _batches(), "i8", effort="fast", table=wrong)


def test_linnet_run_fetches_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    linnet.from_onnx(_net()).save(tmp_path / "m.lnt")
    cli.main(
        ["run", str(tmp_path / "m.lnt"), "--random", "--fetch", "pool", "--fetch", "y", "--json"], standalone_mode=False
    )
    outputs = json.loads(capsys.readouterr().out)["outputs"]
    assert [(o["name"], o["dtype"], o["shape"]) for o in outputs] == [
        ("pool", "f32", [1, 8, 1, 1]),
        ("y", "f32", [1, 5]),
    ]
    with pytest.raises(linnet.UsageError, match=r"named 'pol'; expected pool"):
        cli.main(["run", str(tmp_path / "m.lnt"), "--random", "--fetch", "pol"], standalone_mode=False)
    with pytest.raises(linnet.UsageError, match=r"named 'stemm'; expected stem or stem_relu"):
        cli.main(["run", str(tmp_path / "m.lnt"), "--random", "--input", "stemm=x.npy"], standalone_mode=False)


def test_linnet_run_in_c_fetches_steps_and_names_the_nearest(tmp_path: Path) -> None:
    linnet.from_onnx(_net()).save(tmp_path / "m.lnt")

    def fetched(name: str) -> subprocess.CompletedProcess[str]:
        command = [build("release") / "linnet-run", tmp_path / "m.lnt", "--random", "--fetch", name]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert fetched("pool").stdout.startswith("pool: f32 [1, 8, 1, 1]")
    for wrong, near in (
        ("stemrelu", "; the nearest name is 'stem_relu'"),
        ("clases", "; the nearest name is 'classes'"),
    ):
        assert near in fetched(wrong).stderr
    for strange in ("nothing like it", "n" * 300, ""):
        done = fetched(strange)
        assert done.returncode and "nearest" not in done.stderr


def test_the_page_of_a_model_names_the_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A batch norm is a part of the step that is called after the convolution, and the page says so."""
    onnx.save(_net(), tmp_path / "m.onnx")
    cli.main(
        ["convert", str(tmp_path / "m.onnx"), "--check", "--html", str(tmp_path / "m.html")], standalone_mode=False
    )
    text = (tmp_path / "m.html").read_text()
    details = json.loads(text.split("const details = ")[1].split(";\n")[0])
    steps = {entry["name"]: [step.partition(":")[0] for step in entry["steps"]] for entry in details}
    assert steps["stem"] == steps["norm_1"] == steps["stem_relu"] == ["stem"] and steps["norm_2"] == ["classes"]
    assert "stem" in capsys.readouterr().out
