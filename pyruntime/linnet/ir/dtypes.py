"""Element types (linnet's names, their numbers in files and in C, NumPy's types), quantization, and dimensions.
Arrays of bf16, i4 and u4 have the element types of ml_dtypes, because NumPy has none. Arrays of i4 and u4 have one element
per byte; files and the library store two per byte (`packed`, `unpacked`). ml_dtypes is imported only for these three
types: running other models needs no package besides NumPy and cffi."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError

Dim = int | str | None
DTypeLike = (
    str | type[Any] | np.dtype[Any]
)  # linnet's name ("f32"), NumPy's name ("float32"), type (np.float32) or dtype object
Spec = tuple[str, tuple[Dim, ...] | None]  # dtype and shape of an output
FOLD_LIMIT = 1 << 16  # bytes: larger folded results stay nodes, which C evaluates at plan time
_DTYPES: dict[str, npt.DTypeLike] = {
    "f32": np.float32,
    "f16": np.float16,
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
_ML_DTYPES = {"bf16": "bfloat16", "i4": "int4", "u4": "uint4"}
_NARROW = ("int4", "uint4")
_LINNET = {np.dtype(v).name: k for k, v in _DTYPES.items()} | {v: k for k, v in _ML_DTYPES.items()}  # by NumPy's name
DTYPE_IDS = {
    "none": 0, "f32": 1, "f16": 2, "bf16": 3, "f64": 4, "i8": 5, "i16": 6, "i32": 7, "i64": 8, "u8": 9, "u16": 10,
    "u32": 11, "u64": 12, "bool": 13, "i4": 14, "u4": 15,
}  # fmt: skip
_KNOWN = ", ".join(name for name in DTYPE_IDS if name != "none")
DTYPE_NAMES = {number: name for name, number in DTYPE_IDS.items()}


def dtype_of(dtype: DTypeLike) -> str:
    """linnet's name for a dtype, which may be given as linnet's name, or as NumPy's or ml_dtypes' name, type or dtype
    object. NumPy's character codes are refused, because NumPy's "i8" has 64 bits. Raises UsageError."""
    if isinstance(dtype, str):
        if dtype in _DTYPES or dtype in _ML_DTYPES:
            return dtype
        if dtype in _LINNET:
            return _LINNET[dtype]
        raise UsageError(
            "there is no such dtype", code=103, expected=f"one of {_KNOWN}, or NumPy's name", got=repr(dtype)
        )
    try:
        wanted = np.dtype(dtype) if isinstance(dtype, type | np.dtype) else None
    except TypeError:
        wanted = None
    if wanted is None:
        raise UsageError(
            "the value is not a dtype", code=103, expected="'f32', numpy.float32, ...", got=f"{dtype!r:.60}"
        )
    if wanted.name in _LINNET and wanted.isnative:
        return _LINNET[wanted.name]
    raise UsageError(
        "linnet does not support this dtype of NumPy",
        code=103,
        expected=f"one of {_KNOWN}",
        got=str(wanted),
    )


def numpy_dtype(name: DTypeLike) -> np.dtype[Any]:
    """The NumPy dtype for a linnet name. bf16, i4 and u4 give the dtypes of ml_dtypes."""
    known = name if isinstance(name, str) and name in _DTYPES else dtype_of(name)
    if known in _ML_DTYPES:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[known]))
        return found
    return np.dtype(_DTYPES[known])


def zeros(shape: Sequence[int], dtype: DTypeLike) -> npt.NDArray[Any]:
    """An array of zeros, which takes no memory until it is written. np.zeros would write the zeros of bf16, i4 and u4."""
    wanted = numpy_dtype(dtype)
    return np.zeros(shape, np.uint16 if wanted.itemsize == 2 else np.uint8 if wanted.itemsize == 1 else wanted).view(
        wanted
    )


def has_floats(array: npt.NDArray[Any]) -> bool:
    """Whether the elements are floats. NumPy's own test, `dtype.kind`, does not know bf16."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def for_npy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array as .npy files can contain it. NumPy's format does not know bf16, so its bit patterns become uint16; inputs
    accept them."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def named(dtype: DTypeLike) -> str:
    """linnet's name for a dtype. Anything that is no dtype, such as "auto", stays as it is, as text."""
    try:
        return dtype_of(dtype)
    except UsageError:
        return str(dtype)


def bits_of(dtype: str) -> int:
    """The number of bits of one element."""
    return 4 if dtype in ("i4", "u4") else 16 if dtype == "bf16" else 8 * numpy_dtype(dtype).itemsize


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


@dataclasses.dataclass
class Quantization:
    """real = (stored - zero) * scale. There is one scale and zero per tensor (`axis` is None), per slice along `axis`,
    or per `block` elements along `axis`. With blocks, `scale` and `zero` have the shape that `blocks_of` returns."""

    scale: npt.NDArray[np.float32]
    zero: npt.NDArray[np.int32]
    axis: int | None = None
    bits: int = 8
    block: int = 0  # 0: no blocks


def blocks_of(shape: Sequence[Any], axis: int, block: int) -> tuple[int, ...]:
    """The number of blocks in each dimension of a tensor."""
    return tuple(-(-d // block) if i == axis else d for i, d in enumerate(shape))


def quantization_of_rows(scale: npt.NDArray[np.floating], length: int) -> Quantization:
    """The symmetric 8-bit quantization of a tensor of three dimensions with rows of `length` elements. scale: one per row,
    [a, b]. Scales along one axis are preferred to blocks, which older readers do not know."""
    scales = np.ascontiguousarray(scale, np.float32)
    if len(scales) == 1:
        scales, axis, block = scales.reshape(-1), 1, 0
    elif (scales == scales[:, :1]).all():
        scales, axis, block = np.ascontiguousarray(scales[:, 0]), 0, 0
    else:
        scales, axis, block = scales[..., None], 2, max(1, length)
    return Quantization(scales, np.zeros(scales.shape, np.int32), axis, 8, block)


def nth(items: Sequence[Any], i: int) -> Any:
    return items[i] if i < len(items) else None
