"""Finds the elements of an array in memory. It may be a NumPy array, or an array of another library that offers DLPack
(v1, CPU part). https://dmlc.github.io/dlpack/latest/c_api.html defines the structures."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from typing import Any, Final

import numpy as np

from linnet.clib.errors import UsageError
from linnet.ir.dtypes import bytes_of, dtype_of
from linnet.session.model import wrong_type

ALIGNMENT: Final = 64  # bytes: kernels rely on it
_ON_HOST: Final = (1, 3)  # kDLCPU, kDLCUDAHost
_READ_ONLY: Final = 1
# DLDataTypeCode and bits -> linnet's name
_DTYPES: Final = {
    (code, bits): f"{letter}{bits}"
    for code, letter, sizes in ((0, "i", (8, 16, 32, 64)), (1, "u", (8, 16, 32, 64)), (2, "f", (16, 32, 64)))
    for bits in sizes
} | {(4, 16): "bf16", (6, 8): "bool"}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Memory:
    """The elements of an array. size: in bytes. owner: keeps the memory alive."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    dense: bool
    writable: bool
    owner: Any

    @property
    def size(self) -> int:
        return bytes_of(self.dtype, self.shape)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


def memory_of(value: Any, name: str) -> Memory:
    """The memory of a NumPy array or of an object with `__dlpack__`. Raises UsageError if it is neither, or if its memory
    is on a device."""
    if isinstance(value, np.ndarray):
        return _of_numpy(value)
    if not hasattr(value, "__dlpack__"):
        raise wrong_type(f"the memory for {name!r}", "a NumPy array, or an object with __dlpack__", value)
    try:
        device = int(value.__dlpack_device__()[0])
        capsule = _capsule(value) if device in _ON_HOST else None
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"the array for {name!r} gives no access to its memory", code=101, tensor=name, got=str(error)
        ) from error
    if capsule is None:
        raise UsageError(
            f"the memory for {name!r} is not on the CPU", code=101, tensor=name, expected="DLPack device 1 (CPU)",
            got=f"DLPack device {device}", hint="move the array to the CPU first",
        )  # fmt: skip
    return _of_capsule(capsule, value)


def _of_numpy(array: np.ndarray[Any, Any]) -> Memory:
    try:
        dtype = dtype_of(array.dtype) if array.dtype.isnative else str(array.dtype)
    except TypeError:
        dtype = str(array.dtype)
    return Memory(
        array.ctypes.data, dtype, array.shape, array.flags.c_contiguous, array.flags.writeable, array
    )  # fmt: skip


def _capsule(value: Any) -> Any:
    """The value's DLPack capsule, which owns the memory until it is freed. Libraries older than DLPack 1 take no
    version."""
    try:
        return value.__dlpack__(max_version=(1, 0))
    except TypeError:
        return value.__dlpack__()


def _of_capsule(capsule: Any, value: Any) -> Memory:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    valid = ctypes.pythonapi.PyCapsule_IsValid
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    valid.restype, valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    writable = True
    if valid(capsule, b"dltensor_versioned"):
        whole = _Versioned.from_address(get(capsule, b"dltensor_versioned"))
        tensor, writable = whole.tensor, not whole.flags & _READ_ONLY
    else:
        tensor = _Tensor.from_address(get(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.rank])
    strides = tuple(tensor.strides[: tensor.rank]) if tensor.strides else None
    dense = strides is None or 0 in shape or all(
        d == 1 or s == math.prod(shape[i + 1 :]) for i, (d, s) in enumerate(zip(shape, strides, strict=True))
    )  # fmt: skip
    known = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    dtype = known or f"DLPack type {tensor.code} of {tensor.bits} bits"
    return Memory((tensor.data or 0) + tensor.offset, dtype, shape, dense, writable, (capsule, value))
