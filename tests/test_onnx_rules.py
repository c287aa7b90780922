"""Rules and rewrites beyond ONNX's node vectors: opset ranges, open shapes, folding, provenance, exact integers.
The reference is ONNX Runtime on the same small model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from tests.exact import weights_for_peers

RNG = np.random.default_rng(3)
F32 = TensorProto.FLOAT


def f32(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def build(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: list[str],
    constants: dict[str, Any] | None = None,
    opset: int = 17,
    functions: list[Any] | None = None,
) -> onnx.ModelProto:
    """inputs: {name: shape} for f32, or {name: (element type, shape)}."""
    infos = [
        helper.make_tensor_value_info(name, *(spec if isinstance(spec, tuple) else (F32, spec)))
        for name, spec in inputs.items()
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        infos,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid("local", 1)] if functions else [])]
    return helper.make_model(graph, opset_imports=imports, functions=functions or [], ir_version=8)


def ops(graph: linnet.Graph) -> list[str]:
    return [node.op for node in graph.functions[0].nodes]


def check(proto: onnx.ModelProto, feeds: dict[str, Any], rtol: float = 1e-5, atol: float = 1e-5) -> linnet.Graph:
    """Converts, runs, and compares every output with ONNX Runtime's."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    inferred = onnx.shape_inference.infer_shapes(proto)  # ONNX Runtime needs typed outputs
    session = onnxruntime.InferenceSession(inferred.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    expected = session.run(names, feeds)
    graph = linnet.from_onnx(proto)
    results = linnet.Session(graph).run(feeds)
    assert list(results) == names
    for name, wanted in zip(names, expected, strict=True):
        assert results[name].dtype == wanted.dtype and results[name].shape == wanted.shape, name
        np.testing.assert_allclose(results[name], wanted, rtol=rtol, atol=atol, err_msg=name)
    return graph


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """Operands as words; "-" is an absent one."""
    split = [[("" if n == "-" else n) for n in names.split()] for names in (inputs, outputs)]
    return helper.make_node(op, *split, name=f"the_{op.lower()}_{outputs}", **attributes)


# -- opset ranges


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax_coerces_to_two_dimensions_before_opset_13(axis: int) -> None:
    proto = build([node("Softmax", "x", "y", axis=axis)], {"x": [2, 3, 4]}, ["y"], opset=11)
    check(proto, {"x": f32(2, 3, 4)})


@pytest.mark.parametrize("opset", [9, 12, 13, 17])
def test_squeeze_takes_axes_from_attribute_or_operand(opset: int) -> None:
    if opset < 13:
        proto = build([node("Squeeze", "x", "y", axes=[0, 2])], {"x": [1, 3, 1, 2]}, ["y"], opset=opset)
    else:
        constants = {"axes": np.array([0, 2])}
        proto = build([node("Squeeze", "x axes", "y")], {"x": [1, 3, 1, 2]}, ["y"], constants, opset=opset)
    check(proto, {"x": f32(1, 3, 1, 2)})


def test_clip_by_attributes_and_by_operands() -> None:
    check(build([node("Clip", "x", "y", min=-0.5, max=0.25)], {"x": [20]}, ["y"], opset=7), {"x": f32(20)})
    constants = {"low": np.float32(-0.5), "high": np.float32(0.25)}
    check(build([node("Clip", "x low high", "y")], {"x": [20]}, ["y"], constants), {"x": f32(20)})
    check(build([node("Clip", "x - high", "y")], {"x": [20]}, ["y"], constants), {"x": f32(20)})


def test_slice_and_pad_by_attributes() -> None:
    proto = build(
        [
            node("Slice", "x", "a", starts=[1, -3], ends=[9, -1], axes=[0, 2]),
            node("Pad", "a", "y", pads=[0, 1, 0, 2, 0, 1], value=2.0),
        ],
        {"x": [4, 2, 5]},
        ["y"],
        opset=9,
    )
    check(proto, {"x": f32(4, 2, 5)})


# -- open shapes


def test_shape_arithmetic_on_open_dimensions() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 rest", "target", axis=0),
        node("Reshape", "x target", "r"),
        node("Transpose", "r", "y", perm=[1, 0]),
    ]
    constants = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1])}
    proto = build(nodes, {"x": ["batch", 3, "width"]}, ["y"], constants)
    session = linnet.Session(linnet.from_onnx(proto))
    for batch, width in ((1, 4), (3, 2), (2, 5)):
        x = f32(batch, 3, width)
        np.testing.assert_array_equal(session.run({"x": x})["y"], x.reshape(batch, -1).T)


def test_input_shapes_bind_equal_names() -> None:
    proto = build([node("Add", "x z", "y")], {"x": ["n", 4], "z": ["n", 4]}, ["y"])
    graph = linnet.from_onnx(proto, {"x": (3, 4)})
    assert [t.shape for t in graph.functions[0].inputs] == [(3, 4), (3, 4)]
    assert graph.functions[0].outputs[0].shape == (3, 4)


def test_split_of_an_uneven_axis() -> None:
    proto = build([node("Split", "x", "a b c", axis=1, num_outputs=3)], {"x": [2, 7]}, ["a", "b", "c"], opset=18)
    check(proto, {"x": f32(2, 7)})


def test_result_whose_size_depends_on_data() -> None:
    proto = build(
        [node("NonZero", "x", "i"), node("Transpose", "i", "t"), node("GatherND", "x t", "y")],
        {"x": [3, 4]},
        ["y"],
    )
    x = f32(3, 4)
    x[x < 0] = 0
    check(proto, {"x": x})


# -- structure


def test_names_provenance_and_outputs() -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Identity", "a", "b"),
        node("Identity", "x", "c"),
        node("Identity", "a", "d"),
    ]
    proto = build(nodes, {"x": [2, 3]}, ["a", "b", "c", "d"])
    graph = check(proto, {"x": f32(2, 3)})
    signature = graph.signatures["infer"]
    assert (signature.inputs, signature.outputs) == (["x"], ["a", "b", "c", "d"])
    assert graph.functions[0].nodes[0].source.startswith("Relu:the_relu")


def test_constant_output_and_unused_input() -> None:
    proto = build([node("Add", "k k", "y")], {"x": [2]}, ["y"], {"k": f32(3)})
    results = linnet.Session(linnet.from_onnx(proto)).run({"x": f32(2)})
    np.testing.assert_allclose(results["y"], 2 * numpy_helper.to_array(proto.graph.initializer[0]))


@pytest.mark.parametrize("condition", [True, False])
def test_if_with_a_known_condition_is_inlined(condition: bool) -> None:
    def branch(op: str) -> Any:
        return helper.make_graph([node(op, "x", "b")], op, [], [helper.make_tensor_value_info("b", F32, [3])])

    nodes = [node("If", "c", "y", then_branch=branch("Neg"), else_branch=branch("Abs"))]
    graph = check(build(nodes, {"x": [3]}, ["y"], {"c": np.array(condition)}), {"x": f32(3)})
    assert ops(graph) == ["map"]


def test_functions_of_the_model_are_inlined_with_their_attributes() -> None:
    inner = helper.make_node("LeakyRelu", ["a"], ["b"])
    reference = inner.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    function = helper.make_function("local", "Leak", ["a"], ["b"], [inner], [helper.make_opsetid("", 17)], ["slope"])
    nodes = [helper.make_node("Leak", ["x"], ["y"], domain="local", slope=0.3)]
    check(build(nodes, {"x": [9]}, ["y"], functions=[function]), {"x": f32(9)})


# -- rewrites


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_folds_into_convolution(transposed: bool, bias: bool, group: int) -> None:
    weight = f32(4, 6 // group, 3, 3) if transposed else f32(6, 4 // group, 3, 3)
    constants = {"w": weight, "k": f32(6), "g": f32(6), "b": f32(6), "m": f32(6), "v": np.abs(f32(6)) + 0.5}
    operands = "x w k" if bias else "x w"
    nodes = [
        node("ConvTranspose" if transposed else "Conv", operands, "c", group=group),
        node("BatchNormalization", "c g b m v", "y"),
    ]
    graph = check(build(nodes, {"x": [2, 4, 7, 6]}, ["y"], constants), {"x": f32(2, 4, 7, 6)}, 1e-4, 1e-4)
    assert ops(graph) == ["conv_transpose" if transposed else "conv"]
    assert "BatchNormalization" in graph.functions[0].nodes[0].source


def test_batch_norm_stays_where_the_convolution_is_read_twice() -> None:
    constants = {"w": f32(3, 2, 1, 1), "g": f32(3), "b": f32(3), "m": f32(3), "v": np.abs(f32(3)) + 0.5}
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c g b m v", "y")]
    graph = check(build(nodes, {"x": [1, 2, 4, 4]}, ["c", "y"], constants), {"x": f32(1, 2, 4, 4)}, 1e-4, 1e-4)
    assert ops(graph) == ["conv", "map"]


def test_scale_and_offset_fold_into_convolution() -> None:
    constants = {"w": f32(3, 2, 3, 3), "s": f32(3, 1, 1), "o": f32(1, 3, 1, 1), "d": np.float32(3)}
    nodes = [
        node("Conv", "x w", "a"),
        node("Mul", "a s", "b"),
        node("Sub", "o b", "c"),
        node("Div", "c d", "y"),
    ]
    graph = check(build(nodes, {"x": [1, 2, 5, 5]}, ["y"], constants), {"x": f32(1, 2, 5, 5)}, 1e-4, 1e-4)
    assert ops(graph) == ["conv"]


def test_offset_that_varies_over_the_picture_is_no_bias() -> None:
    constants = {"w": f32(3, 2, 1, 1), "o": f32(3, 5, 1)}
    nodes = [node("Conv", "x w", "a"), node("Add", "a o", "y")]
    graph = check(build(nodes, {"x": [1, 2, 5, 5]}, ["y"], constants), {"x": f32(1, 2, 5, 5)}, 1e-4, 1e-4)
    assert ops(graph) == ["conv", "map"]


@pytest.mark.parametrize("shape", [[3], [1, 3]])
def test_add_behind_matmul_becomes_its_bias(shape: list[int]) -> None:
    nodes = [node("MatMul", "x w", "a"), node("Add", "b a", "y")]
    graph = check(build(nodes, {"x": [2, 5]}, ["y"], {"w": f32(5, 3), "b": f32(*shape)}), {"x": f32(2, 5)})
    assert ops(graph) == ["matmul"]


@pytest.mark.parametrize("transposes", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("c", [None, (), (4,), (1, 4), (3, 1), (3, 4)])
def test_gemm(transposes: tuple[int, int], c: tuple[int, ...] | None) -> None:
    a, b = (5, 3) if transposes[0] else (3, 5), (4, 5) if transposes[1] else (5, 4)
    constants = {"b": f32(*b), **({} if c is None else {"c": f32(*c)})}
    operands = "a b" if c is None else "a b c"
    nodes = [node("Gemm", operands, "y", alpha=0.5, beta=2.0, transA=transposes[0], transB=transposes[1])]
    check(build(nodes, {"a": list(a)}, ["y"], constants), {"a": f32(*a)})


def test_gelu_in_pieces_is_one_map() -> None:
    constants = {"r": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}
    nodes = [
        node("Div", "x r", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "x c", "d"),
        node("Mul", "d half", "y"),
    ]  # fmt: skip
    graph = check(build(nodes, {"x": [3, 50]}, ["y"], constants), {"x": f32(3, 50)})
    assert ops(graph) == ["map"]


@pytest.mark.parametrize("power", [True, False])
def test_layer_norm_in_pieces_is_one_node(power: bool) -> None:
    constants = {"two": np.float32(2), "eps": np.float32(1e-5), "s": f32(6), "b": f32(6)}
    nodes = [
        node("ReduceMean", "x", "m", axes=[-1]),
        node("Sub", "x m", "d"),
        node("Pow", "d two", "q") if power else node("Mul", "d d", "q"),
        node("ReduceMean", "q", "v", axes=[-1]),
        node("Add", "v eps", "e"),
        node("Sqrt", "e", "r"),
        node("Div", "d r", "n"),
        node("Mul", "n s", "t"),
        node("Add", "t b", "y"),
    ]
    graph = check(build(nodes, {"x": [2, 5, 6]}, ["y"], constants), {"x": f32(2, 5, 6)}, 1e-4, 1e-4)
    assert ops(graph) == ["layer_norm"]


def test_large_transposed_weight_is_a_constant() -> None:
    constants = {"w": f32(200, 300)}
    nodes = [node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t", "y")]
    graph = check(build(nodes, {"x": [2, 300]}, ["y"], constants), {"x": f32(2, 300)}, 1e-4, 1e-4)
    assert ops(graph) == ["matmul"]


# -- exact integers


def u8(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("known", [True, False])
def test_matmul_integer_with_zero_points(known: bool) -> None:
    zeros = {"za": np.uint8(113), "zb": i8(4)}
    inputs: dict[str, Any] = {"a": (TensorProto.UINT8, [2, 3, 70])}
    if not known:
        inputs["za"] = (TensorProto.UINT8, [])
    constants = {"b": i8(70, 4), "zb": zeros["zb"], **({"za": zeros["za"]} if known else {})}
    feeds = {"a": u8(2, 3, 70), **({} if known else {"za": zeros["za"]})}
    proto = build([node("MatMulInteger", "a b za zb", "y")], inputs, ["y"], constants)
    result = linnet.Session(linnet.from_onnx(proto)).run({k: np.asarray(v) for k, v in feeds.items()})["y"]
    expected = (feeds["a"].astype(np.int32) - 113) @ (constants["b"].astype(np.int32) - zeros["zb"].astype(np.int32))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("group", [1, 2])
def test_conv_integer_pads_with_the_zero_point(known: bool, group: int) -> None:
    inputs: dict[str, Any] = {"x": (TensorProto.UINT8, [1, 4, 6, 5])}
    constants: dict[str, Any] = {"w": u8(6, 4 // group, 3, 3), "zw": np.uint8(90)}
    feeds: dict[str, Any] = {"x": u8(1, 4, 6, 5)}
    if known:
        constants["zx"] = np.uint8(77)
    else:
        inputs["zx"], feeds["zx"] = (TensorProto.UINT8, []), np.array(77, np.uint8)
    nodes = [node("ConvInteger", "x w zx zw", "y", pads=[1, 0, 1, 2], group=group, strides=[2, 1])]
    check(build(nodes, inputs, ["y"], constants), feeds, 0, 0)


def test_dynamic_quantization_then_matmul() -> None:
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z zw", "i"),
        node("Cast", "i", "f", to=F32),
        node("Mul", "f s", "y"),
    ]
    constants = {"w": weights_for_peers(i8(40, 8)), "zw": np.int8(3)}
    check(build(nodes, {"x": [5, 40]}, ["y"], constants), {"x": f32(5, 40)}, 1e-5, 1e-3)


U64 = TensorProto.UINT64
BIG = np.array([2**64 - 1, 2**63, 2**63 + 9, 17, 5, 2**63 + 2**39 + 1, 0], np.uint64)
BY = np.array([3, 2**63 + 1, 10, 2**64 - 2, 5, 2**63, 1], np.uint64)
LIMIT = np.array(2**63 + 9, np.uint64)
# op, attributes, NumPy's result for BIG and BY
UNSIGNED: list[tuple[str, dict[str, Any], Any]] = [
    ("Div", {}, BIG // BY),
    ("Mod", {}, BIG % BY),
    ("Mod", {"fmod": 1}, BIG % BY),
    ("Max", {}, np.maximum(BIG, BY)),
    ("Min", {}, np.minimum(BIG, BY)),
    ("Less", {}, BIG < BY),
    ("LessOrEqual", {}, BIG <= BY),
    ("Greater", {}, BIG > BY),
    ("GreaterOrEqual", {}, BIG >= BY),
    ("Equal", {}, BIG == BY),
    ("BitShift", {"direction": "RIGHT"}, np.where(BY < 64, BIG >> np.minimum(BY, 63).astype(np.uint64), 0)),
    ("PRelu", {}, BIG),
    ("Sign", {}, (BIG != 0).astype(np.uint64)),
    ("Abs", {}, BIG),
    ("Shrink", {"lambd": 6.0, "bias": 2048.0}, None),
    ("Clip", {}, np.minimum(BIG, LIMIT)),
]


@pytest.mark.parametrize("kind,attributes,wanted", UNSIGNED, ids=lambda v: v if isinstance(v, str) else "")
def test_u64_beyond_the_signed_range(kind: str, attributes: dict[str, Any], wanted: Any) -> None:
    inputs = {"Sign": "a", "Abs": "a", "Shrink": "a", "Clip": "a  limit"}.get(kind, "a b")
    made = node(kind, "", "y", **attributes)
    made.input[:] = inputs.split(" ")
    shapes = {"a": (U64, [7]), **({"b": (U64, [7])} if "b" in inputs else {})}
    proto = build([made], shapes, ["y"], {"limit": LIMIT} if "limit" in inputs else {})
    result = linnet.Session(linnet.from_onnx(proto)).run({"a": BIG, "b": BY} if "b" in inputs else {"a": BIG})["y"]
    if kind == "Shrink":  # computed in f64
        real = BIG.astype(np.float64)
        wanted = [int(min(max(v - 2048.0, 0.0), 2.0**64 - 2048)) if v > 6 else 0 for v in real]
        wanted = np.array(wanted, np.uint64)
        result, wanted = np.delete(result, [0]), np.delete(wanted, [0])  # 2^64 itself does not fit u64
    np.testing.assert_array_equal(result, wanted)


FUSED = np.array([2**63 + 5, 2**64 - 1, 2**63 + 2**39 + 1, 2**53 + 1, 7], np.uint64)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_u64_as_a_float_inside_a_map(kind: str) -> None:
    """A cast fused with later ops, an exponent, and a cast back: the values are unsigned and rounded once."""
    code, dtype = {"f32": (F32, np.float32), "f64": (TensorProto.DOUBLE, np.float64)}[kind]
    real = FUSED.astype(dtype)
    nodes = [
        node("Cast", "a", "f", to=code), node("Neg", "f", "negative"), node("Pow", "base a", "power"),
        node("Neg", "negative", "again"), node("Cast", "again", "back", to=U64), node("Cast", "negative", "low", to=U64),
    ]  # fmt: skip
    outputs = ["negative", "power", "back", "low"]
    proto = build(nodes, {"a": (U64, [5]), "base": (code, [5])}, outputs)
    base = np.array([0.5, 0.25, 1, 1, 2], dtype)
    for chosen in (outputs, ["negative"], ["low"]):  # a fetch by itself fuses everything that leads to it
        graph = linnet.from_onnx(build(nodes, {"a": (U64, [5]), "base": (code, [5])}, chosen))
        got = linnet.Session(graph).run({"a": FUSED, "base": base})
        if "negative" in chosen:
            np.testing.assert_array_equal(got["negative"], -real)
        if "low" in chosen:
            np.testing.assert_array_equal(got["low"], np.zeros(5, np.uint64))
    got = linnet.Session(linnet.from_onnx(proto)).run({"a": FUSED, "base": base})
    np.testing.assert_array_equal(got["power"], [0, 0, 1, 1, 128])
    back = [min(int(v), 2**64 - 1) for v in real]  # 2^64 is one too many
    np.testing.assert_array_equal(got["back"], np.array(back, np.uint64))


def test_integer_power_of_u64_exponents() -> None:
    """Modulo 2^64, whatever the exponent."""
    base = np.array([3, -3, 2, -1, 0, 7], np.int64)
    exponent = np.array([2**63 + 3, 2**64 - 1, 2**63, 2**64 - 1, 2**64 - 1, 5], np.uint64)
    graph = build([node("Pow", "a b", "y")], {"a": (TensorProto.INT64, [6]), "b": (U64, [6])}, ["y"])
    wanted = [pow(int(a), int(b), 2**64) for a, b in zip(base, exponent, strict=True)]
    got = linnet.Session(linnet.from_onnx(graph)).run({"a": base, "b": exponent})["y"]
    np.testing.assert_array_equal(got.view(np.uint64), np.array(wanted, np.uint64))


@pytest.mark.parametrize(
    "equation",
    [
        "bij,bjk->bik",
        "ij,kj->ik",
        "ii->i",
        "ijj->i",
        "abc,cd,bd->a",
        "bhqd,bhkd->bhqk",
        "ij,ij->",
        "...ij,jk->...ik",
        "ij,k->kij",
        "bij->jb",
        "abij,abkj->aik",
    ],
)
def test_einsum(equation: str) -> None:
    sizes = dict(zip("abcdhijkq", (2, 3, 4, 5, 2, 6, 6, 7, 3), strict=True))
    terms = equation.split("->")[0].split(",")
    arrays = [f32(*([2, 3] if "..." in t else []), *(sizes[c] for c in t.replace("...", ""))) for t in terms]
    names = [f"x{i}" for i in range(len(arrays))]
    proto = build(
        [node("Einsum", " ".join(names), "y", equation=equation)],
        {n: list(a.shape) for n, a in zip(names, arrays, strict=True)},
        ["y"],
    )
    result = linnet.Session(linnet.from_onnx(proto)).run(dict(zip(names, arrays, strict=True)))["y"]
    np.testing.assert_allclose(result, np.einsum(equation, *arrays), rtol=1e-4, atol=1e-4)
