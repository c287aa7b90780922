"""Converts the values that users give to arrays of one of linnet's dtypes. No number changes unnoticed: a number that the
dtype cannot represent is refused. Only floats may be rounded, to the nearest number of a narrower float dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.ir.dtypes import DTypeLike, dtype_of, numpy_dtype

Array = npt.NDArray[Any]
_FLOATS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}  # bits of the significand
_SHARED = {"i4": (-8, 7), "u4": (0, 15), "bool": (0, 1)}  # the range of dtypes that np.iinfo does not know


def numbers_of(value: Any, dtype: DTypeLike | None = None, *, copy: bool = True) -> Array:
    """Converts a number, array or nested list to an array of linnet's dtypes. If a dtype is given, the array has this
    dtype, and every element has the same value as before, or is a float that is rounded. copy: whether the result has
    memory of its own. Raises UsageError if a value is no number, or if the dtype cannot represent a number."""
    try:
        array: Array = np.array(value) if copy else np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_numbers(value, dtype, f"{type(value).__name__} ({error})") from error
    if array.dtype.kind in "OUSMm":
        raise _no_numbers(value, dtype, f"an array of {array.dtype}" if array.ndim else type(value).__name__)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    have = dtype_of(array.dtype)
    return array if dtype is None else converted_exactly(array, have, dtype_of(dtype))


def floats_as_f32(value: Any) -> Array:
    """Like `numbers_of(value)`, but Python's floats become f32. Arrays and scalars of NumPy keep their dtype."""
    array = numbers_of(value)
    if array.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic):
        return converted_exactly(array, "f64", "f32")
    return array


def converted_exactly(array: Array, have: str, want: str) -> Array:
    """An array of dtype `have` as an array of dtype `want`. Raises UsageError if a number would be lost."""
    if have == want or not array.size:
        return array.astype(numpy_dtype(want), copy=False)
    if have in _FLOATS and want in _FLOATS:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            made = array.astype(numpy_dtype(want))
        lost = np.isfinite(array) & ~np.isfinite(made) if _FLOATS[have] > _FLOATS[want] or want == "f16" else None
    elif want in _FLOATS:
        whole = array.astype(np.int64) if have in ("i4", "u4", "bool") else array
        with np.errstate(over="ignore"):
            made = array.astype(numpy_dtype(want))
        lost = _lost_bits(whole, _FLOATS[want]) | ~np.isfinite(made)
    else:
        least, most = range_of(want)
        if have in _FLOATS:
            wide = array.astype(np.float64)
            # 2^63 and 2^64 are numbers of f64, but the largest integers below them are not.
            lost = ~((wide == np.trunc(wide)) & (wide >= least) & (wide < float(most + 1)))
        else:
            whole = array.astype(np.int64) if have in ("i4", "u4", "bool") else array
            lost = (whole < least) | (whole > most)
        made = array if lost.any() else _stored(array, want)
    if lost is not None and lost.any():
        first = array[np.unravel_index(int(np.argmax(lost)), array.shape)]
        raise UsageError(
            f"{want} cannot represent {'a value' if array.ndim else 'the value'}", code=103,
            expected=f"values that {want} can represent" if want not in _FLOATS else
            f"integers of at most {_FLOATS[want]} bits, and floats in the range of {want}",
            got=f"{first} ({have})" + (f", and {n - 1} more such values" if (n := int(lost.sum())) > 1 else ""),
            hint="give values that fit, or another dtype",
        )  # fmt: skip
    return made


def range_of(dtype: str) -> tuple[int, int]:
    """The smallest and the largest number of an integer dtype. bool has 0 and 1."""
    if dtype in _SHARED:
        return _SHARED[dtype]
    limits = np.iinfo(numpy_dtype(dtype))
    return int(limits.min), int(limits.max)


def _stored(array: Array, dtype: str) -> Array:
    """Numbers in the range of an integer dtype, as an array of this dtype."""
    if dtype in ("i4", "u4"):
        array = array.astype(np.int8)
    return array.astype(numpy_dtype(dtype))


def _lost_bits(whole: Array, bits: int) -> npt.NDArray[np.bool_]:
    """Which integers have more significant bits than `bits`, from the highest 1 to the lowest."""
    if 8 * whole.dtype.itemsize <= bits:
        return np.zeros(whole.shape, np.bool_)
    with np.errstate(over="ignore"):  # the complement of 0, plus 1
        size = whole.astype(np.uint64)
        if whole.dtype.kind == "i":
            size = np.where(whole < 0, ~size + np.uint64(1), size)
        lowest = np.maximum(size & (~size + np.uint64(1)), np.uint64(1))
    return np.asarray(size // lowest >= np.uint64(1 << bits), np.bool_)


def _no_numbers(value: Any, dtype: DTypeLike | None, got: str) -> UsageError:
    what = "an array" if dtype is None else f"a constant of {dtype_of(dtype)}"
    hint = "an absent operand has no value: leave it out" if value is None else ""
    return UsageError(
        f"the value cannot be converted to {what}",
        code=103,
        expected="a tensor, a number or an array of numbers",
        got=got,
        hint=hint,
    )
