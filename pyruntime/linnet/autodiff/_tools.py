"""Helpers of gradient rules: shapes that may be dynamic, constants, and the adjoints of broadcasting and of moving
elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.clib.errors import GraphError
from linnet.ir.dtypes import Dim, numpy_dtype
from linnet.ir.expr import Expr
from linnet.ir.function import Function, Node, Operators, Tensor, Variable

FLOAT_DTYPES = frozenset({"f32", "f64", "f16", "bf16"})


def first(node: Node, given: list[Tensor | None]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns input 0, output 0, and the gradient of output 0."""
    x, g = node.inputs[0], given[0]
    if x is None or g is None or any(extra is not None for extra in given[1:]):
        raise GraphError(
            "only the first output of the op has a gradient", code=301, hint="leave the other outputs out of the loss"
        )
    return x, node.outputs[0], g


def elementwise(inputs: Sequence[Operators], body: Callable[..., Expr], dtype: str | None = None) -> Tensor:
    """Creates a map with one output."""
    made = pointwise(inputs, body, dtype)
    assert isinstance(made, Tensor)
    return made


def shape_of(x: Tensor) -> tuple[Dim, ...]:
    """The shape of x as a tensor. Its rank must be known."""
    if x.shape is None:
        raise GraphError(f"the rank of '{x.name}' is unknown", code=304, hint="give the tensor a shape")
    return x.shape


def static(x: Tensor, axes: Sequence[int] | None = None) -> tuple[int, ...]:
    """Returns the sizes along axes (default: all). They must be known numbers."""
    shape = shape_of(x)
    dims = [shape[a] for a in (range(len(shape)) if axes is None else axes)]
    if not all(isinstance(d, int) for d in dims):
        raise GraphError(
            f"the gradient rule needs fixed sizes of '{x.name}'", code=304, got=str(list(shape)), hint="use fixed sizes"
        )
    return tuple(d for d in dims if isinstance(d, int))


def integers(like: Tensor, values: Any) -> Tensor:
    """An i64 constant."""
    return like.function.constant(np.asarray(values, np.int64))


def operand(node: Node, index: int) -> Tensor | None:
    return node.inputs[index] if index < len(node.inputs) else None


def constant_of(tensor: Tensor, what: str) -> list[int]:
    """The integers of an operand, which must be a constant."""
    if tensor.data is None:
        raise GraphError(
            f"the gradient rule needs constant {what}",
            code=304,
            got=f"'{tensor.name}', computed",
            hint="use a constant",
        )
    return [int(v) for v in np.atleast_1d(tensor.data)]


def number(like: Tensor, value: float) -> Tensor:
    """A scalar constant of a float dtype."""
    return like.function.constant(np.asarray(value, numpy_dtype(like.dtype)))


def filled(like: Tensor, value: float) -> Tensor:
    """A tensor filled with one value, with the dtype and shape of `like`."""
    return expand_like(number(like, value), like)


def numbers_of(x: Tensor) -> Tensor:
    """The indices of x's elements as i64, in x's shape."""
    if x.static_shape is not None:
        count = int(np.prod(x.static_shape))
        return x.function.constant(np.arange(count, dtype=np.int64).reshape(x.static_shape))
    size = ops.reduce(ops.shape(x), kind="prod", keep_dims=False)
    return reshape_like(ops.range_(integers(x, 0), size, integers(x, 1)), x)


def put_back(x: Tensor, came: Tensor, g: Tensor) -> Tensor:
    """The adjoint of any op that moves elements: adds each element of g at the index in x from which the op took the
    value."""
    count = [int(np.prod(x.static_shape))] if x.static_shape is not None else None
    if count is not None:
        zeros = ops.copy([number(g, 0.0)], kind="expand", shape=count)[0]
    else:
        zeros = ops.reshape(expand_like(number(g, 0.0), x), [-1])
    flat = [ops.reshape(t, [-1]) for t in (came, g)]
    return reshape_like(ops.scatter(zeros, *flat, reduction="add"), x)


def expand_like(x: Tensor, like: Tensor) -> Tensor:
    """Broadcasts x to the shape of `like`."""
    if like.static_shape is not None:
        if x.static_shape == like.static_shape:
            return x
        return ops.copy([x], kind="expand", shape=like.static_shape)[0]
    return ops.copy([x, ops.shape(like)], kind="expand")[0]


def reshape_like(x: Tensor, like: Tensor) -> Tensor:
    if like.static_shape is not None:
        return ops.copy([x], kind="reshape", shape=like.static_shape, allow_zero=True)[0]
    return ops.copy([x, ops.shape(like)], kind="reshape", allow_zero=True)[0]


def unbroadcast(g: Tensor, like: Tensor) -> Tensor:
    """The adjoint of broadcasting: sums g over the dimensions along which `like` was repeated."""
    target, source = shape_of(like), shape_of(g)
    extra = len(source) - len(target)
    axes = list(range(extra))
    unsure = False
    for i, (small, large) in enumerate(zip(target, source[extra:], strict=True)):
        if small == 1 and large != 1:
            axes.append(extra + i)
        elif not isinstance(small, int) and (small is None or small != large):
            unsure = True  # 1 or the full size; decided at run time
    if axes:
        g = ops.reduce(g, kind="sum", axis=axes, keep_dims=True)
    if extra:
        g = ops.copy([g], kind="squeeze", axis=range(extra))[0]
    if unsure:
        ones = elementwise([ops.shape(like)], lambda d: d.eq(1), "bool")
        where = ops.copy([ops.nonzero(ones)], kind="reshape", shape=[-1])[0]
        g = ops.reduce(g, where, kind="sum", keep_dims=True, noop_with_empty_axes=True)
    return g


def behind(loss: Tensor) -> set[Tensor]:
    """Returns all tensors on which the loss depends, including the loss."""
    seen, pending = {loss}, [loss]
    while pending:
        node = pending.pop().node
        for tensor in node.inputs if node is not None else ():
            if tensor is not None and tensor not in seen:
                seen.add(tensor)
                pending.append(tensor)
    return seen


def inner_reads(loss: Tensor) -> dict[Variable, tuple[Node, Function]]:
    """The variables that are read inside branches and loops on which the loss depends. Each comes with the node and the
    function that read it."""
    found: dict[Variable, tuple[Node, Function]] = {}
    seen: set[Function] = set()
    for outer in dict.fromkeys(t.node for t in behind(loss) if t.node is not None):
        pending = [outer]
        while pending:
            for function in pending.pop().attributes.values():
                if not isinstance(function, Function) or function in seen:
                    continue
                seen.add(function)
                pending += function.nodes
                for tensor in function.tensors():
                    if tensor.variable is not None:
                        found.setdefault(tensor.variable, (outer, function))
    return found
