"""Checks of a device's interface, with cases that the device takes: sessions on two threads, another batch size, the
number of bytes that `allocate` is asked for, and times of steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from linnet.clib.errors import Error
from linnet.clib.ffi import ffi
from linnet.clib.library import library, new_struct
from linnet.conformance.case import Array, Case
from linnet.conformance.report import Finding
from linnet.conformance.running import Batch, batch_of, session_on
from linnet.facade import Graph
from linnet.session.device import Device
from linnet.session.session import Session

_RUNS = 5  # runs of each of the two threads
_FLOATS_AGREE = 1e-4


class _Skipped(Exception):
    """A check that this device does not need; its text says why."""


def check_interface(device: Device, taken: Sequence[Case]) -> list[Finding]:
    """Makes all checks. taken: cases that run on the device and agree with the CPU."""
    found: list[Finding] = []
    checks: dict[str, Callable[[Device, Batch], str]] = {
        "two sessions on two threads give the results of one": _threads,
        "a session with another batch size agrees": _batch_size,
        "allocate gets the bytes that the plan states": _bytes,
        "a traced session has the times of steps": _trace,
    }
    batch = batch_of(taken) if taken else None
    for name, check in checks.items():
        try:
            if batch is None:
                raise _Skipped("the device could run none of the cases")
            why = check(device, batch)
            found.append(Finding(name, "failed" if why else "passed", why))
        except _Skipped as reason:
            found.append(Finding(name, "skipped", str(reason)))
        except Error as error:
            found.append(Finding(name, "failed", " ".join(str(error).split())))
    return found


def _same(a: dict[str, Array], b: dict[str, Array]) -> bool:
    return all(a[name].tobytes() == b[name].tobytes() for name in a)


def _threads(device: Device, batch: Batch) -> str:
    want = session_on(device, batch).run(batch.feeds)
    problems: list[str] = []
    start = threading.Barrier(2)

    def work() -> None:
        try:
            session = session_on(device, batch)
            start.wait()
            for _ in range(_RUNS):
                if not _same(want, session.run(batch.feeds)):
                    problems.append("a run beside another session gives other bits")
        except (Error, threading.BrokenBarrierError) as error:
            start.abort()
            problems.append(" ".join(str(error).split()))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return problems[0] if problems else ""


def _batch_size(device: Device, batch: Batch) -> str:
    """Checks a product with an open batch in one session, with several batch sizes."""
    graph = Graph()
    main = graph.function()
    x = main.placeholder("x", "f32", ("n", 8))
    weight = np.random.default_rng(3).standard_normal((8, 5)).astype(np.float32)
    main.outputs.append(x @ main.constant(weight, "w"))
    graph.signature("infer", main)
    session = Session(graph, device=device, placement={"*": device.name})
    for rows in (3, 17, 1, 3):
        feed = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        (got,) = session.run({"x": feed}).values()
        if all(step.device != device.name for step in session.steps if step.op != "transfer"):
            raise _Skipped("the device cannot run an f32 matmul")
        if got.shape != (rows, 5) or not np.allclose(got, feed @ weight, rtol=_FLOATS_AGREE, atol=_FLOATS_AGREE):
            return f"the product of {rows} rows is wrong after other numbers of rows"
    return ""


class _Metered(Device):
    """The device, with functions that add up the bytes that it allocates."""

    def __init__(self, device: Device) -> None:
        given = device.pointer
        self.name, self.live = device.name, 0
        size = min(int(given.struct_size), ffi.sizeof("linnet_device"))
        made = ffi.new("linnet_device *")
        ffi.memmove(made, given, size)
        made.struct_size = size

        imported: set[int] = set()  # handles of memory of the host, which `release` ends but `allocate` did not give

        def allocate(context: object, count: int, buffer: object) -> int:
            code = int(given.allocate(context, count, buffer))
            self.live += 0 if code else int(count)
            return code

        def release(context: object, buffer: int, count: int) -> None:
            if buffer in imported:
                imported.remove(buffer)
            else:
                self.live -= int(count)
            given.release(context, buffer, count)

        def importing(name: str) -> Callable[[object, object, int, Any], int]:
            def function(context: object, host: object, count: int, buffer: Any) -> int:
                code = int(getattr(given, name)(context, host, count, buffer))
                if not code:
                    imported.add(int(buffer[0]))
                return code

            return function

        self._keep = [
            ffi.callback("int(void *, uint64_t, linnet_handle *)", allocate, error=1),
            ffi.callback("void(void *, linnet_handle, uint64_t)", release),
            device,
        ]
        made.allocate, made.release = self._keep[:2]
        for name, kind in (("import", "void *"), ("import_constants", "const void *")):
            end = ffi.offsetof("linnet_device", name) + ffi.sizeof("void *")
            if size >= end and getattr(given, name) != ffi.NULL:
                wrapped = ffi.callback(f"int(void *, {kind}, uint64_t, linnet_handle *)", importing(name), error=1)
                setattr(made, name, wrapped)
                self._keep.append(wrapped)
        self.pointer = made


def _bytes(device: Device, batch: Batch) -> str:
    metered, info = _Metered(device), new_struct("linnet_plan_device_info")
    session = session_on(metered, batch)
    if library().linnet_plan_get_device(session._current_plan(), 0, info):
        raise _Skipped("the plan does not state the bytes of this device")
    held, stated = metered.live, int(info.total - info.own)
    session.run(batch.feeds)
    grown = metered.live
    del session
    if held != stated:
        return f"allocate got {held} bytes, and the plan states {stated}"
    if grown != held:
        return f"a run allocated {grown - held} more bytes"
    return f"{metered.live} bytes were not released with the session" if metered.live else ""


def _trace(device: Device, batch: Batch) -> str:
    end = ffi.offsetof("linnet_device", "elapsed") + ffi.sizeof("void *")
    if device.pointer.struct_size < end or device.pointer.elapsed == ffi.NULL:
        raise _Skipped("the device has no function elapsed")
    session = session_on(device, batch, trace=True)
    session.run(batch.feeds)
    mine = [step for step in session.steps if step.device == device.name and step.op != "transfer"]
    if not any(step.device_ms > 0 for step in mine):
        raise _Skipped("all times are 0, because the device was opened without time measurement")
    return ""
