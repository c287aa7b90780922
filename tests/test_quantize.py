"""The quantizer: parameters, what becomes integer, the table of overrides, calibration errors, and accuracy.

Networks are small ONNX graphs made here. The reference is linnet's own float results, which other tests compare with ONNX
Runtime.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet import ops
from linnet.ir.function import emit
from linnet.quantization.calibrate import Range, batches_for, load_batches
from linnet.quantization.scheme import activation_parameters, weight_parameters
from linnet.quantization.table import Row, Table, TensorRow
from tests.graphs import pointwise

RNG = np.random.default_rng(7)


def small_network() -> onnx.ModelProto:
    """Conv-relu, hard-swish branch, residual add, concat, max-pool, conv, global average, dense, softmax."""
    weights: list[onnx.TensorProto] = []

    def constant(name: str, *shape: int) -> str:
        fan = int(np.prod(shape[1:])) or 1
        weights.append(numpy_helper.from_array((RNG.standard_normal(shape) / np.sqrt(fan)).astype(np.float32), name))
        return name

    nodes = [
        helper.make_node("Conv", ["x", constant("w1", 8, 3, 3, 3), constant("b1", 8)], ["c1"], "c1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "r1"),
        helper.make_node("Conv", ["r1", constant("w2", 8, 8, 3, 3), constant("b2", 8)], ["c2"], "c2", pads=[1] * 4),
        helper.make_node("HardSwish", ["c2"], ["h2"], "h2"),
        helper.make_node("Add", ["h2", "r1"], ["a2"], "a2"),
        helper.make_node("Concat", ["a2", "r1"], ["k"], "k", axis=1),
        helper.make_node("MaxPool", ["k"], ["p"], "p", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", constant("w3", 12, 16, 1, 1)], ["c3"], "c3"),
        helper.make_node("Relu", ["c3"], ["r3"], "r3"),
        helper.make_node("GlobalAveragePool", ["r3"], ["g"], "g"),
        helper.make_node("Flatten", ["g"], ["f"], "f"),
        helper.make_node("Gemm", ["f", constant("w4", 5, 12), constant("b4", 5)], ["d"], "d", transB=1),
        helper.make_node("Softmax", ["d"], ["y"], "y", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def batches(count: int = 6) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(count)]


@pytest.fixture(scope="module")
def network() -> linnet.Graph:
    return linnet.from_onnx(small_network())


@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, 3.0), (0.0, 6.0), (-2.0, -0.5), (0.5, 2.0), (0.0, 0.0), (-1e-9, 1e-9)]
)
def test_activation_parameters_represent_zero_and_both_ends(low: float, high: float) -> None:
    found = activation_parameters(Range(low, high), "i8")
    scale, zero = float(found.scale[0]), int(found.zero[0])
    assert -128 <= zero <= 127
    for value in (0.0, low, high):
        stored = np.clip(np.rint(value / scale) + zero, -128, 127)
        assert abs((stored - zero) * scale - value) <= scale * 0.5 + 1e-6 + scale * 0.5 * (value != 0.0)
    assert int(activation_parameters(Range(low, high), "i16").zero[0]) == 0


def test_weight_parameters_are_symmetric_per_channel() -> None:
    weights = (
        RNG.standard_normal((4, 3, 2, 2)).astype(np.float32)
        * np.array([1, 10, 0.1, 0], np.float32)[:, None, None, None]
    )
    stored, parameters = weight_parameters(weights, 0)
    assert stored.dtype == np.int8 and parameters.scale.shape == (4,) and not parameters.zero.any()
    back = stored * parameters.scale[:, None, None, None]
    assert np.abs(back - weights).max(axis=(1, 2, 3)) == pytest.approx(
        np.zeros(4), abs=float(parameters.scale.max()) / 2
    )
    assert np.abs(stored).reshape(4, -1).max(axis=1).tolist() == [127, 127, 127, 0]


@pytest.mark.parametrize(("dtype", "tolerance"), [("f16", 2e-3), ("i16", 5e-3), ("i8", 6e-2)])
def test_quantized_network_stays_close(network: linnet.Graph, dtype: str, tolerance: float) -> None:
    small = linnet.quantize(network, batches(), dtype=dtype)
    for feeds in batches(3):
        want = linnet.Session(network).run(feeds)["y"]
        got = linnet.Session(small).run(feeds)["y"]
        assert got.dtype == np.float32
        assert np.abs(got - want).max() <= tolerance


def test_what_becomes_integer(network: linnet.Graph) -> None:
    small = linnet.quantize(network, batches(), dtype="i8", effort="fast")
    nodes = small.signatures["infer"].function.nodes
    integer = [n for n in nodes if n.op in ("conv", "matmul")]
    assert len(integer) == 4
    for node in integer:
        assert node.inputs[0] is not None and node.inputs[0].dtype == "i8"
        assert node.inputs[1] is not None and node.inputs[1].dtype == "i8"
    pool = next(n for n in nodes if n.op == "pool")
    assert pool.inputs[0] is not None and pool.inputs[0].dtype == pool.outputs[0].dtype == "i8"
    concat = next(n for n in nodes if n.op == "copy" and n.attributes.get("kind") == "concat")
    scales = {
        float(t.quantization.scale[0]) for t in [*concat.inputs, *concat.outputs] if t is not None and t.quantization
    }
    assert len(scales) == 1, "concat moves integers only between tensors of one scale"


def two_convolutions(middle: str) -> linnet.Graph:
    """conv, an activation, conv."""
    rng = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array((rng.standard_normal((3, 3, 3, 3)) / 5).astype(np.float32), name)
        for name in ("w1", "w2")
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "c1"),
        helper.make_node(middle, ["c1"], ["r1"], "r1"),
        helper.make_node("Conv", ["r1", "w2"], ["y"], "c2"),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    value[0] = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    graph = helper.make_graph(nodes, "two", value[:1], value[1:], weights)
    return linnet.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


@pytest.mark.parametrize(
    ("middle", "dtype", "folded"), [("Relu", "i8", True), ("Relu", "i16", False), ("HardSwish", "i8", False)]
)
def test_relu_is_expressed_by_the_output_range(middle: str, dtype: str, folded: bool) -> None:
    """A clamp is folded into the integer output if saturation does the same; a symmetric i16 range cannot do it."""
    graph = two_convolutions(middle)
    small = linnet.quantize(graph, batches(), dtype=dtype)
    first = next(n for n in small.signatures["infer"].function.nodes if n.op == "conv")
    assert first.outputs[0].dtype == (dtype if folded else "f32")
    if folded:
        assert first.outputs[0].quantization is not None and int(first.outputs[0].quantization.zero[0]) == -128
    want, got = (linnet.Session(g).run(batches(1)[0])["y"] for g in (graph, small))
    assert np.abs(got - want).max() <= (0.05 if dtype == "i8" else 0.02) * np.abs(want).max()


@pytest.mark.parametrize(("high", "folded"), [(6.0, True), (100.0, True), (20.0, False)])
def test_a_clamp_is_folded_only_if_the_range_ends_with_it(high: float, folded: bool) -> None:
    """One scale covers the result of the clamp and a wider tensor, so that saturation would let larger values through."""
    rng = np.random.default_rng(5)
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 3, 16, 16))
    w = (rng.standard_normal((3, 3, 3, 3)) * 2).astype(np.float32)
    clamped = ops.clip(ops.conv(x, graph.constant(w), name="c1", pads=[1] * 4), 0.0, high)
    wider = ops.relu(ops.conv(x, graph.constant(w[:, :, ::-1].copy()), pads=[1] * 4))
    joined = clamped if folded else ops.concat([clamped, wider], 1)
    rows = joined.shape[1]
    y = ops.conv(joined, graph.constant((rng.standard_normal((2, rows, 1, 1))).astype(np.float32)))
    graph.signature("infer", {"x": x}, {"y": y})
    small = linnet.quantize(graph, batches(), dtype="i8")
    first = next(n for n in small.signatures["infer"].function.nodes if n.name == "c1")
    assert (first.outputs[0].dtype == "i8") == folded
    want, got = (linnet.Session(g).run(batches(1)[0])["y"] for g in (graph, small))
    assert np.abs(got - want).max() <= 0.05 * np.abs(want).max()


def test_an_output_before_a_clamp_is_not_clamped() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 3, 16, 16))
    w = graph.constant(np.random.default_rng(5).standard_normal((4, 3, 3, 3)).astype(np.float32))
    plain = ops.conv(x, w)
    again = ops.conv(ops.relu(plain), graph.constant(np.ones((1, 4, 1, 1), np.float32)))
    graph.signature("infer", {"x": x}, {"plain": plain, "again": again})
    small = linnet.quantize(graph, batches(), dtype="i8")
    want, got = (linnet.Session(g).run(batches(1)[0]) for g in (graph, small))
    assert want["plain"].min() < -1
    for name, value in want.items():
        assert np.abs(got[name] - value).max() <= 0.03 * np.abs(value).max(), name


def test_the_float_graph_is_left_alone(network: linnet.Graph) -> None:
    before = network.to_bytes()
    linnet.quantize(network, batches(2), dtype="i8")
    linnet.quantize(network, None, dtype="f16")
    assert network.to_bytes() == before


def test_overrides_keep_a_layer_float(network: linnet.Graph, tmp_path: Path) -> None:
    out = tmp_path / "table.txt"
    linnet.quantize(network, batches(2), dtype="i8", table_out=out)
    text = out.read_text()
    assert "c2" in text and "i8" in text and "x in [" in text
    edited = "\n".join(
        line.replace("i8 ", "f32") if line.startswith("layer  c2 ") else line for line in text.splitlines()
    )
    out.write_text(edited)
    nodes = linnet.quantize(network, batches(2), dtype="i8", table=out).signatures["infer"].function.nodes
    kinds = [n.inputs[0].dtype for n in nodes if n.op == "conv" and n.inputs[0] is not None]
    assert sorted(kinds) == ["f32", "i8", "i8"]


def test_mixed_widths_run(network: linnet.Graph) -> None:
    table = Table([Row("c2", "i16"), Row("c3", "f16")])
    mixed = linnet.quantize(network, batches(), dtype="i8", table=table)
    feeds = batches(1)[0]
    want = linnet.Session(network).run(feeds)["y"]
    assert np.abs(linnet.Session(mixed).run(feeds)["y"] - want).max() <= 6e-2


def test_table_round_trip_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    Table([Row("a b", "i8", "conv"), Row("c*", "f16")]).write(path)
    table = Table.read(path)
    assert table.dtype("a b", default="f32") == "i8"
    assert table.dtype("cat", default="f32") == "f16"
    assert table.dtype("dog", default="i16") == "i16"
    path.write_text("conv1 i7\n")
    with pytest.raises(linnet.Error, match="line 1"):
        Table.read(path)
    with pytest.raises(linnet.Error, match="cannot read the quantization table"):
        Table.read(tmp_path / "none.txt")


def test_calibration_errors(network: linnet.Graph, tmp_path: Path) -> None:
    bad = batches(2)
    bad[1]["x"][0, 0, 0, 0] = np.nan
    with pytest.raises(linnet.Error, match=r"batch 1 contains NaN"):
        linnet.quantize(network, bad, dtype="i8")
    with pytest.raises(linnet.Error, match="no calibration batch"):
        linnet.quantize(network, [], dtype="i8")
    with pytest.raises(linnet.Error, match="needs calibration"):
        linnet.quantize(network, None, dtype="i16")
    with pytest.raises(linnet.Error, match="cannot quantize to this dtype"):
        linnet.quantize(network, None, dtype="i7")
    np.savez(tmp_path / "c.npz", z=np.zeros(3))
    with pytest.raises(linnet.Error, match="no batch for this input"):
        load_batches(tmp_path / "c.npz", ["x"])
    np.savez(tmp_path / "d.npz", **{"x:0": np.zeros(3), "x:1": np.ones(4)})
    assert [b["x"].shape for b in load_batches(tmp_path / "d.npz", ["x"])] == [(3,), (4,)]
    graph = linnet.Graph()
    main = graph.function()
    main.outputs.append(linnet.ops.mean(main.placeholder("x", "f32", (1, 3))))
    graph.signature("infer", main)
    np.savez(tmp_path / "d2.npz", x=np.zeros((1, 3)))
    with pytest.raises(linnet.UsageError, match=r"no axis of batches.*expected 3 axes.*got 2 axes.*x=array\[None\]"):
        batches_for(tmp_path / "d2.npz", graph)


def test_shape_arithmetic_in_floats_survives_f16() -> None:
    """A size of 2049 computed in floats is not representable in f16: it must stay f32."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["sf"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["sf", "two"], ["s2"]),
        helper.make_node("Cast", ["s2"], ["si"], to=TensorProto.INT64),
        helper.make_node("Expand", ["x0", "si"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["n"]), ("x0", [1]))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m"])]
    weights = [numpy_helper.from_array(np.array([1.0], np.float32), "two")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    half = linnet.quantize(linnet.from_onnx(model), None, dtype="f16")
    result = linnet.Session(half).run({"x": np.zeros(2049, np.float32), "x0": np.ones(1, np.float32)})["y"]
    assert result.shape == (2049,)


@pytest.mark.parametrize("dtype", ["i8", "i16"])
@pytest.mark.parametrize("factor", [0.0, 1e-6, 1e-14])
def test_a_channel_with_tiny_weights_keeps_its_bias(dtype: str, factor: float) -> None:
    """At the scale of its weights the bias would not fit the accumulator; at scale 1 it would be rounded to nothing."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 4)).astype(np.float32)
    w[:, 2] *= factor
    b = np.array([3.0, 1.0, 0.4, 2.0], np.float32)
    graph = linnet.Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (1, 8))
    main.outputs.append(emit("matmul", [x, main.constant(w, "w"), main.constant(b, "b")], {}, name="y")[0])
    graph.signature("infer", main)
    feeds = {"x": np.linspace(-100.0, 255.0, 8, dtype=np.float32).reshape(1, 8)}
    made = linnet.quantize(graph, [feeds], dtype=dtype)
    bias = next(n.inputs[2] for n in made.signatures["infer"].function.nodes if n.op == "matmul")
    assert bias is not None and bias.data is not None
    assert np.abs(bias.data).max() < 1.01 * 2.0 ** (
        30 if dtype == "i8" else 37
    )  # sums of 32 bits, or two of them, are enough
    (y,) = linnet.Session(made).run(feeds).values()
    assert y[0, 2] == pytest.approx(0.4, rel=1e-4, abs=0.0 if factor < 1e-8 else 1e-2)


def test_maps_stored_as_integers_are_calibrated_without_any_integer_layer() -> None:
    """One large pointwise result with two readers is stored as integers even though the graph has no conv and no matmul."""
    graph = linnet.Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (8, 1024))
    shared = pointwise("mul", x, 0.5)
    main.outputs += [pointwise("exp", shared), pointwise("add", shared, 3.0)]
    graph.signature("infer", main)
    feeds = {"x": np.linspace(-1.0, 1.0, 8192, dtype=np.float32).reshape(8, 1024)}
    exact = linnet.Session(graph).run(feeds)
    quantized = linnet.quantize(graph, [feeds], dtype="i16")
    assert "i16" in {t.dtype for node in quantized.signatures["infer"].function.nodes for t in node.outputs}
    for name, value in linnet.Session(quantized).run(feeds).items():
        np.testing.assert_allclose(value, exact[name], atol=1e-4)


def test_a_quantized_graph_goes_to_f16(network: linnet.Graph) -> None:
    """Layers that already compute in integers stay unchanged; floats around them are stored as f16."""
    small = linnet.quantize(network, batches(), dtype="i8")
    half = linnet.Session(linnet.quantize(small, dtype="f16")).run(batches()[0])["y"]
    np.testing.assert_allclose(half, linnet.Session(small).run(batches()[0])["y"], atol=2e-3)


@pytest.mark.parametrize("dtype", ["i8", "i16"])
def test_calibration_with_zeros_alone_is_refused(network: linnet.Graph, dtype: str, tmp_path: Path) -> None:
    """Every scale would come from the biases. One number that is not zero, in any batch, is taken for data."""
    (x,) = linnet.Model(network).inputs()
    zeros = [{x.name: np.zeros([d or 1 for d in x.shape or ()], np.float32)} for _ in range(3)]
    with pytest.raises(linnet.UsageError, match=r"the calibration data is all zero; .* zeros in each of 3 batches"):
        linnet.quantize(network, zeros, dtype)
    zeros[2][x.name].reshape(-1)[-1] = 1
    linnet.quantize(network, zeros, dtype)


def test_a_graph_with_variables_is_quantized() -> None:
    """Its weights may change, so what reads them stays float."""
    graph = linnet.Graph()
    x = graph.placeholder("x", ("n", 8))
    hidden = linnet.nn.dense(linnet.ops.relu(linnet.nn.dense(x, 16)), 4)
    graph.signature("infer", {"x": x}, {"y": linnet.ops.relu(hidden @ graph.constant(np.eye(4, dtype=np.float32)))})
    batch = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
    made = linnet.quantize(graph, [batch])
    assert list(made.variables) == list(graph.variables)
    assert all(variable.graph is made for variable in made.variables.values())
    found, expected = (linnet.Session(g).run(batch)["y"] for g in (made, graph))
    np.testing.assert_allclose(found, expected, atol=0.05)


def test_calibration_that_is_one_dictionary_is_refused(network: linnet.Graph) -> None:
    with pytest.raises(linnet.UsageError, match="quantize"):
        linnet.quantize(network, batches()[0], dtype="i8")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.array([{}], dtype=object), np.float32(3.0)])
def test_calibration_file_of_odd_arrays_is_refused(tmp_path: Path, value: np.ndarray) -> None:
    np.savez(tmp_path / "odd.npz", x=value)
    with pytest.raises(linnet.UsageError, match="numpy"):
        load_batches(tmp_path / "odd.npz", ["x"])


def test_calibration_file_cut_short_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", x=np.zeros((2, 3), np.float32))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:100])
    with pytest.raises(linnet.UsageError, match="cannot read the calibration file"):
        load_batches(tmp_path / "cut.npz", ["x"])


def test_weights_beyond_f16_keep_their_layer_in_f32() -> None:
    """Weights above f16's range keep their layer in f32: clipping them to 65504 would silently give wrong results."""
    rng = np.random.default_rng(11)
    graph, feeds = linnet.Graph(), {"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)}
    function = graph.function()
    x = function.placeholder("x", "f32", (1, 3, 8, 8))
    weights = function.constant(rng.standard_normal((4, 3, 3, 3)).astype(np.float32) * 1e6)
    function.outputs.append(linnet.ops.conv(x, weights))
    graph.signature("infer", function, ["x"], ["y"])
    want = linnet.Session(graph).run(feeds)["y"]
    half = linnet.quantize(graph, None, dtype="f16")
    assert [n.inputs[0].dtype for n in half.functions[0].nodes if n.op == "conv" and n.inputs[0] is not None] == ["f32"]
    assert np.abs(linnet.Session(half).run(feeds)["y"] - want).max() <= 1e-3 * np.abs(want).max()


def test_products_with_computed_weights_stay_in_f32() -> None:
    """Weights that a node makes from smaller constants are f32: so is a product with them, since its operands have one dtype."""
    graph, feeds = linnet.Graph(), {"x": RNG.standard_normal((2, 160)).astype(np.float32)}
    function = graph.function()
    x = function.placeholder("x", "f32", (2, 160))
    rows, columns = (RNG.standard_normal(shape).astype(np.float32) for shape in ((160, 1), (475,)))
    weights = ops.sin(function.constant(rows) * function.constant(columns))
    assert weights.data is None, "it is too large to be computed when the graph is made"
    function.outputs.append(ops.tanh(x) @ weights)
    graph.signature("infer", function, ["x"], ["y"])
    want = linnet.Session(graph).run(feeds)["y"]
    half = linnet.quantize(graph, None, dtype="f16")
    np.testing.assert_allclose(linnet.Session(half).run(feeds)["y"], want, rtol=0, atol=2e-3 * np.abs(want).max())


def test_a_tensor_row_sets_range_and_storage(network: linnet.Graph, tmp_path: Path) -> None:
    def stored(small: linnet.Graph) -> dict[str, tuple[str, float]]:
        nodes = small.signatures["infer"].function.nodes
        tensors = [t for n in nodes for t in (*n.inputs, *n.outputs) if t is not None and t.quantization is not None]
        return {t.name: (t.dtype, float(t.quantization.scale[0])) for t in tensors if t.quantization is not None}

    out = tmp_path / "table.txt"
    plain = stored(linnet.quantize(network, batches(), dtype="i8", table_out=out))
    assert [line for line in out.read_text().splitlines() if line.startswith("tensor ") and " a2 " in line]
    again = stored(linnet.quantize(network, batches(), dtype="i8", table=out))
    assert again.keys() == plain.keys()
    ranged = linnet.quantize(network, batches(), "i8", table=Table([TensorRow("r1", "i8", 0.0, 25.5)]), effort="fast")
    assert stored(ranged)["k"] == ("i8", pytest.approx(0.1)), "a concat, its parts and its result share one range"
    for dtype in ("f32", "i16"):
        made = linnet.quantize(network, batches(), "i8", table=Table([TensorRow("r1", dtype)]))
        conv = next(n for n in made.signatures["infer"].function.nodes if n.outputs[0].name == "c2")
        assert conv.inputs[0] is not None and conv.inputs[0].dtype == dtype


def test_rows_that_match_nothing_are_errors(network: linnet.Graph) -> None:
    for row, kind in ((Row("conv1", "i16"), "layer"), (TensorRow("r33", "i8"), "tensor")):
        with pytest.raises(linnet.UsageError, match=f"matches no {kind}") as caught:
            linnet.quantize(network, batches(), "i8", table=Table([row]))
        assert caught.value.tensor == row.pattern and (kind == "layer" or "r3" in caught.value.expected)


@pytest.mark.parametrize(("scheme", "weights", "activations"), [
    ("w8a16", "i8", "i16"), ("w16a16", "i16", "i16"), ("w8a8", "i8", "i8"), ("w8", "i8", "f32"),
    ("w16", "f16", "f32"),
])  # fmt: skip
def test_schemes_of_layers(network: linnet.Graph, scheme: str, weights: str, activations: str, tmp_path: Path) -> None:
    out = tmp_path / "table.txt"
    table = Table([Row("c2", scheme), Row("d", scheme)])
    small = linnet.quantize(network, batches(), "i8", table=table, table_out=out)
    for name in ("c2", "d"):
        node = next(n for n in small.signatures["infer"].function.nodes if n.outputs[0].name == name)
        x, w = node.inputs[:2]
        assert x is not None and w is not None and x.dtype == activations
        source = w if w.node is None else w.node.inputs[0]  # narrow weights of a float convolution are widened
        assert source is not None and source.dtype == weights and source.data is not None
        expected = "i8" if scheme == "w8a8" else scheme
        assert any(line.split()[:3] == ["layer", name, expected] for line in out.read_text().splitlines())
    feeds = batches(1)[0]
    want, got = (linnet.Session(g).run(feeds)["y"] for g in (network, small))
    assert np.abs(got - want).max() <= 0.06


def test_auto_takes_the_narrowest_that_is_good_enough(network: linnet.Graph) -> None:
    assert linnet.quantize(network, batches(), "auto").metadata["dtype"] == "i8"
    assert linnet.quantize(network, None, "auto").metadata["dtype"] == "f16"


@pytest.mark.parametrize("dtype", ["f16", "i16", "i8"])
def test_functions_and_loops_are_quantized_inside(dtype: str) -> None:
    """A convolution in each branch of an if, and one in a loop's body that is called again and again."""
    rng = np.random.default_rng(2)
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 4, 8, 8))
    flag = graph.placeholder("flag", (), "bool")
    w = [(rng.standard_normal((4, 4, 3, 3)) / 6).astype(np.float32) for _ in range(3)]

    def conv(t: linnet.Tensor, which: int) -> linnet.Tensor:
        return ops.conv(t, t.function.constant(w[which]), pads=[1] * 4)

    taken = linnet.cond(flag, lambda: conv(x, 0), lambda: ops.relu(conv(x, 1)))
    (y,) = linnet.while_loop(lambda s: s[0] < 3, lambda s: [s[0] + 1, conv(s[1], 2)], [0, taken])[1:]
    graph.signature("infer", {"x": x, "flag": flag}, {"y": y})
    feeds = [
        {"x": rng.standard_normal((1, 4, 8, 8)).astype(np.float32), "flag": np.array(i % 2 == 0)} for i in range(8)
    ]
    small = linnet.quantize(graph, feeds, dtype)
    convs = [n for f in small.functions for n in f.nodes if n.op == "conv"]
    assert len(convs) == 3 and all(n.inputs[0] is not None and n.inputs[0].dtype == dtype for n in convs)
    for feed in feeds[:2]:
        want, got = (linnet.Session(g).run(feed)["y"] for g in (graph, small))
        assert np.abs(got - want).max() <= {"f16": 5e-3, "i16": 2e-3, "i8": 0.06}[dtype] * np.abs(want).max()


def test_what_f16_cannot_hold_stays_f32(tmp_path: Path) -> None:
    """A sum of squares of 1e5, with calibration and without; and values so small that f16 would make them zero."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (2, 512))
    power = ops.reduce(x * x, kind="sum", axis=[1], keep_dims=True)
    tiny = x * 1e-9
    graph.signature("infer", {"x": x}, {"y": x / ops.sqrt(power), "z": tiny * 1e9 + x})
    feeds = [{"x": np.random.default_rng(i).uniform(5, 25, (2, 512)).astype(np.float32)} for i in range(4)]
    want = linnet.Session(graph).run(feeds[0])
    for samples in (feeds, None):
        small = linnet.quantize(graph, samples, "f16", table_out=tmp_path / "t.txt")
        got = linnet.Session(small).run(feeds[0])
        for name in want:
            np.testing.assert_allclose(got[name], want[name], rtol=2e-3)
        assert "beyond the range of f16" in (tmp_path / "t.txt").read_text()


def test_what_a_recurrent_layer_reads_has_16_bits() -> None:
    """The state would carry an error of 8-bit activations from step to step. A row of the table says otherwise."""
    rng = np.random.default_rng(4)
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / 3).astype(np.float32), name)
        for name, shape in (("w", (1, 32, 6)), ("r", (1, 32, 8)), ("d", (8, 5)))
    ]
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["s"], "lstm", hidden_size=8),
        helper.make_node("Squeeze", ["s"], ["h"], "squeeze"),
        helper.make_node("MatMul", ["h", "d"], ["y"], "dense"),
    ]
    value = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [7, 1, 6]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    made = helper.make_graph(nodes, "recurrent", value[:1], value[1:], weights)
    graph = linnet.from_onnx(helper.make_model(made, opset_imports=[helper.make_opsetid("", 12)], ir_version=8))
    feeds = [{"x": rng.standard_normal((7, 1, 6)).astype(np.float32)} for _ in range(6)]

    def inputs(table: Table) -> list[str]:
        nodes = linnet.quantize(graph, feeds, "i8", effort="fast", table=table).signatures["infer"].function.nodes
        return [n.inputs[0].dtype for n in nodes if n.op == "matmul" and n.inputs[0] is not None]

    assert inputs(Table()) == ["i16", "i8"]
    assert inputs(Table([Row("*", "i8")])) == ["i8", "i8"]
