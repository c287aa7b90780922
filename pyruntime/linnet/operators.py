"""Python's operators on tensors and variables: NumPy's meaning and broadcasting, ordinary nodes.
Numbers become immediates of a map, arrays constants of the tensor's element type, variables a read of their value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from linnet.errors import UsageError

if TYPE_CHECKING:
    from linnet.graph import Dim, Function, Quantization, Tensor

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1
Index = int | slice | EllipsisType | None


class Operators:
    """What Tensor and Variable have in common. `==` compares identity, as tensors are keys of dictionaries: see `equal`."""

    __array_ufunc__ = None  # NumPy arrays leave the operators to us
    __iter__ = None  # no iteration through __getitem__

    if TYPE_CHECKING:  # what both have, as fields or properties

        @property
        def name(self) -> str: ...
        @property
        def dtype(self) -> str: ...
        @property
        def shape(self) -> tuple[Dim, ...] | None: ...
        @property
        def rank(self) -> int | None: ...
        @property
        def static_shape(self) -> tuple[int, ...] | None: ...
        @property
        def function(self) -> Function: ...
        @property
        def quantization(self) -> Quantization | None: ...

    def __bool__(self) -> bool:
        """Nothing has been computed yet: UsageError, where Python's `if` and `and` would take a graph's comparison."""
        raise UsageError(
            "a tensor has no truth value while the graph is built", code=101, tensor=self.name,
            hint="take linnet.cond, linnet.while_loop, or linnet.ops.where and logical_and",
        )  # fmt: skip

    def tensor(self, like: Operators | None = None) -> Tensor:
        """As a tensor of the function of `like`."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: b + a)

    def __sub__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: b * a)

    def __truediv__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: b / a)

    def __pow__(self, other: Any) -> Tensor:
        if isinstance(other, int) and other == 2:
            return _binary(self, self, lambda a, b: a * b)
        return _binary(self, other, lambda a, b: a**b)

    def __neg__(self) -> Tensor:
        return _binary(self, 0, lambda a, _: -a)

    def __abs__(self) -> Tensor:
        return _binary(self, 0, lambda a, _: abs(a))

    def __lt__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Tensor:
        return _binary(self, other, lambda a, b: a >= b)

    def equal(self, other: Any) -> Tensor:
        """Where the two are equal, as bool."""
        return _binary(self, other, lambda a, b: a.eq(b))

    def not_equal(self, other: Any) -> Tensor:
        """Where the two differ, as bool."""
        return _binary(self, other, lambda a, b: a.ne(b))

    def __matmul__(self, other: Any) -> Tensor:
        from linnet import ops

        a, b = pair(self, other)
        return ops.matmul(a, b)

    def __rmatmul__(self, other: Any) -> Tensor:
        from linnet import ops

        b, a = pair(self, other)
        return ops.matmul(a, b)

    def __getitem__(self, key: Index | tuple[Index, ...]) -> Tensor:
        """NumPy's basic indexing: numbers, slices with any step, None (a new axis) and `...`."""
        return _index(self.tensor(), key if isinstance(key, tuple) else (key,))

    def sum(self, axes: int | Sequence[int] = (), *, keep_dims: bool = False) -> Tensor:
        """Sum over axes; over all when there are none."""
        return _reduce(self, "sum", axes, keep_dims)

    def mean(self, axes: int | Sequence[int] = (), *, keep_dims: bool = False) -> Tensor:
        """Mean over axes; over all when there are none."""
        return _reduce(self, "mean", axes, keep_dims)

    def max(self, axes: int | Sequence[int] = (), *, keep_dims: bool = False) -> Tensor:
        """Maximum over axes; over all when there are none."""
        return _reduce(self, "max", axes, keep_dims)

    def min(self, axes: int | Sequence[int] = (), *, keep_dims: bool = False) -> Tensor:
        """Minimum over axes; over all when there are none."""
        return _reduce(self, "min", axes, keep_dims)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The same elements in another shape, as numbers or one sequence; one entry may be -1, and 0 keeps the dimension."""
        from linnet import ops

        return ops.reshape(self.tensor(), _flat(shape))

    def transpose(self, *perm: int | Sequence[int]) -> Tensor:
        """Dimensions in the order `perm`, as numbers or one sequence; reversed when it is empty."""
        from linnet import ops

        return ops.transpose(self.tensor(), _flat(perm))

    def cast(self, dtype: str) -> Tensor:
        """As another element type: "f32", "i64", ..."""
        from linnet import ops

        return ops.cast(self.tensor(), dtype=dtype)


def _flat(numbers: Sequence[int | Sequence[int]]) -> list[int]:
    return [n for item in numbers for n in ([item] if isinstance(item, int) else item)]


def checked(x: Operators) -> Operators:
    """x. UsageError when it is no tensor and no variable."""
    if not isinstance(x, Operators):
        raise UsageError(
            "a graph's function wants a tensor or variable", code=103, expected="a tensor", got=type(x).__name__,
            hint="make a constant of an array: graph.constant(array)",
        )  # fmt: skip
    return x


def pair(a: Operators, b: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors of one function: that of the one that is a tensor already."""
    from linnet.graph import Tensor, numpy_dtype

    like = b if isinstance(b, Tensor) and not isinstance(a, Tensor) else None
    left = a.tensor(like)
    if isinstance(b, Operators):
        return left, b.tensor(left)
    if left.dtype == "bf16":
        raise UsageError("an array does not become a bf16 constant", code=103, tensor=left.name, hint="give a tensor")
    return left, left.function.constant(np.asarray(b, numpy_dtype(left.dtype)))


def _binary(a: Operators, b: Any, body: Callable[[Any, Any], Any]) -> Tensor:
    from linnet.graph import Tensor
    from linnet.mapping import pointwise

    if isinstance(b, int | float | np.number | np.bool_):
        value = b.item() if isinstance(b, np.generic) else b
        made = pointwise([a.tensor()], lambda v: body(v, v.lift(value)))
    else:
        made = pointwise(pair(a, b), body)
    assert isinstance(made, Tensor)
    return made


def _reduce(x: Operators, kind: str, axes: int | Sequence[int], keep_dims: bool) -> Tensor:
    from linnet import ops

    return ops.reduce(x.tensor(), kind=kind, axes=[axes] if isinstance(axes, int) else axes, keep_dims=keep_dims)


def _index(x: Tensor, keys: tuple[Index, ...]) -> Tensor:
    from linnet import ops

    used = sum(key is not None and key is not ... for key in keys)
    if x.shape is None or used > len(x.shape) or keys.count(...) > 1:
        raise UsageError(
            "this index does not fit", code=104, tensor=x.name, expected="a number or slice per axis at most",
            got=f"{used} for shape {x.shape}",
        )  # fmt: skip
    if ... not in keys:
        keys = (*keys, ...)
    axis, at = 0, 0  # of x, and of the result with the axes of numbers still there
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
                raise UsageError("index out of range", code=104, tensor=x.name, expected=f"below {size}", got=str(key))
            cuts.append((axis, key, key + 1 if key != -1 else _LAST, 1))
            dropped.append(at)
        axis, at = axis + 1, at + 1
    if cuts:
        axes, starts, ends, steps = zip(*cuts, strict=True)
        x = ops.copy([x], kind="slice", axes=axes, starts=starts, ends=ends, steps=steps)[0]
    if new:
        x = ops.copy([x], kind="unsqueeze", axes=new)[0]
    return ops.copy([x], kind="squeeze", axes=dropped)[0] if dropped else x
