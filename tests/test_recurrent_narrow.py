"""Recurrent layers with weights of 8 bits: the op against NumPy and against the reference, import, export, gradients, and
what the quantizer makes of RNN, GRU and LSTM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, numpy_helper

import linnet
from linnet.builder import ops
from linnet.converters.export import to_onnx
from linnet.ir.dtypes import Quantization, quantization_of_rows
from linnet.passes.floats import dequantized
from linnet.quantization.recurrent import stored_weights
from linnet.quantization.rounding import Rounding
from linnet.quantization.rows import Rows
from linnet.quantization.table import Row, Table
from tests.test_recurrent import GATES, case, peer

Array = npt.NDArray[Any]
AFFINE = 3  # number of the activation


def layer(
    weights: Array, q: Quantization | None, p: Array, h: Array, outputs: int = 1, **attributes: Any
) -> linnet.Graph:
    """A graph with one recurrent layer: p f32 [time, batch, gates] and h f32 [directions, batch, hidden] -> y, y_h."""
    graph = linnet.Graph()
    operands = graph.placeholder("p", p.shape), graph.placeholder("h", h.shape)
    made = ops.recurrent(
        operands[0], graph.main.constant(weights, quantization=q), operands[1], outputs=outputs, **attributes
    )
    graph.signature("infer", {"p": operands[0], "h": operands[1]}, {f"y{i}": t for i, t in enumerate(made)})
    return graph


def everywhere(graph: linnet.Graph, feeds: dict[str, Array]) -> list[dict[str, Array]]:
    """Results of the reference, and of each instruction set with few and with many threads."""
    sessions = [linnet.Session(graph, reference=True)]
    sessions += [linnet.Session(graph, isa_max=isa, threads=n) for isa in linnet.isa_names() for n in (1, 4)]
    return [session.run(feeds) for session in sessions]


@pytest.mark.parametrize("hidden", [1, 3, 15, 16, 17, 31, 33, 63, 64, 65, 67, 127, 130, 257])
def test_sums_of_integers_are_exact(hidden: int) -> None:
    """The activation is the identity and all scales are powers of two, so that results show the sums bit by bit. States
    lie in the middle between two integers, or are the largest."""
    rng = np.random.default_rng(hidden)
    w = rng.integers(-128, 128, (2, hidden, hidden)).astype(np.int8)
    w[:, 0] = 127 if hidden % 2 else -128
    scale = np.float32(2.0) ** rng.integers(-9, -3, (2, hidden))
    halves = rng.integers(-2046, 2047, (2, 3, hidden)) + rng.choice([0.0, 0.5, -0.5], (2, 3, hidden))
    halves[..., rng.integers(0, hidden)] = 2047
    h, p = (halves / 1024).astype(np.float32), np.zeros((1, 3, 2 * hidden), np.float32)
    settings = {"activations": [AFFINE, AFFINE], "alpha": [1.0, 1.0], "beta": [0.0, 0.0]}
    graph = layer(w, quantization_of_rows(scale, hidden), p, h, kind="rnn", direction="bidirectional", **settings)
    sums = np.einsum("dbk,dnk->dbn", np.rint(halves).astype(np.int64), w.astype(np.int64))
    want = sums.astype(np.float32) * (scale[:, None] / np.float32(1024))
    for results in everywhere(graph, {"p": p, "h": h}):
        np.testing.assert_array_equal(results["y0"][0], want)


def rounded(state: Array) -> Array:
    """The state as the op rounds it: integers times their scale."""
    narrow = state.astype(np.float32)
    most = np.abs(narrow).max(axis=-1, keepdims=True)
    inverse = np.divide(np.float32(2047), most, out=np.zeros_like(most), where=most >= np.float32(1e-30))
    return np.rint(narrow * inverse).astype(np.float64) * (most / np.float32(2047)).astype(np.float64)


def steps(kind: str, p: Array, w: Array, h: Array, reset_after: bool) -> Array:
    """y [time, batch, hidden] of one direction, forward. p [time, batch, gates * hidden], w [gates * hidden, hidden]."""

    def sigmoid(v: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-v)))

    n, c, made = h.shape[-1], np.zeros_like(h), []
    for x in p:
        from_state = rounded(h) @ w.T
        if kind == "lstm":
            i, o, f, g = np.split(x + from_state, 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif kind == "gru":
            z, r = np.split(sigmoid(x[:, : 2 * n] + from_state[:, : 2 * n]), 2, axis=-1)
            last = r * from_state[:, 2 * n :] if reset_after else rounded(r * h) @ w[2 * n :].T
            candidate = np.tanh(x[:, 2 * n :] + last)
            h = candidate + (h - candidate) * z
        else:
            h = np.tanh(x + from_state)
        made.append(h)
    return np.stack(made)


@pytest.mark.parametrize("hidden", [5, 64, 70])
@pytest.mark.parametrize("kind", ["rnn", "gru", "gru_after", "lstm"])
def test_layers_agree_with_numpy(kind: str, hidden: int) -> None:
    rng = np.random.default_rng(hidden)
    reset_after, kind = kind == "gru_after", kind.removesuffix("_after")
    gates = GATES[kind.upper()] * hidden
    w = rng.integers(-127, 128, (1, gates, hidden)).astype(np.int8)
    q = quantization_of_rows((0.5 + rng.random((1, gates))) / (80 * hidden**0.5), hidden)
    p = rng.normal(0, 1, (6, 3, gates)).astype(np.float32)
    h = rng.normal(0, 0.4, (1, 3, hidden)).astype(np.float32)
    want = steps(
        kind, p.astype(np.float64), dequantized(w, q)[0].astype(np.float64), h[0].astype(np.float64), reset_after
    )
    graph = layer(w, q, p, h, kind=kind, linear_before_reset=reset_after)
    for results in everywhere(
        graph, {"p": p, "h": h}
    ):  # a state near the middle between two integers may go either way
        np.testing.assert_allclose(results["y0"][:, 0], want, atol=4e-4)
        assert np.abs(results["y0"][:, 0] - want).mean() < 2e-5


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_layers_of_all_options_agree_with_onnx_runtime(kind: str, direction: str) -> None:
    """Each layer is quantized. ONNX Runtime computes the same layer with the weights that the integers represent."""
    rng = np.random.default_rng(11)
    for hidden, extra in ((6, {"clip": 0.8}), (33, {"linear_before_reset": 1} if kind == "GRU" else {})):
        chosen = {"B", "sequence_lens", "initial_h", "initial_c", "P"}
        model, feeds = case(kind, rng, hidden, 0, chosen, direction=direction, **extra)
        graph = linnet.quantize(
            linnet.from_onnx(model),
            [feeds],
            "i8",
            table=Table([Row("*", "w8"), Row("*matmul*", "f32")]),
            effort="fast",
        )
        (node,) = [n for n in graph.functions[0].nodes if n.op == "recurrent"]
        assert (
            node.inputs[1] is not None and node.inputs[1].data is not None and node.inputs[1].quantization is not None
        )
        real = dequantized(node.inputs[1].data, node.inputs[1].quantization)
        (r,) = [t for t in model.graph.initializer if t.name == "R"]
        assert np.abs(numpy_helper.to_array(r) - real).max() < 0.02
        r.CopyFrom(numpy_helper.from_array(real, "R"))
        expected = peer(model, feeds)
        for results in everywhere(graph, feeds):
            for info, want in zip(model.graph.output, expected, strict=True):
                np.testing.assert_allclose(results[info.name], want, atol=2e-3, err_msg=info.name)


def test_states_that_are_not_finite_or_vanish() -> None:
    hidden = 20
    w, q = np.full((1, hidden, hidden), 3, np.int8), quantization_of_rows(np.full((1, hidden), 0.125), hidden)
    p = np.ones((1, 3, hidden), np.float32)
    h = np.zeros((1, 3, hidden), np.float32)
    h[0, :, 7] = np.nan, np.inf, 1e-35
    for results in everywhere(layer(w, q, p, h, kind="rnn"), {"p": p, "h": h}):
        assert np.isnan(results["y0"][0, 0, :2]).all()
        np.testing.assert_allclose(results["y0"][0, 0, 2], np.tanh(1.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        (None, "no quantization"),
        (Quantization(np.ones(1, np.float32), np.ones(1, np.int32)), "zero points of 0"),
        (Quantization(np.ones(4, np.float32), np.zeros(4, np.int32), 2), "along axis 2"),
        (Quantization(np.ones((1, 4, 2), np.float32), np.zeros((1, 4, 2), np.int32), 2, 8, 2), "blocks of 2"),
    ],
)
def test_quantizations_that_are_refused(quantization: Quantization | None, message: str) -> None:
    p, h = np.zeros((2, 1, 4), np.float32), np.zeros((1, 1, 4), np.float32)
    with pytest.raises(linnet.Error, match="quantization of the 8-bit weights") as caught:
        layer(np.ones((1, 4, 4), np.int8), quantization, p, h, kind="rnn")
    assert message in str(caught.value)


@pytest.mark.parametrize("rows", ["one", "directions", "units", "both"])
def test_a_file_keeps_the_scales_of_rows(rows: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    directions = 1 if rows == "units" else 2
    scale = {"one": np.full((2, 1), 0.25), "directions": np.array([[0.25], [0.5]])}.get(
        rows, rng.random((directions, 12)) + 0.1
    )
    scale = np.broadcast_to(scale, (directions, 12)).astype(np.float32)
    w = rng.integers(-128, 128, (directions, 12, 4)).astype(np.int8)
    q = quantization_of_rows(scale, 4)
    np.testing.assert_array_equal(dequantized(w, q), w * scale[..., None])
    p, h = rng.normal(size=(3, 2, 12 * directions)).astype(np.float32), np.zeros((directions, 2, 4), np.float32)
    graph = layer(w, q, p, h, kind="gru", direction="forward" if directions == 1 else "bidirectional")
    graph.save(tmp_path / "g.lnt")
    again = linnet.Graph.load(tmp_path / "g.lnt")
    feeds = {"p": p, "h": h}
    np.testing.assert_array_equal(linnet.Session(again).run(feeds)["y0"], linnet.Session(graph).run(feeds)["y0"])


def speech(kind: str, rng: np.random.Generator) -> tuple[linnet.Graph, list[dict[str, Array]]]:
    model, feeds = case(kind, rng, 48, 0, {"B", "initial_h"}, direction="bidirectional")
    more = [{k: v + rng.normal(0, 0.1, v.shape).astype(v.dtype) for k, v in feeds.items()} for _ in range(4)]
    return linnet.from_onnx(model), more


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_what_the_quantizer_stores(kind: str, tmp_path: Path) -> None:
    graph, feeds = speech(kind, np.random.default_rng(8))
    want = linnet.Session(graph).run(feeds[0])["Y"]
    graph.save(tmp_path / "f32.lnt")
    sizes = {"f32": (tmp_path / "f32.lnt").stat().st_size}
    for dtype, word, stored, most in (
        ("i8", "w8", "i8", 0.05),
        ("i16", "f16", "f16", 0.02),
        ("f16", "f16", "f16", 0.004),
    ):
        small = linnet.quantize(graph, feeds, dtype, effort="fast", table_out=tmp_path / "table.txt")
        small.save(tmp_path / "small.lnt")
        sizes[dtype] = (tmp_path / "small.lnt").stat().st_size
        (row,) = [r for r in Table.read(tmp_path / "table.txt").rows if isinstance(r, Row) and "recurrent" in r.remark]
        assert row.dtype == word
        assert any(t.dtype == stored and t.data is not None and t.data.ndim == 3 for t in small.functions[0].tensors())
        assert np.abs(linnet.Session(small).run(feeds[0])["Y"] - want).max() < most, dtype
        again = linnet.quantize(graph, feeds, dtype, effort="fast", table=Table([Row(row.pattern, "f32")]))
        (node,) = [n for n in again.functions[0].nodes if n.op == "recurrent"]
        assert node.inputs[1] is not None and node.inputs[1].dtype == "f32" and node.inputs[1].data is not None
    assert sizes["i8"] < 0.5 * sizes["f32"] and sizes["f16"] < 0.6 * sizes["f32"]


def test_dynamic_quantization_stores_8_bits() -> None:
    graph, feeds = speech("LSTM", np.random.default_rng(10))
    small = linnet.quantize(graph, dtype="i8", dynamic=True)
    (node,) = [n for n in small.functions[0].nodes if n.op == "recurrent"]
    assert node.inputs[1] is not None and node.inputs[1].dtype == "i8"
    assert np.abs(linnet.Session(small).run(feeds[0])["Y"] - linnet.Session(graph).run(feeds[0])["Y"]).max() < 0.05


@pytest.mark.parametrize("linear", [True, False])
def test_rounding_errors_cancel_on_the_calibration_data(linear: bool) -> None:
    """The units of these states are correlated. If the hidden gate reads the state after the reset gate, which is not
    observed, its weights are rounded to nearest."""
    rng = np.random.default_rng(3)
    hidden = 32
    w = rng.normal(0, 0.2, (1, 3 * hidden, hidden)).astype(np.float32)
    states = np.tanh(rng.normal(0, 1, (40, 1, 5, 3)) @ rng.normal(0, 1, (3, hidden))).astype(np.float32)
    graph = linnet.Graph()
    p = graph.placeholder("p", (40, 5, 3 * hidden))
    ops.recurrent(p, graph.constant(w), kind="gru", linear_before_reset=linear)
    (node,) = [n for n in graph.main.nodes if n.op == "recurrent"]
    rows = Rows(node)
    rows.include(states)
    rows.settle()
    errors = {}
    for rounding in (None, Rounding({node: rows})):
        made = stored_weights(graph.main, node, "w8", rounding)
        assert made.data is not None and made.quantization is not None
        errors[rounding is not None] = (dequantized(made.data, made.quantization) - w)[0] @ states.reshape(-1, hidden).T
    before, after = ([np.square(e).mean() for e in np.split(errors[careful], 3)] for careful in (False, True))
    assert after[0] < 0.5 * before[0] and after[1] < 0.5 * before[1]
    assert after[2] < 0.5 * before[2] if linear else after[2] == before[2]


def test_export_and_gradients() -> None:
    """ONNX has no rounding of states, so the exported layer has the real weights. So have the gradients."""
    graph, feeds = speech("GRU", np.random.default_rng(9))
    small = linnet.quantize(graph, feeds, "i8", effort="fast", table=Table([Row("*matmul*", "f32")]))
    got = linnet.Session(small).run(feeds[0])
    model = to_onnx(small)
    for info, value in zip(model.graph.output, peer(model, feeds[0]), strict=True):
        np.testing.assert_allclose(value, got[info.name], atol=2e-3)

    rng = np.random.default_rng(4)
    w, q = rng.integers(-127, 128, (1, 32, 8)).astype(np.int8), quantization_of_rows(np.full((1, 32), 0.004), 8)
    p = rng.normal(size=(5, 2, 32)).astype(np.float32)
    slopes = []
    for weights, quantization in ((w, q), (dequantized(w, q), None)):
        graph = linnet.Graph()
        x = graph.placeholder("p", p.shape)
        y = ops.recurrent(x, graph.main.constant(weights, quantization=quantization), kind="lstm")[0]
        (slope,) = linnet.gradients(ops.reduce(y * y, kind="sum", keep_dims=False), [x])
        graph.signature("slope", {"p": x}, {"slope": slope})
        slopes.append(linnet.Session(graph, signature="slope").run({"p": p})["slope"])
    np.testing.assert_allclose(slopes[0], slopes[1], atol=2e-3)
    assert np.abs(slopes[1]).max() > 0.05


@pytest.mark.parametrize("dtype", ["int8", "uint8", "asymmetric"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_import_keeps_integers(direction: str, dtype: str) -> None:
    """R of DynamicQuantizeLSTM stays in 8 bits unless its zero points need a ninth."""
    rng = np.random.default_rng(6)
    d, n, hidden = 2 if direction == "bidirectional" else 1, 5, 8
    zero = {"int8": 0, "uint8": 128, "asymmetric": 3}[dtype]
    kind = np.int8 if dtype == "int8" else np.uint8
    constants: dict[str, Array] = {}
    for name, width in (("w", n), ("r", hidden)):
        least, count = (-64, 128) if dtype == "int8" else (0, 256)  # ONNX Runtime's i8 products may saturate
        constants[name] = rng.integers(least, least + count, (d, width, 4 * hidden)).astype(kind)
        constants[f"{name}_scale"] = (rng.random(d) * 0.002 + 0.001).astype(np.float32)
        constants[f"{name}_zero"] = np.full(d, zero, kind)
    order = ["x", "w", "r", "", "", "", "", "", "w_scale", "w_zero", "r_scale", "r_zero"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", order, ["y"], domain="com.microsoft", hidden_size=hidden, direction=direction
    )
    made = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (6, 2, n))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(made, opset_imports=opsets, ir_version=8)
    feeds = {"x": rng.normal(size=(6, 2, n)).astype(np.float32)}
    graph = linnet.from_onnx(proto)
    (cell,) = [n for n in graph.functions[0].nodes if n.op == "recurrent"]
    weights = cell.inputs[1]
    assert weights is not None and weights.dtype == ("f32" if dtype == "asymmetric" else "i8")
    if weights.data is not None and weights.quantization is not None:
        levels = constants["r"].swapaxes(1, 2).astype(np.int16) - zero
        np.testing.assert_allclose(
            dequantized(weights.data, weights.quantization), levels * constants["r_scale"][:, None, None], rtol=1e-6
        )
    np.testing.assert_allclose(linnet.Session(graph).run(feeds)["y"], peer(proto, feeds)[0], atol=0.01)
