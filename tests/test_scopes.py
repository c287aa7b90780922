"""Scopes place nodes and variables: nesting, functions of a node, colocation, gradients and updates, passes and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.ir.scopes import placement_of
from linnet.passes import trainable


def _graph() -> tuple[linnet.Graph, linnet.Tensor]:
    graph = linnet.Graph(seed=1)
    return graph, graph.placeholder("x", (4, 8))


def test_scopes_nest_and_merge_by_part() -> None:
    graph, x = _graph()
    found = [placement_of(linnet.ops.exp(x))]
    with graph.device("/job:worker"):
        with graph.device("/task:1/device:opencl:0"):
            found.append(placement_of(linnet.ops.exp(x)))
            with graph.device(linnet.DeviceSpec(kind="cpu", index=2)):
                found.append(placement_of(linnet.ops.exp(x)))
            with graph.device(None), graph.device("/device:cpu"):
                found.append(placement_of(linnet.ops.exp(x)))
        found.append(placement_of(graph.variable("w", np.ones(8, "f4"))))
    found.append(placement_of(linnet.ops.exp(x)))
    assert found == [
        "", "/job:worker/task:1/device:opencl:0", "/job:worker/task:1/device:cpu:2", "/device:cpu:*", "/job:worker", "",
    ]  # fmt: skip
    with pytest.raises(linnet.UsageError, match="invalid part 'tsk:1'"), graph.device("/tsk:1"):
        pass
    with pytest.raises(linnet.UsageError, match="neither a device string"), graph.device(7):  # type: ignore[arg-type]
        pass
    assert placement_of(linnet.ops.exp(x)) == ""


def test_a_function_of_a_node_places_it() -> None:
    graph, x = _graph()
    seen = []

    def where(node: linnet.ir.function.Node) -> str | linnet.DeviceSpec | None:
        seen.append((node.op, node.placement))
        if node.op == "matmul":
            return linnet.DeviceSpec(task=3)
        return "/job:ps/task:0" if node.op == "variable" else None

    with graph.device("/job:worker"), graph.device(where):
        w = graph.variable("w", np.ones((8, 3), "f4"))
        y = x @ w
        z = linnet.ops.exp(y)
    assert [placement_of(t) for t in (w, y, z)] == ["/job:ps/task:0", "/job:worker/task:3", "/job:worker"]
    assert seen == [("variable", "/job:worker"), ("matmul", "/job:worker"), ("map", "/job:worker")]


def test_colocation_takes_the_placement_of_one_thing_and_nothing_else() -> None:
    graph, x = _graph()
    with graph.device("/job:ps/task:1"):
        w = graph.variable("w", np.ones((8, 3), "f4"))
    with graph.device("/job:worker/task:0/device:cpu:0"):
        y = x @ w
        with graph.colocate_with(w):
            beside = linnet.ops.exp(y)
        with graph.colocate_with(x):
            anywhere = linnet.ops.exp(y)
    with graph.colocate_with(y):
        with_y = linnet.ops.exp(x)
    assert placement_of(beside) == "/job:ps/task:1"
    assert placement_of(anywhere) == ""
    assert placement_of(with_y) == "/job:worker/task:0/device:cpu:0"
    with pytest.raises(linnet.UsageError, match="belongs to another graph"), linnet.Graph().colocate_with(w):
        pass


def _trained() -> tuple[linnet.Graph, linnet.Tensor]:
    graph, x = _graph()
    with graph.device("/job:worker/task:0"):
        hidden = linnet.nn.dense(x, 16, activation="relu", name="first")
    with graph.device("/job:worker/task:1"):
        loss = (linnet.nn.dense(hidden, 4, name="second") ** 2).mean()
    return graph, loss


def _places(graph: linnet.Graph, signature: str) -> dict[str, set[str]]:
    """The placements of the nodes that make values of the first layer's sizes, and of updates, by variable."""
    found: dict[str, set[str]] = {}
    for node in graph.signatures[signature].function.nodes:
        first = node.inputs[0]
        if node.op == "assign" and first is not None and first.variable is not None:
            found.setdefault(first.variable.name, set()).add(node.placement)
            new = node.inputs[1]
            assert new is not None and new.node is not None
            found[first.variable.name].add(new.node.placement)
    return found


def test_gradients_follow_their_nodes_and_updates_their_variables() -> None:
    graph, loss = _trained()
    graph.signature("train", {"x": graph.main.inputs[0]}, {"loss": loss}, updates=linnet.Adam(0.01).minimize(loss))
    first, second = "/job:worker/task:0", "/job:worker/task:1"
    for name, variable in graph.variables.items():
        assert variable.placement == (
            first if name.startswith("first") else second if name.startswith("second") else ""
        )
    places = _places(graph, "train")
    assert len(places) == 13  # four variables with two slots each, and the count of steps
    for name, found in places.items():
        assert found == {graph.variables[name].placement}, name
    products = [n.placement for n in graph.signatures["train"].function.nodes if n.op == "matmul"]
    # the gradients of the second layer's weights and input, then of the first layer's weights
    assert products == [first, second, second, second, first]


def test_an_open_scope_says_otherwise_for_gradients() -> None:
    graph, loss = _trained()
    with graph.device("/task:5"):
        (slope,) = linnet.gradients(loss, [graph.variables["first/weight"]])
    assert placement_of(slope) == "/job:worker/task:5"
    with graph.device(None):
        (slope,) = linnet.gradients(loss, [graph.variables["first/weight"]])
    assert placement_of(slope) == ""


def test_gradients_inside_loops_and_calls_are_placed_with_their_nodes() -> None:
    graph, x = _graph()
    w = graph.variable("w", np.ones((8, 8), "f4"))

    def step(state: linnet.Tensor, _: linnet.Tensor) -> tuple[linnet.Tensor, linnet.Tensor]:
        with graph.device("/job:worker/task:2"):
            return linnet.ops.tanh(state @ w), state

    last, _ = linnet.scan(step, x, graph.constant(np.zeros((3, 1), "f4")))
    graph.signature("train", {"x": x}, {}, updates=linnet.SGD(0.1).minimize(last.sum()))
    products = [n for f in graph.functions for n in f.nodes if n.op == "matmul"]
    assert len(products) >= 3
    assert {n.placement for n in products} == {"/job:worker/task:2"}


def test_passes_keep_placements_apart() -> None:
    graph, x = _graph()
    with graph.device("/task:0"):
        a = linnet.ops.exp(x * 2 + 1)
    with graph.device("/task:1"):
        b = linnet.ops.tanh(a * 3)
    c = linnet.ops.sigmoid(b + 1)  # anywhere: it may join its neighbour
    with graph.device("/task:0"):
        again = linnet.ops.exp(x * 2 + 1)  # the same as a
    with graph.device("/task:1"):
        other = linnet.ops.exp(x * 2 + 1)  # the same value in another place
    graph.signature("infer", {"x": x}, {"c": c, "again": again + 1, "other": other})
    nodes = graph.signatures["infer"].function.nodes
    assert sorted(n.placement for n in nodes) == ["", "/task:0", "/task:1", "/task:1"]
    feed = {"x": np.linspace(-1, 1, 32, dtype="f4").reshape(4, 8)}
    got = linnet.Session(graph).run(feed)
    first = np.exp(feed["x"] * 2 + 1)
    np.testing.assert_allclose(got["c"], 1 / (1 + np.exp(-np.tanh(first * 3) - 1)), rtol=1e-5)
    np.testing.assert_allclose(got["other"], first, rtol=1e-5)


def test_files_keep_placements(tmp_path: Path) -> None:
    graph, loss = _trained()
    graph.signature("infer", {"x": graph.main.inputs[0]}, {"loss": loss})
    path = tmp_path / "placed.lnt"
    graph.save(path)
    loaded = linnet.Graph.load(path)
    nodes = [[n.placement for n in g.signatures["infer"].function.nodes] for g in (graph, loaded, loaded.copy())]
    assert nodes[0] == nodes[1] == nodes[2]
    assert set(nodes[0]) == {"/job:worker/task:0", "/job:worker/task:1"}
    assert {n: v.placement for n, v in loaded.variables.items()} == {n: v.placement for n, v in graph.variables.items()}
    assert loaded.to_bytes() == graph.to_bytes()


def test_rewritten_graphs_keep_placements() -> None:
    graph, x = _graph()
    for i in range(2):
        with graph.device(f"/job:worker/task:{i}"):
            x = linnet.nn.relu(x @ graph.constant(np.random.default_rng(i).standard_normal((8, 8)).astype("f4")) + 0.5)
    graph.signature("infer", {"x": graph.main.inputs[0]}, {"y": x})
    data = [{"x": np.random.default_rng(i).standard_normal((4, 8)).astype("f4")} for i in range(4)]
    quantized = linnet.quantize(graph, data)
    for made in (graph.freeze(), quantized, trainable(quantized.copy())):
        products = [n.placement for n in made.signatures["infer"].function.nodes if n.op == "matmul"]
        assert products == ["/job:worker/task:0", "/job:worker/task:1"]
