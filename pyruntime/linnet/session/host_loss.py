"""What a session does if a host is lost during a run (SessionOptions.on_loss): it plans again without the host, or waits for
the host to come back, and runs again."""

from __future__ import annotations

import dataclasses
import re
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from linnet.clib.errors import DeviceError, UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, library
from linnet.session.options import SessionOptions, devices_of
from linnet.session.planned import steps_of

if TYPE_CHECKING:
    from linnet.session.bounds import MemoryBound
    from linnet.session.device import Device
    from linnet.session.model import Store
    from linnet.session.planned import Planned

Result = TypeVar("Result")

_DEVICE_FULL = 1000001  # LINNET_DEVICE_FULL: the host answers, and has no memory
_LOST = re.compile(
    "(clos|end)ed the connection|did not ans|connection (was|is) lost|connection failed|reset by peer|cannot connect"
    r"|sent no value: (unix|shm|\S+:\d)"  # the reason begins with the address of the other host, and may be cut off
    "|the host at .{70,}; "  # the address leaves no room for the reason
)
_FIELD = (
    95  # bytes of an error's field: a reason that fills it is cut off, and what is missing may say that a host was lost
)
_PAUSE = 0.1  # seconds between two attempts to reach a host


class Losing(Protocol):
    """The part of linnet.Session that is used here."""

    variables: Store
    bound: MemoryBound | None
    _options: SessionOptions
    _plans: OrderedDict[Any, Planned]
    _last: Planned | None


def prepare(session: Losing) -> None:
    """Lets each run of a session that goes on after a loss write the new values of variables to the store, so that no host
    has the only copy, unless each host keeps them where they survive it. Raises UsageError for a session with bounds, whose
    memory is sized for one plan."""
    if session._options.on_loss == "fail" or not _hosts(session._options):
        return
    if session.bound is not None:
        raise UsageError(
            f"a session with bounds cannot use on_loss={session._options.on_loss!r}", code=101, expected="on_loss='fail'",
            hint="leave out bounds",
        )  # fmt: skip
    if session._options.on_loss == "retry" and all(
        device.pointer.keep != ffi.NULL for device in _hosts(session._options)
    ):
        return  # a host that comes back has the values
    error = ffi.new("linnet_error *")
    for name in session.variables:
        if library().linnet_store_data(session.variables.pointer, name.encode(), 0, error) == ffi.NULL and error.code:
            raise exception(error)


def run_again(session: Losing, error: DeviceError, run: Callable[[], Result]) -> Result:
    """Calls `run` after a run has failed, once for each host that is lost meanwhile. Raises the error if no host was lost,
    or if the session shall not go on."""
    for _ in range(2 * len(_hosts(session._options))):
        if session._options.on_loss == "fail" or not _recover(session, error):
            break
        try:
            return run()
        except DeviceError as other:
            error = other
    try:
        raise error
    finally:  # or its traceback would refer to this frame, which refers to it: a circle that keeps the session
        del error


def _hosts(options: SessionOptions) -> list[Device]:
    return [device for device in devices_of(None, options.devices) if device.name.startswith("remote:")]


def says_lost(error: DeviceError) -> bool:
    """Whether the text of an error may mean that a host was lost, although all hosts answer now."""
    return _LOST.search(str(error)) is not None or len(error.got.encode()) >= _FIELD


def _recover(session: Losing, error: DeviceError) -> bool:
    """Prepares the session for another plan. False: this failure was no loss, or the host does not come back."""
    options, last = session._options, session._last
    hosts = _hosts(options)
    lost = [device for device in hosts if not _answers(device)]
    if not lost and not says_lost(error):
        return False
    if options.on_loss == "retry":
        end = time.monotonic() + max((device.lease for device in lost), default=0)
        while lost and time.monotonic() < end:
            time.sleep(_PAUSE)
            lost = [device for device in lost if not _answers(device)]
        if lost:
            return False
    elif lost:
        names = {device.name for device in lost}
        moved = (
            []
            if last is None
            else [s.name for s in steps_of(last.plan, None) if s.device in names and s.op != "transfer"]
        )
        session._options = without(options, names)
        warnings.warn(_text(sorted(names), moved, error), stacklevel=5)
    del last
    error.__traceback__ = None  # its frames keep the plan, which keeps its memory on the other hosts
    session._last = None
    session._plans.clear()
    return True


def _answers(device: Device) -> bool:
    """Whether the host can be reached, within its lease. A connection that is broken is made again."""
    handle, pointer = ffi.new("uint64_t *"), device.pointer
    code = pointer.allocate(pointer.context, 64, handle)
    if code == 0:
        pointer.release(pointer.context, handle[0], 64)
    return code in (0, _DEVICE_FULL)


def without(options: SessionOptions, names: set[str]) -> SessionOptions:
    """The options without these devices. Nodes that a placement put there go where they otherwise would, and tasks of a
    cluster that were there run on this machine."""
    devices = tuple(device for device in devices_of(None, options.devices) if device.name not in names)
    places = {node: place for node, place in options.places.items() if place not in names}
    cluster = options.cluster
    if cluster is not None:
        from linnet.session.cluster import HERE, Cluster, open_cluster

        opened = open_cluster(cluster)
        tasks = tuple((task, HERE if place in names else place) for task, place in opened.tasks)
        cluster = Cluster(tasks, tuple(device for device in opened.devices if device.name not in names))
    return dataclasses.replace(options, devices=devices, placement=places or None, cluster=cluster)


def _text(names: list[str], moved: list[str], error: DeviceError) -> str:
    shown = ", ".join(moved[:5]) + (f" and {len(moved) - 5} more" if len(moved) > 5 else "")
    what = f"steps that ran there run elsewhere now: {shown}" if moved else "no step ran there"
    return f"{' and '.join(names)} is lost, and the session goes on without it; {what} ({error.got or error.what})"
