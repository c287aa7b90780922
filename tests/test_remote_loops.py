"""Loops and branches that run whole on a host: its bits are those of one process, and a run is one message, however often the
loop repeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from tests import zoo
from tests.remote_counts import Counts, counted
from tests.remote_host import host
from tests.test_remote import on, same

SIDE = 32
Feeds = dict[str, np.ndarray]


def some(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def square(graph: Graph, seed: int) -> Any:
    """A constant of 4 KB, a segment of its own in the piece."""
    return graph.constant(some(SIDE, SIDE, seed=seed) / 8, f"w{seed}")


def until_large(graph: Graph, x: Any) -> Any:
    """The values decide how often it repeats."""
    return linnet.while_loop(lambda y: (y * y).sum() < 1e4, lambda y: y @ square(graph, 1) + y * 1.25, x)


def counted_loop(graph: Graph, x: Any) -> Any:
    """Exactly 20 iterations: one result of the last one, and one row of each."""

    def step(state: Any, _: Any) -> Any:
        state = ops.tanh(state @ square(graph, 2))
        return state, state.sum(-1)

    return linnet.scan(step, x, length=20)[1]


def nested(graph: Graph, x: Any) -> Any:
    inner = lambda y: linnet.while_loop(lambda z: z.max() < 4.0, lambda z: z * 1.5 + 0.125, y)  # noqa: E731
    return linnet.while_loop(
        lambda s: s[0] < 12, lambda s: (s[0] + 1, ops.tanh(inner(s[1]) @ square(graph, 3))), (0, x)
    )[1]


def branch_inside(graph: Graph, x: Any) -> Any:
    """Both branches capture something, and each has a weight of its own."""

    def step(state: Any) -> Any:
        i, y = state
        large = (y * y).sum() > 60.0
        return i + 1, linnet.cond(large, lambda: y @ square(graph, 4) + x, lambda: ops.relu(y @ square(graph, 5)) * 3.0)

    return linnet.while_loop(lambda state: state[0] < 15, step, (0, x), maximum=15)[1]


def branches(graph: Graph, x: Any) -> Any:
    """A branch outside of loops, with a loop in it and another branch after it."""
    y = linnet.cond(x.sum() > 0.0, lambda: until_large(graph, x) @ square(graph, 7), lambda: ops.relu(x) + 1.0)
    return linnet.cond(y.max() > 1.0, lambda: (y * 0.5, x), lambda: (x @ square(graph, 8), y))[0]


def unread(graph: Graph, x: Any) -> Any:
    """Nothing reads some of what the loops carry and stack, and one carried value never changes."""

    def step(state: Any, _: Any) -> Any:
        y, kept, other = state
        return (ops.tanh(y @ kept), kept, other * 2.0 + y), (y.sum(-1), y.max(-1))

    (y, _, _), (_, rows) = linnet.scan(step, (x, square(graph, 6), x * 0.5), length=12)
    return y + rows.sum()


CASES: dict[str, Callable[[Graph, Any], Any]] = {
    case.__name__: case for case in (until_large, counted_loop, nested, branch_inside, branches, unread)
}


def graph_of(case: Callable[[Graph, Any], Any], rows: int = 4) -> tuple[Graph, Feeds]:
    graph = linnet.Graph()
    x = graph.placeholder("x", (rows, SIDE))
    with graph.scope("loop"):
        y = case(graph, x)
    graph.signature("infer", {"x": x}, {"y": y * 0.5})
    return graph, {"x": some(rows, SIDE, seed=9) / 4}


def loops(session: linnet.Session) -> list[str]:
    """The loops and branches that this machine runs."""
    return [step.name for step in session.steps if step.kernel in ("loop", "branch")]


@pytest.mark.parametrize("name", CASES)
def test_a_loop_on_one_host_is_one_message(name: str) -> None:
    graph, feeds = graph_of(CASES[name])
    here = linnet.Session(graph)
    assert loops(here) or name == "branches"  # which a session without hosts plans in the run
    with host() as there, counted(there.address) as way:
        session = linnet.Session(graph, devices=[way.name], placement={"*": way.name})
        assert not loops(session) and on(session, "cpu") == 0
        for scale in (1.0, 0.5, -2.0):
            fed = {"x": feeds["x"] * np.float32(scale)}
            way.clear()
            assert same(session.run(fed), here.run(fed))
            assert way.by["HELLO"].messages == {"SUBMIT": 1, "ANSWER": 1}


@pytest.mark.parametrize("name", CASES)
def test_hosts_read_bodies_under_sanitizers(name: str) -> None:
    graph, feeds = graph_of(CASES[name])
    with host(kind="address") as there:
        assert same(linnet.Session(graph, **there.all).run(feeds), linnet.Session(graph).run(feeds))


def test_each_iteration_is_one_exchange_if_the_loop_spans_machines() -> None:
    """One node of the body is on the host, and the others are here."""

    def body(state: Any) -> Any:
        i, y = state
        return i + 1, ops.tanh(y @ square(graph, 1)) + x * 0.25

    graph = linnet.Graph()
    x = graph.placeholder("x", (4, SIDE))
    _, y = linnet.while_loop(lambda state: state[0] < 7, body, (0, x), maximum=9)
    graph.signature("infer", {"x": x}, {"y": y})
    feeds = {"x": some(4, SIDE)}
    with host() as there, counted(there.address) as way:
        session = linnet.Session(graph, devices=[way.name], placement={"matmul*": way.name, "*": "cpu"})
        assert loops(session)
        way.clear()
        assert same(session.run(feeds), linnet.Session(graph).run(feeds))
        assert way.by["HELLO"].messages == {"SUBMIT": 7, "ANSWER": 7}


def weights_sent(way: Counts, graph: Graph, feeds: Feeds, expected: Any) -> int:
    way.clear()
    assert same(linnet.Session(graph, devices=[way.name], placement={"*": way.name}).run(feeds), expected)
    return way.by["HELLO"].sizes["CONSTANT"] + way.by["HELLO"].sizes["PIECE"]


def test_constants_in_a_body_travel_once() -> None:
    graph, feeds = graph_of(CASES["nested"])
    expected = linnet.Session(graph).run(feeds)
    with host() as there, counted(there.address) as way:
        keeps = linnet.Session(graph, devices=[way.name], placement={"*": way.name})  # so the host keeps its piece
        assert same(keeps.run(feeds), expected)
        assert weights_sent(way, graph, feeds, expected) == 0
    with host() as there, counted(there.address) as way:
        assert weights_sent(way, graph, feeds, expected) >= 4 * SIDE * SIDE


def test_a_loop_goes_where_it_costs_less() -> None:
    """The host has faster kernels than this process may use, and the loop repeats often."""
    graph, _ = graph_of(lambda g, x: linnet.while_loop(
        lambda s: s[0] < 400, lambda s: (s[0] + 1, ops.tanh(s[1] @ square(g, 1))), (0, x), maximum=400)[1], rows=256)  # fmt: skip
    lowest = linnet.isa_names()[0]
    with host("127.0.0.1:0", "--threads", "1") as there:
        moved = linnet.Session(graph, threads=1, isa_max=lowest, devices=[there.name])
        (step,) = [step for step in moved.steps if step.op == "while"]
        assert (step.device, step.placed) == (there.name, "chosen")
        assert 0 < step.modelled_ms < linnet.Session(graph, threads=1, isa_max=lowest).plan_info["modelled_ms"]
        few, _ = graph_of(CASES["until_large"])
        stayed = linnet.Session(few, threads=1, devices=[there.name])
        assert loops(stayed) and {step.placed for step in stayed.steps} <= {"cost"}


def halve(x: np.ndarray) -> np.ndarray:
    return x * np.float32(0.5)


def test_a_loop_stays_if_only_this_program_can_run_it() -> None:
    """A loop with a user op, beside one without."""
    half = linnet.UserOp("com.example.half", halve, lambda x: (x.dtype, x.shape), inputs=1)
    graph = linnet.Graph()
    x = graph.placeholder("x", (4, SIDE))
    y = linnet.while_loop(lambda y: (y * y).sum() > 1.0, lambda y: half(y) @ square(graph, 1), x)
    graph.signature(
        "infer", {"x": x}, {"y": linnet.while_loop(lambda y: y.max() < 10.0, lambda y: y * 1.5, ops.relu(y) + 1.0)}
    )
    feeds = {"x": some(4, SIDE)}
    with host() as there:
        session = linnet.Session(graph, **there.all)
        assert len(loops(session)) == 1 and any("while" in step.fused for step in session.steps)
        assert same(session.run(feeds), linnet.Session(graph).run(feeds))


def test_a_hint_for_the_loop_alone_decides() -> None:
    graph, feeds = graph_of(CASES["until_large"])
    expected = linnet.Session(graph).run(feeds)
    with host() as there:
        for placement, whole in (({"*while*": there.name}, True), ({"*while*": "cpu", "*": there.name}, False)):
            session = linnet.Session(graph, devices=[there.name], placement=placement)
            assert bool(loops(session)) != whole
            assert same(session.run(feeds), expected)


def test_a_loop_stays_if_the_run_decides_how_much_it_returns() -> None:
    grows = linnet.Graph()
    x = grows.placeholder("x", (4, SIDE))
    n = grows.placeholder("n", (), "i64")
    grows.signature("infer", {"x": x, "n": n}, {"y": linnet.scan(lambda y, _: (y * 0.5, y), x, length=n)[1]})
    with host() as there:
        session = linnet.Session(grows, **there.all)
        assert loops(session)
        for rows in (3, 20):
            feeds = {"x": some(4, SIDE), "n": np.int64(rows)}
            assert same(session.run(feeds), linnet.Session(grows).run(feeds))


def test_scopes_place_a_loop_with_its_body() -> None:
    def build(inner: str | None) -> Graph:
        graph = linnet.Graph()
        with graph.device("/job:worker/task:0"):
            x = graph.placeholder("x", (4, SIDE))

            def body(state: Any) -> Any:
                y = state[1] @ square(graph, 1)
                with graph.device(inner or "/job:worker/task:0"):
                    y = ops.tanh(y)
                return state[0] + 1, y

            _, y = linnet.while_loop(lambda state: state[0] < 20, body, (0, x), maximum=30)
            graph.signature("infer", {"x": x}, {"y": y})
        return graph

    feeds = {"x": some(4, SIDE)}
    with host() as one, host() as two:
        cluster = {"worker": [one.name, two.name]}
        whole = linnet.Session(build(None), cluster=cluster)
        assert not loops(whole)
        assert {step.placed for step in whole.steps if step.op == "while"} == {"scope"}
        cut = linnet.Session(build("/job:worker/task:1"), cluster=cluster)
        assert loops(cut)
        expected = linnet.Session(build(None)).run(feeds)
        assert same(whole.run(feeds), expected) and same(cut.run(feeds), expected)


@pytest.mark.parametrize("name", ["silero_vad", "nakdimon"])
def test_converted_models_with_loops(name: str) -> None:
    graph = linnet.from_onnx(zoo.at_hand(lambda: zoo.fetch(name)), input_shapes=zoo.input_shapes(name))
    feeds = zoo.inputs(name)
    here = linnet.Session(graph, threads=1)
    with host("127.0.0.1:0", "--threads", "1") as there:
        session = linnet.Session(graph, threads=1, **there.all)
        # The loops of nakdimon stack rows until a computed condition ends them, so a run decides their size.
        assert bool(loops(session)) == (name == "nakdimon")
        assert same(session.run(feeds), here.run(feeds))


def test_training_through_a_loop() -> None:
    """The loop and the loop of its gradient both run on the host; the weights are variables."""
    graph = linnet.Graph(seed=1)
    x, t = graph.placeholder("x", (4, SIDE)), graph.placeholder("t", (4, SIDE))
    w = graph.variable("w", some(SIDE, SIDE) / 8)
    y, _ = linnet.scan(lambda y, _: (ops.tanh(y @ w), None), x, length=12)
    loss = ((y - t) * (y - t)).mean()
    graph.signature("train", {"x": x, "t": t}, {"loss": loss}, updates=linnet.Adam(0.01).minimize(loss))
    batch = {"x": some(4, SIDE, seed=2), "t": some(4, SIDE, seed=3)}
    here = linnet.Session(graph, "train")
    with host() as there, counted(there.address) as way:
        session = linnet.Session(graph, "train", devices=[way.name], placement={"*": way.name})
        assert not loops(session)
        for _ in range(5):
            way.clear()
            assert same(session.run(batch), here.run(batch))
            assert way.by["HELLO"].messages["SUBMIT"] <= 2  # as a step without loops
        assert same([session.variables["w"]], [here.variables["w"]])
