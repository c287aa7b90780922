"""Placements over machines: costs come from plans, the first placements and the search are compared with the best of all
placements on mock clusters, and a model that fits on no host runs on two."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import linnet
from linnet.placing.candidates import alone, candidates, ranges
from linnet.placing.costs import Costs, Machine, Node
from linnet.placing.policy import learnt
from linnet.placing.schedule import Budget, fits, schedule
from linnet.placing.search import local
from tests.command import run_here
from tests.remote_host import host
from tests.test_remote import same, small
from tests.test_remote_loops import CASES, SIDE, graph_of, square


def mock(seed: int, nodes: int = 8, machines: int = 3) -> Costs:
    """A random graph: each node reads one or two values of those before it, and machines differ in speed and distance."""
    rng = np.random.default_rng(seed)
    made = [Machine("cpu")]
    made += [Machine(f"m{i}", float(rng.uniform(5e3, 5e4)), float(rng.uniform(20, 2000))) for i in range(1, machines)]
    speeds = [1.0, *rng.uniform(0.2, 2.0, machines - 1)]
    found = []
    for i in range(nodes):
        reads = {int(rng.integers(i + 1)), i} if rng.random() < 0.5 else {i}
        ns = float(rng.uniform(1e4, 1e6))
        found.append(Node(f"n{i}", "matmul", tuple(reads), (i + 1,), {100 + i: 1000}, [ns / speed for speed in speeds]))
    sizes = {i: int(rng.uniform(1e3, 1e5)) for i in range(nodes + 1)}
    return Costs(made, found, sizes)


def optimum(costs: Costs) -> float:
    every = itertools.product(range(len(costs.machines)), repeat=len(costs.nodes))
    return min(schedule(costs, made).ns for made in every)


@pytest.mark.parametrize("seed", range(6))
def test_search_finds_what_is_nearly_the_best(seed: int) -> None:
    costs = mock(seed)
    found = {tuple(made): schedule(costs, made).ns for made in candidates(costs)}
    singles = min(schedule(costs, alone(costs, m)).ns for m in range(3))
    first = min(found.values())
    assert first <= singles
    local(costs, found, Budget(steps=3000), np.random.default_rng(seed))
    assert optimum(costs) <= min(found.values()) <= 1.05 * optimum(costs)


def test_a_policy_learns_where_groups_belong() -> None:
    """Far machines that are much faster for half of the nodes: drawing at random does not find it, learning does."""
    nodes = [Node(f"n{i}", "matmul", (i,), (i + 1,), {}, [1e6, 1e5] if i < 12 else [1e5, 1e6]) for i in range(24)]
    costs = Costs([Machine("cpu"), Machine("far", 1e3, 1e4)], nodes, dict.fromkeys(range(25), 1000))
    start = schedule(costs, alone(costs, 0)).ns
    found = {tuple(alone(costs, 0)): start}
    learnt(costs, found, Budget(steps=150), np.random.default_rng(0))
    best = schedule(costs, [1] * 12 + [0] * 12).ns
    assert min(found.values()) <= 1.4 * best < 0.5 * start  # a group may contain nodes of both kinds


@pytest.mark.parametrize("seed", range(4))
def test_cuts_into_ranges_are_the_best_ones(seed: int) -> None:
    """Of a chain, where the dynamic program's times are those of the schedule."""
    rng = np.random.default_rng(seed)
    costs = mock(seed, nodes=9)
    for i, node in enumerate(costs.nodes):
        node.reads = (i,)
    every = []
    for order in itertools.permutations(range(3)):
        for a, b in itertools.combinations_with_replacement(range(10), 2):
            made = [order[0]] * a + [order[1]] * (b - a) + [order[2]] * (9 - b)
            every.append(schedule(costs, made).ns)
    made = ranges(costs)
    assert made is not None and schedule(costs, made).ns == pytest.approx(min(every))
    costs.machines[1:] = [Machine(m.name, m.latency_ns, m.rate, 3500) for m in costs.machines[1:]]
    costs.machines[0] = Machine("cpu", most_bytes=3500)
    costs.sizes = {value: int(rng.integers(1, 100)) for value in costs.sizes}
    tight = ranges(costs)
    assert tight is not None and fits(costs, tight) and max(tight.count(m) for m in range(3)) <= 3
    assert ranges(costs, 0.5) is None


def test_a_value_crosses_once_and_what_cannot_run_stays() -> None:
    nodes = [
        Node("a", "matmul", (0,), (1,), {}, [100.0, 100.0]),
        Node("b", "matmul", (1,), (2,), {}, [100.0, 100.0]),
        Node("c", "matmul", (1,), (3,), {}, [100.0, 100.0]),
        Node("d", "if", (2, 3), (4,), {}, [100.0, math.inf]),
    ]
    costs = Costs([Machine("cpu"), Machine("far", 10.0, 1.0)], nodes, dict.fromkeys(range(5), 8))
    made = schedule(costs, [0, 1, 1, 0])
    assert made.traffic == [24, 24] and made.crossing == 24 and made.busy == [200.0, 200.0]
    assert made.ns == 100 + 8000 + 10 + 200 + 8000 + 8000 + 10 - 100 + 100 - 100 + 100 - 200 + 100 + 100
    assert math.isinf(schedule(costs, [0, 0, 0, 1]).ns) and alone(costs, 1) == [1, 1, 1, 0]


def test_models_that_fit_nowhere_run_on_two(tmp_path: Path) -> None:
    graph, feeds = small(512), {"x": np.ones((8, 512), np.float32)}  # 1 MB for each of the two layers
    options = linnet.SessionOptions(threads=1, max_bytes=600_000)
    lent = ("--max-bytes", "2000kB", "--folder", str(tmp_path))
    with host("127.0.0.1:0", *lent) as one, host("127.0.0.1:0", *lent) as two:
        with pytest.raises(linnet.Error):
            linnet.place(graph, [one.name], options=options)
        found = linnet.place(graph, [one.name, two.name], options=options)
        assert [share.nodes > 0 for share in found.machines[1:]] == [True, True]
        assert all(math.isinf(share.alone_ms) for share in found.machines)
        session = linnet.Session(graph, threads=1, devices=[one.name, two.name], placement=found.places)
        assert same(session.run(feeds), linnet.Session(graph, threads=1).run(feeds))


def test_a_cut_that_does_not_pay_is_not_made(tmp_path: Path) -> None:
    small().save(tmp_path / "m.lnt")
    with host() as one, host() as two:
        over = f"{one.address},{two.address}"
        done = run_here("plan", str(tmp_path / "m.lnt"), "--over", over, "--picture", str(tmp_path / "lanes.svg"))
        assert done.returncode == 0 and "best: this machine alone; a cut costs more than it gains" in done.stdout
        assert one.name in done.stdout and (tmp_path / "lanes.svg").read_text().startswith("<svg")
        done = run_here(
            "place",
            str(tmp_path / "m.lnt"),
            "--over",
            over,
            "--search",
            "0.3",
            "--json",
            "-o",
            str(tmp_path / "place.json"),
        )
        assert done.returncode == 0, done.stderr
        report, places = json.loads(done.stdout), json.loads((tmp_path / "place.json").read_text())
        assert report["measured_ms"] > 0 and report["places"] == places and len(report["machines"]) == 3
        done = run_here(
            "plan", str(tmp_path / "m.lnt"), "--device", one.name, "--device", two.name, "--placement",
            str(tmp_path / "place.json"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        done = run_here("place", str(tmp_path / "m.lnt"))
        assert done.returncode != 0 and "--over is missing" in done.stderr


def test_what_a_given_placement_costs(tmp_path: Path) -> None:
    graph = small()
    graph.save(tmp_path / "m.lnt")
    with host() as there:
        nodes = [node.name for node in linnet.place(graph, [there.name]).costs.nodes]
        given = {nodes[0]: there.name, "*": "cpu"}
        found = linnet.place(graph, [there.name], options=linnet.SessionOptions(placement=given))
        assert found.places == {name: there.name if name == nodes[0] else "cpu" for name in nodes}
        assert "together" in found.why and [share.nodes for share in found.machines] == [len(nodes) - 1, 1]
        all_there = linnet.SessionOptions(placement={"*": there.name})
        assert linnet.place(graph, [there.name], options=all_there).why.endswith(f"given: {there.name} alone")
        (tmp_path / "given.json").write_text(json.dumps(given))
        done = run_here(
            "plan",
            str(tmp_path / "m.lnt"),
            "--over",
            there.address,
            "--placement",
            str(tmp_path / "given.json"),
            "--json",
        )
        assert done.returncode == 0 and json.loads(done.stdout)["places"] == found.places, done.stderr
        with pytest.raises(linnet.Error, match="a given placement is not searched for"):
            linnet.place(graph, [there.name], options=all_there, search=1)
        picture = ElementTree.fromstring(found.picture())
        texts = [element.text or "" for element in picture if element.tag.endswith("text")]
        assert there.name in texts and "this machine" in texts and any(text.endswith(" ms") for text in texts)


def test_a_slow_process_gives_its_work_to_a_host() -> None:
    graph, lowest = small(1024), linnet.isa_names()[0]
    feeds = {"x": np.random.default_rng(0).standard_normal((8, 1024)).astype(np.float32)}
    options = linnet.SessionOptions(threads=1, isa_max=lowest)
    with host("127.0.0.1:0", "--threads", "1") as there:
        found = linnet.place(graph, [there.name], options=options)
        assert set(found.places.values()) == {there.name} and found.ms < found.machines[0].alone_ms
        assert f"best: {there.name} alone" in found.why
        session = linnet.Session(graph, **options.fields | {"devices": [there.name], "placement": found.places})
        assert same(session.run(feeds), linnet.Session(graph, threads=1).run(feeds))


def test_a_host_predicts_by_its_own_rates(tmp_path: Path) -> None:
    lines = [f"machine {isa} f32 = 0.01" for isa in linnet.isa_names()]
    (tmp_path / "slow.tuning").write_text("linnet-tuning 1\n" + "\n".join(lines) + "\n")
    with host() as fast, host("127.0.0.1:0", "--tuning", str(tmp_path / "slow.tuning")) as slow:
        found = linnet.place(small(512), [fast.name, slow.name], options=linnet.SessionOptions(threads=1))
    assert found.machines[2].alone_ms > 20 * found.machines[1].alone_ms and found.machines[2].nodes == 0


def test_loops_and_branches_are_nodes() -> None:
    """Their time is that of all iterations, their weights are those of the bodies, and a host may get them."""
    graph, _ = graph_of(CASES["counted_loop"])
    once, _ = graph_of(lambda g, x: (x @ square(g, 2)).sum(-1))
    with host("127.0.0.1:0", "--threads", "1") as there:
        loop, single = (
            linnet.place(g, [there.name], options=linnet.SessionOptions(threads=1)).costs for g in (graph, once)
        )
        (node,) = [node for node in loop.nodes if node.op == "while"]
        assert node.ns[0] > 10 * max(node.ns[0] for node in single.nodes)
        assert math.isfinite(node.ns[1]) and max(node.weights.values()) == 4 * SIDE * SIDE
        branch, feeds = graph_of(CASES["branches"])
        found = linnet.place(branch, [there.name])
        assert [node.op for node in found.costs.nodes].count("if") == 2
        moved = {node.name: there.name if node.op == "if" else "cpu" for node in found.costs.nodes}
        session = linnet.Session(branch, devices=[there.name], placement=moved)
        assert {step.op for step in session.steps if step.device == there.name} == {"if", "transfer"}
        assert same(session.run(feeds), linnet.Session(branch).run(feeds))
