"""Where a plan may place tensors and when a step may write: fetched values with views on them, views that would start inside a
line, updates before a step that may fail, maps that load after a store."""

from __future__ import annotations

import json
import platform
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet._generated.op_table import OPCODES
from linnet.facade import Graph
from linnet.ir.dtypes import DTYPE_IDS
from linnet.ir.function import Node
from tests.command import run_here as linnet_command

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("reference", [False, True])
def test_a_value_that_is_asked_for_is_made_although_a_map_reads_it(reference: bool) -> None:
    graph = Graph()
    x, w = graph.placeholder("x", (3, 8), "f32"), floats(8, 16)
    y = x @ graph.constant(w)
    z = ops.relu(y)
    graph.signature("infer", {"x": x}, {"y": y, "z": z, "both": z + y})
    for fetches in (["y", "z"], None, ["z"], ["y"]):
        given = floats(3, 8)  # different values each time: reused memory holds earlier results
        found = linnet.Session(graph, reference=reference, fetches=fetches).run({"x": given})
        expected = {"y": given @ w, "z": np.maximum(given @ w, 0), "both": np.maximum(given @ w, 0) + given @ w}
        assert set(found) == set(fetches or expected)
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "copies"), [(16, 0), (5, 1)])
def test_views_begin_on_a_line(rows: int, copies: int) -> None:
    """Cuts off `rows` rows of one f32 each at the front: 64 bytes, or 20, which kernels do not expect."""
    graph = Graph()
    x = graph.placeholder("x", (64, 1), "f32")
    whole = ops.softmax(x, axis=0)
    part = ops.copy([whole], kind="slice", starts=[rows], ends=[64], axis=[0])[0]
    y = ops.softmax(part, axis=0)
    graph.signature("infer", {"x": x}, {"y": y})
    session = linnet.Session(graph)
    given = floats(64, 1)
    expected = linnet.Session(graph, reference=True).run({"x": given})["y"]
    np.testing.assert_allclose(session.run({"x": given})["y"], expected, rtol=1e-6)
    assert [step.op for step in session.steps].count("copy") == copies


def _lookup(graph: Graph, ids: Any) -> Any:
    return ops.gather(graph.constant(np.arange(5, dtype=np.float32)), ids)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_update_that_indices_depend_on_is_undone_when_they_are_wrong(threads: int) -> None:
    """The new value is computed before the look-up, but must not be written to the variable until the look-up has succeeded."""
    graph = Graph()
    v = graph.variable("v", np.zeros(3, np.int64))
    x = graph.placeholder("x", (3,), "i64")
    new = v + x
    picked = _lookup(graph, new)
    graph.signature("train", {"x": x}, {"y": picked}, updates={v: new})
    session = linnet.Session(graph, "train", threads=threads)
    assert session.run({"x": np.array([1, 2, 4])})["y"].tolist() == [1, 2, 4]
    for wrong in (np.array([0, 0, 1]), np.array([-7, 0, 0])):
        with pytest.raises(linnet.Error, match="index"):
            session.run({"x": wrong})
        assert session.variables["v"].tolist() == [1, 2, 4]
    session.run({"x": np.array([1, 1, 0])})
    assert session.variables["v"].tolist() == [2, 3, 4]


@pytest.mark.parametrize("fetched", [False, True])
@pytest.mark.parametrize(("from_end", "wrong"), [(True, 5), (True, -6), (False, 5), (False, -1)])
def test_an_update_beside_a_look_up_waits_for_all_its_indices(fetched: bool, from_end: bool, wrong: int) -> None:
    """The update comes first in the graph, and indices are checked early, with the look-up's bounds, to allow it. If the value
    is also fetched, it is copied into its variable at the end."""
    graph = Graph()
    ids = graph.placeholder("ids", (4,), "i64")
    v = graph.variable("v", floats(1000))
    before = graph.variables["v"].value.copy()
    new = v * 2.0
    y = ops.gather(graph.constant(floats(5, 7)), ids, from_end=from_end)
    results = {"y": y.sum(), **({"new": new} if fetched else {})}
    graph.signature("train", {"ids": ids}, results, updates={v: new})
    session = linnet.Session(graph, "train")
    for at in range(4):
        given = np.array([0, 1, 4, 3])
        given[at] = wrong
        with pytest.raises(linnet.Error, match="index"):
            session.run({"ids": given})
        np.testing.assert_array_equal(session.variables["v"], before)
    session.run({"ids": np.array([0, 1, 4, 3])})
    np.testing.assert_array_equal(session.variables["v"], before * 2)


@pytest.mark.parametrize("n", [1, 16, 100, 5000])
def test_a_map_that_loads_behind_a_store_keeps_its_operands(n: int) -> None:
    """y = a, then z = -b, by a program that loads b after y is stored: y must not share memory with b."""
    graph = Graph()
    main = graph.function("main")
    x, w = main.placeholder("x", "f32", (n,)), main.placeholder("w", "f32", (n,))
    a, b = ops.softmax(x, axis=0), ops.softmax(w, axis=0)  # b is a value of the arena at its last use; a is used later
    f32 = DTYPE_IDS["f32"]
    program: tuple[int, ...] = ()
    for code, first, second in (
        ("load", 0, 0), ("store", 0, 0), ("load", 1, 0), ("neg", 2, 0), ("store", 3, 1),
    ):  # fmt: skip
        program += (OPCODES[code][0], f32, first, second, 0)
    y, z = main.tensor("y", "f32", (n,)), main.tensor("z", "f32", (n,))
    node = Node("map", [a, b], [y, z], {"program": program, "dtypes": (f32, f32)})
    y.node = z.node = node
    main.nodes.append(node)
    main.outputs = [ops.softmax(y, axis=0, name="sy"), ops.softmax(z, axis=0, name="sz"), ops.softmax(a, axis=0)]
    graph.signature("infer", main)
    feeds = {"x": floats(n), "w": floats(n)}
    fast, plain = (linnet.Session(graph, reference=reference).run(feeds) for reference in (False, True))
    for name in plain:
        np.testing.assert_allclose(fast[name], plain[name], rtol=1e-6)


def test_shapes_that_do_not_fit_are_not_broadcast() -> None:
    for left, right in (((4,), (3,)), ((3,), (4,)), ((2, 3), (2,)), ((5, 1, 2), (4, 3)), ((1, 2), (3,))):
        graph = Graph()
        a, b = graph.placeholder("a", left, "f32"), graph.placeholder("b", right, "f32")
        with pytest.raises(linnet.Error, match="broadcast"):
            ops.add(a, b)
        with pytest.raises(linnet.Error, match="broadcast"):
            ops.copy([graph.constant(np.zeros(left, np.float32))], kind="expand", shape=list(right) or [1])


def test_a_part_that_is_kept_to_the_end_does_not_keep_the_whole() -> None:
    """The new value of a variable whose old value is still read is stored at the end of the run. It has a buffer of its own, so
    the large tensor of which it is a part is freed after its reader."""
    n = 1 << 16
    graph = Graph()
    x = graph.placeholder("x", (1, n))
    state = graph.variable("state", np.ones((1, 16), np.float32))
    new = state + x[:, :16].sum()
    both = ops.concat([new, ops.softmax(x, axis=1)], 1)
    factor = (both.sum() * state.tensor(x)).sum()
    one = ops.softmax(x * factor, axis=1)
    other = ops.softmax(x * one.sum(), axis=1)
    graph.signature("train", {"x": x}, {"y": (one * other).sum()}, updates={state: new})
    session = linnet.Session(graph, "train", threads=1)
    assert session.memory["activations"] < 2.5 * 4 * n
    given = np.zeros((1, n), np.float32)
    given[0, :16] = 0.25
    for count in (1, 5, 9):
        assert (session.variables["state"] == count).all()
        session.run({"x": given})


def _ops_of(y: Any, graph: Graph) -> tuple[list[str], int]:
    """The steps that are left of a constant value, and the bytes that the plan keeps of it."""
    x = graph.placeholder("x", (1,))
    graph.signature("infer", {"x": x}, {"y": y + x})
    session = linnet.Session(graph, threads=1)
    return [step.op for step in session.steps], session.memory["constants"]


@pytest.mark.parametrize(("inner", "folded"), [(4, True), (16, True), (32, False), (64, False), (256, True)])
def test_products_of_constants_are_computed_once(inner: int, folded: bool) -> None:
    """The result has 100 KB. If it and its operands have 128 KB at most, planning computes it with a slow kernel. If they have
    more, planning computes it with a fast kernel, unless all such results together would be larger than the file."""
    graph = Graph()
    y = ops.matmul(graph.constant(floats(160, inner)), graph.constant(floats(inner, 160)))
    steps, kept = _ops_of(y, graph)
    assert steps == (["map"] if folded else ["matmul"]) and (kept >= 160 * 160 * 4) == folded


def test_the_plan_names_steps_of_constants(tmp_path: Any) -> None:
    """The product of 100 KB is larger than the file, so each run computes it."""
    graph = Graph()
    x = graph.placeholder("x", (1,))
    y = ops.matmul(graph.constant(floats(160, 32)), graph.constant(floats(32, 160)))
    graph.signature("infer", {"x": x}, {"y": y + x})
    path = tmp_path / "net.lnt"
    graph.save(path)
    report = json.loads(linnet_command("plan", path, "--json").stdout)
    steps = [step.name for step in linnet.Session(graph).steps]
    assert report["recomputed"] == steps and len(steps) == 1
    assert steps[0] in " ".join(linnet_command("plan", path).stdout.split())


@pytest.mark.parametrize(
    ("rows", "columns", "folded"), [(1, 4 << 20, True), (1, (4 << 20) + 4, False), ((1 << 20) + 1, 4, True),
                                    ((1 << 20) + 1, 5, False)],
)  # fmt: skip
def test_a_constant_is_not_expanded_into_much_more_memory(rows: int, columns: int, folded: bool) -> None:
    """A result of more than 16 MB is kept only if it has at most 4 times the bytes of its operands."""
    graph = Graph()
    wide = ops.broadcast_to(graph.constant(np.ones((rows, 1), np.float32)), [rows, columns])
    steps, kept = _ops_of(wide, graph)
    assert (steps == ["map"]) == folded and (kept >= 4 * rows * columns) == folded, (steps, kept)


def test_a_half_that_several_steps_read_is_one_value() -> None:
    """The op runs in f32. If a map alone read its result, the map would take it in f32; here both readers see 16 bits."""
    graph = Graph()
    x = graph.placeholder("x", (2, 8, 6, 6), "f16")
    parameters = [graph.constant((RNG.random(8) + 0.5).astype(np.float16)) for _ in range(4)]
    y = ops.batch_norm(x, *parameters)
    outputs = {"map": y * 3.0, "copy": ops.transpose(y, (0, 2, 3, 1))}
    graph.signature("infer", {"x": x}, outputs)
    given = floats(2, 8, 6, 6).astype(np.float16)
    for reference in (False, True):
        session = linnet.Session(graph, reference=reference)
        assert reference or "cast" in [step.op for step in session.steps]
        found = session.run({"x": given})
        assert found["map"].dtype == found["copy"].dtype == np.float16
        np.testing.assert_array_equal(found["map"], np.transpose(found["copy"], (0, 3, 1, 2)) * np.float16(3))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves_inside_a_program_are_kept_in_f32_unless_memory_is_bounded(dtype: str) -> None:
    first, second = floats(24, 24, 3, 3) * 0.1, floats(24, 24, 1, 1) * 0.2
    graphs = {}
    for kind in (dtype, "f32"):
        graph = graphs[kind] = Graph()
        x = graph.placeholder("x", (1, 24, 20, 20), "f32")
        y = ops.relu(ops.conv(ops.cast(x, dtype=kind), ops.cast(graph.constant(first), dtype=kind), pads=[1, 1, 1, 1]))
        both = ops.concat([y, ops.transpose(y, (0, 1, 3, 2))], axis=1)
        y = ops.conv(ops.add(*ops.split(both, 2, axis=1)), ops.cast(graph.constant(second), dtype=kind))
        graph.signature("infer", {"x": x}, {"y": ops.cast(y, dtype="f32")})
    given = {"x": floats(1, 24, 20, 20)}
    exact = linnet.Session(graphs["f32"]).run(given)["y"]
    free, bounded = linnet.Session(graphs[dtype]), linnet.Session(graphs[dtype], max_bytes=1 << 24)
    wide = platform.machine() in ("x86_64", "AMD64")  # ARM keeps 16 bits: it converts them for nothing
    assert (free.memory["activations"] > 1.5 * bounded.memory["activations"]) == wide
    errors = [float(np.abs(s.run(given)["y"] - exact).max() / np.ptp(exact)) for s in (free, bounded)]
    assert 0 < errors[0] <= errors[1] < (2e-2 if dtype == "bf16" else 2e-3), errors
