"""Element types (linnet's names, their numbers in files and in C, NumPy's types), quantization, and dimensions.
NumPy has no bf16; bf16 arrays hold the bit patterns as uint16."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Dim = int | str | None
Spec = tuple[str, tuple[Dim, ...] | None]  # dtype and shape of an output
FOLD_LIMIT = 1 << 16  # bytes: larger folded results stay nodes, which C evaluates at plan time
_DTYPES = {
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
DTYPE_IDS = {
    "none": 0, "f32": 1, "f16": 2, "bf16": 3, "f64": 4, "i8": 5, "i16": 6, "i32": 7, "i64": 8, "u8": 9, "u16": 10,
    "u32": 11, "u64": 12, "bool": 13,
}  # fmt: skip
DTYPE_NAMES = {number: name for name, number in DTYPE_IDS.items()}


def dtype_of(dtype: npt.DTypeLike) -> str:
    """linnet's name for a NumPy dtype. Raises TypeError for an unsupported dtype."""
    wanted = np.dtype(dtype)
    for name, candidate in _DTYPES.items():
        if name != "bf16" and np.dtype(candidate) == wanted:
            return name
    raise TypeError(f"linnet does not support NumPy dtype {wanted}; it supports {', '.join(_DTYPES)}")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype for a linnet name. bf16 gives uint16 (bit patterns)."""
    return np.dtype(_DTYPES[name])


@dataclasses.dataclass
class Quantization:
    """real = (stored - zero) * scale. One entry per tensor (`axis` None), or one per slice along `axis`."""

    scale: npt.NDArray[np.float32]
    zero: npt.NDArray[np.int32]
    axis: int | None = None
    bits: int = 8


def nth(items: Sequence[Any], i: int) -> Any:
    return items[i] if i < len(items) else None
