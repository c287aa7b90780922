"""Calls the C API through cffi, for features that Python's Session hides: allocators, arenas, error codes, devices.
`Chain.close` frees the handles. Every failing call raises its status and the error record."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from linnet.clib.ffi import ffi
from tests.native import build

NULL = ffi.NULL
_LIBC = ctypes.CDLL(None)
_LIBC.aligned_alloc.restype = ctypes.c_void_p
_LIBC.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_LIBC.free.argtypes = [ctypes.c_void_p]


@functools.cache
def lib() -> Any:
    """The library of the release build, loaded separately from the one that `import linnet` uses."""
    return ffi.dlopen(str(build("release") / "liblinnet.so"))


def new_struct(name: str) -> Any:
    """A cleared struct of the C API with its struct_size."""
    made = ffi.new(f"{name} *")
    lib().linnet_struct_init(made, ffi.sizeof(name))
    return made


def text(field: Any) -> str:
    """A C string."""
    return bytes(ffi.string(field)).decode()


class Failure(Exception):
    """A call of the C API returned a status other than OK."""

    def __init__(self, status: int, record: Any) -> None:
        self.status = int(status)
        self.record = record
        line = ffi.new("char[1024]")
        lib().linnet_error_format(record, line, 1024)
        self.text = text(line)
        super().__init__(f"{text(lib().linnet_status_name(status))}: {self.text}")


def check(status: int, record: Any) -> None:
    """Raises Failure unless the status is OK."""
    if status:
        raise Failure(status, record)


class Live(dict[int, int]):
    """Sizes of allocations by address, their sum, and the largest sum so far."""

    now = most = 0

    def __setitem__(self, key: int, value: int) -> None:
        super().__setitem__(key, value)
        self.now += value
        self.most = max(self.most, self.now)

    def pop(self, key: int, default: Any = None) -> Any:
        value = super().pop(key, default)
        self.now -= value or 0
        return value


class Allocator:
    """A host allocator that counts, and fails at the `fail_at`-th call (from 0)."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.fail_at, self.calls, self.live, self.failed = fail_at, 0, Live(), False
        self.faults: list[str] = []

        @ffi.callback("void *(void *, size_t, size_t)")
        def alloc(_: Any, size: int, alignment: int) -> Any:
            call = self.calls
            self.calls += 1
            if call == self.fail_at:
                self.failed = True
                return NULL
            address = _LIBC.aligned_alloc(alignment, -(-size // alignment) * alignment)
            ctypes.memset(address, 0xA5, size)  # exposes code that relies on zeroed memory
            self.live[address] = size
            return ffi.cast("void *", address)

        @ffi.callback("void(void *, void *, size_t)")
        def free(_: Any, pointer: Any, size: int) -> None:
            address = int(ffi.cast("uintptr_t", pointer))
            if address and self.live.pop(address, None) != size:
                self.faults.append(f"free of {size} bytes at {address:#x}, which were not taken so")
            _LIBC.free(address)

        self._keep = (alloc, free)
        self.struct = ffi.new("linnet_allocator *", {"context": NULL, "alloc": alloc, "free": free})

    @property
    def bytes(self) -> int:
        """Bytes allocated and not yet freed."""
        return self.live.now


class Chain:
    """Model, store, plan and session of one file in memory, or of the file at a path. Each step may raise Failure."""

    def __init__(self, data: bytes | Path, allocator: Allocator | None = None, *, copy: bool = True) -> None:
        self.data = data  # kept alive for models that do not copy the data
        self.allocator = allocator
        self.model = self.store = self.plan = self.session = NULL
        self.error = ffi.new("linnet_error *")
        self._keep: list[Any] = []
        config = new_struct("linnet_model_config")
        config.allocator = allocator.struct if allocator else NULL
        out = ffi.new("linnet_model **")
        try:
            if isinstance(data, Path):
                status = lib().linnet_model_open(str(data).encode(), config, out, self.error)
            else:
                buffer = ffi.from_buffer(data)
                status = lib().linnet_model_open_memory(buffer, len(data), int(copy), config, out, self.error)
            check(status, self.error)
        finally:
            self.model = out[0]

    def make_store(self) -> Chain:
        out = ffi.new("linnet_store **")
        allocator = self.allocator.struct if self.allocator else NULL
        status = lib().linnet_store_create(self.model, allocator, out, self.error)
        self.store = out[0]
        check(status, self.error)
        return self

    def make_plan(
        self, signature: str = "infer", shapes: dict[str, tuple[int, ...]] | None = None, **fields: Any
    ) -> Chain:
        config = new_struct("linnet_plan_config")
        config.threads = 1
        name = ffi.new("char[]", signature.encode())
        config.signature = name
        rows = ffi.new("linnet_shape[]", max(1, len(shapes or {})))
        for row, (key, dims) in zip(rows, (shapes or {}).items(), strict=False):
            self._keep.append(ffi.new("char[]", key.encode()))
            row.input, row.rank = self._keep[-1], len(dims)
            row.dims[0 : len(dims)] = list(dims)
        config.shapes, config.shape_count = rows, len(shapes or {})
        for key, value in fields.items():
            if isinstance(value, str):
                self._keep.append(ffi.new("char[]", value.encode()))
                value = self._keep[-1]
            setattr(config, key, value)
        self._keep += [name, rows]
        out = ffi.new("linnet_plan **")
        status = lib().linnet_plan_create(self.model, config, out, self.error)
        self.plan = out[0]
        check(status, self.error)
        return self

    def make_session(self, **fields: Any) -> Chain:
        config = new_struct("linnet_session_config")
        for key, value in fields.items():
            setattr(config, key, value)
        out = ffi.new("linnet_session **")
        status = lib().linnet_session_create(self.plan, self.store, config, out, self.error)
        self.session = out[0]
        check(status, self.error)
        return self

    def set(self, feeds: dict[str, np.ndarray]) -> Chain:
        for name, array in feeds.items():
            dense = np.ascontiguousarray(array)
            status = lib().linnet_session_set(
                self.session, name.encode(), ffi.from_buffer(dense), dense.nbytes, self.error
            )
            check(status, self.error)
        return self

    def run(self) -> Chain:
        check(lib().linnet_run(self.session, self.error), self.error)
        return self

    def output(self, i: int = 0) -> np.ndarray:
        """A copy of output i in its logical shape."""
        from linnet.ir.dtypes import DTYPE_NAMES, numpy_dtype

        info = new_struct("linnet_tensor_info")
        check(lib().linnet_session_get_output(self.session, i, info), self.error)
        data = bytes(ffi.buffer(lib().linnet_session_output(self.session, i), info.bytes))
        return np.frombuffer(data, numpy_dtype(DTYPE_NAMES[info.dtype])).reshape(list(info.shape)[: info.rank])

    def info(self) -> Any:
        """The plan's linnet_plan_info."""
        info = new_struct("linnet_plan_info")
        check(lib().linnet_plan_get_info(self.plan, info), self.error)
        return info

    def close(self) -> None:
        """Frees everything, in an order in which each object outlives its handle."""
        lib().linnet_model_free(self.model)
        lib().linnet_store_free(self.store)
        lib().linnet_plan_free(self.plan)
        lib().linnet_session_free(self.session)
        self.model = self.store = self.plan = self.session = NULL

    def __enter__(self) -> Chain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
