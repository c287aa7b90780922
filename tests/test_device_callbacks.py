"""What the runtime passes to three kinds of callbacks of linnet_device.h: map and unmap, and the program cache.
Each gets the right sizes, and a failing one is an error, or for the cache no error, that leaves nothing behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import linnet
from tests.capi import NULL, Allocator, Chain, Failure, ffi
from tests.py_device import PyDevice
from tests.test_devices import HEAVY, X, info_of_device, layers, run

ALL = {"matmul": 1.0, "map": 1.0}


class Visible(PyDevice):
    """Its buffers can be mapped. mapped: the mappings that are open. sizes: the bytes of all mappings so far. failing,
    fail_at: a function, and the number of the call to it that fails, from 1."""

    def __init__(self, cost: dict[str, float], **fields: int) -> None:
        super().__init__(cost, host_visible=1, **fields)
        self.mapped: dict[int, Any] = {}
        self.sizes: list[int] = []
        self.failing, self.fail_at = "", 0

    def _now(self, function: str) -> int:
        return 9 if function == self.failing and self.count(function) == self.fail_at else 0

    def _map(self, buffer: int, size: int, host: Any) -> int:
        if buffer in self.mapped or size != len(self.buffers[buffer]):
            return 8  # no assertion: the library would write through a pointer that was never set
        if code := self._now("map"):
            return code
        self.mapped[buffer] = ffi.from_buffer(self.buffers[buffer])
        self.sizes.append(size)
        host[0] = self.mapped[buffer]
        return 0

    def _unmap(self, buffer: int, host: Any) -> int:
        assert host == self.mapped.pop(buffer)
        return self._now("unmap")

    def _release(self, buffer: int, size: int) -> None:
        assert buffer not in self.mapped
        super()._release(buffer, size)

    def _run(self, queue: int, work: Any, state: int) -> int:
        assert not self.mapped, "a step runs while a buffer is mapped"
        return super()._run(queue, work, state)


@pytest.mark.parametrize("fields", [{}, {"alignment": 4096}, {"padding": 100, "largest_buffer": 18_000}], ids=str)
def test_constants_are_written_through_a_mapping_of_the_whole_buffer(fields: dict[str, int]) -> None:
    device, graph = Visible(ALL, **fields), layers()
    with Chain(graph.to_bytes()) as chain:
        chain.make_plan(devices=device.pointers, device_count=1).make_session()
        assert device.count("map") == device.count("unmap") == len(device.sizes) and not device.mapped
        assert len(device.sizes) == 3  # three constants of 16 KiB
        assert sum(device.sizes) == info_of_device(chain.plan).constants
        assert device.count("upload") == 0
        chain.set({"x": X})
        for _ in range(2):
            np.testing.assert_allclose(chain.run().output(), run(linnet.Session(graph)), rtol=1e-5, atol=1e-6)
        assert device.count("map") == len(device.sizes)  # in the session's creation alone
    assert device.nothing_left()


def test_nothing_is_mapped_if_there_are_no_constants() -> None:
    """Variables have memory among the constants, but a run uploads them."""
    device, graph = Visible(ALL), layers(variables=True)
    session = linnet.Session(graph, devices=[device])
    np.testing.assert_allclose(run(session), run(linnet.Session(graph)), rtol=1e-5, atol=1e-6)
    assert device.count("run") > 0 and device.count("map") == device.count("unmap") == 0 and not device.faults


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize(("function", "text"), [("map", "map a buffer"), ("unmap", "unmap a buffer")])
def test_a_failing_map_or_unmap_is_an_error_and_leaves_nothing(function: str, text: str, nth: int) -> None:
    """Three mappings, of which the nth fails; the buffers before it are released with their sizes."""
    device, allocator = Visible(ALL, largest_buffer=18_000), Allocator()
    device.failing, device.fail_at = function, nth
    data = layers().to_bytes()
    with Chain(data, allocator) as chain, pytest.raises(Failure) as caught:
        chain.make_plan(devices=device.pointers, device_count=1, allocator=allocator.struct).make_session()
    assert caught.value.status == 501
    assert f"device python failed to {text}" in str(caught.value) and "code 9: told to fail" in str(caught.value)
    assert device.count(function) == nth  # no call after the failure
    assert not device.mapped and device.nothing_left() and not allocator.live and not allocator.faults
    device.failing = ""
    with Chain(data) as chain:  # and the device works again
        chain.make_plan(devices=device.pointers, device_count=1).make_session().set({"x": X})
        np.testing.assert_allclose(chain.run().output(), run(linnet.Session(data)), rtol=1e-5, atol=1e-6)
    assert device.nothing_left()


# ---- the program cache -------------------------------------------------------------------------------------------------


class Cache:
    """A linnet_program_cache in memory. `log`: the calls, with keys and sizes. full: `store` drops what it gets."""

    def __init__(self, full: bool = False) -> None:
        self.programs: dict[bytes, bytes] = {}
        self.log: list[tuple[str, bytes, int]] = []
        self.context = ffi.new_handle(self)

        self.faults: list[BaseException] = []  # what the functions raised, which C code cannot see

        def raised(_: object, fault: BaseException, __: object) -> None:
            self.faults.append(fault)

        @ffi.callback("size_t(void *, const char *, void *, size_t)", onerror=raised)
        def load(context: Any, key: Any, data: Any, size: int) -> int:
            assert ffi.from_handle(context) is self
            program = self.programs.get(ffi.string(key), b"")
            self.log.append(("load", ffi.string(key), size))
            if len(program) <= size:
                ffi.memmove(data, program, len(program))
            return len(program)

        @ffi.callback("void(void *, const char *, const void *, size_t)", onerror=raised)
        def store(context: Any, key: Any, data: Any, size: int) -> None:
            assert ffi.from_handle(context) is self
            self.log.append(("store", ffi.string(key), size))
            if not full:
                self.programs[ffi.string(key)] = bytes(ffi.buffer(data, size))

        self._keep = (load, store)
        self.struct = ffi.new("linnet_program_cache *", {
            "struct_size": ffi.sizeof("linnet_program_cache"), "context": self.context, "load": load, "store": store,
        })  # fmt: skip


class Compiling(PyDevice):
    """Compiles a "program" per shape in `prepare`, unless the cache has it; `run` checks that there is no cache then."""

    def __init__(self) -> None:
        super().__init__(HEAVY)
        self.compiled, self.without = 0, 0
        self.works: dict[int, bytes] = {}

    def _prepare(self, queue: int, work: Any, state: Any) -> int:
        program = b"program of %d bytes" % work.outputs[0][0].bytes
        key = b"python matmul %d" % work.outputs[0][0].bytes
        if work.cache == NULL:
            self.without += 1
        else:
            cache = work.cache
            assert cache.struct_size == ffi.sizeof("linnet_program_cache")
            size = cache.load(cache.context, key, NULL, 0)
            room = ffi.new("char[]", max(size, 1))
            if size and cache.load(cache.context, key, room, size) == size:
                assert bytes(ffi.buffer(room, size)) == program
            else:
                self.compiled += 1
                cache.store(cache.context, key, ffi.from_buffer(program), len(program))
        self._new(state)
        self.works[state[0]] = program
        return 0

    def _unprepare(self, state: int) -> None:
        del self.works[state]
        self.objects.remove(state)

    def _run(self, queue: int, work: Any, state: int) -> int:
        assert work.cache == NULL and state in self.works
        return super()._run(queue, work, state)


def _session(chain: Chain, device: PyDevice, cache: Cache | None) -> None:
    chain.make_plan(devices=device.pointers, device_count=1)
    chain.make_session(**({} if cache is None else {"program_cache": cache.struct}))
    chain.set({"x": X}).run()
    np.testing.assert_allclose(chain.output(), run(linnet.Session(layers())), rtol=1e-5, atol=1e-6)
    assert cache is None or not cache.faults, cache.faults


def test_a_device_finds_its_programs_in_the_cache() -> None:
    """The first of three equal steps is compiled; the other two and a second session find the program."""
    device, cache = Compiling(), Cache()
    key, size = b"python matmul 2048", len(b"program of 2048 bytes")
    for _ in range(2):
        with Chain(layers().to_bytes()) as chain:
            _session(chain, device, cache)
        assert device.compiled == 1 and device.without == 0 and device.nothing_left()
    found = [("load", key, 0), ("load", key, size)]
    assert cache.log == [("load", key, 0), ("store", key, size), *found * 5]
    assert cache.programs == {key: b"program of 2048 bytes"}


def test_a_session_without_a_cache_gives_none() -> None:
    device = Compiling()
    with Chain(layers().to_bytes()) as chain:
        _session(chain, device, None)
    assert device.without == 3 and device.compiled == 0 and device.nothing_left()


def test_a_cache_that_stores_nothing_changes_nothing() -> None:
    device, cache = Compiling(), Cache(full=True)
    with Chain(layers().to_bytes()) as chain:
        _session(chain, device, cache)
    assert device.compiled == 3 and device.nothing_left()
    assert [call for call, _, _ in cache.log] == ["load", "store"] * 3


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_prepare_that_fails_after_it_used_the_cache_leaves_nothing(nth: int) -> None:
    class Failing(Compiling):
        def _prepare(self, queue: int, work: Any, state: Any) -> int:
            if self.count("prepare") == nth:
                cache = work.cache
                assert cache != NULL and cache.load(cache.context, b"unknown", NULL, 0) == 0
                return 9
            return super()._prepare(queue, work, state)

    device, cache, allocator = Failing(), Cache(), Allocator()
    with Chain(layers().to_bytes(), allocator) as chain, pytest.raises(Failure) as caught:
        chain.make_plan(devices=device.pointers, device_count=1, allocator=allocator.struct)
        chain.make_session(program_cache=cache.struct)
    assert caught.value.status == 501 and "device python failed to prepare a step" in str(caught.value)
    assert not cache.faults and not device.works and device.count("unprepare") == nth - 1
    assert device.nothing_left() and not allocator.live and not allocator.faults
