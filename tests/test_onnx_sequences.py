"""Sequences and optionals of ONNX against ONNX Runtime: as lists of known length, and as sequences of any length.
Every model here also runs with sequence inputs fixed by input_shapes, and both must agree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet import onnx_backend

Node = helper.make_node
F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def constant(name: str, value: Any, dtype: Any = np.int64) -> TensorProto:
    return numpy_helper.from_array(np.array(value, dtype), name)


def tensor(name: str, dtype: int, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def sequence(name: str, dtype: int = F32, shape: Any = None) -> onnx.ValueInfoProto:
    kind = helper.make_tensor_type_proto(dtype, shape)
    return helper.make_value_info(name, helper.make_sequence_type_proto(kind))


def optional(name: str, inner: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_optional_type_proto(inner.type))


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], initializers: Any = (), opset: int = 17) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def theirs(proto: Any, feeds: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def same(mine: Any, expected: Any) -> None:
    if isinstance(expected, (list, tuple)):
        assert isinstance(mine, (list, tuple)) and len(mine) == len(expected)
        for a, b in zip(mine, expected, strict=True):
            same(a, b)
    elif expected is None:
        assert mine is None
    else:
        assert mine.dtype == expected.dtype and mine.shape == expected.shape
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


def check(proto: Any, feeds: dict[str, Any], expected: list[Any] | None = None) -> None:
    """Runs the model as it is, and with fixed lengths of sequences."""
    expected = theirs(proto, feeds) if expected is None else expected
    same(list(onnx_backend.prepare(proto).run(feeds)), expected)
    shapes: dict[str, Any] = {
        name: [a.shape for a in value] for name, value in feeds.items() if isinstance(value, list)
    }
    if shapes:
        same(list(onnx_backend.prepare(proto, input_shapes=shapes).run(feeds)), expected)


def arrays(*shapes: tuple[int, ...], seed: int = 0, dtype: Any = np.float32) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(seed)
    return [(generator.standard_normal(shape) * 9).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("seed", range(12))
def test_random_edits(seed: int) -> None:
    """Inserts, erases and reads at constant and computed positions, with elements of several lengths."""
    generator = np.random.default_rng(seed)
    given = arrays(*[(int(generator.integers(0, 4)), 3) for _ in range(int(generator.integers(1, 4)))], seed=seed)
    extra = arrays((2, 3), seed=seed + 100)[0]
    nodes, length, now = [], len(given), "s"
    inputs = [sequence("s", F32, [None, 3]), tensor("x", F32, [2, 3]), tensor("p", I64, [])]
    names, read = [], []
    initializers = [constant(f"c{i}", i) for i in range(-3, 4)]
    for step in range(6):
        kind, low = generator.choice(["insert", "append", "erase", "pop", "at"]), -length
        places = [c for c in range(low, length) if -3 <= c <= 3]
        if kind in ("erase", "pop", "at") and length < 2:
            kind = "append"
        place = "p" if generator.random() < 0.3 else f"c{generator.choice(places)}" if places else "c0"
        new = f"s{step}"
        if kind in ("insert", "append"):
            nodes.append(Node("SequenceInsert", [now, "x", *([place] if kind == "insert" else [])], [new]))
            length += 1
        elif kind in ("erase", "pop"):
            nodes.append(Node("SequenceErase", [now, *([place] if kind == "erase" else [])], [new]))
            length -= 1
        else:
            nodes.append(Node("SequenceAt", [now, place], [f"a{step}"]))
            read.append(f"a{step}")
            continue
        now = new
    nodes += [Node("SequenceLength", [now], ["n"]), Node("ConcatFromSequence", [now], ["all"], axis=0)]
    names = [*read, now, "n", "all"]
    outputs = [*[tensor(n, F32) for n in read], sequence(now), tensor("n", I64), tensor("all", F32)]
    assert len(names) == len(outputs)
    proto = model(nodes, inputs, outputs, initializers)
    for position in (0, -1):
        check(proto, {"s": given, "x": extra, "p": np.array(position)})


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("fresh", [0, 1])
def test_concatenation(axis: int, fresh: int) -> None:
    shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
    if not fresh:
        for i, s in enumerate(shapes):
            s[axis] = i + 1
    proto = model(
        [Node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=fresh)],
        [sequence("s", F32, [None, None, None])],
        [tensor("y", F32)],
    )
    check(proto, {"s": arrays(*(tuple(s) for s in shapes))})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("split", [None, 1, 2, 4, 7, [1, 3, 2]])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_split_to_sequence(axis: int, split: Any, keep: int, known: bool) -> None:
    """If known, x's shape and the lengths are constants; otherwise both are inputs."""
    x = arrays((6, 6, 6))[0]
    inputs, initializers, feeds = [tensor("x", F32, x.shape if known else ["a", "b", "c"])], [], {"x": x}
    names = ["x"]
    if split is not None:
        names.append("split")
        if known:
            initializers.append(constant("split", split))
        else:
            inputs.append(tensor("split", I64, list(np.shape(split))))
            feeds["split"] = np.array(split)
    attributes = {"axis": axis, "keepdims": keep}
    proto = model(
        [Node("SplitToSequence", names, ["s"], **attributes)], inputs, [sequence("s")], initializers, opset=17
    )
    expected = None
    if split is not None and not keep and not (known and split == 1):  # keepdims has no effect, according to ONNX
        expected = theirs(
            model([Node("SplitToSequence", names, ["s"], axis=axis)], inputs, [sequence("s")], initializers), feeds
        )
    check(proto, feeds, expected)


def appending_loop(body: list[Any], finish: list[Any], outputs: list[Any], start: list[Any], extra: Any = ()) -> Any:
    """A loop that carries sequence `c` to `d`, over (i, k); trips and x are inputs."""
    graph = helper.make_graph(
        [Node("Identity", ["k"], ["k2"]), *body],
        "body",
        [tensor("i", I64, []), tensor("k", TensorProto.BOOL, []), sequence("c")],
        [tensor("k2", TensorProto.BOOL, []), sequence("d")],
    )
    nodes = [*start, Node("Loop", ["trips", "", "e"], ["s"], body=graph), *finish]
    return model(nodes, [tensor("trips", I64, []), tensor("x", F32, ["n", 3])], outputs, extra)


@pytest.mark.parametrize("axis, fresh", [(0, 0), (1, 0), (0, 1), (2, 1)])
@pytest.mark.parametrize("computed", [True, False])
def test_a_loop_that_appends_as_torch_exports_it(axis: int, fresh: int, computed: bool) -> None:
    """The trip count is an input, or a constant."""
    proto = appending_loop(
        [
            Node("Cast", ["i"], ["f"], to=F32),
            Node("Add", ["x", "f"], ["row"]),
            Node("SequenceInsert", ["c", "row"], ["d"]),
        ],
        [
            Node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=fresh),
            Node("SequenceLength", ["s"], ["count"]),
            Node("Relu", ["y"], ["z"]),
        ],
        [tensor("z", F32), tensor("count", I64)],
        [Node("SequenceEmpty", [], ["e"], dtype=F32)],
    )
    if not computed:
        proto.graph.input.remove(next(i for i in proto.graph.input if i.name == "trips"))
        proto.graph.initializer.append(constant("trips", 4))
    for trips, n in ((4, 2), (1, 5), (7, 2)):
        feeds: dict[str, Any] = {"x": arrays((n, 3))[0]}
        if computed:
            feeds["trips"] = np.array(trips)
        check(proto, feeds)


def test_a_loop_whose_elements_grow_and_that_reads_its_own_sequence() -> None:
    """Each iteration appends the last element concatenated with x; reads are at computed positions."""
    proto = appending_loop(
        [
            Node("SequenceAt", ["c", "i"], ["last"]),
            Node("Concat", ["last", "x"], ["longer"], axis=0),
            Node("SequenceInsert", ["c", "longer"], ["d"]),
        ],
        [Node("ConcatFromSequence", ["s"], ["y"], axis=0), Node("SequenceErase", ["s"], ["t"])],
        [tensor("y", F32), sequence("t")],
        [Node("SequenceConstruct", ["x"], ["e"])],
    )
    session = onnx_backend.prepare(proto)
    for trips in (3, 0, 5):
        feeds = {"x": arrays((2, 3))[0], "trips": np.array(trips)}
        same(list(session.run(feeds)), theirs(proto, feeds))


def test_a_loop_that_concatenates_inside() -> None:
    """Problems of an empty list are not reported for a loop that fills it."""
    proto = appending_loop(
        [
            Node("SequenceInsert", ["c", "x"], ["more"]),
            Node("ConcatFromSequence", ["more"], ["joined"], axis=0),
            Node("ReduceMean", ["joined"], ["mean"], axes=[0], keepdims=1),
            Node("SequenceInsert", ["c", "mean"], ["d"]),
        ],
        [Node("ConcatFromSequence", ["s"], ["y"], axis=0)],
        [tensor("y", F32)],
        [Node("SequenceEmpty", [], ["e"], dtype=F32)],
    )
    for trips in (1, 4):
        check(proto, {"x": arrays((2, 3))[0], "trips": np.array(trips)})


def test_branches_of_different_lengths() -> None:
    one = helper.make_graph([Node("SequenceConstruct", ["x"], ["a"])], "t", [], [sequence("a")])
    three = helper.make_graph([Node("SequenceConstruct", ["x", "y", "x"], ["b"])], "e", [], [sequence("b")])
    proto = model(
        [
            Node("If", ["c"], ["s"], then_branch=one, else_branch=three),
            Node("SequenceAt", ["s", "zero"], ["first"]),
            Node("SequenceLength", ["s"], ["n"]),
        ],
        [tensor("c", TensorProto.BOOL, []), tensor("x", F32, [2]), tensor("y", F32, [4])],
        [sequence("s"), tensor("first", F32), tensor("n", I64)],
        [constant("zero", 0)],
    )
    x, y = arrays((2,), (4,))
    for flag in (True, False):
        check(proto, {"c": np.array(flag), "x": x, "y": y})


@pytest.mark.parametrize("dynamic", [True, False])
def test_sequence_map(dynamic: bool) -> None:
    body = helper.make_graph(
        [Node("MatMul", ["a", "w"], ["m"]), Node("Shape", ["a"], ["sh"])],
        "b",
        [tensor("a", F32, [None, 3]), tensor("w", F32, [3, 2])],
        [tensor("m", F32, [None, 2]), tensor("sh", I64, [2])],
    )
    proto = model(
        [Node("SequenceMap", ["s", "w"], ["t", "u"], body=body)],
        [sequence("s", F32, [None, 3]), tensor("w", F32, [3, 2])],
        [sequence("t"), sequence("u", I64)],
    )
    given, w = arrays((1, 3), (4, 3), (2, 3)), arrays((3, 2), seed=5)[0]
    expected = [[a @ w for a in given], [np.array(a.shape) for a in given]]
    shapes = None if dynamic else {"s": [a.shape for a in given]}
    same(list(onnx_backend.prepare(proto, input_shapes=shapes).run({"s": given, "w": w})), expected)


def test_elements_of_different_ranks() -> None:
    proto = model(
        [Node("SequenceAt", ["s", "p"], ["y"]), Node("SequenceErase", ["s", "p"], ["t"])],
        [sequence("s"), tensor("p", I64, [])],
        [tensor("y", F32), sequence("t")],
    )
    given = arrays((), (3,), (2, 1, 2))
    session = onnx_backend.prepare(proto)
    for position in (0, 1, -1):
        at = position % 3
        same(list(session.run({"s": given, "p": np.array(position)})), [given[at], given[:at] + given[at + 1 :]])


OPTIONAL = {"tensor": tensor("o", F32, [3]), "sequence": sequence("o", F32, [3])}


@pytest.mark.parametrize("inner", OPTIONAL)
def test_optional_input(inner: str) -> None:
    """Present or absent at run time, and fixed during conversion."""
    get = [Node("OptionalGetElement", ["o"], ["v"])]
    get += [Node("Identity", ["v"], ["t"])] if inner == "tensor" else [Node("SequenceAt", ["v", "zero"], ["t"])]
    some = helper.make_graph([*get, Node("Neg", ["t"], ["a"])], "t", [], [tensor("a", F32, [3])])
    none = helper.make_graph([Node("Identity", ["x"], ["b"])], "e", [], [tensor("b", F32, [3])])
    proto = model(
        [Node("OptionalHasElement", ["o"], ["has"]), Node("If", ["has"], ["y"], then_branch=some, else_branch=none)],
        [optional("o", OPTIONAL[inner]), tensor("x", F32, [3])],
        [tensor("y", F32), tensor("has", TensorProto.BOOL)],
        [constant("zero", 0)],
        opset=18,
    )
    x, value = arrays((3,), (3,))
    given: Any = value if inner == "tensor" else [value, x]
    prepared = onnx_backend.prepare(proto)
    same(list(prepared.run({"o": given, "x": x})), [-value, np.array(True)])
    same(list(prepared.run({"o": None, "x": x})), [x, np.array(False)])
    absent = onnx_backend.prepare(proto, input_shapes={"o": None})
    same(list(absent.run({"o": None, "x": x})), [x, np.array(False)])
    shapes = {"o": (3,) if inner == "tensor" else [(3,), (3,)]}
    same(list(onnx_backend.prepare(proto, input_shapes=shapes).run({"o": given, "x": x})), [-value, np.array(True)])


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.FLOAT16, TensorProto.UINT8, TensorProto.DOUBLE])
def test_element_types(kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    proto = model(
        [Node("SequenceInsert", ["s", "x"], ["t"]), Node("ConcatFromSequence", ["t"], ["y"], axis=1)],
        [sequence("s", kind, [2, None]), tensor("x", kind, [2, 2])],
        [sequence("t", kind), tensor("y", kind)],
    )
    given = [np.abs(a).astype(dtype) for a in arrays((2, 1), (2, 4))]
    check(proto, {"s": given, "x": np.ones((2, 2), dtype)})
    check(proto, {"s": [], "x": np.ones((2, 2), dtype)})


def test_names_in_the_file_and_a_session_without_the_backend() -> None:
    """docs/converting.md: how a host that has only tensors passes and receives a sequence."""
    proto = model([Node("SequenceInsert", ["s", "x"], ["t"])], [sequence("s", F32, [None, 2]), tensor("x", F32, [1, 2])],
                  [sequence("t")])  # fmt: skip
    graph = linnet.from_onnx(proto)
    signature = graph.signatures["infer"]
    assert signature.inputs == ["s.values", "s.shapes", "x"] and signature.outputs == ["t.values", "t.shapes"]
    assert graph.metadata["type.s"] == "sequence(f32)" == graph.metadata["type.t"]
    a, x = arrays((3, 2), (1, 2))
    feeds = {"s.values": a.reshape(-1), "s.shapes": np.array([a.shape]), "x": x}
    results = linnet.Session(graph).run(feeds)
    assert results["t.shapes"].tolist() == [[3, 2], [1, 2]]
    np.testing.assert_array_equal(results["t.values"], np.concatenate([a.reshape(-1), x.reshape(-1)]))
    fixed = linnet.from_onnx(proto, {"s": [(3, 2), (4, 2)]}).signatures["infer"]
    assert fixed.inputs == ["s.0", "s.1", "x"] and fixed.outputs == ["t.0", "t.1", "t.2"]


def refused(proto: Any, shapes: Any = None) -> str:
    with pytest.raises(linnet.ConversionError) as caught:
        linnet.from_onnx(proto, shapes)
    assert len(caught.value.problems) == 1, caught.value.problems
    problem = caught.value.problems[0]
    assert problem.hint
    return f"{problem.op}: {problem.reason}"


def test_refusals() -> None:
    at = [Node("SequenceAt", ["s", "p"], ["y"])]
    proto = model(at, [sequence("s")], [tensor("y", F32)], [constant("p", 5)])
    assert "position 5 is out of range in a sequence of 2" in refused(proto, {"s": [(1,), (1,)]})
    for wrong in (None, (2, 3), [(1,), "x"], 5):
        assert "input: input_shapes gives" in refused(proto, {"s": wrong})
    read = model([Node("SequenceAt", ["s", "p"], ["y"])], [sequence("s")], [tensor("y", F32)], [constant("p", 0)])
    read.graph.node[0].op_type = "Relu"
    del read.graph.node[0].input[1]
    assert "Relu: input 0 is a sequence, not a tensor" in refused(read)
    empty = [Node("SequenceEmpty", [], ["e"]), Node("ConcatFromSequence", ["e"], ["y"], axis=0)]
    assert "the sequence is empty" in refused(model(empty, [], [tensor("y", F32)]))
    strings = model([Node("SequenceLength", ["s"], ["n"])], [sequence("s", TensorProto.STRING)], [tensor("n", I64)])
    assert "string" in refused(strings)


def test_a_position_that_a_run_computes_is_checked() -> None:
    proto = model(
        [Node("SequenceAt", ["s", "p"], ["y"])], [sequence("s", F32, [2]), tensor("p", I64, [])], [tensor("y", F32)]
    )
    session = onnx_backend.prepare(proto)
    with pytest.raises(linnet.Error):
        session.run({"s": arrays((2,), (2,)), "p": np.array(2)})
    assert math.isfinite(session.run({"s": arrays((2,), (2,)), "p": np.array(1)})[0].sum())
