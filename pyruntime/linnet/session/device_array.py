"""Arrays in the memory of a device, for inputs and outputs that stay there (Session.bind). The device's own functions
allocate and copy (linnet_device.h)."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import DeviceError, Error, ResourceError, UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import library, new_struct
from linnet.ir.dtypes import DTYPE_IDS, DTypeLike, bits_of, bytes_of, dtype_of, named, numpy_dtype
from linnet.session.device import Device, load_device

_MAX_RANK = 8


class DeviceArray:
    """A dense array in the memory of a device, which Session.bind takes for an input or an output.

    device: a name such as "opencl", or what linnet.load_device returns. Sessions that use the array must have been
        given the same device: the same name with the same options.
    shape, dtype: as for an input; dtype is a name such as "f32", or NumPy's name or type. Elements have at least 8 bits.
    The values are undefined until `write`, or until a run that computes them has ended. Raises UsageError, FileError,
    ResourceError (the device's memory is full), DeviceError.
    """

    def __init__(self, device: str | Device, shape: Sequence[int], dtype: DTypeLike = "f32") -> None:
        self.device = load_device(device) if isinstance(device, str) else device
        dtype = named(dtype)
        size = _checked(shape, dtype)
        handle = ffi.new("linnet_handle *")
        room = max(1, size) + _limits(self.device).padding
        _call(self.device, "allocate", room, handle)
        self._take(int(handle[0]), 0, shape, dtype, None)
        weakref.finalize(self, _release, self.device.pointer, self.handle, room)

    def _take(self, handle: int, offset: int, shape: Sequence[int], dtype: str, owner: Any) -> None:
        self.handle, self.offset, self.dtype, self._owner = handle, offset, dtype, owner
        self.shape = tuple(int(d) for d in shape)
        self.size = bytes_of(dtype, self.shape)  # in bytes

    def part(self, offset: int, shape: Sequence[int], dtype: DTypeLike | None = None) -> DeviceArray:
        """An array in a part of this one's memory. The part begins at a byte that is a multiple of `alignment`. Raises
        UsageError."""
        dtype = self.dtype if dtype is None else named(dtype)
        size, step = _checked(shape, dtype), self.alignment
        if offset < 0 or offset % step or offset + size > self.size:
            raise UsageError(
                "the part is not inside the array", code=101, expected=f"an offset that is a multiple of {step}, and at "
                f"most {self.size} bytes to the end", got=f"{size} bytes at {offset}",
            )  # fmt: skip
        made = object.__new__(DeviceArray)
        made.device = self.device
        made._take(self.handle, self.offset + offset, shape, dtype, self)
        return made

    @property
    def alignment(self) -> int:
        """The offset of a part is a multiple of this number of bytes."""
        return max(64, int(_limits(self.device).alignment))

    def write(self, values: npt.ArrayLike) -> None:
        """Copies the values to the device and waits for the copy. They must have the array's dtype and shape. Raises
        UsageError, DeviceError."""
        source = np.ascontiguousarray(values)
        if source.shape != self.shape or dtype_of(source.dtype) != self.dtype:
            raise UsageError(
                "the values do not fit the array", code=104, expected=f"{self.dtype} {list(self.shape)}",
                got=f"{dtype_of(source.dtype)} {list(source.shape)}",
            )  # fmt: skip
        if self.size:
            self._move("upload", self._span(), ffi.from_buffer(source))

    def read(self) -> npt.NDArray[Any]:
        """Returns a copy of the values in host memory. Runs that compute them must have ended. Raises DeviceError."""
        result = np.empty(self.shape, numpy_dtype(self.dtype))
        if self.size:
            self._move("download", ffi.cast("void *", result.ctypes.data), self._span())
        return result

    def _span(self) -> Any:
        return ffi.new("linnet_span *", {"buffer": self.handle, "offset": self.offset, "bytes": self.size})

    def _move(self, name: str, to: Any, source: Any) -> None:
        tensor, queue = new_struct("linnet_device_tensor"), ffi.new("linnet_handle *")
        tensor.dtype, tensor.rank, tensor.bytes = DTYPE_IDS[self.dtype], len(self.shape), self.size
        for i, d in enumerate(self.shape):
            tensor.shape[i], tensor.strides[i] = d, math.prod(self.shape[i + 1 :])
        _call(self.device, "open", queue)
        try:
            _call(self.device, name, queue[0], tensor, to, source)
        finally:
            try:
                _call(self.device, "finish", queue[0])
            finally:
                self.device.pointer.close(self.device.pointer.context, queue[0])

    def __repr__(self) -> str:
        return f"DeviceArray({self.device.name!r}, {list(self.shape)}, {self.dtype!r})"


def _checked(shape: Sequence[int], dtype: str) -> int:
    """The bytes of an array. Raises UsageError."""
    known = dtype in DTYPE_IDS and bits_of(dtype) >= 8
    if not known or len(shape) > _MAX_RANK or any(int(d) < 0 for d in shape):
        raise UsageError(
            "the shape or dtype of the array is not supported", code=101,
            expected=f"at most {_MAX_RANK} dimensions, and a dtype of whole bytes such as 'f32'",
            got=f"{dtype!r} {list(shape)}",
        )  # fmt: skip
    return bytes_of(dtype, shape)


def _limits(device: Device) -> Any:
    limits = new_struct("linnet_device_limits")
    _call(device, "limits", limits)
    return limits


def _call(device: Device, function: str, *arguments: Any) -> None:
    code = getattr(device.pointer, function)(device.pointer.context, *arguments)
    if code:
        raise _failure(device, function, code, arguments)


def _failure(device: Device, function: str, code: int, arguments: tuple[Any, ...]) -> Error:
    if code == library().LINNET_DEVICE_FULL:
        wanted = f"{arguments[0]} bytes" if function == "allocate" else ""
        return ResourceError(f"device {device.name} has too little memory", code=401, expected=wanted)
    explain = device.pointer.explain
    text = explain(device.pointer.context, code) if explain != ffi.NULL else ffi.NULL
    why = "" if text == ffi.NULL else ": " + bytes(ffi.string(text)).decode("utf-8", "replace")
    return DeviceError(f"device {device.name} failed to {function}", code=501, got=f"code {code}{why}")


def _release(device: Any, handle: int, size: int) -> None:
    device.release(device.context, handle, size)
