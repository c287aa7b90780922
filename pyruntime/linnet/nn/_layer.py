"""What every layer is made of: a scope of its own for its variables, sizes that must be known, and arguments per axis.
Adding a layer means one function that calls these; nothing is registered anywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.errors import UsageError
from linnet.graph import Graph, Variable, dtype_of, numpy_dtype
from linnet.init import Initializer
from linnet.operators import Operators, checked

Start = Callable[..., Initializer] | npt.NDArray[Any]
"""How a variable begins: an initializer such as linnet.init.he, called with (shape, dtype=...), or an array."""
Sizes = int | Sequence[int]
Padding = Sizes | str


@contextlib.contextmanager
def layer(x: Operators, kind: str, name: str) -> Iterator[Graph]:
    """The scope `name`, or `kind`, `kind_1`, ... when the layer has no name. x: floats that variables can be made for."""
    if checked(x).dtype not in ("f32", "f64", "f16"):
        raise UsageError(
            f"{kind} needs floats", code=103, tensor=x.name, expected="f32, f64 or f16", got=x.dtype,
            hint="cast it: x.cast('f32')",
        )  # fmt: skip
    graph = x.function.graph
    with graph.scope(name or graph.unique_scope(kind)):
        yield graph


def variable(
    graph: Graph, name: str, shape: Sequence[int], start: Start, dtype: str, trainable: bool = True
) -> Variable:
    """A variable of the current scope. UsageError when `start` is an array of another shape."""
    if callable(start):
        return graph.variable(name, start(tuple(shape), dtype=dtype), trainable=trainable)
    value = np.asarray(start)
    if value.shape != tuple(shape) or dtype_of(value.dtype) not in ("f32", "f64", "f16"):
        raise UsageError(
            "these first values do not fit", code=104, tensor=graph.prefix + name, expected=f"{dtype} {list(shape)}",
            got=f"{value.dtype} {list(value.shape)}",
        )  # fmt: skip
    return graph.variable(name, value.astype(numpy_dtype(dtype)), trainable=trainable)


def rank_of(x: Operators, kind: str, least: int, most: int = 8) -> int:
    """The rank of x, which must be known and in range."""
    if x.rank is None or not least <= x.rank <= most:
        raise UsageError(
            f"{kind} does not take this rank", code=104, tensor=x.name,
            expected=f"{least} to {most} dimensions" if most != least else f"{least} dimensions",
            got="an unknown rank" if x.rank is None else f"{list(x.shape or ())}",
        )  # fmt: skip
    return x.rank


def size_of(x: Operators, axis: int, kind: str) -> int:
    """The size along an axis, which must be a number as weights are made of it."""
    rank_of(x, kind, axis + 1 if axis >= 0 else -axis)
    size = (x.shape or ())[axis]
    if not isinstance(size, int):
        raise UsageError(
            f"{kind} makes weights for axis {axis}, whose size is open", code=104, tensor=x.name, expected="a number there",
            got=str(list(x.shape or ())), hint="give the placeholder that size, or reshape",
        )  # fmt: skip
    return size


def per_axis(value: Sizes, count: int, what: str) -> list[int]:
    """One number per spatial axis."""
    values = [value] * count if isinstance(value, int) else [int(v) for v in value]
    if len(values) != count:
        raise UsageError(f"{what} has {len(values)} numbers", code=104, expected=f"1 or {count}", got=str(values))
    return values


def padding_of(padding: Padding, count: int) -> dict[str, Any]:
    """Attributes of conv and pool: "valid", "same" (as TensorFlow: more at the end), a number per axis, or all begins and
    then all ends."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise UsageError("unknown padding", code=101, expected="'same', 'valid' or numbers", got=repr(padding))
        return {"auto_pad": "same_upper" if padding == "same" else "valid"}
    if not isinstance(padding, int) and len(padding) == 2 * count:
        return {"pads": [int(p) for p in padding]}
    return {"pads": per_axis(padding, count, "padding") * 2}


def positive(value: int, what: str, kind: str) -> int:
    """`value`, which must be a whole number of at least 1."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise UsageError(
            f"{what} of {kind} makes no sense", code=101, expected="a whole number above 0", got=repr(value)
        )
    return int(value)
