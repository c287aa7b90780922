"""Runs that are submitted, and inputs and outputs in a device's memory: Binding.submit and wait, DeviceArray, and the C
functions below them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import linnet
from tests.opencl_device import opencl_device
from tests.py_device import PyDevice, ffi
from tests.test_device_waits import SlowDevice

X = np.arange(12, dtype=np.float32).reshape(3, 4)
W = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
WANT = X @ W


def product(also: str = "") -> linnet.Graph:
    """y = x @ w. also: "input": z = exp(x), which the CPU computes; "output": z = exp(y)."""
    graph = linnet.Graph()
    x = graph.placeholder("x", (3, 4))
    y = x @ graph.constant(W, "w")
    outputs = {"y": y}
    if also:
        outputs["z"] = linnet.ops.exp(x if also == "input" else y)
    graph.signature("infer", {"x": x}, outputs)
    return graph


def python_device(**fields: int) -> PyDevice:
    return PyDevice({"matmul": 1.0}, **fields)


# ---- arrays on a device ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["python", "opencl"])
def test_arrays_keep_their_values(where: str) -> None:
    device = python_device(padding=32) if where == "python" else opencl_device()
    array = linnet.DeviceArray(device, (3, 4))
    array.write(X)
    np.testing.assert_array_equal(array.read(), X)
    whole = linnet.DeviceArray(device, (4 * array.alignment,), "i8")
    part = whole.part(2 * array.alignment, (5,), "i16")
    part.write(np.arange(5, dtype=np.int16))
    np.testing.assert_array_equal(part.read(), np.arange(5))
    at = 2 * array.alignment
    assert bytes(whole.read())[at : at + 10] == np.arange(5, dtype=np.int16).tobytes()
    assert linnet.DeviceArray(device, (0, 3)).read().shape == (0, 3)
    assert repr(part) == f"DeviceArray('{device.name}', [5], 'i16')"
    for wrong in (X.astype(np.float64), X[:2]):
        with pytest.raises(linnet.UsageError, match="do not fit"):
            array.write(wrong)
    for bad in ((1, (4,)), (array.alignment * 4, (1,)), (-64, (1,))):
        with pytest.raises(linnet.UsageError, match="not inside"):
            whole.part(*bad)
    with pytest.raises(linnet.UsageError, match="shape or dtype of the array"):
        linnet.DeviceArray(device, (3,), "i4")
    del array, whole, part
    if where == "python":
        assert device.nothing_left()


def test_a_full_or_failing_device_is_an_error() -> None:
    device = python_device()
    device.fail["allocate"] = 1000001
    with pytest.raises(linnet.ResourceError, match="too little memory"):
        linnet.DeviceArray(device, (3, 4))
    del device.fail["allocate"]
    array = linnet.DeviceArray(device, (3, 4))
    device.fail["upload"] = 7
    with pytest.raises(linnet.DeviceError, match="told to fail"):
        array.write(X)
    del array
    assert device.nothing_left()


# ---- inputs and outputs there ----------------------------------------------------------------------------------------


def test_the_host_sees_nothing_of_values_that_stay() -> None:
    device = python_device()
    session = linnet.Session(product(), device=device)
    x, y = linnet.DeviceArray(device, (3, 4)), linnet.DeviceArray(device, (3, 5))
    binding = session.bind({"x": x}, {"y": y})
    x.write(X)
    before = device.count("upload"), device.count("download"), device.count("copy")
    for _ in range(3):
        assert binding.run()["y"] is y
    assert (device.count("upload"), device.count("download")) == before[:2]
    assert device.count("copy") == before[2] + 6
    np.testing.assert_array_equal(y.read(), WANT)
    x.write(X + 1)
    binding.run()
    np.testing.assert_array_equal(y.read(), (X + 1) @ W)
    del session, binding, x, y
    assert device.nothing_left()


@pytest.mark.parametrize("also", ["input", "output"])
@pytest.mark.parametrize("shared", [0, 1])
def test_values_that_the_host_needs_too_go_through_it(also: str, shared: int) -> None:
    device = importing_device() if shared else python_device()
    session = linnet.Session(product(also), device=device)
    x, y, z = (linnet.DeviceArray(device, shape) for shape in ((3, 4), (3, 5), (3, 4 if also == "input" else 5)))
    x.write(X)
    binding = session.bind({"x": x}, {"y": y, "z": z})
    for _ in range(2):
        binding.submit()
        binding.wait()
        np.testing.assert_array_equal(y.read(), WANT)
        np.testing.assert_allclose(z.read(), np.exp(X if also == "input" else WANT), rtol=2e-6)


def importing_device() -> PyDevice:
    class Importing(PyDevice):
        def _import(self, host: Any, size: int, buffer: Any) -> int:
            self._new(buffer)
            self.buffers[buffer[0]] = ffi.buffer(host, size)
            return 0

    return Importing({"matmul": 1.0}, shared=1)


def test_part_of_the_memory_is_on_the_host() -> None:
    device = python_device()
    session = linnet.Session(product(), device=device)
    y = linnet.DeviceArray(device, (3, 5))
    x = session.empty("x")
    x[:] = X
    session.bind({"x": x}, {"y": y}).run()
    np.testing.assert_array_equal(y.read(), WANT)
    where = linnet.DeviceArray(device, (3, 4))
    where.write(X)
    np.testing.assert_array_equal(session.bind({"x": where}).run()["y"], WANT)


def test_a_result_is_the_next_input() -> None:
    """Two sessions on OpenCL; the value between them never leaves the device, and begins within a buffer."""
    device = opencl_device()
    first = linnet.Session(product(), device=device)
    graph = linnet.Graph()
    y = graph.placeholder("y", (3, 5))
    graph.signature("infer", {"y": y}, {"s": linnet.ops.softmax(y)})
    second = linnet.Session(graph, device=device)
    room = linnet.DeviceArray(device, (4096,), "u8")
    x, between = linnet.DeviceArray(device, (3, 4)), room.part(2048, (3, 5), "f32")
    a, b = first.bind({"x": x}, {"y": between}), second.bind({"y": between})
    for factor in (1, 2):
        x.write(factor * X)
        a.run()
        want = np.exp(factor * WANT - (factor * WANT).max(1, keepdims=True))
        np.testing.assert_allclose(b.run()["s"], want / want.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    device, other = python_device(), python_device()
    session = linnet.Session(product(), device=device)
    with pytest.raises(linnet.UsageError, match="wrong dtype"):
        session.bind({"x": linnet.DeviceArray(device, (3, 4), "i32")})
    with pytest.raises(linnet.UsageError, match="shape"):
        session.bind({"x": session.empty("x")}, {"y": linnet.DeviceArray(device, (5, 3))})
    with pytest.raises(linnet.UsageError, match="does not contain this device"):
        session.bind({"x": linnet.DeviceArray(other, (3, 4))})
    with pytest.raises(linnet.UsageError, match="does not contain this device"):
        linnet.Session(product()).bind({"x": linnet.DeviceArray(device, (3, 4))})


def test_a_copy_that_fails_is_reported_and_the_next_run_works() -> None:
    device = python_device()
    session = linnet.Session(product(), device=device)
    x = linnet.DeviceArray(device, (3, 4))
    x.write(X)
    binding = session.bind({"x": x})
    device.fail["copy"] = 9
    with pytest.raises(linnet.DeviceError, match="upload a value"):
        binding.run()
    del device.fail["copy"]
    np.testing.assert_array_equal(binding.run()["y"], WANT)


# ---- submitted runs --------------------------------------------------------------------------------------------------


def test_several_runs_are_in_the_queue() -> None:
    """The host does not wait before `wait`, and each run gets the memory that was bound when it was submitted."""
    device = SlowDevice(waits=0)
    session = linnet.Session(product(), device=device)
    x, y = session.empty("x"), session.empty("y")
    binding = session.bind({"x": x}, {"y": y})
    binding.run()
    waited = device.count("wait") + device.count("wait_until")
    for i in range(4):
        x[:] = X + i
        binding.submit()
    assert device.count("wait") + device.count("wait_until") == waited
    device.waits = 2
    assert binding.wait()["y"] is y
    np.testing.assert_array_equal(y, (X + 3) @ W)
    assert binding.wait()["y"] is y, "nothing is left to wait for"


def test_a_wait_that_ends_early_can_be_repeated() -> None:
    device = SlowDevice(waits=10**9)
    session = linnet.Session(product(), device=device)
    x = session.empty("x")
    x[:] = X
    binding = session.bind({"x": x})
    binding.submit()
    began = time.monotonic()
    with pytest.raises(linnet.DeadlineExceeded):
        binding.wait(timeout=0.05)
    assert time.monotonic() - began < 60  # not until the device has finished, which is never
    device.waits = 1
    np.testing.assert_array_equal(binding.wait(timeout=60)["y"], WANT)
    device.fail["wait_until"] = 5
    binding.submit()
    with pytest.raises(linnet.DeviceError, match="told to fail"):
        binding.wait()
    del device.fail["wait_until"]
    binding.submit()
    np.testing.assert_array_equal(binding.wait()["y"], WANT)
    device.waits = 10**9
    binding.submit()
    del binding, session
    assert device.nothing_left()


@pytest.mark.parametrize("devices", [0, 1])
def test_without_a_device_or_with_steps_of_the_cpu_results_are_the_same(devices: int) -> None:
    session = linnet.Session(product("output"), devices=[python_device()] * devices)
    x = session.empty("x")
    binding = session.bind({"x": x})
    for i in range(3):
        binding.wait()
        x[:] = X + i
        binding.submit()
        binding.submit()
        got = binding.wait()
        np.testing.assert_allclose(got["y"], (X + i) @ W, rtol=1e-6)
        np.testing.assert_allclose(got["z"], np.exp((X + i) @ W), rtol=1e-5)


def test_a_variable_that_changes_is_on_the_device_before_the_call_returns() -> None:
    device = SlowDevice(waits=0)
    graph = linnet.Graph()
    x = graph.placeholder("x", (3, 4))
    w = graph.variable("w", W)
    graph.signature("infer", {"x": x}, {"y": x @ w})
    session = linnet.Session(graph, device=device)
    xs = session.empty("x")
    xs[:] = X
    binding = session.bind({"x": xs})
    for factor in (1.0, 2.0):
        session.variables["w"] = (factor * W).astype(np.float32)
        waited = device.count("wait_until") + device.count("wait")
        binding.submit()
        assert device.count("wait_until") + device.count("wait") == waited + 1
        binding.submit()
        np.testing.assert_allclose(binding.wait()["y"], factor * WANT, rtol=1e-6)


def test_training_steps_run_to_their_end() -> None:
    graph = linnet.Graph()
    x = graph.placeholder("x", (3, 4))
    w = graph.variable("w", W)
    y = x @ w
    loss = (y * y).mean()
    graph.signature("train", {"x": x}, {"loss": loss}, updates=linnet.SGD(0.01).minimize(loss))
    losses = []
    for device in (python_device(), None):
        session = linnet.Session(graph, "train", device=device)
        xs = session.empty("x")
        xs[:] = X
        binding = session.bind({"x": xs})
        for _ in range(3):
            binding.submit()
        losses.append(float(binding.wait()["loss"]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0] < float((WANT * WANT).mean())


def test_opencl_queues_runs() -> None:
    device = opencl_device()
    session = linnet.Session(product(), device=device)
    x, y = linnet.DeviceArray(device, (3, 4)), linnet.DeviceArray(device, (3, 5))
    x.write(X)
    binding = session.bind({"x": x}, {"y": y})
    for _ in range(100):
        binding.submit()
    binding.wait(timeout=60)
    np.testing.assert_allclose(y.read(), WANT, rtol=1e-5)


class CollectingDevice(PyDevice):
    """It begins nothing before it is told to."""

    def _flush(self, queue: int) -> int:
        return 0


def test_a_device_that_collects_work_is_told_to_begin_once() -> None:
    device = CollectingDevice({"matmul": 1.0})
    session = linnet.Session(product("output"), device=device)
    device.calls.clear()
    np.testing.assert_array_equal(session.run({"x": X})["y"], WANT)
    calls = [call for call in device.calls if call != "record"]
    assert calls.count("flush") == 1
    assert calls.index("download") + 1 == calls.index("flush") == calls.index("wait") - 1
    device.fail["flush"] = 7
    with pytest.raises(linnet.DeviceError, match=r"begin what was submitted.*told to fail"):
        session.run({"x": X})
    del device.fail["flush"]
    x, y = linnet.DeviceArray(device, (3, 4)), linnet.DeviceArray(device, (3, 5))
    binding = linnet.Session(product(), device=device).bind({"x": x}, {"y": y})
    x.write(X)
    device.calls.clear()
    binding.submit()
    assert device.count("flush") == 1 and device.count("wait") == 0
    binding.wait()
    np.testing.assert_array_equal(y.read(), WANT)
