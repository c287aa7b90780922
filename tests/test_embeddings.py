"""Embeddings of quantized graphs: rows of 4, 8 and 16 bits that a lookup widens, tables that a product reads too, and rows of the
quantization table that no layer can follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet import nn
from linnet.converters.export import to_onnx
from linnet.ir.function import Node, Tensor, emit
from linnet.quantization.embeddings import four_bits, real
from linnet.quantization.table import Row, Table

WORDS, WIDTH = 700, 40  # 112,000 bytes of floats
FEEDS = [{"ids": np.random.default_rng(i).integers(0, WORDS, (2, 9))} for i in range(6)]
Array = npt.NDArray[Any]


def table() -> Array:
    rng = np.random.default_rng(3)
    sizes = np.exp(rng.standard_normal((WORDS, 1)))  # rows differ in size
    return np.asarray(rng.standard_normal((WORDS, WIDTH)) * sizes, np.float32)


def network(tied: bool = False) -> linnet.Graph:
    """Looks up words, and multiplies them by a matrix. tied: then by the table of words."""
    graph = linnet.Graph()
    main = graph.function()
    ids = main.placeholder("ids", "i64", (2, 9))
    words = main.constant(table(), "words")
    (x,) = emit("gather", [words, ids], {"kind": "take", "axis": 0}, 1, "look_up")
    rng = np.random.default_rng(4)
    w = main.constant((rng.standard_normal((WIDTH, WIDTH)) / 6).astype(np.float32), "w")
    (x,) = emit("matmul", [x, w], {}, 1, "dense")
    x = nn.softmax(x)
    if tied:
        (x,) = emit("matmul", [x, words], {"transpose_b": True}, 1, "head")
    graph.signature("infer", {"ids": ids}, {"y": x})
    return graph


def quantized(graph: linnet.Graph, dtype: str, *rows: Row) -> linnet.Graph:
    return linnet.quantize(graph, FEEDS, dtype, effort="fast", table=Table(rows))


def node(graph: linnet.Graph, op: str) -> Node:
    return next(n for n in graph.signatures["infer"].function.nodes if n.op == op)


def held(graph: linnet.Graph) -> Tensor:
    """The table that the lookup reads."""
    found = node(graph, "gather").inputs[0]
    assert found is not None and found.data is not None
    return found


def decibels(wanted: Array, got: Array) -> float:
    return float(10 * np.log10(np.square(wanted).sum() / np.square(wanted - got).sum()))


@pytest.mark.parametrize(
    ("dtype", "row", "stored", "least"),
    [
        ("i8", None, "i8", 43), ("i16", None, "i16", 90), ("f16", None, "f16", 70), ("i8", "w8", "i8", 43),
        ("f16", "i8", "i8", 43), ("i16", "i8", "i8", 43), ("i8", "w4", "i4", 20), ("f16", "w4", "i4", 20),
        ("i8", "f16", "f16", 70), ("i8", "f32", "f32", 200),
    ],
)  # fmt: skip
def test_how_rows_are_stored(dtype: str, row: str | None, stored: str, least: float) -> None:
    made = quantized(network(), dtype, *([] if row is None else [Row("look_up", row)]))
    kept = held(made)
    assert kept.dtype == stored and kept.data is not None
    if kept.quantization is None:
        values = kept.data.astype(np.float32)
    else:
        values = real(kept.data, kept.quantization)
        if stored != "i4":
            assert kept.quantization.axis == 0 and kept.quantization.scale.shape == (WORDS,)
    assert np.array_equal(values, table()) or decibels(table(), values) > least
    # What a run gets are the values of the stored rows, and no constant of floats is as large as the table.
    graph = linnet.Graph()
    main = graph.function()
    ids = main.placeholder("ids", "i64", (2, 9))
    words = main.constant(kept.data, "words", quantization=kept.quantization)
    attributes = {"kind": "take", "axis": 0} | ({"dtype": "f32"} if kept.quantization is not None else {})
    graph.signature("infer", {"ids": ids}, {"y": emit("gather", [words, ids], attributes)[0]})
    (got,) = linnet.Session(graph).run(FEEDS[0]).values()
    np.testing.assert_array_equal(np.asarray(got).astype(np.float32), values[FEEDS[0]["ids"]])
    tensors = made.signatures["infer"].function.tensors()
    assert not [
        t
        for t in tensors
        if t.dtype == "f32" and t.data is not None and t.data.nbytes >= table().nbytes and row != "f32"
    ]


def test_the_file_has_one_byte_for_each_number(tmp_path: Path) -> None:
    sizes = {}
    for row in ("f32", "i8", "w4"):
        quantized(network(), "i8", Row("look_up", row)).save(tmp_path / "m.lnt")
        sizes[row] = (tmp_path / "m.lnt").stat().st_size
        memory = linnet.Session(tmp_path / "m.lnt").memory
        assert memory["constants"] < WORDS * WIDTH, "a table is read from the file, and is not widened"
    numbers, scales = WORDS * WIDTH, 4 * WORDS
    assert sizes["f32"] - sizes["i8"] >= 3 * numbers - scales - 4096
    assert sizes["f32"] - sizes["w4"] >= 3.5 * numbers - 2 * scales - 4096


@pytest.mark.parametrize("dtype", ["i8", "i16"])
def test_a_product_and_a_lookup_have_one_table(dtype: str, tmp_path: Path) -> None:
    graph = network(tied=True)
    made = quantized(graph, dtype)
    head = [n for n in made.signatures["infer"].function.nodes if n.op == "matmul"][1]
    assert held(made) is head.inputs[1]
    (wanted,), (got,) = (linnet.Session(g).run(FEEDS[0]).values() for g in (graph, made))
    assert decibels(wanted, got) > {"i8": 25, "i16": 60}[dtype]
    made.save(tmp_path / "m.lnt")
    (again,) = linnet.Session(tmp_path / "m.lnt").run(FEEDS[0]).values()
    np.testing.assert_array_equal(got, again)


def narrow_weights(product: Node) -> Tensor:
    """The constant from which a product's weights come: they are read as they are, or a map widens them."""
    w = product.inputs[1]
    w = w.node.inputs[0] if w is not None and w.node is not None else w
    assert w is not None and w.data is not None
    return w


def test_a_table_that_onnx_transposes_is_one_constant(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["x"], "look_up"), helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Transpose", ["words"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["h", "turned"], ["y"], "head"),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    ports = [info("ids", TensorProto.INT64, (2, 9))], [info("y", TensorProto.FLOAT, (2, 9, WORDS))]
    proto = helper.make_graph(nodes, "tied", *ports, [numpy_helper.from_array(table(), "words")])
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = linnet.from_onnx(model)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, FEEDS[0])
    (got,) = linnet.Session(graph).run(FEEDS[0]).values()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    for made, number in ((graph, 4), (quantized(graph, "i8"), 1)):
        made.save(tmp_path / "m.lnt")
        assert (tmp_path / "m.lnt").stat().st_size < 1.5 * number * WORDS * WIDTH + 8192
    assert decibels(wanted, next(iter(linnet.Session(tmp_path / "m.lnt").run(FEEDS[0]).values()))) > 30


@pytest.mark.parametrize("scheme", ["w4", "w8"])
def test_a_float_product_reads_the_narrow_table(scheme: str) -> None:
    made = quantized(network(tied=True), "f32", Row("*", scheme))
    products = [n for n in made.signatures["infer"].function.nodes if n.op == "matmul"]
    assert [narrow_weights(n).dtype for n in products] == ["i" + scheme[1]] * 2
    assert held(made) is narrow_weights(products[1])
    steps = linnet.Session(made, threads=1).steps
    assert len([s for s in steps if s.op == "matmul"]) == 2 and not [s for s in steps if s.op == "map"], (
        "widened by planning"
    )
    (wanted,), (got,) = (linnet.Session(g).run(FEEDS[0]).values() for g in (network(tied=True), made))
    assert decibels(wanted, got) > {"w4": 17, "w8": 35}[scheme]


def test_four_bits_along_both_axes() -> None:
    values = table()[:65]  # the last block is shorter
    for axis in (0, 1):
        stored, q = four_bits(values, axis)
        assert decibels(values, real(stored, q)) > 14 and q.scale.shape == ((3, WIDTH), (65, 2))[axis]


def test_rows_without_effect_are_errors() -> None:
    graph = network(tied=True)
    for row, words in (
        (Row("look_up", "w4"), ("look_up", "w4", "head reads the table too", "stays f32")),
        (Row("softmax", "i8"), ("softmax", "i8", "no integer form", "a row f32 or f16")),
        (Row("softmax", "w8"), ("softmax", "w8", "no weights")),
    ):
        with pytest.raises(linnet.Error) as caught:
            quantized(graph, "i8", row)
        assert caught.value.what == "a row of the quantization table has no effect"
        assert all(word in str(caught.value) for word in words), str(caught.value)
    quantized(graph, "i8", Row("*", "i8"))  # other layers follow it
    quantized(graph, "i8", Row("softmax", "w8"), Row("softmax", "f32"))  # the later row counts


def test_convolutions_have_8_bits_where_4_are_asked() -> None:
    graph, rng = linnet.Graph(), np.random.default_rng(0)
    main = graph.function()
    x = main.placeholder("x", "f32", (1, 3, 8, 8))
    w = main.constant(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    graph.signature("infer", {"x": x}, {"y": emit("conv", [x, w], {}, 1, "conv")[0]})
    feeds = [{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)}]
    with pytest.raises(linnet.Error, match="only matrices and embeddings have weights of 4 bits"):
        linnet.quantize(graph, feeds, "i8", table=Table([Row("conv", "w4")]), effort="fast")
    made = linnet.quantize(graph, feeds, "f32", table=Table([Row("conv", "w8")]), effort="fast")
    (wanted,), (got,) = (linnet.Session(g).run(feeds[0]).values() for g in (graph, made))
    assert decibels(wanted, got) > 35


def test_the_command_says_what_embeddings_get(tmp_path: Path, linnet_command: Any) -> None:
    network().save(tmp_path / "m.lnt")
    np.savez(tmp_path / "data.npz", ids=np.stack([f["ids"] for f in FEEDS]))
    words = [
        "quantize",
        tmp_path / "m.lnt",
        "-o",
        tmp_path / "small.lnt",
        "--calibration",
        tmp_path / "data.npz",
        "--effort",
        "fast",
    ]
    done = linnet_command(*words, "--table-out", tmp_path / "table.txt")
    assert "embeddings: 1 in i8 (0.1 MB of floats -> 0.0 MB)" in done.stdout
    (row,) = (
        line
        for line in (tmp_path / "table.txt").read_text().splitlines()
        if " look_up " in line and line.startswith("layer")
    )
    assert row.split()[:3] == ["layer", "look_up", "i8"] and "700 rows of 40, rows 4" in row
    (tmp_path / "table.txt").write_text("look_up w4\n")
    report = json.loads(linnet_command(*words, "--table", tmp_path / "table.txt", "--json").stdout)
    (found,) = report["embeddings"]
    assert (found["layer"], found["stored"], found["rows"], found["columns"]) == ("look_up", "w4", WORDS, WIDTH)
    assert found["after"] == WORDS * WIDTH // 2 + 4 * WORDS * 2 and found["before"] == 4 * WORDS * WIDTH


def test_exported_lookups_give_the_same_rows() -> None:
    made = quantized(network(), "f32", Row("look_up", "i8"))
    session = onnxruntime.InferenceSession(to_onnx(made, opset=21).SerializeToString())
    (got,), (wanted,) = session.run(None, FEEDS[0]), linnet.Session(made).run(FEEDS[0]).values()
    np.testing.assert_allclose(got, wanted, atol=1e-6)
