"""Constants on a device belong to the model: sessions share them, whatever their plans, and the last one releases them."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest

import linnet
from linnet import ops
from linnet.facade import Graph
from tests.capi import Allocator, Chain, Failure, ffi, lib, new_struct
from tests.opencl_device import opencl_device
from tests.py_device import PyDevice
from tests.test_device_bodies import FEEDS, Floats, agree, recurrent
from tests.test_device_callbacks import Visible
from tests.test_devices import X, info_of_device, layers, weights

ALL = {"matmul": 1.0, "map": 1.0}
BYTES = 64 * 64 * 4  # of a constant of `layers` and of `model`


def model() -> linnet.Model:
    """x [n, 64] times two constants (`infer`), and times the first one alone (`first`)."""
    graph = Graph()
    x = graph.placeholder("x", (None, 64))
    a, b = (graph.constant(weights(64, 64, seed=i), f"w{i}") for i in range(2))
    first = x @ a
    graph.signature("infer", {"x": x}, {"y": first @ b})
    graph.signature("first", {"x": x}, {"y": first})
    return linnet.Model(graph)


def session_of(of: linnet.Model, device: PyDevice | None, rows: int = 8, signature: str = "infer") -> linnet.Session:
    devices = [] if device is None else [device]
    return linnet.Session(of, signature, devices=devices, input_shapes={"x": (rows, 64)})


def compare(of: linnet.Model, session: linnet.Session, rows: int = 8, signature: str = "infer") -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
    want = session_of(of, None, rows, signature).run({"x": x})["y"]
    np.testing.assert_allclose(session.run({"x": x})["y"], want, rtol=1e-4, atol=1e-5)


def constants(device: PyDevice) -> int:
    """The number of buffers of the size of a constant. The other buffers of these tests are smaller."""
    return sum(len(b) == BYTES for b in device.buffers.values())


@pytest.mark.parametrize("make", [PyDevice, Visible])
@pytest.mark.parametrize(("rows", "signature"), [(8, "infer"), (3, "infer"), (8, "first"), (5, "first")])
def test_a_second_session_uploads_and_allocates_no_constants(make: Any, rows: int, signature: str) -> None:
    device, of = make(ALL), model()
    one = session_of(of, device)
    held, writes = constants(device), device.count("upload") + device.count("map")
    assert held == writes == 2
    two = session_of(of, device, rows, signature)
    assert constants(device) == 2 and device.count("upload") + device.count("map") == 2
    compare(of, one)
    compare(of, two, rows, signature)
    del one  # the other session keeps what it uses
    assert constants(device) == (2 if signature == "infer" else 1)
    compare(of, two, rows, signature)
    three = session_of(of, device)
    assert device.count("upload") + device.count("map") >= 2
    compare(of, three)
    del two, three
    assert device.nothing_left()
    compare(of, session_of(of, device))  # and then they are uploaded again
    assert device.nothing_left()


def test_devices_and_models_do_not_share() -> None:
    first, second, of = PyDevice(ALL, "first"), PyDevice(ALL, "second"), model()
    sessions = [session_of(of, first), session_of(of, second), session_of(model(), first)]
    assert constants(first) == 4 and constants(second) == 2
    for session in sessions:
        compare(of, session)
    del session
    sessions.clear()
    assert first.nothing_left() and second.nothing_left()


def test_the_plan_counts_a_constant_once_however_many_steps_and_bodies_read_it() -> None:
    """The graph and the bodies of a loop and of a branch read `w`, once in the other shape."""
    graph = linnet.Graph()
    x, flip = graph.placeholder("x", (16, 8, 8)), graph.placeholder("flip", (), "bool")
    w = graph.constant(weights(8, 8), "w")
    start = x[0] @ w + w.reshape(1, 8, 8)[0]

    def step(h: Any, row: Any) -> Any:
        h = linnet.cond(flip, lambda: h @ w + row, lambda: h * w)
        return h @ w, h

    last, rows = linnet.scan(step, start, x)
    graph.signature("infer", {"x": x, "flip": flip}, {"last": last, "rows": rows})
    device = Floats({"matmul": 0.0, "map": 0.0})
    values = {"x": np.random.default_rng(1).standard_normal((16, 8, 8)).astype(np.float32) / 9, "flip": np.bool_(True)}
    with Chain(graph.to_bytes()) as chain:
        chain.make_plan(devices=device.pointers, device_count=1).make_session().set(values).run()
        info, held = info_of_device(chain.plan), sum(map(len, device.buffers.values()))
        assert info.constants == 8 * 8 * 4 and info.total == held == chain.info().devices
        want = linnet.Session(graph).run(values)
        agree({"last": chain.output(0), "rows": chain.output(1)}, want)
    assert device.nothing_left()


def test_folded_constants_are_shared_by_their_content() -> None:
    """They have no address in the file, and each plan computes them again."""
    graph = Graph()
    x, a = graph.placeholder("x", (None, 64)), graph.constant(weights(64, 64))
    graph.signature("infer", {"x": x}, {"y": x @ ops.exp(a)})
    device, of = PyDevice({"matmul": 1.0}), linnet.Model(graph)
    sessions = [session_of(of, device, rows) for rows in (8, 3)]
    assert constants(device) == device.count("upload") == 1
    for session, rows in zip(sessions, (8, 3), strict=True):
        compare(of, session, rows)
    sessions.pop(0)
    compare(of, sessions[0], 3)
    del session
    sessions.clear()
    assert device.nothing_left()


def another(chain: Chain, allocator: Allocator | None = None, **fields: Any) -> Any:
    """A second session of the chain's plan."""
    config, out = new_struct("linnet_session_config"), ffi.new("linnet_session **")
    if allocator is not None:
        config.allocator = allocator.struct
    for name, value in fields.items():
        setattr(config, name, value)
    status = lib().linnet_session_create(chain.plan, ffi.NULL, config, out, chain.error)
    if status:
        raise Failure(status, chain.error)
    return out[0]


class Limited(Visible):
    """Its `at`-th call of `function` fails, counted from when `at` was set."""

    def __init__(self, cost: dict[str, float], visible: bool) -> None:
        super().__init__(cost)
        self._fields["host_visible"] = int(visible)

    def _upload(self, *arguments: Any) -> int:
        return self._now("upload") or super()._upload(*arguments)

    def _allocate(self, *arguments: Any) -> int:
        return self._now("allocate") or super()._allocate(*arguments)

    def _finish(self, queue: int) -> int:
        return self._now("finish")


@pytest.mark.parametrize(("function", "visible"), [
    ("allocate", False), ("upload", False), ("finish", False), ("allocate", True), ("map", True), ("unmap", True),
])  # fmt: skip
def test_a_failure_leaves_nothing_that_another_session_could_find(function: str, visible: bool) -> None:
    for nth in itertools.count(1):
        device = Limited(ALL, visible)
        with Chain(layers().to_bytes()) as chain:
            chain.make_plan(devices=device.pointers, device_count=1)
            device.failing, device.fail_at = function, nth
            try:
                chain.make_session()
            except Failure as error:
                assert error.status == 501 and not device.buffers and not device.objects
            else:
                break
            device.failing = ""
            chain.make_session().set({"x": X}).run()
            np.testing.assert_allclose(chain.output(), linnet.Session(layers()).run({"x": X})["y"], rtol=1e-4)
        assert device.nothing_left()
    assert nth > (1 if function == "finish" else 3)


def test_constants_have_arrived_before_another_session_can_find_them() -> None:
    """An upload takes effect in `finish`, and a session of another thread may begin while this one prepares its steps."""

    class Late(PyDevice):
        def __init__(self) -> None:
            super().__init__(ALL)
            self.late: list[tuple[Any, bytes]] = []

        def _upload(self, queue: int, tensor: Any, to: Any, source: Any) -> int:
            self.late.append((self.at(to), bytes(ffi.buffer(source, tensor.bytes))))
            return 0

        def _finish(self, queue: int) -> int:
            for to, data in self.late:
                to[:] = data
            self.late.clear()
            return 0

        def _prepare(self, queue: int, work: Any, state: Any) -> int:
            assert not self.late
            return self._new(state)

        def _unprepare(self, state: int) -> None:
            self.objects.remove(state)

    device = Late()
    session = linnet.Session(layers(), devices=[device])
    assert device.count("prepare") and device.count("upload") == 3
    del session
    assert device.nothing_left()


def test_a_session_that_fails_keeps_what_others_use() -> None:
    """The second session has all constants when its own allocation, a queue or a step fails."""
    for function in ("allocate", "open", "create_event"):
        device = Limited(ALL, visible=False)
        with Chain(layers().to_bytes()) as chain:
            chain.make_plan(devices=device.pointers, device_count=1).make_session().set({"x": X})
            before = dict(device.buffers)
            device.fail[function] = 9
            with pytest.raises(Failure):
                another(chain)
            assert device.buffers == before
            np.testing.assert_allclose(chain.run().output(), linnet.Session(layers()).run({"x": X})["y"], rtol=1e-4)
        assert device.nothing_left()


def test_a_host_allocation_that_fails_keeps_the_constants_of_others() -> None:
    device = PyDevice(ALL)
    with Chain(layers().to_bytes()) as chain:
        chain.make_plan(devices=device.pointers, device_count=1).make_session().set({"x": X})
        before = set(device.buffers)
        for fail_at in range(100):
            allocator, session = Allocator(fail_at), None
            try:
                session = another(chain, allocator)
            except Failure as error:
                assert error.status == 401 and allocator.failed
            if session is not None:
                lib().linnet_session_free(session)
            assert set(device.buffers) == before and not allocator.live
            if not allocator.failed:
                break
        assert fail_at > 0 and device.count("upload") == 3
        chain.run()
    assert device.nothing_left()


@pytest.mark.parametrize("visible", [False, True])
def test_threads_that_create_sessions_at_once_write_each_constant_once(visible: bool) -> None:
    device, of = Limited(ALL, visible), model()
    shapes = [(rows, signature) for rows in (1, 2, 3, 4) for signature in ("infer", "first")]
    for _ in range(3):
        sessions: dict[tuple[int, str], linnet.Session] = {}
        faults: list[BaseException] = []
        gate = threading.Barrier(len(shapes))

        def work(rows: int, signature: str, sessions: Any = sessions, faults: Any = faults, gate: Any = gate) -> None:
            try:
                gate.wait()
                sessions[rows, signature] = session_of(of, device, rows, signature)
            except BaseException as fault:
                faults.append(fault)

        device.calls.clear()
        threads = [threading.Thread(target=work, args=shape) for shape in shapes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults and len(sessions) == len(shapes)
        assert constants(device) == device.count("map" if visible else "upload") == 2
        for (rows, signature), session in sessions.items():
            compare(of, session, rows, signature)
        del session
        sessions.clear()
        assert device.nothing_left()


def test_segments_and_bodies_share_with_later_sessions() -> None:
    device, of = Floats({"matmul": 0.0, "map": 0.0}), linnet.Model(recurrent())
    one = linnet.Session(of, devices=[device])
    uploads = device.count("upload")
    two = linnet.Session(of, devices=[device])
    assert uploads == 1 and device.count("upload") == 1
    agree(two.run(FEEDS), linnet.Session(of).run(FEEDS))
    del one
    agree(two.run(FEEDS), linnet.Session(of).run(FEEDS))
    del two
    assert device.nothing_left()


def test_sessions_share_on_opencl() -> None:
    opencl_device()
    of = model()
    sessions = [linnet.Session(of, device="opencl", input_shapes={"x": (rows, 64)}) for rows in (8, 8, 3)]
    assert all("opencl" in {step.device for step in session.steps} for session in sessions)
    for session, rows in zip(sessions, (8, 8, 3), strict=True):
        compare(of, session, rows)
    sessions.pop(0)
    compare(of, sessions[1], 3)
