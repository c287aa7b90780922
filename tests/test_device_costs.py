"""Where nodes run if costs are nanoseconds: conversions at an island's border, and what a device offers for runs of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from tests.capi import check, ffi, lib, text
from tests.py_device import PyDevice, op_of, tensor_of

FEEDS = {"x": np.random.default_rng(0).standard_normal((1, 32, 48, 48)).astype(np.float32)}


def convolutions(work: int) -> Graph:
    """Four convolutions, with a map of `work` multiplications after each but the last."""
    graph = Graph()
    y = x = graph.placeholder("x", (1, 32, 48, 48))
    for i in range(4):
        w = (np.random.default_rng(i).standard_normal((32, 32, 3, 3)) / 20).astype(np.float32)
        y = ops.conv(y, graph.constant(w, f"w{i}"), pads=[1, 1, 1, 1])
        for _ in range(work if i < 3 else 0):
            y = y * 1.001
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


class Share(PyDevice):
    """Takes one op, in a share of the CPU's modelled time."""

    def __init__(self, op: str, share: float) -> None:
        super().__init__()
        self.op, self.share = op, share

    def _cost(self, step: Any) -> float:
        counts = ffi.new("linnet_step_counts *", {"struct_size": ffi.sizeof("linnet_step_counts")})
        assert lib().linnet_step_get_counts(step, counts) == 0
        return self.share * float(counts.cpu_ns) if op_of(step) == self.op else -1.0


def count(session: Any) -> Counter[str]:
    """Steps by op, and those that are no transfers by device."""
    return Counter(step.op for step in session.steps) + Counter(s.device for s in session.steps if s.op != "transfer")


def test_maps_stay_where_their_layout_is() -> None:
    """Transfers are free and the device takes a nanosecond, but each map would add two conversions of its layout."""
    alone = count(linnet.Session(convolutions(1), threads=1))
    session = linnet.Session(convolutions(1), threads=1, devices=[PyDevice({"map": 1.0})])
    assert count(session) == alone and alone["copy"] == 2


@pytest.mark.parametrize(("share", "moves"), [(0.01, True), (0.2, True), (1.2, False)])
def test_maps_move_if_the_device_saves_more_than_the_conversions(share: float, moves: bool) -> None:
    graph = convolutions(32)
    session = linnet.Session(graph, threads=1, devices=[Share("map", share)])
    steps = count(session)
    assert (steps["python"], steps["copy"]) == ((3, 8) if moves else (0, 2))
    got, want = session.run(FEEDS)["y"], linnet.Session(graph, threads=1).run(FEEDS)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_a_convolution_that_moves_saves_its_conversions() -> None:
    """One convolution between a dense input and a dense output: the CPU would convert twice, the device need not."""
    graph = Graph()
    x = graph.placeholder("x", (1, 32, 48, 48))
    w = np.ones((32, 32, 3, 3), np.float32)
    graph.signature("infer", {"x": x}, {"y": ops.conv(x, graph.constant(w, "w"), pads=[1, 1, 1, 1])})
    alone = linnet.Session(graph, threads=1)
    assert [step.op for step in alone.steps] == ["copy", "conv", "copy"]
    own, whole = alone.steps[1].modelled_ms * 1e6, sum(step.modelled_ms for step in alone.steps) * 1e6
    for cost, moves in (((own + whole) / 2, True), (whole * 1.02, False)):
        session = linnet.Session(graph, threads=1, devices=[PyDevice({"conv": cost})])
        assert count(session)["python"] == moves, (cost, own, whole)


def norms(work: int) -> Graph:
    """Batch normalizations of f16, which the CPU computes in f32, with maps between them that read them in f32."""
    graph = Graph()
    y = x = graph.placeholder("x", (2, 8, 64, 64), "f16")
    parameters = [graph.constant((np.arange(8) % 3 + 1).astype(np.float16)) for _ in range(4)]
    for _ in range(3):
        y = ops.batch_norm(y, *parameters)
        for _ in range(work):
            y = y * 1.001
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


@pytest.mark.parametrize(("work", "share", "moves"), [(1, 0.7, False), (32, 0.1, True)])
def test_maps_stay_where_their_values_are_f32(work: int, share: float, moves: bool) -> None:
    """On a device, the map reads f16, so the CPU casts what it has computed before it sends it."""
    graph = norms(work)
    alone = linnet.Session(graph, threads=1, max_bytes=1 << 30)  # with a bound, values between steps keep their 16 bits
    assert Counter(step.op for step in alone.steps)["cast"] == 3
    steps = count(linnet.Session(graph, threads=1, devices=[Share("map", share)]))
    assert (steps["python"], steps["cast"]) == ((3, 6) if moves else (0, 3))


# ---- offers ----------------------------------------------------------------------------------------------------------


class Offers(PyDevice):
    """Takes products and maps in a cost each, and runs of them as `offered` says."""

    def __init__(self, cost: float, offered: Callable[[list[str]], tuple[int, float]]) -> None:
        super().__init__({"matmul": cost, "map": cost})
        self.offered, self.seen = offered, list[list[str]]()

    def _offer(self, steps: Any, n: int, offer: Any) -> int:
        self.seen.append([op_of(steps[i]) for i in range(n)])
        assert offer.count == 1 and offer.cost_ns == self.costs["matmul"]
        offer.count, offer.cost_ns = self.offered(self.seen[-1])
        return 0


def layers(middle: bool = False) -> Graph:
    """Three times a product and a map; `middle`: then a softmax, and the same again."""
    graph = Graph()
    y = x = graph.placeholder("x", (8, 64))
    for part in range(2 if middle else 1):
        y = ops.softmax(y) if part else y
        for i in range(3):
            w = np.random.default_rng(3 * part + i).standard_normal((64, 64)).astype(np.float32) / 64
            y = y @ graph.constant(w, f"w{part}{i}") + 1.0
    graph.signature("infer", {"x": x}, {"y": y})
    return graph


ROWS = {"x": np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)}


@pytest.mark.parametrize(("whole", "moves"), [(100.0, True), (1e8, False)])
def test_a_run_of_steps_may_cost_less_than_its_steps(whole: float, moves: bool) -> None:
    """Each step alone takes a millisecond, too long for any of them to move."""
    assert count(linnet.Session(layers(), devices=[PyDevice({"matmul": 1e6, "map": 1e6})]))["python"] == 0
    device = Offers(1e6, lambda ops: (len(ops), whole))
    session = linnet.Session(layers(), devices=[device])
    assert device.seen[0] == ["matmul", "map"] * 3 and (count(session)["python"] > 0) == moves
    np.testing.assert_allclose(session.run(ROWS)["y"], linnet.Session(layers()).run(ROWS)["y"], rtol=1e-4, atol=1e-5)


def test_a_run_of_steps_may_cost_more_than_its_steps() -> None:
    assert count(linnet.Session(layers(), devices=[PyDevice({"matmul": 1.0, "map": 1.0})]))["python"] == 6
    assert count(linnet.Session(layers(), devices=[Offers(1.0, lambda ops: (1, 1e6))]))["python"] == 0


def test_offers_are_asked_for_the_rest_and_for_steps_that_would_be_consecutive() -> None:
    device = Offers(1.0, lambda ops: (min(len(ops), 4), 2.0))
    session = linnet.Session(layers(middle=True), devices=[device])
    assert [len(ops) for ops in device.seen[:4]] == [6, 2, 6, 2] and count(session)["python"] == 12


def test_a_step_of_the_cpu_parts_a_run() -> None:
    """The products are one island, but no claim can have both: the softmax is between them."""
    graph = Graph()
    x = graph.placeholder("x", (8, 64))
    y = x @ graph.constant(np.ones((64, 64), np.float32), "w")
    outputs = {"s": ops.softmax(y), "z": y @ graph.constant(np.ones((64, 64), np.float32), "v")}
    graph.signature("infer", {"x": x}, outputs)
    device = Offers(1.0, lambda ops: (len(ops), 2.0))
    session = linnet.Session(graph, devices=[device])
    assert [step.op for step in session.steps if step.op != "transfer"] == ["matmul", "softmax", "matmul"]
    assert device.seen[:2] == [["matmul"], ["matmul"]]


@pytest.mark.parametrize("offer", [(-1, 1.0), (7, 1.0), (1, -1.0), (1, float("nan"))])
def test_an_offer_that_is_none_is_an_error(offer: tuple[int, float]) -> None:
    device = Offers(1.0, lambda ops: offer)
    with pytest.raises(linnet.DeviceError, match=r"failed to offer a cost.*a count of 0 to 6 and nanoseconds"):
        linnet.Session(layers(), devices=[device])
    device = Offers(1.0, lambda ops: (1, 1.0))
    device.fail["offer"] = 9
    with pytest.raises(linnet.DeviceError, match=r"failed to offer a cost.*told to fail"):
        linnet.Session(layers(), devices=[device])


# ---- epilogues -------------------------------------------------------------------------------------------------------

MAP = ffi.new("linnet_map *", {"struct_size": ffi.sizeof("linnet_map")})


def has_epilogue(step: Any) -> bool:
    return op_of(step) == "matmul" and lib().linnet_step_get_map(step, MAP) == 0


class Epilogues(Offers):
    """A product and a map cost a millisecond each, and `both` nanoseconds as one step. Negative: only apart."""

    def __init__(self, both: float, epilogues: int = 1) -> None:
        super().__init__(1e6, lambda ops: (1, 1e6))
        self.both = both
        self._fields["epilogues"] = epilogues

    def _cost(self, step: Any) -> float:
        return self.both if has_epilogue(step) else super()._cost(step)

    def _offer(self, steps: Any, n: int, offer: Any) -> int:
        self.seen.append([op_of(steps[i]) + "*" * has_epilogue(steps[i]) for i in range(n)])
        return 0


def test_a_pair_that_the_device_runs_as_one_costs_what_it_says_of_both() -> None:
    """Apart they would never move. The steps that are offered have their epilogues already."""
    device = Epilogues(10.0)
    session = linnet.Session(layers(), devices=[device])
    steps = [(step.op, step.fused != "", step.device) for step in session.steps if step.op != "transfer"]
    assert steps == [("matmul", True, "python")] * 3 and device.seen[0] == ["matmul*"] * 3


@pytest.mark.parametrize(("both", "epilogues"), [(-1.0, 1), (10.0, 0), (3e6, 1)])
def test_a_pair_that_the_device_does_not_run_as_one_costs_the_sum(both: float, epilogues: int) -> None:
    device = Epilogues(both, epilogues)
    assert count(linnet.Session(layers(), devices=[device]))["python"] == 0
    assert device.seen[0] == (["matmul*"] * 3 if both > 0 and epilogues else ["matmul", "map"] * 3)


@pytest.mark.parametrize(("first", "moves"), [("matmul", False), ("softmax", True)])
def test_a_map_that_is_an_epilogue_on_the_cpu_is_cheap_there(first: str, moves: bool) -> None:
    """The device is a little faster than the CPU's map, but not than a map within a product. A softmax takes no map."""
    graph = Graph()
    x = graph.placeholder("x", (8, 64))
    y = x @ graph.constant(np.eye(64, dtype=np.float32), "w") if first == "matmul" else ops.softmax(x)
    graph.signature("infer", {"x": x}, {"y": y * 2.0 + 1.0})
    assert count(linnet.Session(graph, devices=[Share("map", 0.9)]))["python"] == moves


def test_the_reference_has_no_epilogues() -> None:
    """Nothing is fused there, so a device that is fast with epilogues only gets nothing."""
    device = Epilogues(10.0)
    assert count(linnet.Session(layers(), devices=[device], reference=True))["python"] == 0
    assert device.seen[0] == ["matmul", "map"] * 3


@pytest.mark.parametrize("op", ["matmul", "conv"])
@pytest.mark.parametrize("bias", [False, True])
def test_operands_of_an_epilogue_come_after_all_inputs_of_the_op(op: str, bias: bool) -> None:
    """An input that the op does not have is absent, so no operand of the epilogue is taken for a bias."""
    graph = Graph()
    x = graph.placeholder("x", (1, 4, 3, 5) if op == "conv" else (5, 4))
    w = graph.constant(np.ones((4, 4, 1, 1) if op == "conv" else (4, 4), np.float32), "w")
    given = [graph.constant(np.arange(4, dtype=np.float32), "bias")] if bias else []
    more = graph.placeholder("more", x.shape)
    graph.signature("infer", {"x": x, "more": more}, {"y": getattr(ops, op)(x, w, *given) + more})
    seen = []

    class Looking(Epilogues):
        def _run(self, queue: int, work: Any, state: int) -> int:
            step = work.steps[0]
            tensors = [tensor_of(step, i) for i in range(lib().linnet_step_input_count(step))]
            assert lib().linnet_step_get_map(step, MAP) == 0
            seen.append((op_of(step), MAP.first, [text(t.name) if t.dtype else None for t in tensors]))
            sizes = [int(np.prod(list(t.shape[0 : t.rank]))) * bool(t.dtype) for t in tensors]
            values = [
                np.frombuffer(self.at(work.inputs[0][i]), np.float32)[:n].copy() if n else np.zeros(1, np.float32)
                for i, n in enumerate(sizes)
            ]
            assert [span.buffer != 0 for span in work.inputs[0][0 : len(sizes)]] == [n > 0 for n in sizes]
            host = [ffi.from_buffer(v) if n else ffi.NULL for v, n in zip(values, sizes, strict=True)]
            out = np.zeros(sizes[-1], np.float32)
            outputs = ffi.new("void *[1]", [ffi.from_buffer(out)])
            error = ffi.new("linnet_error *")
            check(lib().linnet_step_evaluate(step, ffi.new("void *[]", host), outputs, error), error)
            self.at(work.outputs[0][0])[: out.nbytes] = out.tobytes()
            return 0

        def _cost(self, step: Any) -> float:
            return 10.0 if op_of(step) in (op, "map") else -1.0

    feeds = {name: np.random.default_rng(i).random(x.shape, np.float32) for i, name in enumerate(("x", "more"))}
    device = Looking(10.0)
    got = linnet.Session(graph, devices=[device], placement={"*": "python"}).run(feeds)["y"]
    assert not device.faults, device.faults
    assert seen == [(op, 3, ["x", "w", "bias" if bias else None, "more"])]
    np.testing.assert_allclose(got, linnet.Session(graph).run(feeds)["y"], rtol=1e-5)


@pytest.mark.parametrize("cost", [float("nan"), -1.0])
def test_a_cost_that_is_no_number_takes_nothing(cost: float) -> None:
    session = linnet.Session(layers(), devices=[PyDevice({"matmul": cost, "map": cost})])
    assert count(session)["python"] == 0 and {step.placed for step in session.steps} == {"cannot"}
