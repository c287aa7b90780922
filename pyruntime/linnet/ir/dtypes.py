"""Element types (linnet's names, their numbers in files and in C, NumPy's types), quantization, and dimensions.
NumPy has no bf16; bf16 arrays hold the bit patterns as uint16. Arrays of i4 and u4 have the element types of ml_dtypes,
with one element per byte; files and the library store two per byte (`packed`, `unpacked`). ml_dtypes is imported only
for these types: running other models needs no package besides NumPy and cffi."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError

Dim = int | str | None
Spec = tuple[str, tuple[Dim, ...] | None]  # dtype and shape of an output
FOLD_LIMIT = 1 << 16  # bytes: larger folded results stay nodes, which C evaluates at plan time
_DTYPES: dict[str, npt.DTypeLike] = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.uint16,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
}
_NARROW = {"int4": "i4", "uint4": "u4"}  # names of ml_dtypes
DTYPE_IDS = {
    "none": 0, "f32": 1, "f16": 2, "bf16": 3, "f64": 4, "i8": 5, "i16": 6, "i32": 7, "i64": 8, "u8": 9, "u16": 10,
    "u32": 11, "u64": 12, "bool": 13, "i4": 14, "u4": 15,
}  # fmt: skip
DTYPE_NAMES = {number: name for name, number in DTYPE_IDS.items()}


def dtype_of(dtype: npt.DTypeLike) -> str:
    """linnet's name for a NumPy dtype. Raises UsageError for an unsupported dtype."""
    try:
        wanted = np.dtype(dtype)
    except TypeError as error:
        raise UsageError("this is not a dtype", code=103, expected="a dtype of NumPy", got=str(dtype)) from error
    for name, candidate in _DTYPES.items():
        if name != "bf16" and np.dtype(candidate) == wanted:
            return name
    if wanted.name in _NARROW:
        return _NARROW[wanted.name]
    raise UsageError(
        "linnet does not support this dtype of NumPy",
        code=103,
        expected=f"one of {', '.join([*_DTYPES, 'i4', 'u4'])}",
        got=str(wanted),
    )


def numbers_of(value: Any, dtype: str | None = None) -> npt.NDArray[Any]:
    """Converts a number, array or nested list to an array. If a dtype (linnet's name) is given, the array has this
    dtype. Raises UsageError for any other value."""
    try:
        array = np.asarray(value, None if dtype is None else numpy_dtype(dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"this cannot become {'an array' if dtype is None else f'a constant of {dtype}'}", code=103,
            expected="a tensor, a number or an array", got=f"{type(value).__name__} ({error})",
        ) from error  # fmt: skip
    dtype_of(array.dtype)
    return array


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype for a linnet name. bf16 gives uint16 (bit patterns)."""
    if name in ("i4", "u4"):
        import ml_dtypes

        narrow: np.dtype[Any] = np.dtype(ml_dtypes.int4 if name == "i4" else ml_dtypes.uint4)
        return narrow
    try:
        return np.dtype(_DTYPES[name])
    except (KeyError, TypeError) as error:
        raise UsageError(
            "there is no such dtype", code=103, expected=f"one of {', '.join([*_DTYPES, 'i4', 'u4'])}", got=str(name)
        ) from error


def bits_of(dtype: str) -> int:
    """The number of bits of one element."""
    return 4 if dtype in ("i4", "u4") else 8 * numpy_dtype(dtype).itemsize


def bytes_of(dtype: str, shape: Sequence[Any]) -> int:
    """The number of bytes of a tensor in a file and in memory."""
    return int(-(-math.prod(shape) * bits_of(dtype) // 8))


def packed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array as files and the library store it: bytes of i4 and u4 hold two elements, the first one in the low
    half."""
    array = np.ascontiguousarray(array)
    if array.dtype.name not in _NARROW:
        return array
    codes = array.reshape(-1).view(np.uint8) & 15
    if codes.size % 2:
        codes = np.append(codes, np.uint8(0))
    return codes[::2] | codes[1::2] << 4


def unpacked(data: npt.NDArray[np.uint8], dtype: str, shape: Sequence[int]) -> npt.NDArray[Any]:
    """The inverse of `packed`: the tensor whose bytes are `data`."""
    if bits_of(dtype) != 4:
        return data.view(numpy_dtype(dtype)).reshape(shape)
    codes = np.stack([data & 15, data >> 4], -1).reshape(-1)[: math.prod(shape)]
    if dtype == "i4":
        codes = (codes ^ 8) - 8
    return codes.view(numpy_dtype(dtype)).reshape(shape)


def to_bf16(array: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """f32 numbers as bit patterns of bf16, rounded to nearest, ties to even. NaN stays NaN."""
    data = np.asarray(array, np.float32)
    bits = data.view(np.uint32).astype(np.uint64)
    nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(data), np.uint16(0x7FC0), nearest)


def from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The f32 numbers of bit patterns of bf16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


@dataclasses.dataclass
class Quantization:
    """real = (stored - zero) * scale. There is one scale and zero per tensor (`axis` is None), per slice along `axis`,
    or per `block` elements along `axis`. With blocks, the shape of `scale` and `zero` is that of `blocks_of`."""

    scale: npt.NDArray[np.float32]
    zero: npt.NDArray[np.int32]
    axis: int | None = None
    bits: int = 8
    block: int = 0  # 0: no blocks


def blocks_of(shape: Sequence[Any], axis: int, block: int) -> tuple[int, ...]:
    """The number of blocks in each dimension of a tensor."""
    return tuple(-(-d // block) if i == axis else d for i, d in enumerate(shape))


def nth(items: Sequence[Any], i: int) -> Any:
    return items[i] if i < len(items) else None
