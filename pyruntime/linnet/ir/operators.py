"""Python's operators on tensors and variables, with NumPy's meaning and broadcasting. They create ordinary nodes. Numbers
become immediates of a map, arrays become constants of the tensor's dtype, and variables become a read of their value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Generic, Protocol, SupportsIndex, TypeVar

import numpy as np

from linnet.clib.errors import UsageError
from linnet.ir.dtypes import Dim, DTypeLike, Quantization
from linnet.ir.exact import numbers_of

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1
Index = int | slice | EllipsisType | None
Axis = int | Sequence[int] | None  # of functions that work along axes


if TYPE_CHECKING:

    class Value(Protocol):
        """A tensor as seen by operators. Its function creates nodes (`emit`) and constants (`constant`)."""

        @property
        def name(self) -> str: ...
        @property
        def dtype(self) -> str: ...
        @property
        def shape(self) -> tuple[Dim, ...] | None: ...
        @property
        def quantization(self) -> Quantization | None: ...
        @property
        def function(self) -> Any: ...


T = TypeVar("T", bound="Value")


class Arithmetic(Generic[T]):
    """Operators that return T, the tensor type. `==` compares identity, because tensors are dictionary keys; see
    `equal`."""

    __array_ufunc__ = None  # makes NumPy arrays defer to our operators
    __iter__ = None  # prevents iteration through __getitem__

    if TYPE_CHECKING:  # fields or properties of the classes that have operators

        @property
        def name(self) -> str: ...
        @property
        def dtype(self) -> str: ...
        @property
        def shape(self) -> tuple[Dim, ...] | None: ...
        @property
        def quantization(self) -> Quantization | None: ...
        @property
        def function(self) -> Any: ...

    def __bool__(self) -> bool:
        """Raises UsageError: Python's `if` and `and` cannot use a comparison of tensors, because nothing is computed
        yet."""
        raise UsageError(
            "a tensor has no truth value while the graph is being built", code=101, tensor=self.name,
            hint="use linnet.cond, linnet.while_loop, or linnet.ops.where and logical_and",
        )  # fmt: skip

    def tensor(self, like: Value | None = None) -> T:
        """The value as a tensor of the function of `like`."""
        raise NotImplementedError

    def __add__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: b + a)

    def __sub__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: b * a)

    def __truediv__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: b / a)

    def __pow__(self, other: Any) -> T:
        if isinstance(other, int) and other == 2:
            return _binary(self, self, lambda a, b: a * b)
        return _binary(self, other, lambda a, b: a**b)

    def __neg__(self) -> T:
        return _binary(self, 0, lambda a, _: -a)

    def __abs__(self) -> T:
        return _binary(self, 0, lambda a, _: abs(a))

    def __lt__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: a < b)

    def __le__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> T:
        return _binary(self, other, lambda a, b: a >= b)

    def equal(self, other: Any) -> T:
        """Whether the two are equal, as bool."""
        return _binary(self, other, lambda a, b: a.eq(b))

    def not_equal(self, other: Any) -> T:
        """Whether the two differ, as bool."""
        return _binary(self, other, lambda a, b: a.ne(b))

    def __matmul__(self, other: Any) -> T:
        return _matmul(*pair(self, other))

    def __rmatmul__(self, other: Any) -> T:
        b, a = pair(self, other)
        return _matmul(a, b)

    def __getitem__(self, key: Index | tuple[Index, ...]) -> T:
        """NumPy's basic indexing: numbers, slices with any step, None (a new axis) and `...`."""
        keys = key if isinstance(key, tuple) else (key,)
        for item in keys:
            parts = (item.start, item.stop, item.step) if isinstance(item, slice) else (item,)
            if any(not isinstance(part, SupportsIndex | EllipsisType | None) for part in parts):
                raise UsageError(
                    "a tensor cannot be indexed with a value of this type", code=101, tensor=self.name,
                    expected="integers, slices of integers, None or ...", got=repr(item),
                    hint="linnet.ops.gather takes indices from a tensor",
                )  # fmt: skip
        return _index(self.tensor(), keys)

    def sum(self, axis: Axis = None, *, keep_dims: bool = False) -> T:
        """Sum along an axis, or along several axes. None: over all elements."""
        return _reduce(self.tensor(), "sum", axis, keep_dims)

    def mean(self, axis: Axis = None, *, keep_dims: bool = False) -> T:
        """Mean along an axis, or along several axes. None: over all elements."""
        return _reduce(self.tensor(), "mean", axis, keep_dims)

    def max(self, axis: Axis = None, *, keep_dims: bool = False) -> T:
        """Maximum along an axis, or along several axes. None: over all elements."""
        return _reduce(self.tensor(), "max", axis, keep_dims)

    def min(self, axis: Axis = None, *, keep_dims: bool = False) -> T:
        """Minimum along an axis, or along several axes. None: over all elements."""
        return _reduce(self.tensor(), "min", axis, keep_dims)

    def reshape(self, *shape: int | Sequence[int]) -> T:
        """The same elements in another shape, given as numbers or one sequence. One entry may be -1; an entry of 0
        keeps that dimension."""
        return _copy(self.tensor(), kind="reshape", shape=_flat(shape))

    def transpose(self, *perm: int | Sequence[int]) -> T:
        """Permutes the dimensions into the order `perm`, given as numbers or one sequence. An empty `perm` reverses
        them."""
        return _copy(self.tensor(), kind="transpose", perm=_flat(perm))

    def cast(self, dtype: DTypeLike) -> T:
        """Converts to another dtype: "f32", "i64", numpy.int8, ..."""
        return _emit(self.tensor(), "cast", {"dtype": dtype})


def _flat(numbers: Sequence[int | Sequence[int]]) -> list[int]:
    try:
        return [n for item in numbers for n in ([item] if isinstance(item, int) else item)]
    except TypeError as error:
        raise UsageError("dimensions must be integers, or one list of integers", code=101, got=str(numbers)) from error


def pair(a: Arithmetic[T], b: Any) -> tuple[T, T]:
    """Both values as tensors of one function: the function of the operand that is already a tensor."""
    left = a.tensor(b if isinstance(b, Arithmetic) else None)
    if isinstance(b, Arithmetic):
        return left, b.tensor(left)
    return left, left.function.constant(numbers_of(b, left.dtype))


def _emit(x: T, op: str, attributes: dict[str, Any]) -> T:
    made: list[T] = x.function.emit(op, [x], attributes)
    return made[0]


def _copy(x: T, **attributes: Any) -> T:
    return _emit(x, "copy", attributes)


def _matmul(a: T, b: T) -> T:
    made: list[T] = a.function.emit("matmul", [a, b], {})
    return made[0]


def _binary(a: Arithmetic[T], b: Any, body: Callable[[Any, Any], Any]) -> T:
    from linnet.ir.expr import compiled

    if isinstance(b, int | float | np.integer | np.floating | np.bool_):
        value = b.item() if isinstance(b, np.generic) else b
        operands, attributes, dtypes, _ = compiled([a.tensor()], lambda v: body(v, v.lift(value)))
    else:
        operands, attributes, dtypes, _ = compiled(pair(a, b), body)
    made: list[T] = operands[0].function.emit("map", operands, attributes, dtypes=dtypes)
    return made[0]


def axes_of(axis: Axis) -> list[int]:
    """`axis` of a public function as the list that ops take; None gives an empty one."""
    try:
        if axis is None:
            return []
        return [index(axis)] if isinstance(axis, SupportsIndex) else [index(a) for a in axis]
    except TypeError:
        raise UsageError(
            "axis has the wrong type", code=101, expected="an integer, integers, or None", got=f"{axis!r:.60}"
        ) from None


def along(kind: str, axis: Axis) -> dict[str, Any]:
    """The attribute of the op `copy` for `axis`: some kinds work along one axis, others along several."""
    if kind in ("slice", "squeeze", "unsqueeze", "pad"):
        return {"axes": axes_of(axis)}
    return {"axis": 0 if axis is None else axis}


def _reduce(x: T, kind: str, axis: Axis, keep_dims: bool) -> T:
    named = axis is not None  # like NumPy: None stands for all axes, and () for none
    attributes = {"kind": kind, "axes": axes_of(axis), "keep_dims": keep_dims, "noop_with_empty_axes": named}
    return _emit(x, "reduce", attributes)


def _index(x: T, keys: tuple[Index, ...]) -> T:
    used = sum(key is not None and key is not ... for key in keys)
    if x.shape is None or used > len(x.shape) or keys.count(...) > 1:
        raise UsageError(
            "the index does not match the tensor's rank",
            code=104,
            tensor=x.name,
            expected="at most one number or slice per axis",
            got=f"{used} of them for shape {x.shape}",
        )
    if ... not in keys:
        keys = (*keys, ...)
    axis, at = 0, 0  # axis of x; axis of the result, which still has the axes selected by numbers
    cuts: list[tuple[int, int, int, int]] = []
    dropped: list[int] = []
    new: list[int] = []
    for key in keys:
        if key is None:
            new.append(at)
            at += 1
            continue
        if isinstance(key, EllipsisType):
            axis, at = axis + len(x.shape) - used, at + len(x.shape) - used
            continue
        size = x.shape[axis]
        if isinstance(key, slice):
            step = 1 if key.step is None else key.step
            start = (0 if step > 0 else _LAST) if key.start is None else key.start
            end = (_LAST if step > 0 else _FIRST) if key.stop is None else key.stop
            if (key.start, key.stop, step) != (None, None, 1):
                cuts.append((axis, start, end, step))
        else:
            if isinstance(size, int) and not -size <= key < size:
                raise UsageError(
                    "the index is out of range", code=104, tensor=x.name, expected=f"below {size}", got=str(key)
                )
            cuts.append((axis, key, key + 1 if key != -1 else _LAST, 1))
            dropped.append(at)
        axis, at = axis + 1, at + 1
    if cuts:
        axes, starts, ends, steps = zip(*cuts, strict=True)
        x = _copy(x, kind="slice", axes=axes, starts=starts, ends=ends, steps=steps)
    if new:
        x = _copy(x, kind="unsqueeze", axes=new)
    return _copy(x, kind="squeeze", axes=dropped) if dropped else x
