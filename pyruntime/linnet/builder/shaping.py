"""Functions that move elements or reduce along axes, under NumPy's names. Each creates one `copy` or `reduce` node.
Sizes may be negative or 0 as defined by the op `copy`. Negative axes count from the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from linnet.builder.generated import cast, copy, reduce
from linnet.clib.arguments import at_least
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import DTypeLike, numpy_dtype
from linnet.ir.function import Operators
from linnet.ir.operators import Axis, axes_of

if TYPE_CHECKING:
    from linnet.ir.function import Tensor

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


def reshape(x: Operators, shape: Sequence[int], *, name: str = "") -> Tensor:
    """The same elements in another shape. One entry may be -1; an entry of 0 keeps that dimension."""
    return copy([x.tensor()], kind="reshape", shape=shape, name=name)[0]


def flatten(x: Operators, axis: int = 1, *, name: str = "") -> Tensor:
    """Merges all dimensions from `axis` on into one."""
    return reshape(x, [0] * axis + [-1], name=name)


def transpose(x: Operators, perm: Sequence[int] = (), *, name: str = "") -> Tensor:
    """Permutes the dimensions into the order `perm`. An empty `perm` reverses them."""
    return copy([x.tensor()], kind="transpose", perm=perm, name=name)[0]


def expand_dims(x: Operators, axis: int | Sequence[int], *, name: str = "") -> Tensor:
    """Inserts dimensions of size 1 at the position or positions `axis` of the result."""
    return copy([x.tensor()], kind="unsqueeze", axis=axes_of(axis), name=name)[0]


def squeeze(x: Operators, axis: Axis = None, *, name: str = "") -> Tensor:
    """Removes the dimension or dimensions `axis`, which must have size 1. None: every dimension of size 1."""
    if axis is not None and not axes_of(axis):  # like NumPy: nothing to remove
        return reshape(x, [0] * len(x.shape or ()), name=name) if x.shape else x.tensor()
    return copy([x.tensor()], kind="squeeze", axis=axes_of(axis), name=name)[0]


def broadcast_to(x: Operators, shape: Sequence[int], *, name: str = "") -> Tensor:
    """Repeats dimensions of size 1, and adds new dimensions in front."""
    return copy([x.tensor()], kind="expand", shape=shape, name=name)[0]


def tile(x: Operators, repeats: Sequence[int], *, name: str = "") -> Tensor:
    """Repeats the whole tensor `repeats[i]` times along axis i."""
    return copy([x.tensor()], kind="tile", shape=repeats, name=name)[0]


def concat(tensors: Sequence[Operators], axis: int, *, name: str = "") -> Tensor:
    """Joins tensors along an existing axis."""
    return copy([tensor.tensor() for tensor in tensors], kind="concat", axis=axis, name=name)[0]


def stack(tensors: Sequence[Operators], axis: int = 0, *, name: str = "") -> Tensor:
    """Joins tensors of the same shape along a new axis."""
    return concat([expand_dims(tensor, axis) for tensor in tensors], axis, name=name)


def split(x: Operators, sizes: int | Sequence[int], axis: int = 0, *, name: str = "") -> list[Tensor]:
    """Splits along an axis into parts of the given sizes or, if `sizes` is a number, into that many equal parts. Raises
    UsageError if the axis cannot be divided evenly."""
    tensor = x.tensor()
    if isinstance(sizes, int):
        rank = tensor.rank
        if rank is not None and not -rank <= axis < rank:
            raise UsageError(
                "the tensor does not have this axis", code=104, tensor=tensor.name, expected=f"{-rank} to {rank - 1}",
                got=str(axis),
            )  # fmt: skip
        if sizes < 1:
            raise UsageError("the number of parts must be 1 or more", code=101, tensor=tensor.name, got=str(sizes))
        size = tensor.shape[axis] if tensor.shape is not None else None
        if not isinstance(size, int) or size % sizes:
            raise UsageError(
                "the axis cannot be split evenly", code=104, tensor=tensor.name, expected=f"a multiple of {sizes}",
                got=str(size), hint="give the sizes of the parts as a list",
            )  # fmt: skip
        sizes = [size // sizes] * sizes
    return copy([tensor], kind="split", axis=axis, shape=sizes, outputs=len(sizes), name=name)


def pad(
    x: Operators, pads: Sequence[tuple[int, int]], mode: str = "constant", value: float = 0.0, *, name: str = ""
) -> Tensor:
    """Adds (before, after) elements on each axis; negative numbers crop. Modes: constant, reflect, edge, wrap."""
    flat = [before for before, _ in pads] + [after for _, after in pads]
    return copy([x.tensor()], kind="pad", pads=flat, pad_mode=mode, value=value, name=name)[0]


def flip(x: Operators, axis: Axis = None, *, name: str = "") -> Tensor:
    """Reverses the order of elements along an axis, or along several axes. None: along all."""
    axes = list(range(len(x.shape or ()))) if axis is None else axes_of(axis)
    ends, steps = [_FIRST] * len(axes), [-1] * len(axes)
    return copy([x.tensor()], kind="slice", axis=axes, starts=[_LAST] * len(axes), ends=ends, steps=steps, name=name)[0]


def one_hot(labels: Operators, classes: int, dtype: DTypeLike = "f32", *, name: str = "") -> Tensor:
    """1 at index `labels[...]` of a new last axis of size `classes`, 0 elsewhere. If a label is out of range, all its
    elements are 0."""
    at_least("classes", classes, 0)
    index = expand_dims(labels, -1)
    classes_ = index.function.constant(np.arange(classes, dtype=numpy_dtype(index.dtype)))
    return cast(index.equal(classes_), dtype=dtype, name=name)


def _reduce(x: Operators, kind: str, axis: Axis, keep_dims: bool, name: str) -> Tensor:
    named = axis is not None  # like NumPy: None stands for all axes, and () for none
    return reduce(x.tensor(), kind=kind, axis=axis, keep_dims=keep_dims, noop_with_empty_axes=named, name=name)


def sum(x: Operators, axis: Axis = None, *, keep_dims: bool = False, name: str = "") -> Tensor:
    """The sum along an axis, or along several axes. None: over all elements."""
    return _reduce(x, "sum", axis, keep_dims, name)


def mean(x: Operators, axis: Axis = None, *, keep_dims: bool = False, name: str = "") -> Tensor:
    """Mean along an axis, or along several axes. None: over all elements."""
    return _reduce(x, "mean", axis, keep_dims, name)


def max(x: Operators, axis: Axis = None, *, keep_dims: bool = False, name: str = "") -> Tensor:
    """Maximum along an axis, or along several axes. None: over all elements."""
    return _reduce(x, "max", axis, keep_dims, name)


def min(x: Operators, axis: Axis = None, *, keep_dims: bool = False, name: str = "") -> Tensor:
    """Minimum along an axis, or along several axes. None: over all elements."""
    return _reduce(x, "min", axis, keep_dims, name)


def prod(x: Operators, axis: Axis = None, *, keep_dims: bool = False, name: str = "") -> Tensor:
    """Product along an axis, or along several axes. None: over all elements."""
    return _reduce(x, "prod", axis, keep_dims, name)


def logsumexp(x: Operators, axis: Axis = None, *, keep_dims: bool = False, name: str = "") -> Tensor:
    """log(sum(exp(x))) along an axis, or along several axes, without overflow. None: over all elements."""
    return _reduce(x, "log_sum_exp", axis, keep_dims, name)


def argmax(x: Operators, axis: int, *, keep_dims: bool = False, name: str = "") -> Tensor:
    """Index (i64) of the first maximum along an axis."""
    return _reduce(x, "argmax", axis, keep_dims, name)


def argmin(x: Operators, axis: int, *, keep_dims: bool = False, name: str = "") -> Tensor:
    """Index (i64) of the first minimum along an axis."""
    return _reduce(x, "argmin", axis, keep_dims, name)


def matrix_transpose(x: Operators, *, name: str = "") -> Tensor:
    """Swaps the last two dimensions."""
    tensor = x.tensor()
    rank = len(tensor.shape or ())
    if tensor.shape is None or rank < 2:
        raise UsageError(
            "the tensor is not a matrix",
            code=104,
            tensor=tensor.name,
            expected="two dimensions or more",
            got=str(tensor.shape),
        )
    return transpose(tensor, [*range(rank - 2), rank - 1, rank - 2], name=name)
