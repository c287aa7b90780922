"""Nodes in the bodies of loops and branches on devices: what a body's device gets, what a run of the body submits, where
its memory is, failures in the middle of a loop. The loop or branch itself is a step of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from tests.capi import Allocator, Chain, Failure, ffi, lib
from tests.py_device import PyDevice, fail_each_allocation, op_of, tensor_of
from tests.test_control_flow import HEAD
from tests.test_devices import info_of_device

F32 = 1  # LINNET_F32
BOTH = {"matmul": 0.0, "map": 0.0}
ROWS = 16


class Floats(PyDevice):
    """Takes only steps whose operands are all f32, because PyDevice computes nothing else."""

    def _cost(self, step: Any) -> float:
        counts = lib().linnet_step_input_count(step), lib().linnet_step_output_count(step)
        dtypes = {tensor_of(step, i, output).dtype for output in (False, True) for i in range(counts[output])}
        return super()._cost(step) if dtypes <= {0, F32} else -1.0


class Shared(Floats):
    """Reads and writes the memory of inputs and outputs in place."""

    def __init__(self, cost: dict[str, float], **fields: int) -> None:
        super().__init__(cost, shared=1, **fields)
        self.imported: list[int] = []

    def _import(self, host: Any, size: int, buffer: Any) -> int:
        self._new(buffer)
        self.buffers[buffer[0]] = ffi.buffer(host, size)
        self.imported.append(buffer[0])
        return 0


def some(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def recurrent(dynamic: bool = False) -> Graph:
    """A recurrent network over the rows of x. Its body has five steps for a device: two products and three maps, one of which
    gives the stacked result. `u` is a constant that the body captures, and `w` is a variable. If it is dynamic, an input is
    the number of trips, and so the stacked result grows."""
    graph = linnet.Graph()
    feeds = {"x": graph.placeholder("x", (ROWS, 2, 8)), "h": graph.placeholder("h", (2, 8))}
    if dynamic:
        feeds["n"] = graph.placeholder("n", (), "i64")
    w, u = graph.variable("w", some(8, 8) / 8), graph.constant(some(8, 8, seed=1) / 8, "u")

    def step(h: Any, row: Any) -> Any:
        h = ops.relu(row @ w + h @ u)
        return h, h + 1.0

    last, rows = linnet.scan(step, feeds["h"], feeds["x"], length=feeds.get("n"))
    graph.signature("infer", feeds, {"last": last, "rows": rows})
    return graph


FEEDS = {"x": some(ROWS, 2, 8, seed=2), "h": some(2, 8, seed=3)}


def nested() -> Graph:
    """In each row, a branch that multiplies and then loops until a sum is large, or only adds."""
    graph = linnet.Graph()
    x, flip = graph.placeholder("x", (ROWS, 4, 4)), graph.placeholder("flip", (), "bool")
    w, c = graph.variable("w", some(4, 4) / 4), graph.constant(some(4, 4, seed=1), "c")
    outside = x.sum(0)

    def then(s: Any, row: Any) -> Any:
        s = ops.relu(row @ w + s)
        return linnet.while_loop(lambda v: v.sum() < 50.0, lambda v: v @ w + c * c + 0.5, s, 5)

    def step(s: Any, row: Any) -> Any:
        s = linnet.cond(flip, lambda: then(s, row), lambda: s * 0.5 - outside)
        return s, s + c

    last, rows = linnet.scan(step, graph.constant(np.zeros((4, 4), np.float32)), x)
    graph.signature("infer", {"x": x, "flip": flip}, {"last": last, "rows": rows})
    return graph


def agree(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert set(got) == set(want)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def chain_of(graph: Graph, device: PyDevice, **fields: Any) -> Chain:
    """A chain with a plan for the device."""
    return Chain(graph.to_bytes()).make_plan(devices=device.pointers, device_count=1, **fields)


# ---- placement and results -------------------------------------------------------------------------------------------


def test_the_body_of_a_loop_runs_on_a_device() -> None:
    device = Floats(BOTH)
    session = linnet.Session(recurrent(), devices=[device])
    agree(session.run(FEEDS), linnet.Session(recurrent()).run(FEEDS))
    assert device.count("run") == 5 * ROWS
    assert device.count("upload") == 2 + 2 * ROWS  # u and w once; a row and h in each trip
    assert device.count("download") == 2 * ROWS and device.count("record") == device.count("wait") == ROWS
    assert {(step.op, step.device) for step in session.steps} == {("while", "cpu")}
    assert session.plan_info["fallbacks"] == 2  # the loop, and in the body the gather of a row
    with chain_of(recurrent(), device) as chain:
        info = info_of_device(chain.plan)
        assert info.steps == info.nodes == 5 and info.constants == info.variables == 8 * 8 * 4
        assert chain.info().fallbacks == 2
    del session
    assert device.nothing_left()


def test_a_loop_whose_trips_only_the_run_knows() -> None:
    device = Floats(BOTH)
    session, alone = linnet.Session(recurrent(True), devices=[device]), linnet.Session(recurrent(True))
    for trips in (3, 0, ROWS, 1):
        device.calls.clear()
        feeds = {**FEEDS, "n": np.int64(trips)}
        agree(session.run(feeds), alone.run(feeds))
        assert device.count("run") == 5 * trips
    del session
    assert device.nothing_left()


@pytest.mark.parametrize("make", [Floats, Shared])
def test_branches_and_nested_loops_run_on_a_device(make: type[Floats]) -> None:
    device = make(BOTH)
    session, alone = linnet.Session(nested(), devices=[device]), linnet.Session(nested())
    for flip in (True, False, True):
        feeds = {"x": some(ROWS, 4, 4, seed=5), "flip": np.bool_(flip)}
        device.calls.clear()
        agree(session.run(feeds), alone.run(feeds))
        assert device.count("run") >= 2 * ROWS
    with chain_of(nested(), device) as chain:
        info = info_of_device(chain.plan)
        # then: product, add, relu; the loop in it: product, and maps that c * c is folded into; else: a map; after: a map
        assert info.steps > 6 and info.variables == 2 * 4 * 4 * 4  # the branch and its loop each have their own w
    del session
    assert device.nothing_left()


@pytest.mark.parametrize("make", [Floats, Shared])
def test_a_constant_operand_of_a_loop_is_a_constant_of_the_device(make: type[Floats]) -> None:
    """The loop carries a weight that never changes, so its body has the weight as an input."""
    text = """g (int64 trips, float[1, 4] x) => (float[1, 4] y)
    {
      go = Constant <value = bool {1}> ()
      w = Constant <value = float[4, 4] {%s}> ()
      y, same = Loop (trips, go, x, w) <
        body = l (int64 i, bool c, float[1, 4] v, float[4, 4] k) => (bool on, float[1, 4] u, float[4, 4] kk)
          {on = Identity (c)  u = MatMul (v, k)  kk = Identity (k)}>
    }"""
    model = linnet.from_onnx(onnx.parser.parse_model(HEAD + text % ", ".join(str(0.1 * i) for i in range(16))))
    device = make(BOTH)
    with chain_of(model, device) as chain:
        assert info_of_device(chain.plan).constants == 4 * 4 * 4
    session = linnet.Session(model, devices=[device])
    feeds = {"trips": np.int64(12), "x": some(1, 4)}
    agree(session.run(feeds), linnet.Session(model).run(feeds))
    assert device.count("run") == 12
    del session
    assert device.nothing_left()


def test_costs_decide_about_a_body_as_about_a_graph() -> None:
    """The transfers are those of one trip."""
    for transfer, steps in ((0, 5), (10**9, 0)):
        device = Floats(BOTH, transfer_ns=transfer)
        with chain_of(recurrent(), device) as chain:
            assert info_of_device(chain.plan).steps == steps
            assert (chain.info().fallbacks == 2) == (steps == 5)


def test_hints_name_nodes_of_bodies() -> None:
    names: list[str] = []

    class Named(Floats):
        def _cost(self, step: Any) -> float:
            if op_of(step) == "matmul":
                names.append(ffi.string(lib().linnet_step_name(step)).decode())
            return super()._cost(step)

    costly = Named({"matmul": 1e12})
    with chain_of(recurrent(), costly) as chain:
        assert info_of_device(chain.plan).steps == 0
    first, second = dict.fromkeys(names)
    session = linnet.Session(recurrent(), devices=[costly], placement={first: "python"})
    agree(session.run(FEEDS), linnet.Session(recurrent()).run(FEEDS))
    assert costly.count("run") == ROWS
    willing = Named(BOTH)
    session = linnet.Session(recurrent(), devices=[willing], placement={first: "cpu", second: "cpu"})
    agree(session.run(FEEDS), linnet.Session(recurrent()).run(FEEDS))
    assert willing.count("run") == 3 * ROWS


def test_a_body_in_a_later_segment() -> None:
    """The number of rows depends on data, so the loop is planned during a run."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (ROWS, 8))
    found = ops.gather(x, ops.reshape(ops.nonzero(x.sum(1)), (-1,)), axis=0)
    u = graph.constant(some(8, 8) / 8, "u")
    last, _ = linnet.scan(
        lambda h, row: (ops.relu(h @ u + row), None), graph.constant(np.zeros((1, 8), np.float32)), found
    )
    graph.signature("infer", {"x": x}, {"y": last})
    device = Floats(BOTH)
    session, alone = linnet.Session(graph, devices=[device]), linnet.Session(graph)
    for rows in (12, 10, 16, 10):
        x = np.where(np.arange(ROWS)[:, None] < rows, np.abs(some(ROWS, 8)), 0).astype(np.float32)
        device.calls.clear()
        agree(session.run({"x": x}), alone.run({"x": x}))
        assert device.count("run") >= 2 * rows
    del session
    assert device.nothing_left()


def test_a_traced_loop_has_the_time_of_its_bodies_on_the_device() -> None:
    device = Floats(BOTH)
    session = linnet.Session(recurrent(), devices=[device], trace=True)
    for _ in range(2):
        agree(session.run(FEEDS), linnet.Session(recurrent()).run(FEEDS))
    assert [step.device_ms for step in session.steps] == [pytest.approx(5 * ROWS * 0.001234)]
    session = linnet.Session(nested(), devices=[device], trace=True)
    device.calls.clear()
    session.run({"x": some(ROWS, 4, 4, seed=5), "flip": np.bool_(True)})
    loop = next(step for step in session.steps if step.op == "while")
    assert device.count("elapsed") == device.count("run") > 0
    assert loop.device_ms == pytest.approx(device.count("run") * 0.001234)


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [
    {}, {"alignment": 4096}, {"padding": 100}, {"alignment": 256, "padding": 8, "largest_buffer": 600}, {"in_place": 1},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("make", [recurrent, nested])
def test_the_plan_counts_what_bodies_have_on_a_device(make: Any, fields: dict[str, int]) -> None:
    device, allocator = Floats(BOTH, **fields), Allocator()

    def claim(steps: Any, count: int, claim: Any) -> None:
        claim.scratch_bytes, claim.packed_bytes = 1000 if "largest_buffer" not in fields else 500, 300

    device.claims = claim
    feeds = FEEDS if make is recurrent else {"x": some(ROWS, 4, 4, seed=5), "flip": np.bool_(True)}
    with Chain(make().to_bytes(), allocator, copy=False) as chain:
        chain.make_store().make_plan(allocator=allocator.struct, devices=device.pointers, device_count=1)
        chain.make_session()
        info, held = info_of_device(chain.plan), sum(map(len, device.buffers.values()))
        assert info.total == held == chain.info().devices > 0
        assert allocator.bytes + held == chain.info().total
        assert info.total == info.activations + info.scratch + info.packed + info.constants + info.variables
        assert info.steps == info.nodes == device.count("claim") - device.count("prepare")
        assert info.packed >= 300 * info.steps and min(info.scratch, info.constants, info.variables) > 0
        chain.set(feeds).run()
        assert allocator.bytes + held == chain.info().total and held == sum(map(len, device.buffers.values()))
    assert device.nothing_left() and not allocator.live and not allocator.faults


def test_a_body_shares_its_inputs_and_outputs_with_a_device() -> None:
    device = Shared(BOTH)
    with chain_of(recurrent(), device) as chain:
        chain.make_session().set(FEEDS).run()
        want = linnet.Session(recurrent()).run(FEEDS)
        agree({"last": chain.output(0), "rows": chain.output(1)}, want)
        assert len(device.imported) == 1  # the body's: outside of it the device has no step
        # In each trip the gathered row goes up, and h comes down, because another step of the device reads it too.
        assert device.count("upload") == 2 + ROWS and device.count("download") == ROWS
        owned = sum(len(b) for handle, b in device.buffers.items() if handle not in device.imported)
        assert info_of_device(chain.plan).total == owned
    assert device.nothing_left()


def test_a_variable_of_a_body_is_uploaded_again_only_when_it_changes() -> None:
    device = Floats(BOTH)
    session = linnet.Session(recurrent(), devices=[device])
    counts = []
    for change in (False, False, True, False):
        if change:
            session.variables["w"] = 2 * session.variables["w"]
        device.calls.clear()
        found = session.run(FEEDS)
        counts.append(device.count("upload") - 2 * ROWS)
        alone = linnet.Session(recurrent())
        alone.variables["w"] = session.variables["w"]
        agree(found, alone.run(FEEDS))
    assert counts == [2 - 1, 0, 1, 0]  # the constant went up with the session


# ---- failures --------------------------------------------------------------------------------------------------------


class Fails(Floats):
    """The nth call of a function fails, counted from 1."""

    function, nth = "", 0

    def arm(self, function: str, nth: int) -> None:
        self.function, self.nth = function, nth

    def _callback(self, field: str, kind: Any, method: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.nth -= field == self.function
            return 7 if field == self.function and self.nth == 0 else method(*arguments)

        return super()._callback(field, kind, call)


@pytest.mark.parametrize("function", ["record", "wait", "upload", "download", "run"])
@pytest.mark.parametrize("make", [recurrent, nested])
def test_a_failure_in_a_body_is_an_error_and_the_session_runs_again(make: Any, function: str) -> None:
    device = Fails(BOTH)
    feeds = FEEDS if make is recurrent else {"x": some(ROWS, 4, 4, seed=5), "flip": np.bool_(True)}
    want = linnet.Session(make()).run(feeds)
    for nth in (1, 2, 3, 4, 5, 9, ROWS - 1):
        session = linnet.Session(make(), devices=[device])
        for late in (0, 1):  # in the first run the device has no variable yet
            device.arm(function, nth + late)
            with pytest.raises(linnet.DeviceError, match=r"device python failed to .*") as caught:
                session.run(feeds)
            assert caught.value.op and "code 7: told to fail" in str(caught.value)
            device.arm("", 0)
            agree(session.run(feeds), want)
        del session, caught
        assert device.nothing_left()


@pytest.mark.parametrize("function", ["allocate", "create_event", "upload", "prepare", "finish"])
def test_a_session_that_cannot_be_made_leaves_nothing(function: str) -> None:
    class Prepared(Fails):
        def _prepare(self, queue: int, work: Any, state: Any) -> int:
            return self._new(state)

        def _unprepare(self, state: int) -> None:
            self.objects.remove(state)

    for nth in range(1, 20):
        device = Prepared(BOTH)
        device.arm(function, nth)
        with chain_of(nested(), device) as chain:
            if device.nth <= 0:
                break
            try:
                chain.make_session()
            except Failure as error:
                assert error.status == 501
            else:
                break
        assert device.nothing_left(), nth
    assert nth > 1


def test_a_variable_keeps_its_value_if_a_loop_fails_in_a_body() -> None:
    """The stacked result of the loop is the variable's new value. It may not be written over the old one row by row."""
    graph = linnet.Graph()
    h, u = graph.placeholder("h", (2, 8)), graph.constant(some(8, 8), "u")
    v = graph.variable("v", np.zeros((ROWS, 2, 8), np.float32))
    last, rows = linnet.scan(lambda s, _: ((new := ops.relu(s @ u) + 1.0), new), h, length=ROWS)
    graph.signature("infer", {"h": h}, {"last": last}, updates={v: rows})
    device = Fails({"matmul": 0.0})
    session, alone = linnet.Session(graph, devices=[device]), linnet.Session(graph)
    device.arm("run", 5)
    feeds = {"h": FEEDS["h"]}
    with pytest.raises(linnet.DeviceError):
        session.run(feeds)
    np.testing.assert_array_equal(session.variables["v"], 0)
    agree(session.run(feeds), alone.run(feeds))
    np.testing.assert_allclose(session.variables["v"], alone.variables["v"], rtol=1e-5, atol=1e-6)
    assert np.abs(session.variables["v"]).sum() > 1


def test_every_failing_allocation_of_a_plan_with_bodies_on_a_device_is_reported() -> None:
    fail_each_allocation(nested().to_bytes(), lambda: Floats(BOTH))


class Refuses(Floats):
    """Claims no map."""

    def _claim(self, steps: Any, count: int, claim: Any) -> int:
        claim.count = 0 if op_of(steps[0]) == "map" else 1
        return 0


def test_a_device_refuses_steps_of_a_body() -> None:
    """The whole plan is made again, and the same nodes of the same body are no candidates any more."""
    device = Refuses(BOTH)
    session = linnet.Session(recurrent(), devices=[device])
    agree(session.run(FEEDS), linnet.Session(recurrent()).run(FEEDS))
    assert device.count("run") == 2 * ROWS and not device.faults
    assert session.plan_info["fallbacks"] == 5


def test_a_refusal_in_a_body_bars_no_node_outside() -> None:
    """Nodes are numbered in each graph from 0, so the outer products have the numbers of the maps that are refused."""
    graph = linnet.Graph()
    feeds = {"x": graph.placeholder("x", (ROWS, 2, 8)), "h": graph.placeholder("h", (2, 8))}
    h, w = feeds["h"], graph.constant(some(8, 8) / 4, "w")
    for i in range(8):
        h = ops.matmul(h, w, name=f"outer{i}")
    last, _ = linnet.scan(lambda h, row: (ops.relu(row + h @ w), h + 1.0), h, feeds["x"])
    graph.signature("infer", feeds, {"last": last})
    device = Refuses(BOTH)
    session = linnet.Session(graph, devices=[device])
    agree(session.run(FEEDS), linnet.Session(graph).run(FEEDS))
    assert [step.device for step in session.steps if step.op == "matmul"] == ["python"] * 8
    assert device.count("run") == 8 + ROWS
