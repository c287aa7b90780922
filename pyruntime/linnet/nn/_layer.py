"""Helpers shared by all layers: a scope for the layer's variables, checks for known sizes, and arguments per axis.
To add a layer, write one function that calls these. No registration is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.init import Initializer
from linnet.ir.dtypes import DTypeLike, dtype_of
from linnet.ir.function import Operators, Variable, checked
from linnet.ir.graph import Graph, graph_of

Start = Callable[..., Initializer] | npt.NDArray[Any]
"""How a variable is initialized: an initializer such as linnet.init.he, called with (shape, dtype=...), or an array."""
Sizes = int | Sequence[int]
Padding = Sizes | str


@contextlib.contextmanager
def layer(x: Operators, kind: str, name: str) -> Iterator[Graph]:
    """Opens the scope `name`, or `kind`, `kind_1`, ... if the layer has no name. x must be a float tensor."""
    if checked(x).dtype not in ("f32", "f64", "f16"):
        raise UsageError(
            f"{kind} needs a float input", code=103, tensor=x.name, expected="f32, f64 or f16", got=x.dtype,
            hint="cast it: x.cast('f32')",
        )  # fmt: skip
    graph = graph_of(x)
    with graph.scope(name or graph.unique_scope(kind)):
        yield graph


def variable(
    graph: Graph, name: str, shape: Sequence[int], start: Start, dtype: DTypeLike, trainable: bool = True
) -> Variable:
    """A variable of the current scope. Raises UsageError if `start` is an array of the wrong shape."""
    if callable(start):
        return graph.variable(name, start(tuple(shape), dtype=dtype), trainable=trainable)
    value = np.asarray(start)
    if value.shape != tuple(shape) or dtype_of(value.dtype) not in ("f32", "f64", "f16"):
        raise UsageError(
            "the initial values have the wrong shape or dtype",
            code=104,
            tensor=graph.prefix + name,
            expected=f"{dtype_of(dtype)} {list(shape)}",
            got=f"{value.dtype} {list(value.shape)}",
        )
    return graph.variable(name, value, trainable=trainable, dtype=dtype)


def rank_of(x: Operators, kind: str, least: int, most: int = 8) -> int:
    """The rank of x. Raises an error unless the rank is known and in range."""
    if x.rank is None or not least <= x.rank <= most:
        raise UsageError(
            f"{kind} does not support inputs of this rank", code=104, tensor=x.name,
            expected=f"{least} to {most} dimensions" if most != least else f"{least} dimensions",
            got="an unknown rank" if x.rank is None else f"{list(x.shape or ())}",
        )  # fmt: skip
    return x.rank


def size_of(x: Operators, axis: int, kind: str) -> int:
    """The size along an axis. It must be a fixed number because weights depend on it."""
    rank_of(x, kind, axis + 1 if axis >= 0 else -axis)
    size = (x.shape or ())[axis]
    if not isinstance(size, int):
        raise UsageError(
            f"{kind} creates weights for axis {axis}, but the size of that axis is open",
            code=104,
            tensor=x.name,
            expected="a fixed size",
            got=str(list(x.shape or ())),
            hint="give the placeholder a fixed size there, or reshape",
        )
    return size


def per_axis(value: Sizes, count: int, what: str) -> list[int]:
    """One number per spatial axis."""
    values = [value] * count if isinstance(value, int) else [int(v) for v in value]
    if len(values) != count:
        raise UsageError(
            f"{what} has {len(values)} numbers, which does not match the number of spatial axes",
            code=104,
            expected=f"{count} numbers or one",
            got=str(values),
        )
    return values


def padding_of(padding: Padding, count: int) -> dict[str, Any]:
    """Attributes of conv and pool for a padding. The padding is "valid", "same" (as in TensorFlow: an extra element
    goes to the end), one number per axis, or the numbers at all beginnings followed by those at all ends."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise UsageError("unknown padding", code=101, expected="'same', 'valid' or numbers", got=repr(padding))
        return {"auto_pad": "same_upper" if padding == "same" else "valid"}
    if not isinstance(padding, int) and len(padding) == 2 * count:
        return {"pads": [int(p) for p in padding]}
    return {"pads": per_axis(padding, count, "padding") * 2}


def positive(value: int, what: str, kind: str) -> int:
    """Returns `value` after checking that it is an integer of at least 1."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise UsageError(
            f"{what} of {kind} must be a positive integer", code=101, expected="an integer above 0", got=repr(value)
        )
    return int(value)
