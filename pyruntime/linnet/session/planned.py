"""A C plan and its session, with NumPy views of inputs and outputs, and the information that a plan gives about
itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.clib.errors import UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import library, new_struct
from linnet.clib.precision import PRECISIONS
from linnet.ir.dtypes import DTYPE_NAMES, bits_of, bytes_of, numpy_dtype, unpacked
from linnet.session.model import Array, string_of
from linnet.session.running import Runner

if TYPE_CHECKING:
    from linnet.session.step import Span, Step

REGIONS = (
    "activations",
    "scratch",
    "packed_weights",
    "constants",
    "variables",
    "io",
    "snapshot",
    "committed",
    "bookkeeping",
    "devices",
    "loop_values",
    "total",
    "mapped",
    "lower_bound",
    "naive",
    "gradients",
)
COUNTED = REGIONS[:11]  # the total is the sum of these regions

# The element type of feeds that are packed when they are copied. No array of a caller has it.
_PACKED = np.dtype([("packed", np.uint8)])


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """The bytes that a plan needs on one device, and what runs there.

    steps: pieces of the plan that the device runs as one; nodes: the nodes in them. activations: values between pieces.
    packed: weights that the device keeps rearranged. constants: other weights, which sessions of the model share.
    variables: copies of variables. own: what the device takes by itself; for a host that is everything inside its pieces,
    weights included. total: the sum of all of them.
    """

    device: str
    steps: int
    nodes: int
    activations: int
    scratch: int
    packed: int
    constants: int
    variables: int
    own: int
    total: int


class Planned:
    """A session for one set of shapes and fetches, with NumPy views of the input and output buffers. plan: the plan that
    it runs, which lives as long as the session."""

    __slots__ = ("count", "error", "feeds", "key", "outputs", "plan", "segmented", "session", "snapshot")

    def __init__(self, session: Any, key: Any) -> None:
        lib = library()
        plan = lib.linnet_session_plan(session)
        self.plan, self.session, self.key = plan, session, key
        self.error = ffi.new("linnet_error *")
        sizes = info_of(plan)
        self.segmented, self.snapshot = sizes.segments > 1, int(sizes.snapshot)
        info = new_struct("linnet_tensor_info")
        self.feeds: list[tuple[str, Array, np.dtype[Any], tuple[int, ...]]] = []
        for i in range(lib.linnet_plan_input_count(plan)):
            lib.linnet_plan_get_input(plan, i, info)
            view = _view(lib.linnet_session_input(session, i), info)
            shares = bits_of(DTYPE_NAMES[info.dtype]) == 4
            self.feeds.append((string_of(info.name), view, _PACKED if shares else view.dtype, view.shape))
        self.count = len(self.feeds)
        # (name, view); the view is None if the shape depends on data, or if elements share bytes
        self.outputs: list[tuple[str, Array | None]] = []
        for i in range(lib.linnet_plan_output_count(plan)):
            lib.linnet_plan_get_output(plan, i, info)
            known = info.rank >= 0 and all(d >= 0 for d in list(info.shape)[: info.rank])
            known = known and bits_of(DTYPE_NAMES[info.dtype]) >= 8
            out = _view(lib.linnet_session_output(session, i), info) if known else None
            self.outputs.append((string_of(info.name), out))

    def run(self, runner: Runner, timeout: float | None, results: dict[str, Array] | None = None) -> dict[str, Array]:
        """Runs once. results: these arrays are returned instead of new ones."""
        if timeout is None:
            code = runner.call(self.session, runner.config(), self.error)
        else:
            code = runner.within(self.session, self.error, timeout)
        if code:
            raise runner.failure(self.error)
        if results is not None:
            return results
        return {name: self.output(i) if view is None else view.copy() for i, (name, view) in enumerate(self.outputs)}

    def output(self, i: int) -> Array:
        """A copy of output i, whose shape depends on data or whose elements share bytes."""
        lib, info = library(), new_struct("linnet_tensor_info")
        if lib.linnet_session_get_output(self.session, i, info):
            raise UsageError(
                "the shape of an output is still unknown after the run", code=104, tensor=self.outputs[i][0]
            )
        view = _view(lib.linnet_session_output(self.session, i), info)
        dtype = DTYPE_NAMES[info.dtype]
        return view.copy() if bits_of(dtype) >= 8 else unpacked(view, dtype, list(info.shape)[: info.rank])


def _view(pointer: Any, info: Any) -> Array:
    """The buffer as an array; as an array of bytes if elements share bytes. An empty array owns its memory."""
    dtype = numpy_dtype(DTYPE_NAMES[info.dtype])
    shape = tuple(list(info.shape)[: info.rank])
    if bits_of(DTYPE_NAMES[info.dtype]) == 4:
        dtype, shape = np.dtype(np.uint8), (bytes_of(DTYPE_NAMES[info.dtype], shape),)
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, dtype)
    return np.frombuffer(ffi.buffer(pointer, count * dtype.itemsize), dtype).reshape(shape)


def info_of(plan: Any) -> Any:
    """The linnet_plan_info of a plan."""
    info = new_struct("linnet_plan_info")
    library().linnet_plan_get_info(plan, info)
    return info


def facts_of(info: Any) -> dict[str, Any]:
    """The facts of linnet_plan_info except the sizes in bytes. Session.plan_info returns them."""
    return {
        "steps": int(info.steps), "segments": int(info.segments), "recomputed": int(info.recomputed),
        "fallbacks": int(info.fallbacks), "threads": int(info.threads), "isa": string_of(info.isa),
        "precision": PRECISIONS[info.precision], "plan_ms": info.plan_ns / 1e6, "modelled_ms": info.modelled_ns / 1e6,
        "stored_weights": int(info.stored_weights), "loop_iterations": int(info.loop_iterations),
    }  # fmt: skip


def device_memory_of(plan: Any) -> list[DeviceMemory]:
    """What a plan needs on each of its devices."""
    lib, info = library(), new_struct("linnet_plan_device_info")
    found: list[DeviceMemory] = []
    while lib.linnet_plan_get_device(plan, len(found), info) == 0:
        sizes = {field.name: int(getattr(info, field.name)) for field in dataclasses.fields(DeviceMemory)[1:]}
        found.append(DeviceMemory(string_of(info.name), **sizes))
    return found


def steps_of(plan: Any, session: Any) -> list[Step]:
    """The steps of a plan, with the mean times of its session's runs. session: None gives no times."""
    from linnet.session.step import Step

    lib, info, steps = library(), new_struct("linnet_step_info"), []
    for i in range(info_of(plan).steps):
        if session is not None:
            lib.linnet_session_get_step(session, i, info)
        else:
            lib.linnet_plan_get_step(plan, i, info)
        runs = int(info.runs)
        steps.append(
            Step(
                string_of(info.name),
                string_of(info.op),
                string_of(info.kernel),
                string_of(info.layout),
                string_of(info.device),
                string_of(info.fused),
                int(info.bytes),
                int(info.flops),
                runs,
                info.total_ns / 1e6 / runs if runs else 0.0,
                string_of(info.placed),
                info.device_ns / 1e6 / runs if runs else 0.0,
                int(info.start_ns),
                info.modelled_ns / 1e6,
                int(info.fork),
                int(info.branch),
                string_of(info.source),
                _spans(session, i) if session is not None else (),
            )
        )
    return steps


def _spans(session: Any, step: int) -> tuple[Span, ...]:
    from linnet.session.step import Span

    span = new_struct("linnet_device_span")
    found: list[Span] = []
    while library().linnet_session_get_span(session, step, len(found), span) == 0:
        found.append(
            Span(
                string_of(span.name),
                string_of(span.op),
                string_of(span.kernel),
                int(span.start_ns),
                span.ns / 1e6,
                int(span.error_ns),
                int(span.begun_ns),
                span.waited_ns / 1e6,
                int(span.waited_bytes),
            )
        )
    return tuple(found)


def special_of(plan: Any, session: Any) -> list[dict[str, int]]:
    """The result of Session.special: the values that the session's last run counted in each step's first output."""
    info, found = new_struct("linnet_step_info"), []
    for i in range(info_of(plan).steps):
        library().linnet_session_get_step(session, i, info)
        found.append({key: int(getattr(info, key)) for key in ("saturated", "infinite", "not_a_number")})
    return found
