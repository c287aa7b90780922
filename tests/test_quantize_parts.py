"""Tensors with parts of very different size, such as boxes and scores in one concatenation that a product also reads: the
small part keeps its values in 8 and 16 bits, at every effort. The reference is ONNX's evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from onnx.reference import ReferenceEvaluator

import linnet
from linnet.quantization.goal import TARGETS
from linnet.quantization.judge import Judge, Part, _loses, parts_of
from linnet.quantization.moves import Moves
from linnet.quantization.observe import Batches, Seen

Array = np.ndarray
SIZE = 8


class Net:
    """Two heads over one picture: `b` holds boxes up to some thousand pixels, `s` scores between 0 and 1."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.op("Conv", "a", "x", self.weights(5, 3))
        self.op("Sigmoid", "s", "a")
        self.op("Conv", "b", "x", np.abs(self.weights(4, 3)) * 1500)

    def weights(self, out: int, inner: int) -> Array:
        return (self.rng.standard_normal((out, inner, 1, 1)) * 0.3).astype(np.float32)

    def op(self, kind: str, result: str | list[str], *inputs: str | Array, **attributes: object) -> None:
        names = []
        for value in inputs:
            if not isinstance(value, str):
                self.constants.append(nh.from_array(value, f"c{len(self.constants)}"))
                value = self.constants[-1].name
            names.append(value)
        self.nodes.append(h.make_node(kind, names, [result] if isinstance(result, str) else result, **attributes))

    def product(self, of: str, channels: int) -> None:
        self.op("Conv", "other", of, self.weights(3, channels))

    def model(self, *outputs: str) -> onnx.ModelProto:
        infos = [h.make_tensor_value_info(name, T.FLOAT, None) for name in (*outputs, "other")]
        graph = h.make_graph(
            self.nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, [1, 3, SIZE, SIZE])], infos, self.constants
        )
        return h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=8)


Case = tuple[onnx.ModelProto, Callable[[dict[str, Array]], Array]]


def plain(net: Net) -> Case:
    net.op("Concat", "k", "b", "s", axis=1)
    net.product("k", 9)
    return net.model("k"), lambda y: y["k"][:, 4:]


def three_parts(net: Net) -> Case:
    net.op("Conv", "z", "x", net.weights(2, 3) * np.float32(20))
    net.op("Concat", "k", "s", "b", "z", axis=1)
    net.product("k", 11)
    return net.model("k"), lambda y: y["k"][:, :5]


def other_axis(net: Net) -> Case:
    net.op("Conv", "b4", "x", np.abs(net.weights(5, 3)) * 1500)
    net.op("Concat", "k", "b4", "s", axis=2)
    net.product("k", 5)
    return net.model("k"), lambda y: y["k"][:, :, SIZE:]


def moved(net: Net) -> Case:
    """The concatenation goes through a transpose and a reshape before it is an output."""
    net.op("Concat", "k", "b", "s", axis=1)
    net.product("k", 9)
    net.op("Transpose", "t", "k", perm=[0, 2, 3, 1])
    net.op("Reshape", "y", "t", np.array([1, SIZE * SIZE, 9]))
    return net.model("y"), lambda y: y["y"][..., 4:]


def moved_before(net: Net) -> Case:
    """A product reads what the transpose of the concatenation gives."""
    net.op("Concat", "k", "b", "s", axis=1)
    net.op("Transpose", "t", "k", perm=[0, 1, 3, 2])
    net.product("t", 9)
    return net.model("t"), lambda y: y["t"][:, 4:]


def two_levels(net: Net) -> Case:
    net.op("Concat", "k", "b", "s", axis=1)
    net.op("Conv", "z", "x", net.weights(2, 3))
    net.op("Concat", "l", "z", "k", axis=1)
    net.product("l", 11)
    return net.model("l"), lambda y: y["l"][:, 6:]


def large_in_another(net: Net) -> Case:
    """A concatenation of boxes and other boxes, which have one range, and scores in the second of them."""
    net.op("Conv", "z", "x", np.abs(net.weights(2, 3)) * 1500)
    net.op("Concat", "k", "b", "s", axis=1)
    net.op("Concat", "l", "z", "k", axis=1)
    net.product("l", 11)
    net.op("Sqrt", "y", "l")
    return net.model("y"), lambda y: y["y"][:, 6:]


def mapped_before(net: Net) -> Case:
    """A product and a pointwise op read what a pointwise op makes of the concatenation."""
    net.op("Concat", "k", "b", "s", axis=1)
    net.op("Mul", "m", "k", np.full((1, 9, 1, 1), 0.5, np.float32))
    net.product("m", 9)
    net.op("Sqrt", "y", "m")
    return net.model("y"), lambda y: y["y"][:, 4:]


def split_later(net: Net) -> Case:
    net.op("Concat", "k", "b", "s", axis=1)
    net.product("k", 9)
    net.op("Split", ["boxes", "scores"], "k", np.array([4, 5]), axis=1)
    return net.model("boxes", "scores"), lambda y: y["scores"]


def sliced_and_mapped(net: Net) -> Case:
    """Pointwise ops read the concatenation and the part that is cut out of it."""
    net.op("Concat", "k", "b", "s", axis=1)
    net.product("k", 9)
    net.op("Mul", "m", "k", np.full((1, 9, 1, 1), 0.5, np.float32))
    net.op("Slice", "c", "m", np.array([4]), np.array([9]), np.array([1]))
    net.op("Sqrt", "y", "c")
    return net.model("y"), lambda y: y["y"]


def reduced(net: Net) -> Case:
    """The mean of each channel."""
    net.op("Concat", "k", "b", "s", axis=1)
    net.product("k", 9)
    net.op("ReduceMean", "y", "k", axes=[3])
    return net.model("y"), lambda y: y["y"][:, 4:]


def pooled(net: Net) -> Case:
    net.op("Concat", "k", "b", "s", axis=1)
    net.product("k", 9)
    net.op("MaxPool", "y", "k", kernel_shape=[2, 2])
    return net.model("y"), lambda y: y["y"][:, 4:]


def one_convolution(net: Net) -> Case:
    """One layer makes both kinds of channels."""
    w = np.concatenate([np.abs(net.weights(4, 3)) * 1500, net.weights(5, 3)])
    net.op("Conv", "k", "x", w)
    net.product("k", 9)
    return net.model("k"), lambda y: y["k"][:, 4:]


CASES = [plain, three_parts, other_axis, moved, moved_before, two_levels, large_in_another, mapped_before,
         split_later, sliced_and_mapped, reduced, pooled,
         one_convolution]  # fmt: skip
MODES = [("i8", "fast"), ("i8", "normal"), ("i16", "fast"), ("auto", "normal")]


@pytest.mark.parametrize(("dtype", "effort"), MODES)
@pytest.mark.parametrize("case", CASES)
def test_small_parts_keep_their_values(case: Callable[[Net], Case], dtype: str, effort: str) -> None:
    model, scores = case(Net())
    rng = np.random.default_rng(1)
    data = [{"x": rng.random((1, 3, SIZE, SIZE)).astype(np.float32)} for _ in range(6)]
    names = [output.name for output in model.graph.output]
    want = scores(dict(zip(names, ReferenceEvaluator(model).run(None, data[0]), strict=True)))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "in .*, output '(k|y|t|l|boxes|scores)'")  # not of the product
        made = linnet.quantize(linnet.from_onnx(model), data, dtype, effort=effort)
    got = scores(linnet.Session(made).run(data[0]))
    assert len(np.unique(got)) > len(np.unique(want)) * 0.5
    assert np.abs(got - want).max() < 0.05 * np.ptp(want)
    narrow = ("i8", "i16", *(["f16"] if dtype == "auto" else []))  # where 16-bit integers take longer, i16 has floats
    assert any(n.op == "conv" and n.inputs[0].dtype in narrow for f in made.functions for n in f.nodes)


@pytest.mark.parametrize(
    ("part", "own"),
    [((0, 99), True), ((0, 101), False), ((-99, 0), True), ((100, 101), False), ((200, 299), False), ((0, 0), False)],
)
def test_ranges_contain_zero(part: tuple[float, float], own: bool) -> None:
    """A part that is stored with a range of its own still stores zero, so values near 100 need a range of 100."""
    graph = linnet.Graph()
    a, b = graph.placeholder("a", (4,)), graph.placeholder("b", (4,))
    seen = {a: Seen(), b: Seen()}
    seen[a].include(np.array(part, np.float32))
    seen[b].include(np.array([0, 300], np.float32))
    moves = Moves()
    moves._seen = seen.get  # type: ignore[assignment,method-assign]
    assert moves._has_own_range(a, b) is own


def test_parts_of_an_output_are_found_by_size() -> None:
    rng = np.random.default_rng(0)
    boxes, scores = rng.uniform(100, 600, (2, 7, 4)), rng.uniform(0, 1, (2, 7, 3))
    value = np.concatenate([boxes, scores], 2).astype(np.float32)
    parts = parts_of([value[:, :, [0, 4, 1, 5, 2, 6, 3]]] * 3)
    assert sorted((part.axis, tuple(part.entries)) for part in parts) == [(2, (0, 2, 4, 6)), (2, (1, 3, 5))]
    assert [part.axis for part in parts_of([boxes.astype(np.float32)])] == [None]
    assert [part.axis for part in parts_of([np.zeros((2, 3), np.float32)])] == [None]


def cut(value: Array, samples: int = 3) -> list[tuple[int | None, tuple[int, ...]]]:
    return sorted((part.axis, tuple(part.entries)) for part in parts_of([value.astype(np.float32)] * samples))


def test_what_makes_parts() -> None:
    """The axis with the widest gap is cut, and entries that are zero belong to no part. Samples, rare classes and a few
    small numbers are no parts."""
    rng = np.random.default_rng(2)
    ones, whole = rng.uniform(0.5, 1, (1, 4, 6)), [(None, ())]
    two_axes = ones * np.array([1000, 1, 1000, 1])[:, None] * np.array([1, 20, 1, 20, 1, 20])
    assert cut(two_axes) == [(1, (0, 2)), (1, (1, 3))]
    assert cut(np.swapaxes(two_axes, 1, 2)) == [(2, (0, 2)), (2, (1, 3))]
    assert cut(ones * np.array([0, 500, 0.5, 500])[:, None]) == [(1, (1, 3)), (1, (2,))]
    assert cut(rng.uniform(0.5, 1, (2, 8)) * np.array([[1], [1000]])) == whole
    assert cut(np.array([[300.0, 200, 0.5, 400, 100]]), 8) == whole
    assert cut(np.array([[300.0, 200, 0.5, 400, 100]]), 16) == [(1, (0, 1, 3, 4)), (1, (2,))]
    assert cut(np.tile(np.array([0.4, 0.59, 0.01]), (8, 1))) == whole


def test_what_loses_its_values() -> None:
    """Two values of a hundred are lost. An output of few values, or one that hardly changes, has none to lose."""
    every, wanted = Part(None, np.zeros(0, np.intp)), [np.linspace(-1, 1, 50), np.linspace(-2, 2, 50)]

    def loses(want: list[Array], got: list[Array]) -> bool:
        return _loses(every, want, got)

    assert loses(wanted, [np.zeros(50), np.zeros(50)]) and loses(wanted, [np.zeros(50), np.ones(50)])
    assert not loses(wanted, [np.zeros(50), np.arange(50) % 2 + 1.0])
    assert not loses([value / 1e5 + 1 for value in wanted], [np.ones(50), np.ones(50)])
    assert not loses([np.arange(50) % 7.0] * 2, [np.zeros(50), np.zeros(50)])


def judged(lost: float) -> Judge:
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 8, 4))
    scale = np.array([1000, 1000, 1000, lost], np.float32)
    graph.signature("infer", {"x": x}, {"y": linnet.ops.multiply(x, graph.constant(scale))})
    rng = np.random.default_rng(0)
    data = [{"x": rng.random((1, 8, 4)).astype(np.float32)} for _ in range(4)]
    return Judge(graph, Batches(data, ["x"]), 4, TARGETS["i8"], 1)


def without_last(factor: float, others: float = 1000.0) -> linnet.Graph:
    """The network of `judged`, with the last column multiplied by `factor`, and the others by `others`."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (1, 8, 4))
    scale = np.array([others, others, others, factor], np.float32)
    graph.signature("infer", {"x": x}, {"y": linnet.ops.multiply(x, graph.constant(scale))})
    return graph


def test_the_judge_measures_each_part() -> None:
    """A lost column of small values is not hidden by the large ones, and is named."""
    judge = judged(0.5)
    assert judge.compare(without_last(0.5)).excess == 1.0 and judge.lost(without_last(0.5)) == []
    near = judge.compare(without_last(0.0))
    assert near.error > 0.3 and near.excess > 10
    assert judge.compare(without_last(0.5, 0.0)).error == pytest.approx(near.error) == pytest.approx(0.5)
    assert judge.lost(without_last(0.0)) == ["y"]
    assert judged(900.0).lost(without_last(899.0)) == []


def test_quantize_warns_of_lost_values() -> None:
    """A table that stores an output's operand with too large a range."""
    model, _ = plain(Net())
    graph = linnet.from_onnx(model)
    rng = np.random.default_rng(1)
    data = [{"x": rng.random((1, 3, SIZE, SIZE)).astype(np.float32)} for _ in range(6)]
    from linnet.quantization.table import Table, TensorRow

    table = Table([TensorRow("x", "i8", -1e6, 1e6, "", "")])
    with pytest.warns(UserWarning, match=r"in i8, output 'k' loses its distinct values: .* Try dtype='i16'"):
        linnet.quantize(graph, data, "i8", effort="fast", table=table)
