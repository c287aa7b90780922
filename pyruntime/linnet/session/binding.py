"""Bindings, which Session.bind makes: they run on memory of the caller, without copies. NumPy arrays are used as they
are. Arrays of other libraries are accessed through DLPack (memory.py), and arrays on a device are DeviceArrays."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from linnet.clib.errors import UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, library
from linnet.ir.dtypes import bits_of, numpy_dtype
from linnet.session.device_array import DeviceArray
from linnet.session.memory import ALIGNMENT, Memory, memory_of
from linnet.session.model import Array, TensorSpec, wrong_shape
from linnet.session.planned import Planned, steps_of
from linnet.session.running import Runner
from linnet.session.step import Step


class Bound(Protocol):
    """The part of linnet.Session that is used here."""

    outputs: list[TensorSpec]
    _trace: bool
    _lock: threading.Lock
    _runner: Runner

    def _spec(self, name: str) -> TensorSpec: ...
    def _check_shape(self, spec: TensorSpec, shape: tuple[int, ...]) -> None: ...
    def _missing(self, name: str, given: Mapping[str, Any]) -> UsageError: ...
    def _plan(
        self, shapes: Mapping[str, tuple[int, ...]], fetches: tuple[str, ...] | None, key: Any, separate: bool = False
    ) -> Planned: ...


class Binding:
    """Runs of a Session on the caller's arrays. `outputs` holds the output arrays by name; `run` computes into them.
    The binding keeps all arrays alive. They must not be resized."""

    def __init__(
        self, session: Bound, planned: Planned, feeds: list[Memory | DeviceArray], outputs: dict[str, Any]
    ) -> None:
        self._session, self._planned, self._feeds = session, planned, feeds
        self.outputs = outputs

    def run(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Runs once and returns `outputs`. timeout, what ends a run, and the exceptions: as for Session.run."""
        with self._session._lock:
            return self._planned.run(self._session._runner, timeout, self.outputs)

    def submit(self) -> None:
        """Begins a run, and returns while devices still compute it. Until `wait` or `run` has returned, inputs must not
        change and outputs are not complete. Several runs may be submitted; they run in order. If the CPU computes a
        part of the run, or a variable is assigned, the call returns only after that part. Exceptions: as for
        Session.run."""
        with self._session._lock:
            error = ffi.new("linnet_error *")
            if library().linnet_session_submit(self._planned.session, error):
                raise self._session._runner.failure(error)

    def wait(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Waits until all submitted runs have ended, and returns `outputs`. timeout: at most this many seconds. After
        DeadlineExceeded, Cancelled or KeyboardInterrupt the runs go on, and can be waited for again. Exceptions: those
        of Session.run, if any of these runs fails."""
        with self._session._lock:
            runner, error = self._session._runner, ffi.new("linnet_error *")
            if runner.waits(self._planned.session, error, timeout):
                raise runner.failure(error)
            return self.outputs

    @property
    def steps(self) -> list[Step]:
        """The steps of a run, as in Session.steps."""
        return steps_of(self._planned.plan, self._planned.session if self._session._trace else None)

    @property
    def bytes(self) -> int:
        """Bytes that the binding holds, without the caller's arrays and without what it shares with the session."""
        return int(library().linnet_session_bytes(self._planned.session)) - self._planned.snapshot


def empty(spec: TensorSpec, shape: Sequence[int] | None) -> Array:
    """An array of the declared dtype, aligned as kernels need it."""
    if shape is None and (spec.shape is None or None in spec.shape):
        raise UsageError(
            f"the shape of {spec.name!r} is open", code=104, tensor=spec.name, hint=f"empty({spec.name!r}, shape)"
        )
    return _aligned(tuple(int(d or 0) for d in (spec.shape or () if shape is None else shape)), numpy_dtype(spec.dtype))


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def bind(session: Bound, feeds: Mapping[str, Any], wanted: Mapping[str, Any] | Sequence[str] | None) -> Binding:
    """A plan of its own for these feeds and outputs, bound to their memory. Raises UsageError, GraphError."""
    given: dict[str, Memory | DeviceArray] = {}
    for name, value in feeds.items():
        spec = _whole(session._spec(name))
        given[name] = _taken(spec, value, name)
        session._check_shape(spec, given[name].shape)
    names = [spec.name for spec in session.outputs] if wanted is None else list(wanted)
    shapes = {name: memory.shape for name, memory in given.items()}
    planned = session._plan(shapes, tuple(names), None, separate=True)
    for i, (name, _, _, _) in enumerate(planned.feeds):
        if name not in given:
            raise session._missing(name, given)
        _give("input", planned, i, given[name])
    outputs: dict[str, Any] = {}
    for i, (name, view) in enumerate(planned.outputs):
        spec = _whole(session._spec(name))
        if view is None:
            raise UsageError(
                f"{name!r} cannot be bound", code=101, tensor=name, expected="a known shape",
                got="a shape that depends on data", hint="fetch it with Session.run",
            )  # fmt: skip
        outputs[name] = wanted[name] if isinstance(wanted, Mapping) else _aligned(view.shape, view.dtype)
        memory = _taken(spec, outputs[name], name)
        if memory.shape != view.shape:
            raise wrong_shape(TensorSpec(name, spec.dtype, view.shape), memory.shape, "output")
        if isinstance(memory, Memory) and not memory.writable:
            raise UsageError(
                f"the memory for {name!r} is read-only", code=101, tensor=name, hint="give an array that can be written"
            )
        _give("output", planned, i, memory)
    return Binding(session, planned, list(given.values()), outputs)


def _whole(spec: TensorSpec) -> TensorSpec:
    """Returns the spec. Raises UsageError if elements of the tensor share bytes."""
    bits = bits_of(spec.dtype)
    if bits < 8:
        raise UsageError(
            f"{spec.name!r} cannot be bound", code=101, tensor=spec.name, expected="elements of whole bytes",
            got=f"elements of {bits} bits, which share bytes in the library", hint="use Session.run, which packs them",
        )  # fmt: skip
    return spec


def _taken(spec: TensorSpec, value: Any, name: str) -> Memory | DeviceArray:
    """The memory of an array. Raises UsageError if the array cannot be used as the tensor."""
    return _checked(spec, value if isinstance(value, DeviceArray) else memory_of(value, name), name)


def _checked(spec: TensorSpec, memory: Memory | DeviceArray, name: str) -> Memory | DeviceArray:
    """Returns the memory. Raises UsageError if a kernel cannot use it as the tensor."""
    if memory.dtype != spec.dtype and not (spec.dtype == "bf16" and memory.dtype == "u16"):
        raise UsageError(
            f"the memory for {name!r} has the wrong dtype", code=103, tensor=name, expected=spec.dtype,
            got=memory.dtype, hint="a binding converts nothing: convert the array, or use Session.run",
        )  # fmt: skip
    if isinstance(memory, DeviceArray):
        return memory
    if not memory.dense:
        raise UsageError(
            f"the memory for {name!r} is not contiguous", code=101, tensor=name,
            expected="contiguous elements in row-major (C) order", got="an array with gaps or other strides",
            hint="copy it into a contiguous array (numpy.ascontiguousarray, torch.Tensor.contiguous)",
        )  # fmt: skip
    if memory.size and memory.address % ALIGNMENT:
        raise UsageError(
            f"the memory for {name!r} is not aligned", code=101, tensor=name,
            expected=f"an address that is a multiple of {ALIGNMENT}", got=f"a multiple plus {memory.address % ALIGNMENT} bytes",
            hint=f"session.empty({name!r}) makes an aligned array",
        )  # fmt: skip
    return memory


def _give(role: str, planned: Planned, i: int, memory: Memory | DeviceArray) -> None:
    error = ffi.new("linnet_error *")
    if isinstance(memory, DeviceArray):
        if library().linnet_session_bind_device(
            planned.session, role == "output", i, memory.device.pointer, memory._span(), error
        ):
            raise exception(error)
        return
    call = getattr(library(), f"linnet_session_bind_{role}")
    if call(planned.session, i, ffi.cast("void *", memory.address), memory.size, error):
        raise exception(error)
