"""Updates of variables: written in place, reordered, recomputed or not, they give the same bits and see the values from before
the run; a failing run changes nothing. Random graphs over small whole numbers, where f32 is exact."""
# Dear: every allocation of a plan fails once.

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from linnet.ir.function import Tensor, Variable
from tests.capi import Allocator, Chain, Failure

SIDE = 6
OUT_OF_MEMORY = 401


class RandomStep:
    """A signature `train` whose updates read each other's variables, directly and through views, gathers and products."""

    def __init__(
        self, seed: int, looks_up: bool = False, side: int = SIDE, nodes: int = 25, segments: bool = True
    ) -> None:
        self.rng, self.side, self.segments = np.random.default_rng(seed), side, segments
        self.graph = Graph()
        self.x = self.graph.placeholder("x", (self.side, self.side))
        self.ids = self.graph.placeholder("ids", (self.side,), "i64")
        self.variables = [
            self.graph.variable(f"v{i}", self.rng.integers(-9, 10, (self.side, self.side)).astype(np.float32))
            for i in range(int(self.rng.integers(1, 6)))
        ]
        self.tensors: list[Tensor] = [self.x]
        for _ in range(int(self.rng.integers(3, nodes))):
            self.tensors.append(self.node())
        chosen = [v for v in self.variables if self.rng.random() < 0.8] or self.variables[:1]
        self.updates: dict[Variable, Tensor] = {v: self.update(v) for v in chosen}
        self.fetched = [self.pick() for _ in range(int(self.rng.integers(1, 3)))]
        outputs: dict[str, Tensor] = {f"y{i}": t for i, t in enumerate(self.fetched)}
        if self.rng.random() < 0.2:  # a new value that is also an output
            outputs["new"] = self.updates[chosen[0]]
        if looks_up:
            outputs["row"] = ops.gather(self.pick(), self.ids, axis=0)
        self.graph.signature("train", {"x": self.x, "ids": self.ids}, outputs, updates=self.updates)

    def pick(self) -> Tensor:
        if self.rng.random() < 0.3:
            return self.variables[int(self.rng.integers(len(self.variables)))].tensor(self.x)
        return self.tensors[-min(int(self.rng.geometric(0.4)), len(self.tensors))]

    def node(self) -> Tensor:
        a, b = self.pick(), self.pick()
        match int(self.rng.integers(13)):
            case 10:  # one step with a body that reads outer values
                carry, rows = linnet.scan(lambda c, row: (ops.clip(c @ b - row, -9, 9), ops.clip(c * row, -9, 9)), a, b)
                return carry if self.rng.random() < 0.5 else rows[int(self.rng.integers(self.side))]
            case 11:  # known only at run time: the rest is a later segment
                if not self.segments or self.rng.random() < 0.7:
                    return a
                return linnet.cond(self.x.sum() > 0, lambda: ops.clip(a + b, -9, 9), lambda: ops.clip(a - b, -9, 9))
            case 12:
                return ops.clip(a @ ops.transpose(b, [1, 0]), -9, 9)
            case 0 | 1:
                return ops.clip(a @ b, -9, 9)
            case 2 | 3:
                return ops.clip(a * b - 2, -9, 9)
            case 4:
                return ops.relu(a - b)
            case 5:
                return ops.transpose(a, [1, 0])
            case 6:
                return ops.clip(ops.reshape(ops.reshape(a, [-1]) + 1, [self.side, self.side]), -9, 9)
            case 7:
                return ops.gather(a, self.ids, axis=0)
            case 8:
                return ops.clip(a + a.sum(axis=1, keep_dims=True), -9, 9)
            case _:
                return ops.concat([a[:3], b[3:]], 0)

    def update(self, v: Variable) -> Tensor:
        new = self.pick()
        match int(self.rng.integers(6)):
            case 0:
                return new  # possibly the value of another variable, or of two
            case 1:
                return ops.transpose(v.tensor(self.x), [1, 0])
            case 2:
                rows = ops.gather(v.tensor(self.x), self.ids, axis=0)
                index = ops.reshape(self.ids, [self.side, 1])
                return linnet.ir.function.emit(
                    "scatter", [v.tensor(self.x), index, ops.clip(rows * new, -9, 9)], {"kind": "nd"}
                )[0]
            case _:
                return ops.clip(v - new, -9, 9)

    def feeds(self, seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        ids = rng.permutation(self.side)
        return {"x": rng.integers(-9, 10, (self.side, self.side)).astype(np.float32), "ids": ids}


def _state(store: Any, variables: list[Variable]) -> dict[str, Any]:
    return {v.name: np.array(store[v.name]) for v in variables}


@pytest.mark.parametrize("seed", range(150))
def test_in_place_updates_change_no_result(seed: int) -> None:
    step = RandomStep(seed)
    model = linnet.Model(step.graph)
    sessions = [
        linnet.Session(model, "train", store=linnet.Store(model), threads=threads, reference=reference)
        for threads, reference in ((1, True), (1, False), (2, False))
    ]
    for run in range(3):
        results = [s.run(step.feeds(100 * seed + run)) for s in sessions]
        states = [_state(s.variables, step.variables) for s in sessions]
        for found, state in zip(results[1:], states[1:], strict=True):
            for name, value in results[0].items():
                assert np.array_equal(found[name], value), name
            for name, value in states[0].items():
                assert np.array_equal(state[name], value), name


@pytest.mark.parametrize("seed", range(120))
def test_a_failed_run_changes_no_variable(seed: int) -> None:
    step = RandomStep(seed, looks_up=True)
    session = linnet.Session(step.graph, "train")
    feeds = step.feeds(seed)
    session.run(feeds)
    before = _state(session.variables, step.variables)
    feeds["ids"][-1] = SIDE
    with pytest.raises(linnet.GraphError, match="index"):
        session.run(feeds)
    after = _state(session.variables, step.variables)
    assert all(np.array_equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize("looked_up", [False, True])
def test_a_gradient_step_holds_no_second_copy_of_its_variables(looked_up: bool) -> None:
    """A gradient is not held until the looked-up rows get theirs, last of all."""
    side = 256
    graph = Graph()
    x = graph.placeholder("x", (4,), "i64") if looked_up else graph.placeholder("x", (4, side))
    layers = [graph.variable(f"w{i}", np.eye(side, dtype=np.float32)) for i in range(8)]
    y: Tensor = x
    if looked_up:
        table = graph.variable("table", np.ones((100, side), np.float32))
        y = ops.gather(table.tensor(x), x)
        layers.insert(0, table)
    for w in layers[-8:]:
        y = ops.relu(y @ w)
    momenta = [graph.variable(f"{w.name}/m", np.zeros_like(w.value)) for w in layers]
    updates: dict[Variable, Tensor] = {}
    for w, m, g in zip(layers, momenta, linnet.gradients((y * y).mean(), layers), strict=True):
        updates[m] = 0.9 * m + g
        updates[w] = w - 0.01 * updates[m]
    graph.signature("train", {"x": x}, {"y": y}, updates=updates)
    session = linnet.Session(linnet.passes.run(graph), "train", threads=1)
    assert session.memory["activations"] < 2 * 4 * side * side


def _needed(data: Any, signature: str) -> int:
    """The message that refuses a budget of 0."""
    with pytest.raises(linnet.GraphError) as refused:
        linnet.Session(data, signature, threads=1, max_bytes=1)
    return int(refused.value.got.split()[0])


@pytest.mark.parametrize("seed", range(30))
def test_recomputing_to_a_budget_changes_no_bit(seed: int) -> None:
    """Half way to, and at, the number that a refusal names."""
    step = RandomStep(seed, side=64, nodes=40, segments=False)
    data = step.graph.to_bytes()
    usual = linnet.Session(data, "train", threads=1)
    total, least = usual.memory["total"], _needed(data, "train")
    assert least <= total
    sessions = [usual] + [
        linnet.Session(data, "train", threads=threads, max_bytes=budget)
        for threads, budget in ((1, (total + least) // 2), (1, least))
    ]
    for run in range(2):
        results = [s.run(step.feeds(seed + run)) for s in sessions]
        for session, found in zip(sessions[1:], results[1:], strict=True):
            assert session.memory["total"] <= total
            assert all(np.array_equal(found[name], value) for name, value in results[0].items())
            for name, value in _state(usual.variables, step.variables).items():
                assert np.array_equal(session.variables[name], value), name


@functools.cache
def _deep() -> bytes:
    """x f32 [256, 64] through 16 layers."""
    graph = Graph()
    x = graph.placeholder("x", (256, 64))
    layers = [graph.variable(f"w{i}", linnet.init.glorot((64, 64))) for i in range(16)]
    y: Tensor = x
    for w in layers:
        y = ops.tanh(y @ w)
    loss = (y * y).mean()
    gradients = linnet.gradients(loss, layers)
    updates = {w: w - 0.1 * g for w, g in zip(layers, gradients, strict=True)}
    graph.signature("infer", {"x": x}, {"loss": loss}, updates=updates)
    return graph.to_bytes()


def _chain(allocator: Allocator, budget: int) -> Chain:
    x = np.random.default_rng(0).standard_normal((256, 64)).astype(np.float32)
    chain = Chain.__new__(Chain)
    try:
        chain.__init__(_deep(), allocator)  # type: ignore[misc]
        chain.make_store()
        chain.make_plan(max_bytes=budget).make_session().set({"x": x}).run()
    except Failure:
        chain.close()
        raise
    return chain


def test_a_recomputing_step_takes_what_its_plan_says() -> None:
    """Half of the activations of a deep network; every byte is predicted."""
    with _chain(Allocator(), 0) as usual:
        before, loss = usual.info(), usual.output().copy()
    allocator = Allocator()
    with _chain(allocator, before.total - before.activations // 2) as chain:
        info = chain.info()
        assert info.activations < before.activations // 2
        assert info.steps > before.steps
        assert info.total == allocator.bytes
        np.testing.assert_array_equal(chain.output(), loss)
        calls = allocator.calls
        chain.run()
        assert allocator.calls == calls
    assert not allocator.live and not allocator.faults


def test_any_allocation_of_a_recomputing_plan_may_fail() -> None:
    counted = Allocator()
    with _chain(counted, 0) as chain:
        info = chain.info()
    budget = info.total - info.activations // 2
    counted = Allocator()
    _chain(counted, budget).close()
    for k in range(counted.calls):
        allocator = Allocator(fail_at=k)
        with pytest.raises(Failure) as caught:
            _chain(allocator, budget)
        assert caught.value.status == OUT_OF_MEMORY, f"allocation {k} of {counted.calls}: {caught.value}"
        assert not allocator.live and not allocator.faults, f"allocation {k} of {counted.calls}"


@pytest.mark.parametrize("activation", [ops.relu, ops.tanh, ops.sigmoid, lambda x: ops.clip(x, -0.5, 0.5)])
def test_an_activation_keeps_its_result_and_not_its_operand(activation: Any) -> None:
    """A layer holds one tensor until its gradient, and the activation is computed in the product's epilogue."""
    graph, rows, side, depth = Graph(), 512, 32, 8
    x = graph.placeholder("x", (rows, side))
    layers = [graph.variable(f"w{i}", linnet.init.glorot((side, side))) for i in range(depth)]
    y: Tensor = x
    for w in layers:
        y = activation(y @ w)
    updates = {w: w - 0.1 * g for w, g in zip(layers, linnet.gradients((y * y).mean(), layers), strict=True)}
    graph.signature("train", {"x": x}, {}, updates=updates)
    session = linnet.Session(linnet.passes.run(graph), "train", threads=1)
    assert session.memory["activations"] < (depth + 3) * 4 * rows * side
