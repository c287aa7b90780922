"""Dynamic quantization: products with constant weights compute in 8 bits, and each run finds the ranges of the activations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import linnet
from linnet import ops
from tests.test_cli import refused

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def dense(bias: bool, columns: int = 96) -> linnet.Graph:
    """y = x @ w (+ b), with columns of very different size, of which the last is zero."""
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n", 80))
    w = floats(80, columns) * np.logspace(-3, 1, columns, dtype=np.float32)
    w[:, -1] = 0
    y = ops.matmul(x, graph.constant(w), graph.constant(floats(columns))) if bias else ops.matmul(x, graph.constant(w))
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


def definition(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """x @ w as ONNX's DynamicQuantizeLinear and MatMulInteger define it, with a scale for each column of w."""
    low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
    scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
    zero = np.rint(np.clip(-low / scale, 0, 255)).astype(np.int64)
    q = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64)
    peaks = (np.abs(w).max(0) / np.float32(127)).astype(np.float32)
    peaks[peaks < 1e-30] = 1
    stored = np.clip(np.rint(w / peaks), -127, 127).astype(np.int64)
    return ((q - zero) @ stored).astype(np.float32) * (scale * peaks)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("reference", [False, True])
def test_a_matmul_has_the_result_of_its_definition(bias: bool, reference: bool) -> None:
    graph = dense(bias)
    node = graph.signatures["infer"].function.nodes[0]
    w, *rest = [t.data for t in node.inputs[1:] if t is not None]
    assert w is not None
    session = linnet.Session(linnet.quantize(graph, dynamic=True), reference=reference)
    for x in (floats(1, 80), np.abs(floats(7, 80)) + 1, np.zeros((3, 80), np.float32), -np.abs(floats(2, 80))):
        expected = definition(x, w)
        expected = expected + rest[0] if rest and rest[0] is not None else expected
        assert np.array_equal(session.run({"x": x})["y"], expected)


def test_a_file_of_onnx_runtime_has_the_same_integers(tmp_path: Path) -> None:
    """With one scale for the whole matrix, ONNX's ops give the same numbers as the product that quantize makes."""
    w = np.clip(floats(80, 64), -3, 3)
    w[0] = 3  # so that all columns have the same scale
    graph = linnet.Graph()
    x = graph.placeholder("x", (5, 80))
    graph.signature("infer", {"x": x}, {"y": ops.matmul(x, graph.constant(w))})
    scale = np.float32(np.abs(w).max() / np.float32(127))
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "ws"], ["both"]),
        helper.make_node("Mul", ["f", "both"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.clip(np.rint(w / scale), -127, 127).astype(np.int8), "w"),
        numpy_helper.from_array(np.array(scale), "ws"),
    ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [5, 80]), ("y", [5, 64]))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ours = linnet.Session(linnet.quantize(graph, dynamic=True))
    # Kernels of ONNX Runtime without dot products saturate sums of two products at 16 bits, so the numbers are kept small.
    given = np.abs(floats(5, 80)) * np.float32(0.01)
    given[0, 0] = 4
    assert np.array_equal(ours.run({"x": given})["y"], theirs.run(None, {"x": given})[0])


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 2, 0, 1]])
def test_a_conv_is_near_its_floats(pads: list[int]) -> None:
    """Padding represents 0, although the zero point is known only in the run."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 16, 9, 11))
    y = ops.conv(x, graph.constant(floats(32, 16, 3, 3)), graph.constant(floats(32)), pads=pads, strides=[2, 1])
    graph.signature("infer", {"x": x}, {"y": ops.relu(y)})
    made = linnet.quantize(graph, dynamic=True)
    assert [t.dtype for n in made.signatures["infer"].function.nodes if n.op == "conv" for t in n.inputs] == [
        "u8",
        "i8",
    ]
    given = floats(2, 16, 9, 11) + 2
    expected, got = linnet.Session(graph).run({"x": given})["y"], linnet.Session(made).run({"x": given})["y"]
    assert np.square(got - expected).sum() < 1e-3 * np.square(expected).sum()


def test_products_of_one_activation_share_its_integers() -> None:
    """Embeddings are stored in 8 bits. Small products and products of two activations stay in floats."""
    graph = linnet.Graph()
    ids = graph.placeholder("ids", (1, 6), "i64")
    table = graph.constant(floats(300, 64))
    x = ops.gather(table, ids, axis=0)
    a, b = (ops.matmul(x, graph.constant(floats(64, 64))) for _ in range(2))
    scores = ops.matmul(a, ops.transpose(b, [0, 2, 1]))
    y = ops.matmul(scores, graph.constant(floats(6, 4)))
    graph.signature("infer", {"ids": ids}, {"y": y})
    made = linnet.quantize(graph, dynamic=True)
    nodes = made.signatures["infer"].function.nodes
    assert [n.op for n in nodes].count("quantize") == 1
    stored = [n.inputs[0].dtype for n in nodes if n.op == "gather" and n.inputs[0] is not None]
    assert stored == ["i8"] and len(made.to_bytes()) < 0.4 * len(graph.to_bytes())
    products = [[t.dtype for t in n.inputs if t is not None] for n in nodes if n.op == "matmul"]
    assert sorted(products) == [["f32", "f32"], ["f32", "f32"], ["u8", "i8"], ["u8", "i8"]]
    given = RNG.integers(0, 300, (1, 6))
    expected, got = linnet.Session(graph).run({"ids": given})["y"], linnet.Session(made).run({"ids": given})["y"]
    assert np.square(got - expected).sum() < 2e-3 * np.square(expected).sum()


def test_what_does_not_go_together() -> None:
    graph = dense(False)
    with pytest.raises(linnet.UsageError, match="only 8 bits"):
        linnet.quantize(graph, dtype="i16", dynamic=True)
    with pytest.raises(linnet.UsageError, match="takes no calibration"):
        linnet.quantize(graph, [{"x": floats(1, 80)}], dynamic=True)
    with pytest.raises(linnet.UsageError, match="no product that can be quantized"):
        linnet.quantize(dense(False, 2), dynamic=True)


def test_the_command(tmp_path: Path, linnet_command: Callable[..., Any]) -> None:
    model, made = tmp_path / "net.lnt", tmp_path / "small.lnt"
    dense(True, 256).save(model)
    np.savez(tmp_path / "data.npz", x=floats(8, 1, 80))
    refused(
        linnet_command("quantize", model, "-o", made, "--dynamic", "--table", tmp_path / "t.txt"),
        "--table has no effect",
        status=2,
    )
    refused(linnet_command("quantize", model, "-o", made, "--dynamic", "--dtype", "f16"), "only 8 bits")
    done = linnet_command(
        "quantize", model, "-o", made, "--dynamic", "--calibration", tmp_path / "data.npz", "--threads", "1"
    )
    assert done.returncode == 0, done.stderr
    assert "100.0% in i8" in done.stdout and made.stat().st_size < 0.5 * model.stat().st_size
    assert linnet_command("quantize", model, "-o", made, "--dynamic").returncode == 0
