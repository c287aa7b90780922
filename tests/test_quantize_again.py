"""Quantizing a graph that is quantized already, wholly or in part. NumPy computes the expected results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import linnet
from linnet import ops
from linnet.cli.main import cli
from linnet.file.reader import from_bytes
from linnet.ir import traits
from linnet.ir.dtypes import Quantization
from linnet.quantization.table import Row, Table
from tests.tflite_models import G, O, T, build

RNG = np.random.default_rng(0)
W = [RNG.standard_normal((8, 8)).astype(np.float32) for _ in range(2)]
X = RNG.standard_normal((16, 4, 8)).astype(np.float32)
FEEDS = [{"x": x} for x in X]
ALREADY = (
    r"the model is {} already; expected a model with products \(matmul, conv\) in f32, which can be quantized, "
    r"got products in {} only; run this model as it is, or quantize the float model from which it was made"
)


def network(divide: bool = False) -> linnet.Graph:
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 8))
    y = ops.matmul(ops.relu(ops.matmul(x, graph.constant(W[0]), name="first")), graph.constant(W[1]), name="second")
    outputs = {"y": y}
    if divide:
        outputs["third"] = graph.placeholder("n", (4,), "i32") / 3
    inputs = {"x": x} | ({"n": graph.find("n")} if divide else {})
    graph.signature("infer", inputs, outputs)
    return graph


def products(graph: linnet.Graph) -> dict[str, str]:
    nodes = [n for f in graph.functions for n in f.nodes if n.op in traits.PRODUCTS]
    return {n.name: n.inputs[0].dtype for n in nodes if n.inputs[0] is not None}


@pytest.mark.parametrize("first", ["i8", "i16", "f16", "bf16"])
@pytest.mark.parametrize("again", ["int8", "i16", "f16", "auto"])
def test_a_quantized_graph_says_so(first: str, again: str) -> None:
    made = linnet.quantize(network(), FEEDS, first, effort="fast")
    name = {"i8": "int8", "i16": "int16", "f16": "float16", "bf16": "bfloat16"}[first]
    kinds = ".*" if first == "i16" else first
    for graph in (made, from_bytes(made.to_bytes())):
        if again == "f16" and first in ("i8", "i16"):  # the floats around the integers are stored as f16
            assert products(linnet.quantize(graph, FEEDS, again)) == products(graph)
            continue
        with pytest.raises(linnet.UsageError, match=ALREADY.format(name, kinds)) as raised:
            linnet.quantize(graph, FEEDS, again)
        assert raised.value.code == 103


def int8_classifier() -> bytes:
    """A padded average pool and a dense layer, as TensorFlow quantizes them."""
    weights, bias = RNG.integers(-127, 128, (3, 36)).astype(np.int8), np.arange(3, dtype=np.int32)
    tensors = [
        T("x", "i8", [1, 5, 5, 4], 0.1, 3), T("p", "i8", [1, 3, 3, 4], 0.1, 3), T("s", "i32", [2], value=np.int32([1, 36])),
        T("f", "i8", [1, 36], 0.1, 3), T("w", "i8", [3, 36], 0.02, 0, value=weights),
        T("b", "i32", [3], 0.002, 0, value=bias), T("y", "i8", [1, 3], 0.3, 0),
    ]  # fmt: skip
    pool = {"padding": 0, "stride_w": 2, "stride_h": 2, "filter_w": 3, "filter_h": 3, "activation": "none"}
    operators = [
        O("AVERAGE_POOL_2D", ["x"], ["p"], pool), O("RESHAPE", ["p", "s"], ["f"], {}),
        O("FULLY_CONNECTED", ["f", "w", "b"], ["y"], {"activation": "none"}),
    ]  # fmt: skip
    return build(G(tensors, operators, ["x"], ["y"]))


@pytest.mark.parametrize("suffix", ["tflite", "lnt"])
def test_the_commands_say_so(suffix: str, tmp_path: Path) -> None:
    """A TFLite classifier that ends in an average pool: its count of pixels is an integer division."""
    path = tmp_path / "m.tflite"
    path.write_bytes(int8_classifier())
    if suffix == "lnt":
        linnet.load_graph(path).save(tmp_path / "m.lnt")
        path = tmp_path / "m.lnt"
    np.savez(tmp_path / "c.npz", x=np.zeros((4, 1, 5, 5, 4), np.int8))
    for command in ("quantize", "convert"):
        words = [
            command,
            str(path),
            "-o",
            str(tmp_path / "o.lnt"),
            "--dtype",
            "int8",
            "--calibration",
            str(tmp_path / "c.npz"),
        ]
        done = CliRunner().invoke(cli, words)
        assert isinstance(done.exception, linnet.UsageError) and "the model is int8 already" in str(done.exception)
        assert not (tmp_path / "o.lnt").exists()


def test_the_rest_of_a_graph_is_quantized() -> None:
    """The layer that was left in f32 becomes i8, and the other keeps its integers."""
    part = linnet.quantize(network(), FEEDS, "i8", effort="fast", table=Table([Row("second", "f32")]))
    assert products(part) == {"first": "i8", "second": "f32"}
    whole = linnet.quantize(part, FEEDS, "i8", effort="fast")
    assert products(whole) == {"first": "i8", "second": "i8"}
    half = linnet.quantize(part, FEEDS, "f16")
    assert products(half) == {"first": "i8", "second": "f16"}
    want = np.maximum(X @ W[0], 0) @ W[1]
    for graph in (part, whole, half):
        got = np.stack([linnet.Session(graph).run(f)["y"] for f in FEEDS])
        assert np.abs(got - want).max() < 0.03 * np.abs(want).max()


def test_integer_inputs_keep_their_scale() -> None:
    """A graph whose input is i8 and whose second layer is f32. The scale of the input was lost."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, 8), "i8")
    x.quantization = Quantization(np.float32([0.05]), np.int32([3]))
    w = graph.main.constant(
        np.rint(W[0] * 40).astype(np.int8), "w", None, Quantization(np.float32([1 / 40]), np.int32([0]))
    )
    hidden = ops.matmul(x, w, output_dtype="f32", name="first")
    graph.signature("infer", {"x": x}, {"y": ops.matmul(ops.relu(hidden), graph.constant(W[1]), name="second")})
    feeds = [{"x": RNG.integers(-128, 128, (4, 8)).astype(np.int8)} for _ in range(8)]
    made = linnet.quantize(graph, feeds, "i8", effort="fast")
    assert products(made) == {"first": "i8", "second": "i8"} and linnet.Model(made).inputs()[0].scale == np.float32(
        0.05
    )
    for feed in feeds:
        real = (feed["x"].astype(np.float64) - 3) * 0.05
        want = np.maximum(real @ (np.rint(W[0] * 40) / 40), 0) @ W[1]
        got = linnet.Session(made).run(feed)["y"]
        assert np.abs(got - want).max() < 0.03 * np.abs(want).max()


def test_integer_division_beside_float_layers() -> None:
    """The constant of an integer division was looked for among the floats."""
    feeds: list[dict[str, Any]] = [{"x": x, "n": np.int32([7, -7, 2, 9])} for x in X]
    made = linnet.quantize(network(divide=True), feeds, "i8", effort="fast")
    assert linnet.Session(made).run(feeds[0])["third"].tolist() == [2, -2, 0, 3]
