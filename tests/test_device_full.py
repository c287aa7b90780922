"""A device with too little memory: what a session and a plan say, and with which numbers."""

from __future__ import annotations

from typing import Any

import pytest

import linnet
from tests.capi import Chain, Failure, ffi
from tests.py_device import PyDevice
from tests.test_device_callbacks import Visible
from tests.test_devices import X, info_of_device, layers, training

ALL = {"matmul": 1.0, "map": 1.0}
FULL = 1000001  # LINNET_DEVICE_FULL
OUT_OF_MEMORY, TOO_LARGE = 401, 306


class Small(Visible):
    """Has `memory` bytes, of which it reports what `says` names."""

    def __init__(self, memory: int, says: str = "both", **fields: int) -> None:
        super().__init__(ALL, **fields)
        self._fields["host_visible"] = 0
        self.memory, self.says = memory, says

    def _allocate(self, size: int, buffer: Any) -> int:
        if sum(map(len, self.buffers.values())) + size > self.memory:
            return FULL
        return super()._allocate(size, buffer)

    def _about(self, about: Any) -> int:
        if self.says in ("both", "memory"):
            about.memory = self.memory
        if self.says == "both":
            about.memory_free = self.memory - sum(map(len, self.buffers.values()))
        return 9 if self.says == "fails" else 0


def session_fails(device: PyDevice) -> Failure:
    with Chain(layers().to_bytes()) as chain, pytest.raises(Failure) as caught:
        chain.make_plan(devices=device.pointers, device_count=1).make_session()
    assert device.nothing_left()
    return caught.value


@pytest.mark.parametrize(("says", "got"), [
    ("both", ""), ("memory", "50000 bytes in all"), ("nothing", ""), ("fails", ""),
])  # fmt: skip
def test_a_full_device_is_out_of_memory_with_both_numbers(says: str, got: str) -> None:
    device = Small(50_000, says)
    error = session_fails(device)
    assert error.status == OUT_OF_MEMORY
    assert ffi.string(error.record.what).decode() == "device python has too little memory to allocate memory"
    assert ffi.string(error.record.expected).decode() == "16384 bytes"
    want = f"{50_000 - 2 * 16_384 - 4_096} bytes that are free" if says == "both" else got
    assert ffi.string(error.record.got).decode() == want
    assert "without this device" in ffi.string(error.record.hint).decode()


@pytest.mark.parametrize("function", ["prepare", "upload", "run", "finish", "wait"])
def test_other_functions_may_find_that_the_device_is_full(function: str) -> None:
    class Prepared(Small):
        def _prepare(self, queue: int, work: Any, state: Any) -> int:
            return self._new(state)

        def _unprepare(self, state: int) -> None:
            self.objects.remove(state)

    device = Prepared(1 << 30, "memory")
    device.fail[function] = FULL
    with Chain(training().to_bytes()) as chain, pytest.raises(Failure) as caught:
        chain.make_plan(devices=device.pointers, device_count=1).make_session().set({"x": X}).run()
    assert caught.value.status == OUT_OF_MEMORY and f"{1 << 30} bytes in all" in str(caught.value)
    assert device.nothing_left()


def test_a_plan_may_have_a_limit_for_its_devices() -> None:
    device = PyDevice(ALL)
    with Chain(layers().to_bytes()) as chain:
        chain.make_plan(devices=device.pointers, device_count=1)
        total = int(info_of_device(chain.plan).total)
    for most, fits in ((total, True), (0, True), (total - 1, False), (1, False)):
        with Chain(layers().to_bytes()) as chain:
            if fits:
                chain.make_plan(devices=device.pointers, device_count=1, max_device_bytes=most).make_session()
                continue
            with pytest.raises(Failure) as caught:
                chain.make_plan(devices=device.pointers, device_count=1, max_device_bytes=most)
            assert caught.value.status == TOO_LARGE
            for text in ("on device python", f"at most {most} bytes", f"{total} bytes", "max_device_bytes"):
                assert text in str(caught.value)
    with Chain(layers().to_bytes()) as chain:  # without a device there is nothing to limit
        chain.make_plan(max_device_bytes=1).make_session()
    assert device.nothing_left()


def test_the_limit_holds_for_each_device_alone() -> None:
    first, second = PyDevice({"matmul": 1.0}, "first"), PyDevice({"map": 1.0}, "second")
    both = ffi.new("const linnet_device *[2]", [first.struct, second.struct])
    with Chain(layers().to_bytes()) as chain:
        chain.make_plan(devices=both, device_count=2)
        totals = [int(info_of_device(chain.plan, i).total) for i in range(2)]
    assert totals[0] > totals[1] > 0
    with Chain(layers().to_bytes()) as chain:
        chain.make_plan(devices=both, device_count=2, max_device_bytes=totals[0])
    with Chain(layers().to_bytes()) as chain, pytest.raises(Failure, match="on device first"):
        chain.make_plan(devices=both, device_count=2, max_device_bytes=totals[1])


def test_a_session_takes_a_limit() -> None:
    device, graph = PyDevice(ALL), layers()
    with pytest.raises(linnet.GraphError, match="max_device_bytes") as caught:
        linnet.Session(graph, device=device, max_device_bytes=1000)
    assert "at most 1000 bytes" in caught.value.expected and caught.value.got.endswith("bytes")
    assert linnet.Session(graph, device=device, max_device_bytes=10**7).memory["devices"] > 0
    with pytest.raises(linnet.UsageError):
        linnet.Session(graph, device=device, max_device_bytes=-1)
