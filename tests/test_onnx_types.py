"""Element types that only ONNX has (int4, float8, ...), and BitCast: against ONNX's reference and ONNX Runtime.
Covers what ONNX's own vectors omit: every rounding, random tensors, blocks, storage in the file, and refusals."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import linnet
from linnet import onnx_backend
from linnet.converters.onnx import narrow

FLOATS = [k for k in narrow.KINDS.values() if not k.integer]
INTEGERS = [k for k in narrow.KINDS.values() if k.integer]


def names(kinds: list[narrow.Kind]) -> list[str]:
    return [k.name for k in kinds]


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, Any]],
    outputs: list[str],
    initializers: list[TensorProto] | None = None,
    opset: int = 28,
) -> onnx.ModelProto:
    """A model. inputs: {name: (element type, shape)}. Outputs are declared without a type."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        initializers or [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def run(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    return list(onnx_backend.prepare(proto).run(feeds))


def reference(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy on overflow and NaN
        return list(ReferenceEvaluator(proto).run(None, feeds))


def same(mine: list[Any], theirs: list[Any]) -> None:
    """Equal element types, shapes and bits."""
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
        size = f"u{a.dtype.itemsize}"
        assert np.array_equal(a.view(size), b.view(size)), (a, b)


def every_rounding() -> np.ndarray[Any, Any]:
    """Random bits, and for every type each number, each midpoint, and their neighbours."""
    bits = np.random.default_rng(1).integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    parts: list[Any] = [bits, [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e9, -1e9]]
    for kind in FLOATS:
        values = np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy).astype(np.float64)
        values = np.sort(values[np.isfinite(values)])
        exact = np.concatenate([values, (values[1:] + values[:-1]) / 2]).astype(np.float32)
        parts += [exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))]
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("kind", FLOATS, ids=names(FLOATS))
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_casts_to_floats_round_as_ml_dtypes(kind: narrow.Kind, saturate: int, dtype: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = every_rounding().astype(dtype)
    modes = ["up"]
    if kind.mantissa == 0:  # the op's table defines inf, and the reference does not follow it
        x, modes = np.abs(x[np.isfinite(x)]), ["up", "down", "nearest"]
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    for mode in modes:
        node = helper.make_node("Cast", ["x"], ["y"], to=kind.number, saturate=saturate, round_mode=mode)
        proto = model([node], {"x": (number, x.shape)}, ["y"])
        same(run(proto, {"x": x}), reference(proto, {"x": x}))


def test_e8m0_saturates_infinity_as_the_table_of_cast_says() -> None:
    x = np.array([np.inf, np.nan, 3.4e38], np.float32)
    for saturate, wanted in ((1, [0xFE, 0xFF, 0xFE]), (0, [0xFF, 0xFF, 0xFF])):
        node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E8M0, saturate=saturate)
        (y,) = run(model([node], {"x": (1, [3])}, ["y"]), {"x": x})
        assert y.view(np.uint8).tolist() == wanted


@pytest.mark.parametrize("kind", FLOATS, ids=names(FLOATS))
@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_casts_from_floats_give_every_number(kind: narrow.Kind, to: int) -> None:
    x = np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy)
    proto = model([helper.make_node("Cast", ["x"], ["y"], to=to)], {"x": (kind.number, x.shape)}, ["y"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = x.astype(np.float32).astype(helper.tensor_dtype_to_np_dtype(to))
    (mine,) = run(proto, {"x": x})
    np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("kind", INTEGERS, ids=names(INTEGERS))
def test_casts_of_integers_keep_low_bits(kind: narrow.Kind) -> None:
    for source in (np.int32, np.int64, np.int8, np.uint8, np.float32, np.bool_):
        x = np.arange(-40, 40).astype(source)
        number = helper.np_dtype_to_tensor_dtype(x.dtype)
        proto = model([helper.make_node("Cast", ["x"], ["y"], to=kind.number)], {"x": (number, x.shape)}, ["y"])
        same(run(proto, {"x": x}), reference(proto, {"x": x}))
    low, high = kind.limits
    x = np.arange(low, high + 1).astype(kind.numpy)
    for to in (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL):
        proto = model([helper.make_node("Cast", ["x"], ["y"], to=to)], {"x": (kind.number, x.shape)}, ["y"])
        same(run(proto, {"x": x}), reference(proto, {"x": x}))


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS], ids=names([*INTEGERS, *FLOATS]))
def test_moves_keep_type_and_bits(kind: narrow.Kind) -> None:
    codes = np.random.default_rng(2).integers(0, 1 << kind.bits, (3, 4), dtype=np.uint8)
    x = codes.view(kind.numpy) if not kind.integer else codes.astype(kind.numpy)
    shape = numpy_helper.from_array(np.array([4, 1, -1]), "shape")
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"]),
        helper.make_node("Reshape", ["t", "shape"], ["r"]),
        helper.make_node("Squeeze", ["r"], ["s"]),
        helper.make_node("Identity", ["s"], ["y"]),
        helper.make_node("Shape", ["s"], ["n"]),
    ]
    proto = model(nodes, {"x": (kind.number, [3, 4])}, ["y", "n"], [shape])
    y, n = run(proto, {"x": x})
    assert y.dtype == kind.numpy and n.tolist() == [4, 3]
    assert np.array_equal(y.astype(np.float32), x.T.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS], ids=names([*INTEGERS, *FLOATS]))
def test_through_branches_and_loops(kind: narrow.Kind) -> None:
    """An If, a Loop and a Scan carry codes, and their results keep the type."""
    constant = numpy_helper.from_array(np.ones(4, np.float32).astype(kind.numpy), "c")
    then = helper.make_graph([helper.make_node("Identity", ["x"], ["a"])], "t", [], [onnx.ValueInfoProto(name="a")])
    other = helper.make_graph([helper.make_node("Identity", ["c"], ["b"])], "e", [], [onnx.ValueInfoProto(name="b")])
    body = helper.make_graph(
        [helper.make_node("Identity", ["k"], ["k2"]), helper.make_node("Identity", ["v"], ["w"]),
         helper.make_node("Identity", ["v"], ["u"])],
        "b",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("k", 9, []),
         helper.make_tensor_value_info("v", kind.number, [4])],
        [onnx.ValueInfoProto(name=n) for n in ("k2", "w", "u")],
    )  # fmt: skip
    scan = helper.make_graph(
        [helper.make_node("Identity", ["row"], ["out"])],
        "s",
        [helper.make_tensor_value_info("row", kind.number, [4])],
        [onnx.ValueInfoProto(name="out")],
    )
    nodes = [
        helper.make_node("If", ["flag"], ["p"], then_branch=then, else_branch=other),
        helper.make_node("Loop", ["trips", "", "p"], ["q", "rows"], body=body),
        helper.make_node("Scan", ["rows"], ["z"], body=scan, num_scan_inputs=1),
    ]
    proto = model(
        nodes, {"x": (kind.number, [4]), "flag": (9, []), "trips": (7, [])}, ["p", "q", "z"], [constant], opset=25
    )
    x = np.array([0, 1, 1, 0], np.float32).astype(kind.numpy)
    for flag in (True, False):
        results = run(proto, {"x": x, "flag": np.array(flag), "trips": np.array(3)})
        assert [r.dtype for r in results] == [kind.numpy] * 3
        wanted = (x if flag else np.ones(4)).astype(np.float32)
        for r in results:
            assert np.array_equal(r.astype(np.float32), np.broadcast_to(wanted, r.shape), equal_nan=True)


@pytest.mark.parametrize("kind", ["int4", "uint4", "float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz"])
@pytest.mark.parametrize("granularity", ["tensor", "axis", "block"])
def test_quantize_and_dequantize(kind: str, granularity: str) -> None:
    generator, it = np.random.default_rng(3), narrow.BY_NAME[kind]
    x = generator.standard_normal((6, 10, 3)).astype(np.float32) * 20
    shape: tuple[int, ...] = {"tensor": (), "axis": (10,), "block": (6, 3, 3)}[granularity]
    scale = (generator.random(shape) + 0.5).astype(np.float32)
    zero = np.zeros(shape, np.float32) if not it.integer else generator.integers(*it.limits, shape)
    keys = {"tensor": {}, "axis": {"axis": 1}, "block": {"axis": 1, "block_size": 4}}[granularity]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **keys),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **keys),
    ]
    proto = model(
        nodes,
        {"x": (1, x.shape), "s": (1, shape), "z": (it.number, shape)},
        ["q", "y"],
        opset=25,
    )
    feeds = {"x": x, "s": scale, "z": np.asarray(zero).astype(it.numpy)}
    q, y = run(proto, feeds)
    expected_q, expected_y = reference(proto, feeds)
    same([q], [expected_q])
    np.testing.assert_allclose(y, expected_y, rtol=1e-6)


def llm_like(kind: narrow.Kind, block: int = 32) -> tuple[onnx.ModelProto, dict[str, Any], np.ndarray[Any, Any]]:
    """x @ dequantized weights of [256, 128] in blocks along the first axis, as exporters of language models write them."""
    generator = np.random.default_rng(4)
    low, high = kind.limits
    weights = generator.integers(low, high + 1, (256, 128))
    scale = (generator.random((256 // block, 128)) * 0.1 + 0.01).astype(np.float32)
    zero = generator.integers(low, high + 1, scale.shape)
    initializers = [
        helper.make_tensor("w", kind.number, weights.shape, weights.reshape(-1)),
        numpy_helper.from_array(scale, "s"),
        helper.make_tensor("z", kind.number, zero.shape, zero.reshape(-1)),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    proto = model(nodes, {"x": (1, ["n", 256])}, ["y"], initializers, opset=21)
    x = generator.standard_normal((5, 256)).astype(np.float32)
    steps = np.repeat(np.arange(256 // block), block)
    return proto, {"x": x}, x @ ((weights - zero[steps]) * scale[steps]).astype(np.float32)


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_weights_in_blocks_agree_with_onnx_runtime_and_stay_packed(name: str, tmp_path: Path) -> None:
    proto, feeds, wanted = llm_like(narrow.BY_NAME[name])
    proto.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, ["n", 128]))
    options = onnxruntime.SessionOptions()  # its optimizer would quantize x to 8 bits (MatMulNBits)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    theirs = session.run(None, feeds)
    (mine,) = run(proto, feeds)
    np.testing.assert_allclose(mine, theirs[0], rtol=1e-4, atol=1e-4 * np.abs(theirs[0]).max())
    np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    path = tmp_path / "m.lnt"
    linnet.from_onnx(proto).save(path)
    packed, scales = 256 * 128 // 2 + 8 * 128 // 2, 4 * 8 * 128
    assert packed + scales < path.stat().st_size < packed + scales + 8192
    again = linnet.Session(path).run(feeds)["y"]
    np.testing.assert_array_equal(again, mine)


def test_two_bits_are_packed_in_fours(tmp_path: Path) -> None:
    proto, feeds, wanted = llm_like(narrow.BY_NAME["int2"])
    del proto.opset_import[:]
    proto.opset_import.add(domain="", version=25)
    linnet.from_onnx(proto).save(tmp_path / "m.lnt")
    assert (tmp_path / "m.lnt").stat().st_size < 256 * 128 // 4 + 8 * 128 * 5 + 8192
    np.testing.assert_allclose(run(proto, feeds)[0], wanted, rtol=1e-4, atol=1e-3)


def test_external_data_of_four_bits(tmp_path: Path) -> None:
    proto, feeds, wanted = llm_like(narrow.BY_NAME["int4"])
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))  # as raw bytes
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert (tmp_path / "w.bin").stat().st_size > 256 * 64
    graph = linnet.from_onnx(tmp_path / "m.onnx")
    mine = linnet.Session(graph).run(feeds)["y"]
    np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-3)
    (tmp_path / "w.bin").write_bytes((tmp_path / "w.bin").read_bytes()[:100])
    with pytest.raises(linnet.ConversionError, match="needs 16384 bytes"):
        linnet.from_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize("op", ["Add", "Relu", "MatMul", "Equal", "ReduceMax", "ArgMax", "Where", "Softmax"])
@pytest.mark.parametrize("name", ["float8e4m3fn", "int4"])
def test_nothing_computes_with_codes(op: str, name: str) -> None:
    kind = narrow.BY_NAME[name]
    inputs = {"Where": ["b", "x", "x"], "Relu": ["x"], "Softmax": ["x"], "ReduceMax": ["x"], "ArgMax": ["x"]}
    proto = model(
        [helper.make_node(op, inputs.get(op, ["x", "x"]), ["y"], name="it")],
        {"x": (kind.number, [4, 4]), "b": (9, [4, 4])},
        ["y"],
    )
    with pytest.raises(linnet.ConversionError) as caught:
        linnet.from_onnx(proto)
    (problem,) = caught.value.problems
    assert (problem.node, problem.op) == ("it", op) and name in problem.reason and "Cast" in problem.hint


def test_two_types_do_not_mix() -> None:
    node = helper.make_node("Concat", ["a", "b"], ["y"], axis=0, name="it")
    proto = model([node], {"a": (TensorProto.INT4, [2]), "b": (TensorProto.INT8, [2])}, ["y"])
    with pytest.raises(linnet.ConversionError, match="different element types"):
        linnet.from_onnx(proto)


def test_the_file_says_the_true_type() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E5M2)
    metadata = linnet.from_onnx(model([node], {"x": (TensorProto.UINT4, [2])}, ["y"])).metadata
    assert metadata["type.x"] == "uint4" and metadata["type.y"] == "float8e5m2"


WIDTHS = {
    8: ["INT8", "UINT8", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT8E8M0"],
    16: ["INT16", "UINT16", "FLOAT16", "BFLOAT16"],
    32: ["INT32", "UINT32", "FLOAT"],
    64: ["INT64", "UINT64", "DOUBLE"],
    4: ["INT4", "UINT4", "FLOAT4E2M1"],
    2: ["INT2", "UINT2"],
}


@pytest.mark.parametrize("bits", WIDTHS)
def test_bit_casts(bits: int) -> None:
    width = max(bits, 8)
    raw = np.random.default_rng(5).integers(0, 1 << min(bits, 63), (3, 50), dtype=np.uint64)
    for source in WIDTHS[bits]:
        number = getattr(TensorProto, source)
        dtype = helper.tensor_dtype_to_np_dtype(number)
        integer = source in ("INT4", "UINT4", "INT2", "UINT2")
        x = raw.astype(f"u{width // 8}")
        x = x.astype(np.int8).astype(dtype) if integer else x.view(dtype)
        for target in WIDTHS[bits]:
            to = getattr(TensorProto, target)
            proto = model([helper.make_node("BitCast", ["x"], ["y"], to=to)], {"x": (number, x.shape)}, ["y"])
            (mine,) = run(proto, {"x": x})
            assert mine.dtype == helper.tensor_dtype_to_np_dtype(to)
            stored = mine.astype(np.int8) if target in ("INT4", "UINT4", "INT2", "UINT2") else mine
            assert np.array_equal(stored.view(f"u{width // 8}") & np.uint64((1 << bits) - 1), raw), (source, target)


def test_a_bit_cast_to_another_width_is_refused() -> None:
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.INT64, name="it")
    with pytest.raises(linnet.ConversionError, match="cannot turn 32 bits into 64 bits"):
        linnet.from_onnx(model([node], {"x": (1, [2])}, ["y"]))


def movers(kind: narrow.Kind) -> dict[str, tuple[list[onnx.NodeProto], list[TensorProto]]]:
    """Ops on x [3, 4] (and z [1, 4]) of the type that ONNX's schemas allow, or that linnet also supports."""
    ones = numpy_helper.from_array(np.ones((1, 4), np.float32).astype(kind.numpy), "z")
    one = numpy_helper.from_array(np.ones(1, np.float32).astype(kind.numpy), "value")

    def ints(name: str, *values: int) -> TensorProto:
        return numpy_helper.from_array(np.array(values, np.int64), name)

    node = helper.make_node
    return {
        "Pad": ([node("Pad", ["x", "p"], ["y"])], [ints("p", 0, 1, 1, 0)]),
        "Flatten": ([node("Flatten", ["x"], ["y"], axis=0)], []),
        "Size": ([node("Size", ["x"], ["y"])], []),
        "Unsqueeze": ([node("Unsqueeze", ["x", "a"], ["y"])], [ints("a", 0, 2)]),
        "Concat": ([node("Concat", ["x", "z"], ["y"], axis=0)], [ones]),
        "Slice": ([node("Slice", ["x", "s", "e"], ["y"])], [ints("s", 1, 0), ints("e", 3, 3)]),
        "Split": ([node("Split", ["x"], ["y", "w"], axis=1, num_outputs=2)], []),
        "Gather": ([node("Gather", ["x", "i"], ["y"], axis=1)], [ints("i", 3, 0, 3)]),
        "Expand": ([node("Expand", ["z", "s"], ["y"])], [ones, ints("s", 3, 4)]),
        "Tile": ([node("Tile", ["x", "r"], ["y"])], [ints("r", 2, 1)]),
        "Constant": ([node("Constant", [], ["y"], value=ones)], []),
        "ConstantOfShape": ([node("ConstantOfShape", ["s"], ["y"], value=one)], [ints("s", 2, 2)]),
        "CastLike": ([node("Cast", ["x"], ["f"], to=1), node("CastLike", ["f", "x"], ["y"])], []),
        "TensorScatter": ([node("TensorScatter", ["x", "z"], ["y"], axis=0)], [ones]),
    }


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS], ids=names([*INTEGERS, *FLOATS]))
@pytest.mark.parametrize("op", movers(FLOATS[0]))
def test_every_op_that_takes_them(kind: narrow.Kind, op: str) -> None:
    nodes, initializers = movers(kind)[op]
    codes = np.random.default_rng(6).integers(0, min(1 << kind.bits, 0x70), (3, 4), dtype=np.uint8)  # no NaN
    x = codes.view(kind.numpy) if not kind.integer else codes.astype(kind.numpy)
    proto = model(nodes, {"x": (kind.number, [3, 4])}, ["y"], initializers)
    (y,) = run(proto, {"x": x})
    if op == "TensorScatter":  # NumPy's reference copies slices
        wanted = np.concatenate([numpy_helper.to_array(initializers[0]), x[1:]])
    elif op == "Pad":
        wanted = np.concatenate(
            [np.zeros((3, 1), np.uint8).view(x.dtype) if not kind.integer else np.zeros((3, 1), x.dtype), x], 1
        )
        wanted = np.concatenate(
            [wanted, np.zeros((1, 5), np.uint8).view(x.dtype) if not kind.integer else np.zeros((1, 5), x.dtype)]
        )
    else:
        (wanted, *_) = reference(proto, {"x": x})
    wanted = np.asarray(wanted)
    assert y.dtype == wanted.dtype and y.shape == wanted.shape
    if op != "Size":
        assert y.dtype == kind.numpy
    np.testing.assert_array_equal(y.astype(np.float32), wanted.astype(np.float32))


def test_microscaling_weights() -> None:
    """MXFP4: float4e2m1 in blocks of 32 with scales of powers of two (OCP Microscaling Formats 1.0)."""
    generator = np.random.default_rng(8)
    weights, scales = narrow.BY_NAME["float4e2m1"], narrow.BY_NAME["float8e8m0"]
    w = generator.integers(0, 16, (64, 48), dtype=np.uint8).view(weights.numpy)
    s = generator.integers(120, 130, (2, 48), dtype=np.uint8).view(scales.numpy)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=32, output_dtype=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(s, "s")]
    x = generator.standard_normal((3, 64)).astype(np.float32)
    (y,) = run(model(nodes, {"x": (1, [3, 64])}, ["y"], initializers), {"x": x})
    wanted = x @ (w.astype(np.float32) * np.repeat(s.astype(np.float32), 32, 0))
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_the_bits_of_a_value_in_any_layout() -> None:
    """copy of kind bitcast is a view where possible: of inputs, values at their last use, transposes, channels-last results."""
    generator = np.random.default_rng(9)
    x, w = (generator.standard_normal(s).astype(np.float32) for s in ((2, 8, 10, 10), (16, 8, 3, 3)))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BitCast", ["c"], ["b"], to=TensorProto.INT32),
        helper.make_node("BitwiseAnd", ["b", "mask"], ["m"]),
        helper.make_node("BitCast", ["m"], ["a"], to=TensorProto.FLOAT),  # the sign bit is lost
        helper.make_node("Transpose", ["c"], ["t"], perm=[3, 1, 0, 2]),
        helper.make_node("BitCast", ["t"], ["u"], to=TensorProto.UINT32),
        helper.make_node("BitCast", ["x"], ["raw"], to=TensorProto.INT32),
    ]
    mask = numpy_helper.from_array(np.array(0x7FFFFFFF, np.int32), "mask")
    proto = model(nodes, {"x": (1, x.shape)}, ["c", "a", "u", "raw"], [numpy_helper.from_array(w, "w"), mask])
    graph = linnet.from_onnx(proto)
    for reference_plan in (False, True):
        results = linnet.Session(graph, reference=reference_plan).run({"x": x})
        np.testing.assert_array_equal(results["a"], np.abs(results["c"]))
        np.testing.assert_array_equal(results["u"], results["c"].transpose(3, 1, 0, 2).copy().view(np.uint32))
        np.testing.assert_array_equal(results["raw"], x.view(np.int32))


def test_the_runtime_refuses_bits_of_another_width() -> None:
    graph = linnet.Graph()
    x = graph.function().placeholder("x", "f32", (2,))
    for wrong in ("f64", "i16", "bool"):
        with pytest.raises(linnet.GraphError, match="different widths"):
            linnet.ir.function.emit("copy", [x], {"kind": "bitcast", "dtype": wrong})
    with pytest.raises(linnet.GraphError):
        linnet.ir.function.emit("copy", [x], {"kind": "bitcast"})
