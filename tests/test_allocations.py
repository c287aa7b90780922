"""Every byte goes through the host's allocator, is predicted by the plan and freed, and its allocation may fail.
`linnet_run` allocates nothing."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import linnet
from linnet import ops
from linnet.builder.mapping import pointwise
from linnet.facade import Graph
from tests import zoo
from tests.capi import Allocator, Chain, Failure, lib
from tests.graphs import GRAPHS, bytes_of, feeds
from tests.test_control_flow import HEAD, RECURRENCE

OUT_OF_MEMORY = 401
IN_SEGMENTS = ("branch", "data_dependent", "detector")  # the executed steps are known only at run time
PLANNED = [name for name in GRAPHS if name not in IN_SEGMENTS]


def _through(name: str, allocator: Allocator, threads: int = 1) -> Chain:
    """Builds the whole chain and runs it once; closes it if a step fails."""
    data = feeds(name)
    chain = Chain.__new__(Chain)
    try:
        chain.__init__(bytes_of(name), allocator)  # type: ignore[misc]
        if lib().linnet_model_variable_count(chain.model):
            chain.make_store()
        chain.make_plan(shapes={key: value.shape for key, value in data.items()}, threads=threads)
        chain.make_session().set(data).run()
    except Failure:
        chain.close()
        raise
    return chain


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PLANNED)
def test_run_allocates_nothing(name: str, threads: int) -> None:
    allocator = Allocator()
    with _through(name, allocator, threads) as chain:
        assert chain.info().segments == 1
        calls = allocator.calls
        for _ in range(3):
            chain.run()
        assert allocator.calls == calls
    assert not allocator.live and not allocator.faults


@pytest.mark.parametrize("name", PLANNED)
def test_the_plans_total_is_every_byte_taken(name: str) -> None:
    allocator = Allocator()
    with _through(name, allocator) as chain:
        info = chain.info()
        parts = (
            info.activations,
            info.scratch,
            info.packed_weights,
            info.constants,
            info.variables,
            info.io,
            info.bookkeeping,
        )
        assert info.total == sum(parts)
        assert info.total == allocator.bytes, {k: getattr(info, k) for k in dir(info)}
        assert info.lower_bound <= info.activations <= info.naive + 64 * info.steps


def _narrow_weights() -> tuple[bytes, np.ndarray, np.ndarray]:
    """y = (x @ (codes * scale)) @ the same weights transposed, x f32 [?, 96]. Also returns the f32 weights and an x."""
    rng = np.random.default_rng(8)
    codes = rng.integers(-127, 128, (96, 160)).astype(np.int8)
    scale = rng.uniform(0.01, 0.02, 160).astype(np.float32)
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", (None, 96))
    operands = [main.constant(codes, "codes"), main.constant(scale, "scale")]
    weights = pointwise(operands, lambda c, s: c.cast("f32") * s, "f32", function=main, name="weights")
    main.outputs = [ops.matmul(ops.matmul(x, weights), weights, transpose_b=True)]
    graph.signature("infer", main, outputs=["y"])
    return graph.to_bytes(), codes * scale, rng.standard_normal((5, 96)).astype(np.float32)


def test_weights_computed_while_planning_exist_once() -> None:
    """Weights are held once, in the kernels' layout and not also as computed; plans for other shapes share them."""
    data, weights, x = _narrow_weights()
    allocator = Allocator()
    with Chain(data, allocator) as chain:
        chain.make_plan(shapes={"x": (5, 96)})
        planned = allocator.bytes
        chain.make_session().set({"x": x}).run()
        info = chain.info()
        assert info.total == allocator.bytes and info.constants < weights.nbytes <= info.packed_weights
        np.testing.assert_allclose(chain.output(), x @ weights @ weights.T, rtol=1e-4, atol=1e-3)
        assert planned > weights.nbytes
    graph_session = linnet.Session(data, threads=1)
    kept = []
    for rows in (1, 2, 3, 4, 5):
        result = graph_session.run({"x": x[:rows]})["y"]
        np.testing.assert_allclose(result, x[:rows] @ weights @ weights.T, rtol=1e-4, atol=1e-3)
        kept.append(graph_session.memory_kept)
    assert kept[-1] - kept[0] < 4 * weights.nbytes  # four plans with eight products
    assert not allocator.live and not allocator.faults


def test_structures_of_a_small_net_are_small() -> None:
    """The keyword spotter of MLPerf Tiny, with 26 kB of weights, took 308 kB of structures: what compiling its maps had
    needed stayed with the plan, and constants were repeated for strips far longer than the tensors."""
    model = linnet.from_tflite(str(zoo.shared("mlperftiny_kws_int8.tflite"))).to_bytes()
    allocator = Allocator()
    with Chain(model, allocator, copy=False) as chain:
        chain.make_plan(shapes={"input_1": (1, 49, 10, 1)}).make_session().run()
        info = chain.info()
        assert info.total == allocator.bytes
        assert info.bookkeeping <= 61_000
    assert not allocator.live and not allocator.faults


def _recurrence() -> tuple[bytes, dict[str, np.ndarray]]:
    rng = np.random.default_rng(6)
    weights = ", ".join(f"{v:.3f}" for v in rng.standard_normal(64))
    model = linnet.from_onnx(onnx.parser.parse_model(HEAD + RECURRENCE % weights))
    x, h = rng.standard_normal((40, 4, 8)), rng.standard_normal((4, 8))
    return model.to_bytes(), {"x": x.astype(np.float32), "h": h.astype(np.float32)}


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_in_loops_and_branches_are_in_the_plan(threads: int) -> None:
    """40 iterations of a body with an inner loop and a branch: the total is exact, and a run allocates nothing."""
    data, inputs = _recurrence()
    allocator = Allocator()
    with Chain(data, allocator) as chain:
        chain.make_plan(shapes={name: value.shape for name, value in inputs.items()}, threads=threads)
        info = chain.info()
        chain.make_session().set(inputs).run()
        assert info.segments == 1 and info.packed_weights > 0
        assert info.total == allocator.bytes or threads > 1
        calls = allocator.calls
        first = chain.output(1)
        np.testing.assert_array_equal(chain.run().output(1), first)
        assert allocator.calls == calls
    assert not allocator.live and not allocator.faults


def test_any_allocation_for_a_body_may_fail() -> None:
    data, inputs = _recurrence()
    k, failed = 0, True
    while failed:
        allocator = Allocator(fail_at=k)
        with Chain.__new__(Chain) as chain:
            try:
                chain.__init__(data, allocator)  # type: ignore[misc]
                chain.make_plan(shapes={name: value.shape for name, value in inputs.items()})
                chain.make_session().set(inputs).run()
            except Failure as failure:
                assert failure.status == OUT_OF_MEMORY, failure
        failed = allocator.failed
        assert not allocator.live and not allocator.faults, f"allocation {k}"
        k += 1
    assert k > 20


@pytest.mark.parametrize("name", IN_SEGMENTS)
def test_segments_are_planned_once(name: str) -> None:
    """Known shapes are in the cache of plans: a second run with them allocates nothing more."""
    allocator = Allocator()
    with _through(name, allocator) as chain:
        assert chain.info().segments > 1
        taken = allocator.bytes
        for _ in range(3):
            chain.run()
            assert allocator.bytes == taken
    assert not allocator.live and not allocator.faults


@pytest.mark.parametrize("name", list(GRAPHS))
def test_any_allocation_may_fail(name: str) -> None:
    """For every k, a failure of the k-th allocation gives the out-of-memory code and leaks nothing."""
    counted = Allocator()
    _through(name, counted).close()
    assert counted.calls > 5 and not counted.live
    for k in range(counted.calls):
        allocator = Allocator(fail_at=k)
        with pytest.raises(Failure) as caught:
            _through(name, allocator)
        assert caught.value.status == OUT_OF_MEMORY, f"allocation {k} of {counted.calls}: {caught.value}"
        assert not allocator.live, f"allocation {k} of {counted.calls} leaks {allocator.bytes} bytes"
        assert not allocator.faults, allocator.faults


def test_memory_of_a_caller_is_used_and_not_overrun() -> None:
    """A session in the caller's arena allocates nothing for activations and writes no byte outside the arena."""
    from tests.capi import ffi

    with Chain(bytes_of("conv_net")) as chain:
        info = chain.make_plan().info()
        size = info.activations + info.scratch
        memory = np.full(size + 192, 0x5A, np.uint8)
        start = -memory.ctypes.data % 64 + 64
        chain.make_session(arena=ffi.cast("void *", memory.ctypes.data + start), arena_size=size)
        result = chain.set(feeds("conv_net")).run().output().copy()
        assert (memory[:start] == 0x5A).all() and (memory[start + size :] == 0x5A).all()
        assert (memory[start : start + size] != 0x5A).any()
    with Chain(bytes_of("conv_net")) as other:
        np.testing.assert_array_equal(other.make_plan().make_session().set(feeds("conv_net")).run().output(), result)
