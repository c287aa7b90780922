"""Large graphs are imported, written, read, loaded and planned in time linear in their size. In Python, calls of functions are
counted, which no other process disturbs: four times as many nodes take about four times as many. Planning in C is timed."""

from __future__ import annotations

import cProfile
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import linnet
from linnet.converters.onnx.importer import Importer
from linnet.converters.onnx.nodes import size_of
from linnet.converters.problems import MOST_PROBLEMS
from linnet.ir.program import Program
from tests.tflite_models import G, O, T, build

MOST_CALLS = 5  # for four times as many nodes; a quadratic algorithm makes sixteen times as many calls
MOST = 8  # the same for the time that planning takes
F32 = TensorProto.FLOAT
Nodes = list[onnx.NodeProto]
Values = list[onnx.ValueInfoProto]


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, name=outputs[0], **attributes)


def value(name: str, shape: Any = (4, 4)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, F32, shape)


def model(
    nodes: Nodes, inputs: Values, outputs: Values, constants: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(data, name) for name, data in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain(
    n: int, step: Callable[[int, str, str], Nodes], constants: dict[str, np.ndarray] | None = None, **more: Any
) -> Any:
    """Values t0 to tn, with the nodes that `step` makes between two of them."""
    nodes = [made for i in range(n) for made in step(i, f"t{i}", f"t{i + 1}")]
    shape = more.get("shape", (4, 4))
    return model(nodes, [value("t0", shape)], [value(f"t{n}", shape)], constants)


def pointwise(n: int) -> onnx.ModelProto:
    return chain(n, lambda i, x, y: [node("Sigmoid" if i % 2 else "Tanh", [x], [y])])


def weights(n: int) -> onnx.ModelProto:
    """Matrix products with a weight and a bias each; the bias is folded into the product."""
    rng = np.random.default_rng(0)
    constants = {f"w{i}": rng.standard_normal((16, 16)).astype(np.float32) for i in range(n // 2)}
    constants |= {f"b{i}": np.full(16, i, np.float32) for i in range(n // 2)}
    return chain(
        n // 2, lambda i, x, y: [node("MatMul", [x, f"w{i}"], [f"m{i}"]), node("Add", [f"m{i}", f"b{i}"], [y])],
        constants, shape=(16, 16),
    )  # fmt: skip


def residual(n: int) -> onnx.ModelProto:
    """Two convolutions, a batch norm and a sum per block."""
    constants = {"w": np.full((4, 4, 1, 1), 0.1, np.float32), "b": np.ones(4, np.float32)}

    def step(i: int, x: str, y: str) -> Nodes:
        return [
            node("Conv", [x, "w"], [f"a{i}"]), node("BatchNormalization", [f"a{i}", *"bbbb"], [f"n{i}"]),
            node("Relu", [f"n{i}"], [f"r{i}"]), node("Conv", [f"r{i}", "w", "b"], [f"c{i}"]),
            node("Add", [f"c{i}", x], [y]),
        ]  # fmt: skip

    return chain(n // 5, step, constants, shape=(1, 4, 4, 4))


def layer_norms(n: int) -> onnx.ModelProto:
    constants = {"g": np.ones(4, np.float32), "e": np.array(1e-5, np.float32)}

    def step(i: int, x: str, y: str) -> Nodes:
        return [
            node("ReduceMean", [x], [f"m{i}"], axes=[-1]), node("Sub", [x, f"m{i}"], [f"d{i}"]),
            node("Mul", [f"d{i}", f"d{i}"], [f"p{i}"]), node("ReduceMean", [f"p{i}"], [f"v{i}"], axes=[-1]),
            node("Add", [f"v{i}", "e"], [f"s{i}"]), node("Sqrt", [f"s{i}"], [f"r{i}"]),
            node("Div", [f"d{i}", f"r{i}"], [f"o{i}"]), node("Mul", [f"o{i}", "g"], [y]),
        ]  # fmt: skip

    return chain(n // 8, step, constants)


def quantized(n: int) -> onnx.ModelProto:
    constants = {"s": np.array(0.1, np.float32), "z": np.array(0, np.int8), "w": np.ones((4, 4, 1, 1), np.int8)}

    def step(i: int, x: str, y: str) -> Nodes:
        return [
            node("QuantizeLinear", [x, "s", "z"], [f"q{i}"]), node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"]),
            node("DequantizeLinear", ["w", "s", "z"], [f"e{i}"]), node("Conv", [f"d{i}", f"e{i}"], [y]),
        ]  # fmt: skip

    return chain(n // 4, step, constants, shape=(1, 4, 4, 4))


def pieces(n: int) -> onnx.ModelProto:
    def step(i: int, x: str, y: str) -> Nodes:
        return [
            node("Split", [x], [f"a{i}", f"b{i}"], axis=0), node("Concat", [f"b{i}", f"a{i}"], [f"c{i}"], axis=0),
            node("Softmax", [f"c{i}"], [y]),
        ]  # fmt: skip

    return chain(n // 3, step)


def held(n: int) -> onnx.ModelProto:
    """The second half reads the results of the first half, newest first: half of all values are held at once."""
    half = n // 2
    nodes = [node("Softmax", [f"t{i}"], [f"t{i + 1}"]) for i in range(half)]
    last = f"t{half}"
    for i in range(half):
        nodes.append(node("MatMul", [last, f"t{half - 1 - i}"], [f"u{i}"]))
        last = f"u{i}"
    return model(nodes, [value("t0")], [value(last)])


def ports(n: int) -> onnx.ModelProto:
    """As many inputs and outputs as nodes; every other node is a duplicate."""
    nodes = [node("Softmax", [f"x{i // 2 * 2}"], [f"y{i}"]) for i in range(n)]
    return model(nodes, [value(f"x{i}") for i in range(n)], [value(f"y{i}") for i in range(n)])


def wide(n: int) -> onnx.ModelProto:
    """Many nodes read one value, and one node reads all their results."""
    nodes = [node("Gather", ["x", f"k{i}"], [f"t{i}"]) for i in range(n)]
    nodes.append(node("Concat", [f"t{i}" for i in range(n)], ["y"], axis=0))
    return model(
        nodes, [value("x")], [value("y", [n, 4])], {f"k{i}": np.array([i % 4], np.int64) for i in range(n)}
    )  # fmt: skip


def shapes(n: int) -> onnx.ModelProto:
    """Shape, Gather, Concat and Reshape over an open batch."""
    constants = {"zero": np.zeros(1, np.int64), "two": np.full(2, 2, np.int64), "four": np.full(1, 4, np.int64)}

    def step(i: int, x: str, y: str) -> Nodes:
        return [
            node("Shape", [x], [f"s{i}"]), node("Gather", [f"s{i}", "zero"], [f"g{i}"]),
            node("Concat", [f"g{i}", "two"], [f"c{i}"], axis=0), node("Reshape", [x, f"c{i}"], [f"r{i}"]),
            node("Concat", [f"g{i}", "four"], [f"e{i}"], axis=0), node("Reshape", [f"r{i}", f"e{i}"], [f"q{i}"]),
            node("Softmax", [f"q{i}"], [y]),
        ]  # fmt: skip

    return chain(n // 7, step, constants, shape=("N", 4))


ONNX: dict[str, Callable[[int], onnx.ModelProto]] = {
    made.__name__: made
    for made in (pointwise, weights, residual, layer_norms, quantized, pieces, held, ports, wide, shapes)
}


def tflite(kind: str, n: int) -> bytes:
    names = ["x", *(f"t{i}" for i in range(n))]
    tensors = [T(name, "f32", (1, 4)) for name in names]
    if kind == "ports":
        operators = [O("SOFTMAX", ["x"], [f"t{i}"], {"beta": 1.0 + i}) for i in range(n)]
        return build(G(tensors, operators, ["x"], names[1:]))
    if kind == "dense":
        tensors += [T(f"w{i}", "f32", (4, 4), value=np.eye(4, dtype=np.float32) * (1 + i)) for i in range(n)]
        operators = [O("FULLY_CONNECTED", [names[i], f"w{i}"], [names[i + 1]]) for i in range(n)]
    else:
        operators = [O("TANH" if i % 2 else "LOGISTIC", [names[i]], [names[i + 1]]) for i in range(n)]
    return build(G(tensors, operators, ["x"], names[-1:]))


def calls(work: Callable[[], object]) -> int:
    """The number of calls of functions, those written in C included."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())  # type: ignore[attr-defined]


def linear_calls(count: Callable[[int], dict[str, int]], n: int) -> None:
    count(2)  # imports modules, and fills caches
    small, large = count(n), count(4 * n)
    ratios = {step: taken / max(small[step], 1000) for step, taken in large.items()}
    assert all(ratio <= MOST_CALLS for ratio in ratios.values()), f"four times as many nodes make more calls: {ratios}"


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()  # a full collection goes through all that earlier tests have left
    try:
        begin = time.process_time()
        work()
        return time.process_time() - begin
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ONNX)
def test_from_onnx_to_a_plan(name: str, tmp_path: Path) -> None:
    def count(n: int) -> dict[str, int]:
        source, path, found = ONNX[name](n), tmp_path / "m.lnt", {}
        graph: list[linnet.Graph] = []
        found["import"] = calls(lambda: graph.append(linnet.from_onnx(source)))
        found["save"] = calls(lambda: graph[0].save(path))
        found["read"] = calls(lambda: linnet.Graph.load(path))
        given = {"t0": (2, 4)} if name == "shapes" else None
        found["plan"] = calls(lambda: linnet.Session(path, input_shapes=given, threads=1))
        return found

    linear_calls(count, 100)


# Dear: planning is so fast that quadratic growth shows only in large graphs.
@pytest.mark.more
@pytest.mark.parametrize("name", ["held", "pieces", "weights"])
def test_a_plan_of_many_nodes(name: str) -> None:
    """Measures at n and 4n, and again if a busy machine may have taken the time; the least ratio counts."""
    made = [linnet.Model(linnet.from_onnx(ONNX[name](n), optimize=False)) for n in (3000, 12_000)]
    ratio = np.inf
    for _ in range(8):
        small, large = (seconds(lambda model=model: linnet.Session(model, threads=1)) for model in made)
        ratio = min(ratio, large / max(small, 0.04))  # a short time is not significant
        if ratio <= MOST:
            return
    raise AssertionError(f"four times as many nodes take {ratio:.1f} times as long to plan")


def counted(monkeypatch: pytest.MonkeyPatch, made: onnx.ModelProto) -> tuple[int, list[str]]:
    """The number of nodes that the conversion converts, those of bodies each time, and the problems found."""
    count, lower = 0, Importer.lower

    def counting(self: Importer, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        return lower(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Importer, "lower", counting)
        try:
            linnet.from_onnx(made)
        except linnet.ConversionError as error:
            return count, [problem.reason for problem in error.problems]
    return count, []


def branches(depth: int, leaf: onnx.NodeProto) -> onnx.ModelProto:
    """An If in a branch of an If, and so on; the innermost branch has the node `leaf`, from x to leaf."""
    any_shape = helper.make_tensor_value_info
    inner = helper.make_graph([leaf], "leaf", [], [any_shape("leaf", F32, None)])
    for k in range(depth):
        other = helper.make_graph([node("Neg", ["x"], [f"n{k}"])], f"e{k}", [], [any_shape(f"n{k}", F32, None)])
        chosen = node("If", ["c"], [f"y{k}"], then_branch=inner, else_branch=other)
        inner = helper.make_graph([chosen], f"b{k}", [], [any_shape(f"y{k}", F32, None)])
    inputs = [value("x"), any_shape("c", TensorProto.BOOL, [])]
    return model(list(inner.node), inputs, list(inner.output), {"w": np.ones((5, 3), np.float32)})


def many_branches(n: int, depth: int = 2) -> onnx.ModelProto:
    """n Ifs in a row, whose branches are such rows of 3, to this depth. All branches capture a value of the graph."""

    def row(prefix: str, count: int, level: int, begin: str) -> tuple[Nodes, str]:
        nodes, last = [], begin
        for i in range(count):
            name = f"{prefix}_{i}"
            if level == 0:
                nodes.append(node("Add", [last, "outer"], [name]))
            else:
                both = {}
                for side in ("then", "else"):
                    inner, out = row(f"{name}{side[0]}", 3, level - 1, last)
                    both[f"{side}_branch"] = helper.make_graph(inner, f"g{name}{side}", [], [value(out)])
                nodes.append(node("If", ["c"], [name], **both))
            last = name
        return nodes, last

    nodes, out = row("r", n, depth, "x")
    inputs = [value("x"), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    return model([node("Neg", ["x"], ["outer"]), *nodes], inputs, [value(out)])


def growing(depth: int) -> onnx.ModelProto:
    """Loops inside each other. Each one carries a value of its own that grows, and is converted again with an open shape."""
    info = helper.make_tensor_value_info
    nodes, out = [node("Neg", ["x"], ["y0"])], "y0"
    for k in range(1, depth + 1):
        nodes += [
            node("Concat", [f"v{k}"] * 2, [f"w{k}"], axis=0), node("Identity", [f"c{k}"], [f"d{k}"]),
            node("ReduceSum", [out], [f"s{k}"], keepdims=0),
        ]  # fmt: skip
        carried = [info(f"i{k}", TensorProto.INT64, []), info(f"c{k}", TensorProto.BOOL, []), info(f"v{k}", F32, None)]
        results = [info(f"d{k}", TensorProto.BOOL, []), info(f"w{k}", F32, None), info(f"s{k}", F32, None)]
        body = helper.make_graph(nodes, f"b{k}", carried, results)
        out = f"y{k}"
        nodes = [node("Identity", ["x"], [f"a{k}"]), node("Loop", ["n", "", f"a{k}"], [out, f"z{k}"], body=body)]
    return model(nodes, [value("x"), info("n", TensorProto.INT64, [])], [info(out, F32, None)])


@pytest.mark.parametrize("leaf", ["Missing", "MatMul", "Relu"])
def test_branches_inside_each_other_are_converted_at_most_twice(leaf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch that does not fit the shapes at hand is tried with open shapes. Each level tried all levels inside it twice, so
    that 15 of them took 65,536 conversions."""
    made = branches(15, node(leaf, ["x", "w"] if leaf == "MatMul" else ["x"], ["leaf"]))
    count, problems = counted(monkeypatch, made)
    assert count <= 2 * size_of(made.graph) and [leaf in reason for reason in problems] == [True] * (leaf == "Missing")


def test_branches_are_imported_in_linear_time() -> None:
    """And passes skip functions without the ops that they rewrite, which saves a seventh of the calls."""

    def count(n: int) -> dict[str, int]:
        made = many_branches(n)
        return {"import": calls(lambda: linnet.from_onnx(made))}

    linear_calls(count, 4)
    made = many_branches(16)
    assert calls(lambda: linnet.from_onnx(made)) < 1800 * size_of(made.graph)


def test_loops_inside_each_other_multiply_no_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (counted(monkeypatch, growing(depth))[0] for depth in (6, 12))
    assert many < 4 * few < 4 * 150  # 2^12 and 2^6 attempts before


def test_the_nodes_that_a_conversion_makes_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    made = growing(8)
    monkeypatch.setattr("linnet.converters.onnx.importer.MAX_GROWTH", 1 - 20_000 // size_of(made.graph))
    count, problems = counted(monkeypatch, made)
    assert count < 2 * size_of(made.graph) and any("nodes for each node in the file" in reason for reason in problems)


@pytest.mark.parametrize("kind", ["pointwise", "dense", "ports"])
def test_from_tflite(kind: str) -> None:
    def count(n: int) -> dict[str, int]:
        data = tflite(kind, n)
        return {"import": calls(lambda: linnet.from_tflite(data))}

    linear_calls(count, 100)


def test_a_training_step() -> None:
    """Look-ups in one table per layer, with gradients and updates; 4,000 used to take 46 s."""

    def built(n: int) -> linnet.Graph:
        graph = linnet.Graph()
        ids, target = graph.placeholder("ids", (4,), "i64"), graph.placeholder("target", (4, 8))
        y = target
        for i in range(n):
            y = y * linnet.ops.gather(graph.variable(f"w{i}", np.eye(8, dtype=np.float32)), ids)
        loss = (y * y).mean()
        updates = linnet.SGD(0.1).minimize(loss)
        graph.signature("train", {"ids": ids, "target": target}, {"loss": loss}, updates=updates)
        return graph

    linear_calls(lambda n: {"build": calls(lambda: built(n))}, 50)


def test_a_chain_of_maps_is_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instructions inspected while 1,000 maps are merged into a few: not hundreds for each."""
    count = 0
    add = Program.add

    def counted(self: Program, instruction: Any) -> int:
        nonlocal count
        count += 1
        return add(self, instruction)

    monkeypatch.setattr(Program, "add", counted)
    linnet.from_onnx(pointwise(1000))
    assert count < 40_000


@pytest.mark.parametrize("kind", ["missing", "unknown"])
def test_problems_are_listed_up_to_a_bound(kind: str) -> None:
    """5,000 of them used to take 40 s."""
    n = 5000
    if kind == "missing":
        nodes = [node("Add", ["x", f"gone{i}"], [f"t{i}"]) for i in range(n)]
    else:
        nodes = [node(f"Frobnicate{i % 7}", ["x"], [f"t{i}"]) for i in range(n)]
    source = model(nodes, [value("x")], [value(f"t{i}") for i in range(n)])
    begin = time.process_time()
    with pytest.raises(linnet.ConversionError) as caught:
        linnet.from_onnx(source)
    assert time.process_time() - begin < 10
    problems = caught.value.problems
    assert len(problems) == MOST_PROBLEMS + 1
    assert f"the first {MOST_PROBLEMS} problems" in str(problems[-1])
    assert ("gone0" if kind == "missing" else "Frobnicate0") in str(problems[0])


def test_problems_of_tflite_are_listed_up_to_a_bound() -> None:
    names = [f"t{i}" for i in range(5000)]
    tensors = [T(name, "f32", (1, 4)) for name in ["x", *names]]
    data = build(G(tensors, [O("CUSTOM:Frobnicate", ["x"], [name]) for name in names], ["x"], names))
    with pytest.raises(linnet.ConversionError) as caught:
        linnet.from_tflite(data)
    assert len(caught.value.problems) == MOST_PROBLEMS + 1


@pytest.mark.soak
@pytest.mark.parametrize("name", ONNX)
def test_100_000_nodes(name: str, tmp_path: Path) -> None:
    begin = time.process_time()
    linnet.from_onnx(ONNX[name](100_000)).save(tmp_path / "m.lnt")
    linnet.Session(tmp_path / "m.lnt", input_shapes={"t0": (2, 4)} if name == "shapes" else None)
    assert time.process_time() - begin < 200
