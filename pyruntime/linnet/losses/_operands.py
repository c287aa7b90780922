"""Converts the arguments of losses. They are tensors and variables; targets may also be arrays and numbers."""

from __future__ import annotations

from typing import Any

from linnet.clib.errors import UsageError
from linnet.ir.exact import numbers_of
from linnet.ir.function import Operators, Tensor


def operands(first: Any, *others: Any) -> list[Tensor]:
    """Converts all arguments to tensors of one function. Arrays and numbers become constants: floats get the dtype of
    the first argument, integers become i64.

    Raises UsageError if there is no tensor or variable among them.
    """
    given = [v for v in (first, *others) if isinstance(v, Operators)]
    if not given:
        raise UsageError(
            "at least one argument of a loss must be a tensor",
            code=103,
            expected="a tensor or variable",
            got=type(first).__name__,
        )
    like = next((v for v in given if isinstance(v, Tensor)), given[0].tensor())
    main = (first if isinstance(first, Operators) else given[0]).tensor(like)

    def own(value: Any) -> Tensor:
        if isinstance(value, Operators):
            return value.tensor(like)
        array = numbers_of(value)
        wanted = "i64" if array.dtype.kind in "iub" else main.dtype
        return like.function.constant(array, dtype=wanted)

    return [own(value) for value in (first, *others)]


def as_labels(labels: Operators) -> Tensor:
    """Narrow integers, as label files contain them, become i32. Any other dtype is unchanged."""
    return labels.cast("i32") if labels.dtype in ("u8", "i8", "u16", "i16") else labels.tensor()
