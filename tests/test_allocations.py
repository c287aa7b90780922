"""Every byte goes through the host's allocator, is foretold by the plan, is given back, and may be refused.
`linnet_run` takes none."""

from __future__ import annotations

import pytest

from tests.capi import Allocator, Chain, Failure, lib
from tests.graphs import GRAPHS, bytes_of, feeds

OUT_OF_MEMORY = 401
IN_SEGMENTS = ("branch", "data_dependent", "detector", "loop")  # what runs is known only while running
PLANNED = [name for name in GRAPHS if name not in IN_SEGMENTS]


def _through(name: str, allocator: Allocator, threads: int = 1) -> Chain:
    """The whole chain up to one run; closed again when a step fails."""
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
        assert info.lower_bound <= info.activations <= info.naive or info.activations <= info.naive + 64 * info.steps


@pytest.mark.parametrize("name", IN_SEGMENTS)
def test_segments_are_planned_once(name: str) -> None:
    """Shapes seen before are in the cache of plans: the second run with them takes nothing more."""
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
    """For every k, failing the k-th allocation gives the out-of-memory code and leaks nothing."""
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
    """A session in the caller's arena takes nothing for activations, and writes no byte outside of it."""
    import numpy as np

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
