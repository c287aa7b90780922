"""Passes and map programs: a rewritten graph gives the same results, has fewer nodes, and still records their sources."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import linnet
from linnet import ops, passes
from linnet.builder.mapping import pointwise, program_of
from linnet.facade import Graph
from linnet.ir.dtypes import Quantization, numpy_dtype
from linnet.ir.function import Function, Tensor, emit
from linnet.ir.program import Instruction, Program, Store


def build(
    body: Callable[[Function, Tensor], Tensor | list[Tensor]], shape: tuple[int | str | None, ...] = (2, 3, 4)
) -> Graph:
    """A graph of one input x f32 and the result of `body`."""
    graph = Graph()
    main = graph.function()
    made = body(main, main.placeholder("x", "f32", shape))
    main.outputs = made if isinstance(made, list) else [made]
    graph.signature("infer", main, outputs=[f"y{i}" for i in range(len(main.outputs))])
    return graph


def check(graph: Graph, nodes: int | None = None, *, exact: bool = True, shape: tuple[int, ...] = (2, 3, 4)) -> Graph:
    """Runs the graph, simplifies it, and runs it again: the same results, and this many nodes."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 2
    before = linnet.Session(graph.to_bytes()).run({"x": x})
    passes.run(graph)
    after = linnet.Session(graph.to_bytes()).run({"x": x})
    assert list(before) == list(after)
    for name, value in before.items():
        (np.testing.assert_array_equal if exact else np.testing.assert_allclose)(after[name], value)
        assert after[name].dtype == value.dtype
    if nodes is not None:
        assert len(graph.signatures["infer"].function.nodes) == nodes, graph.signatures["infer"].function.nodes
    return graph


UNARY = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "tanh": np.tanh, "floor": np.floor,
    "ceil": np.ceil, "round": np.round, "sin": np.sin, "cos": np.cos, "sign": np.sign, "reciprocal": np.reciprocal,
    "log1p": np.log1p, "expm1": np.expm1, "atan": np.arctan, "sinh": np.sinh, "asinh": np.arcsinh,
}  # fmt: skip


@pytest.mark.parametrize("opcode", UNARY)
def test_expressions_compute_what_they_say(opcode: str) -> None:
    x = np.random.default_rng(1).uniform(0.1, 3, (3, 5)).astype(np.float32)
    main = Graph().function()
    (y,) = emit("map", [main.constant(x)], _attributes(lambda v: v.unary(opcode)))
    assert y.data is not None
    np.testing.assert_allclose(y.data, UNARY[opcode](x), rtol=2e-6, atol=2e-7)


def _attributes(body: Callable[..., linnet.ir.expr.Expr]) -> dict[str, object]:  # type: ignore[name-defined]
    from linnet.ir.expr import Expr

    program = Program()
    value = body(Expr(program, program.add(Instruction("load", "f32"))))
    program.stores = [Store(value.register, False)]
    return program.attributes(["f32"])


def test_python_operators_and_immediates() -> None:
    main = Graph().function()
    a, b = np.float32([1, -2, 3, 4]), np.float32([0.5, 3, -1, 4])
    ta, tb = main.constant(a), main.constant(b)

    def value(body: Callable[..., object], *tensors: Tensor) -> np.ndarray:
        made = pointwise(tensors or (ta, tb), body)
        assert made.data is not None
        return np.asarray(made.data)

    np.testing.assert_array_equal(value(lambda x, y: (2 - x) * y / 4 + 1), (2 - a) * b / 4 + 1)
    np.testing.assert_array_equal(value(lambda x, y: x.max(y).min(2)), np.minimum(np.maximum(a, b), 2))
    np.testing.assert_array_equal(value(lambda x, y: x >= y), a >= b)
    np.testing.assert_array_equal(value(lambda x, y: (x < y).select(x, -y)), np.where(a < b, a, -b))
    np.testing.assert_array_equal(value(lambda x, y: abs(x) ** 2 + 0 * y), a**2)
    integers = main.constant(np.int32([7, -7, 3, 0]))
    np.testing.assert_array_equal(value(lambda x: x % 3, integers), np.int32([7, -7, 3, 0]) % 3)
    np.testing.assert_array_equal(value(lambda x: x + 0.5, integers), np.float32([7.5, -6.5, 3.5, 0.5]))
    assert pointwise([ta], lambda x: x.eq(1)).dtype == "bool"
    assert pointwise([main.constant(a.astype(np.float16))], lambda x: x + 1).dtype == "f16"
    both = pointwise([ta, tb], lambda x, y: (x + y, x - y))
    np.testing.assert_array_equal(both[1].data, a - b)


def test_broadcasting_follows_numpy() -> None:
    main = Graph().function()
    a, b = np.arange(6, dtype=np.float32).reshape(3, 1, 2), np.arange(4, dtype=np.float32).reshape(4, 1)
    made = pointwise([main.constant(a), main.constant(b)], lambda x, y: x * 10 + y)
    np.testing.assert_array_equal(made.data, a * 10 + b)
    with pytest.raises(linnet.GraphError) as error:
        pointwise([main.constant(a), main.constant(np.zeros(3, np.float32))], lambda x, y: x + y, name="sum")
    assert error.value.code == 303 and "sum" in str(error.value)


def test_program_survives_decoding() -> None:
    program = Program()
    x = program.add(Instruction("load", "f32", operand=0))
    zero, minus_zero = program.constant(0.0, "f32"), program.constant(-0.0, "f32")
    nan = program.constant(float("nan"), "f32")
    assert zero != minus_zero and nan == program.constant(float("nan"), "f32")
    whole = program.add(Instruction("cast", "i32", (x,)))
    fixed = program.add(Instruction("fixed_multiply", "i32", (whole,), extra=(1 << 30, 3)))
    compared = program.add(Instruction("lt", "f32", (x, minus_zero)))
    chosen = program.add(Instruction("select", "i32", (compared, fixed, whole)))
    program.stores = [Store(chosen, False), Store(nan, False)]
    attributes = program.attributes(["i32", "f32"])
    again = Program.decode(attributes)
    assert again.attributes(["i32", "f32"]) == attributes
    assert [again.code[s.register].result for s in again.stores] == ["i32", "f32"]
    with pytest.raises(linnet.GraphError, match="malformed"):
        Program.decode({"program": (999, 1, 0, 0, 0), "floats": (), "integers": ()})


def test_chain_becomes_one_map() -> None:
    graph = build(lambda f, x: ops.scale(ops.sigmoid(ops.relu(ops.scale(x, 2.0))), 3.0, 1.0))
    for node, source in zip(graph.functions[0].nodes, ("Mul:a", "Relu:b", "Sigmoid:c", "Mul:a"), strict=True):
        node.source = source
    check(graph, 1)
    assert graph.functions[0].nodes[0].source == "Mul:a+Relu:b+Sigmoid:c"


def test_value_read_twice_is_fused_once() -> None:
    def body(f: Function, x: Tensor) -> Tensor:
        doubled = ops.scale(x, 2.0)
        return ops.multiply(doubled, ops.sigmoid(doubled))

    graph = check(build(body), 1)
    assert len(graph.functions[0].nodes[0].inputs) == 1


def test_value_that_others_need_stays() -> None:
    def body(f: Function, x: Tensor) -> list[Tensor]:
        middle = ops.relu(x, name="middle")
        return [ops.sigmoid(middle), middle]

    check(build(body), 2)


def test_broadcast_producer_is_not_computed_again_and_again() -> None:
    check(build(lambda f, x: ops.multiply(x, ops.sigmoid(ops.mean(x, [2], keep_dims=True)))), 3)


def test_broadcast_of_constants_is_fused() -> None:
    weight = np.random.default_rng(2).standard_normal((3, 1)).astype(np.float32)
    check(build(lambda f, x: ops.relu(ops.add(ops.multiply(x, f.constant(weight)), f.constant(weight + 1)))), 1)


NUMBERS = ["f32", "f64", "f16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


@pytest.mark.parametrize("target", [*NUMBERS, "bool"])
@pytest.mark.parametrize("source", NUMBERS)
def test_a_fused_cast_is_the_lone_cast(source: str, target: str) -> None:
    """A fused cast saturates, wraps, rounds and reads u64 as the op alone does, after a map and before one."""
    wide = [0, 1, 3.9, -3.9, 200, -200, 7e4, 2**31 + 9, -(2**31) - 9, 2**32 + 7, 2**62 + 1, 2.0**63 + 4096, 2.0**64]
    if source in ("f32", "f64", "f16"):
        with np.errstate(over="ignore"):
            x = np.array([*wide, np.inf, -np.inf, np.nan], np.float64).astype(numpy_dtype(source))
    else:
        info = np.iinfo(numpy_dtype(source))
        x = np.array([info.min, info.max, info.max - 1, info.max // 2 + 2, 0, 1, 77], numpy_dtype(source))
    results = {}
    for optimize in (False, True):
        graph = Graph()
        main = graph.function()
        inputs = [main.placeholder(name, source, x.shape) for name in "ab"]
        first = pointwise(inputs[:1], lambda v: v * 1, source).cast(target)
        last = pointwise([inputs[1].cast(target)], lambda v: v.eq(0) if target == "bool" else v * 1, target)
        main.outputs = [t for t in (first, last) if t not in inputs]
        graph.signature("infer", main)
        if optimize:
            passes.run(graph)
        results[optimize] = list(linnet.Session(graph.to_bytes()).run({"a": x, "b": x}).values())
    for fused, lone in zip(results[True], results[False], strict=True):
        np.testing.assert_array_equal(fused, lone)


def test_unknown_dimensions_fuse() -> None:
    check(build(lambda f, x: ops.relu(ops.scale(x, 3.0)), ("n", 3, None)), 1)


def test_booleans_and_casts_between() -> None:
    def body(f: Function, x: Tensor) -> Tensor:
        flag = pointwise([x], lambda v: v > 0.5)
        number = ops.cast(flag, dtype="f32")
        back = ops.cast(ops.cast(ops.scale(x, 10.0), dtype="i32"), dtype="f32")
        return ops.where(ops.cast(back, dtype="bool"), number, back)

    check(build(body), 1)


def test_rounding_to_f16_stays_where_it_was_asked_for() -> None:
    graph = check(build(lambda f, x: ops.scale(ops.cast(ops.cast(x, dtype="f16"), dtype="f32"), 2.0)))
    assert any(t.dtype == "f16" for node in graph.functions[0].nodes for t in node.outputs)


def test_iota_means_its_own_shape() -> None:
    def body(f: Function, x: Tensor) -> Tensor:
        column = pointwise(
            [f.constant(np.ones((3, 1), np.float32)), x], lambda one, v: one.iota(1, "i32").cast("f32") + v * 0
        )
        return ops.add(ops.relu(column), x)

    check(build(body), 1)


def test_quantized_maps_are_left_alone() -> None:
    q = Quantization(np.float32([0.1]), np.int32([0]))

    def body(f: Function, x: Tensor) -> Tensor:
        stored = pointwise([x], lambda v: v * 2, "i8", quantization=[q])
        return pointwise([stored], lambda v: v.max(0.0), "f32", dequantize=True)

    check(build(body), 2)


def test_many_operands_do_not_overflow() -> None:
    def body(f: Function, x: Tensor) -> Tensor:
        total = x
        for i in range(60):
            total = ops.add(total, ops.transpose(ops.transpose(f.graph.functions[0].inputs[0], (0, 2, 1)), (0, 2, 1)))
            total = ops.add(total, ops.softmax(x, axis=i % 3))
        return total

    graph = check(build(body), exact=False)
    assert all(len(node.inputs) <= 24 for node in graph.functions[0].nodes)


def test_dead_nodes_go_and_assignments_stay() -> None:
    graph = Graph()
    total = graph.variable("total", np.zeros(3, np.float32))
    main = graph.function()
    x = main.placeholder("x", "f32", (3,))
    before = main.read(total)
    ops.assign(before, ops.add(before, x))
    ops.relu(ops.sigmoid(x))
    indices = ops.pool(ops.reshape(x, (1, 1, 3)), kernel=[1], outputs=2)
    main.outputs = [indices[0]]
    graph.signature("infer", main)
    unused = graph.function("unused")
    unused.outputs = [unused.placeholder("u", "f32", (1,))]
    passes.run(graph)
    assert [node.op for node in main.nodes].count("assign") == 1
    assert {node.op for node in main.nodes} == {"assign", "map", "copy", "pool"}
    assert len(next(node for node in main.nodes if node.op == "pool").outputs) == 1
    assert graph.functions == [main]


def test_equal_things_become_one() -> None:
    def body(f: Function, x: Tensor) -> list[Tensor]:
        weight = np.random.default_rng(3).standard_normal((4, 5)).astype(np.float32)
        first = ops.matmul(x, f.constant(weight))
        second = ops.matmul(x, f.constant(weight.copy()))
        other = ops.matmul(x, f.constant(weight + 1))
        return [ops.softmax(ops.add(first, second)), ops.softmax(other)]

    graph = check(build(body))
    assert [node.op for node in graph.functions[0].nodes].count("matmul") == 2
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (2,))
    main.outputs = [ops.relu(x), ops.relu(x)]  # two outputs remain two
    graph.signature("infer", main, outputs=["a", "b"])
    passes.run(graph)
    assert list(linnet.Session(graph).run({"x": np.float32([1, -1])})) == ["a", "b"]


def test_different_attributes_stay_different() -> None:
    check(build(lambda f, x: [ops.softmax(x, axis=0), ops.softmax(x, axis=1), ops.softmax(x, axis=1, log=True)]), 3)


def test_identities_go() -> None:
    def body(f: Function, x: Tensor) -> Tensor:
        y = ops.reshape(ops.transpose(ops.cast(x, dtype="f32"), (0, 1, 2)), (2, 3, 4))
        y = ops.copy([y], kind="slice", starts=[0], ends=[99], axes=[1], steps=[1])[0]
        y = ops.copy([ops.concat([y], 0)], kind="pad", pads=[0] * 6)[0]
        y = pointwise([y], lambda v: v)
        return ops.softmax(ops.copy([y], kind="identity")[0])

    check(build(body), 1)


def test_what_looks_like_an_identity_stays() -> None:
    check(
        build(lambda f, x: ops.softmax(ops.copy([x], kind="slice", starts=[-1], ends=[-99], axes=[2], steps=[-1])[0])),
        2,
    )
    check(build(lambda f, x: ops.transpose(x)), 1)
    check(build(lambda f, x: ops.copy([x], kind="identity")[0]), 1)  # a node must produce an output


def test_constants_fold_within_the_limit() -> None:
    big = np.ones((200, 200), np.float32)
    graph = build(lambda f, x: ops.add(x, ops.reshape(ops.mean(ops.transpose(f.constant(big))), (1,))))
    assert any(node.op == "copy" for node in graph.functions[0].nodes)  # 160 kB: emit keeps the transpose
    check(graph)
    graph = build(
        lambda f, x: ops.add(
            ops.mean(ops.matmul(x, ops.transpose(f.constant(np.ones((200, 4), np.float32)))), [2], keep_dims=True), x
        )
    )
    assert len(graph.functions[0].nodes) == 3
    graph = build(
        lambda f, x: ops.matmul(
            ops.matmul(x, f.constant(np.ones((4, 200), np.float32))), ops.transpose(f.constant(big))
        )
    )
    passes.run(graph)
    assert len(graph.functions[0].nodes) == 3
    passes.run(graph, fold_limit=1 << 30)
    assert len(graph.functions[0].nodes) == 2


def test_folding_agrees_with_running() -> None:
    values = np.random.default_rng(4).standard_normal((2, 3, 4)).astype(np.float32)

    def chain(x: Tensor) -> Tensor:
        y = ops.softmax(ops.reduce(ops.transpose(x, (2, 0, 1)), kind="log_sum_exp", axes=[1]))
        return ops.gather(ops.concat([y, ops.relu(y)], 2), x.function.constant(np.int64([1, -1, 0])), axis=2)

    folded = chain(Graph().function().constant(values))
    assert folded.data is not None
    run = linnet.Session(build(lambda f, x: chain(x))).run({"x": values})["y0"]
    np.testing.assert_allclose(folded.data, run, rtol=1e-6)


def test_signature_names_and_functions_survive() -> None:
    from tests.graphs import branch

    graph = branch()
    x = np.float32([1, -5, 2, 0, 0, 1])
    expected = linnet.Session(graph.to_bytes()).run({"x": x})
    passes.run(graph)
    found = linnet.Session(graph).run({"x": x})
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_program_of_a_cast() -> None:
    main = Graph().function()
    node = ops.cast(main.placeholder("x", "f32", (2,)), dtype="bool").node
    assert node is not None
    program = program_of(node)
    assert program is not None and [i.opcode for i in program.code] == ["load", "const", "ne"]


@pytest.mark.parametrize("stored", ["i8", "f16"])
def test_rows_are_looked_up_before_they_are_widened(stored: str) -> None:
    """A table in 8 or 16 bits with a scale per row, a scale for all rows, and a scalar: it stays as narrow as stored."""
    random = np.random.default_rng(3)
    graph = Graph()
    main = graph.function()
    codes = main.constant(
        random.integers(-127, 128, (5000, 24)).astype({"i8": "int8", "f16": "float16"}[stored]), "codes"
    )
    per_row = main.constant(random.uniform(0.01, 0.1, (5000, 1)).astype("f4"), "per_row")
    per_column = main.constant(random.uniform(0.5, 1.5, (1, 24)).astype("f4"), "per_column")
    shift = main.constant(np.array(0.25, "f4"), "shift")
    operands = [codes, per_row, per_column, shift]
    table = pointwise(operands, lambda c, r, k, s: c.cast("f32") * r * k + s, "f32", function=main, name="table")
    matrix, row = main.placeholder("matrix", "i64", (None, 3)), main.placeholder("row", "i32", ())
    main.outputs = [
        emit("gather", [table, matrix], {"kind": "take", "axis": 0})[0],
        emit("gather", [table, row], {"kind": "take", "axis": -2})[0],
    ]
    graph.signature("infer", main, outputs=["many", "one"])
    feeds = {"matrix": np.array([[0, 4999, -1], [7, 7, 2500]], "i8"), "row": np.array(-5000, "i4")}
    before = linnet.Session(graph.to_bytes())
    wanted = before.run(feeds)
    passes.run(graph)
    after = linnet.Session(graph.to_bytes())
    for name, value in after.run(feeds).items():
        np.testing.assert_array_equal(value, wanted[name])
    assert before.memory["constants"] >= 5000 * 24 * 4 and after.memory["constants"] < 5000
    assert [n.op for n in main.nodes].count("gather") == 4 and table.node not in main.nodes
