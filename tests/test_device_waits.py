"""Waits for a device that the caller ends: a timeout, a cancellation and a poll take effect while the device works. The work
stays in the queue, and the next run completes it first."""
# Dear: PoCL compiles and runs products that take longer than a timeout.

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import linnet
from tests.capi import lib
from tests.opencl_device import opencl_device
from tests.py_device import PyDevice, ffi

PENDING = lib().LINNET_DEVICE_PENDING
X = np.arange(12, dtype=np.float32).reshape(3, 4)


class SlowDevice(PyDevice):
    """Its work is complete once `waits` waits have been asked for."""

    def __init__(self, waits: int, **fields: int) -> None:
        super().__init__({"matmul": 1.0}, **fields)
        self.waits = waits

    def _wait_until(self, event: int, ns: int) -> int:
        assert 0 <= ns <= 1e9
        time.sleep(1e-9 * ns)
        self.waits -= 1
        return PENDING if self.waits >= 0 else self._wait(event)


def session_on(device: Any) -> linnet.Session:
    graph = linnet.Graph()
    x = graph.placeholder("x", (3, 4))
    y = x @ graph.constant(np.ones((4, 5), np.float32), "w")
    graph.signature("infer", {"x": x}, {"y": y})
    return linnet.Session(graph, device=device)


def test_a_slow_device_is_waited_for() -> None:
    device = SlowDevice(waits=4)
    session = session_on(device)
    np.testing.assert_array_equal(session.run({"x": X}, timeout=60)["y"], X @ np.ones((4, 5), np.float32))
    assert device.count("wait_until") == 5
    del session
    assert device.nothing_left()


def test_a_timeout_ends_a_wait_and_the_next_run_completes_the_work() -> None:
    device = SlowDevice(waits=10**9)
    session = session_on(device)
    began, finished = time.monotonic(), device.count("finish")
    with pytest.raises(linnet.DeadlineExceeded):
        session.run({"x": X}, timeout=0.1)
    assert 0.09 < time.monotonic() - began < 60  # the device never finishes
    assert device.count("finish") == finished, "the call does not wait for a device that may hang"
    with pytest.raises(linnet.DeadlineExceeded, match="still had earlier work"):
        session.run({"x": X}, timeout=0.1)
    device.waits = 3
    np.testing.assert_array_equal(session.run({"x": X}, timeout=60)["y"], X @ np.ones((4, 5), np.float32))
    device.waits = 10**9
    with pytest.raises(linnet.DeadlineExceeded):
        session.run({"x": X}, timeout=0.1)
    del session
    assert device.count("finish") > finished and device.nothing_left()


def test_a_cancellation_ends_a_wait() -> None:
    import threading

    device = SlowDevice(waits=10**9)
    session = session_on(device)
    threading.Timer(0.1, session.cancel).start()
    with pytest.raises(linnet.Cancelled):
        session.run({"x": X})


def test_a_failed_wait_of_earlier_work_is_reported_once() -> None:
    device = SlowDevice(waits=10**9)
    session = session_on(device)
    with pytest.raises(linnet.DeadlineExceeded):
        session.run({"x": X}, timeout=0.05)
    device.waits, device.fail["wait_until"] = 0, 7
    with pytest.raises(linnet.DeviceError, match="earlier work"):
        session.run({"x": X}, timeout=60)
    del device.fail["wait_until"]
    assert session.run({"x": X}, timeout=60)["y"].shape == (3, 5)


def test_a_device_without_waits_that_end_is_waited_for() -> None:
    device = PyDevice({"matmul": 1.0})
    device.struct.wait_until = ffi.NULL
    assert session_on(device).run({"x": X}, timeout=60)["y"].shape == (3, 5)
    assert device.count("wait") > 0


def test_a_run_on_opencl_ends_in_time() -> None:
    """A product that takes far longer than the timeout. The session runs again afterwards."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (1024, 1024))
    y = x
    for _ in range(12):
        y = y @ graph.constant(np.eye(1024, dtype=np.float32))
    graph.signature("infer", {"x": x}, {"y": y})
    session = linnet.Session(graph, device=opencl_device())
    feeds = {"x": np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)}
    began = time.monotonic()
    session.run(feeds)
    whole = time.monotonic() - began
    with pytest.raises(linnet.DeadlineExceeded):
        session.run(feeds, timeout=min(0.02, whole / 8))
    np.testing.assert_allclose(session.run(feeds)["y"], feeds["x"], rtol=1e-5)
