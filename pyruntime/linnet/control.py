"""Branches and loops as Python functions over tensors: `cond`, `while_loop`, `scan`. They become `if` and `while` nodes.
What they use from around them is captured; a state may be nested in tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from linnet import ops
from linnet.body import Body
from linnet.errors import UsageError
from linnet.graph import Dim, Function, Tensor, emit, numpy_dtype
from linnet.operators import Operators

Structure = Any
"""A tensor, a variable, a number, an array, or a tuple, list or dict of structures; None holds nothing."""


def cond(
    pred: Operators, then_fn: Callable[..., Structure], else_fn: Callable[..., Structure], *operands: Structure
) -> Structure:
    """`then_fn(*operands)` where `pred` holds, else `else_fn(*operands)`; only that one runs.

    pred: a bool scalar. Both functions give results of the same structure, dtypes and shapes, which are returned.
    Gradients go through, into what the functions capture too. Raises UsageError when the branches differ.
    """
    condition = pred.tensor()
    function = _where(condition, *operands)
    if condition.dtype != "bool" or condition.shape not in ((), (1,), None):
        raise UsageError(
            "the condition is no bool scalar", code=103, tensor=condition.name, expected="bool []",
            got=f"{condition.dtype} {_text(condition.shape)}", hint="compare: x.sum() > 0",
        )  # fmt: skip
    bodies, results, likes = [], [], []
    for name, branch in (("then", then_fn), ("else", else_fn)):
        body = Body(function, name)
        with body.open():
            made = branch(*(_map(lambda t: t.tensor() if isinstance(t, Operators) else t, o) for o in operands))
            parts, rebuild = _flatten(made)
            like = [t.tensor() if isinstance(t, Operators) else None for t in parts]
            results.append((parts, rebuild, _shape_of(made)))
        bodies.append(body)
        likes.append(like)
    if results[0][2] != results[1][2]:
        raise UsageError(
            "the branches of cond give different structures", code=101, expected=results[0][2], got=results[1][2],
            hint="return as many values, nested alike, from both",
        )  # fmt: skip
    for body, (parts, _, _), others in zip(bodies, results, likes[::-1], strict=True):
        with body.open():
            body.outputs = [body.own(_tensor(p, body, o)) for p, o in zip(parts, others, strict=True)]
    for i, (yes, no) in enumerate(zip(bodies[0].outputs, bodies[1].outputs, strict=True)):
        if yes.dtype != no.dtype or not _fits(yes.shape, no.shape):
            raise UsageError(
                f"the branches of cond differ in result {i}", code=104, tensor=yes.name,
                expected=f"{yes.dtype} {_text(yes.shape)} of then_fn", got=f"{no.dtype} {_text(no.shape)} of else_fn",
                hint="cast or expand one of them",
            )  # fmt: skip
    made = branch_node(condition, bodies[0], bodies[1])
    return results[0][1](iter(made))


def branch_node(condition: Tensor, yes: Body, no: Body) -> list[Tensor]:
    """The `if` node of two bodies, which are made to take the same values from outside."""
    captured = list(dict.fromkeys([*yes.captured, *no.captured]))
    for body in (yes, no):
        for tensor in captured:
            body.own(tensor)
        body.inputs = [body.captured[t] for t in captured]
    if not yes.outputs:
        return []
    return emit(
        "if", [condition, *captured], {"then_function": yes, "else_function": no}, len(yes.outputs), function=yes.outer
    )


def while_loop(
    cond_fn: Callable[[Structure], Operators],
    body_fn: Callable[[Structure], Structure],
    initial: Structure,
    maximum: int | Tensor | None = None,
) -> Structure:
    """`state = body_fn(state)` as long as `cond_fn(state)` holds, from `initial`; the last state.

    initial: a structure of tensors, numbers or arrays (a Python float is f32, an int i64); the dtypes and shapes of its parts
    are kept by every iteration. maximum: the most iterations, a number or an i64 scalar; none: as long as the condition
    holds. A gradient needs a maximum, as the values that it needs of every iteration are kept.
    Raises UsageError when body_fn changes structure, dtype or shape, or cond_fn gives no bool scalar.
    """
    parts, rebuild = _flatten(initial)
    function = _where(*parts, maximum)
    start = [_tensor(p, function, None) for p in parts]
    trips = None if maximum is None else _scalar(maximum, function)
    begins = _condition(cond_fn(rebuild(iter(start))))
    body = Body(function, "while")
    with body.open():
        body.iteration = body.parameter(_counter(function), "iteration")
        body.parameter(begins, "condition")
        state = [body.parameter(t) for t in start]
        new = _carried(body_fn(rebuild(iter(state))), initial, state, body, "while_loop")
        holds = body.own(_condition(cond_fn(rebuild(iter(new)))))
        body.outputs = [holds, *new]
    return rebuild(iter(loop_node(body, trips, begins, start, 0)))


def scan(
    fn: Callable[[Structure, Structure], tuple[Structure, Structure]],
    initial: Structure,
    xs: Structure = None,
    *,
    length: int | Tensor | None = None,
    reverse: bool = False,
) -> tuple[Structure, Structure]:
    """`carry, y = fn(carry, x)` for each `x` along axis 0 of `xs`: the last carry, and the `y`s stacked along a new axis 0.

    initial: a structure whose dtypes and shapes every iteration keeps. xs: a structure of tensors of the same first size; or
    None, with `length` (a number or an i64 scalar) iterations, whose `x` is None. reverse: from the last element to the
    first; the `y`s stand where their `x`s do. Gradients go through. Raises UsageError as while_loop does.
    """
    parts, rebuild = _flatten(initial)
    sequences, rebuild_x = _flatten(xs)
    function = _where(*sequences, *parts, length)
    start = [_tensor(p, function, None) for p in parts]
    rows = [_tensor(s, function, None) for s in sequences]
    trips = _length(rows, length, function)
    body = Body(function, "scan")
    with body.open():
        counter = body.iteration = body.parameter(_counter(function), "iteration")
        holds = body.parameter(function.constant(np.array(True)), "condition")
        state = [body.parameter(t) for t in start]
        at = ops.subtract(ops.scale(trips, 1.0, -1.0), counter) if reverse and rows else counter
        made = fn(rebuild(iter(state)), rebuild_x(iter([ops.gather(t, at) for t in rows])))
        if not isinstance(made, tuple) or len(made) != 2:
            raise UsageError(
                "fn of scan gives no pair", code=101, expected="(carry, y)", got=type(made).__name__,
                hint="return carry, None when nothing is stacked",
            )  # fmt: skip
        new = _carried(made[0], initial, state, body, "scan")
        stacked, rebuild_y = _flatten(made[1])
        body.outputs = [holds, *new, *(body.own(_tensor(s, body, None)) for s in stacked)]
    results = loop_node(body, trips, None, start, len(stacked))
    ys = results[len(start) :]
    if reverse:
        ys = [ops.copy([y], kind="slice", starts=[-1], ends=[-(1 << 63)], axes=[0], steps=[-1])[0] for y in ys]
    return rebuild(iter(results[: len(start)])), rebuild_y(iter(ys))


def loop_node(
    body: Body, trips: Tensor | None, begins: Tensor | None, start: Sequence[Tensor], stacked: int
) -> list[Tensor]:
    """The `while` node of a body: carried values, then stacked ones."""
    count = len(start) + stacked
    if not count:
        return []
    return emit(
        "while", [trips, begins, *start, *body.captured], {"body_function": body, "carried": len(start)}, count,
        function=body.outer,
    )  # fmt: skip


def _counter(function: Function) -> Tensor:
    return Tensor(function, "iteration", "i64", ())


def _scalar(value: Any, function: Function) -> Tensor:
    """A trip count: i64, of no dimensions."""
    tensor = _tensor(value, function, None)
    if tensor.dtype not in ("i32", "i64") or tensor.shape not in ((), (1,)):
        raise UsageError(
            "the number of iterations is no integer scalar", code=103, tensor=tensor.name, expected="i64 []",
            got=f"{tensor.dtype} {_text(tensor.shape)}",
        )  # fmt: skip
    tensor = tensor if tensor.dtype == "i64" else ops.cast(tensor, dtype="i64")
    return tensor if tensor.shape == () else ops.reshape(tensor, [])


def _length(rows: list[Tensor], length: int | Tensor | None, function: Function) -> Tensor:
    sizes: set[Dim] = {None if t.shape is None else t.shape[0] for t in rows if t.shape != ()}
    if any(t.shape == () for t in rows) or len([s for s in sizes if isinstance(s, int)]) > 1:
        raise UsageError(
            "the sequences of scan have no common length", code=104, expected="the same first size",
            got=", ".join(f"'{t.name}' {_text(t.shape)}" for t in rows),
        )  # fmt: skip
    if length is not None:
        if isinstance(length, int) and any(isinstance(s, int) and s < length for s in sizes):
            raise UsageError("length is above that of xs", code=104, expected=f"at most {sizes}", got=str(length))
        return _scalar(length, function)
    if not rows:
        raise UsageError("scan does not know how often", code=101, expected="xs, or length=", got="neither")
    return ops.reshape(ops.shape(rows[0], start=0, end=1), [])


def _condition(value: Any) -> Tensor:
    if not isinstance(value, Operators):
        raise UsageError("cond_fn gives no tensor", code=103, expected="a bool scalar", got=type(value).__name__)
    tensor = value.tensor()
    if tensor.dtype != "bool" or tensor.shape not in ((), (1,)):
        raise UsageError(
            "cond_fn gives no bool scalar", code=103, tensor=tensor.name, expected="bool []",
            got=f"{tensor.dtype} {_text(tensor.shape)}", hint="compare: x.sum() > 0",
        )  # fmt: skip
    return tensor if tensor.shape == () else ops.reshape(tensor, [])


def _carried(made: Structure, initial: Structure, state: Sequence[Tensor], body: Body, what: str) -> list[Tensor]:
    """What an iteration gives for the next one, held against what it got."""
    if _shape_of(made) != _shape_of(initial):
        raise UsageError(
            f"the body of {what} changes the structure of the state", code=101, expected=_shape_of(initial),
            got=_shape_of(made), hint="return as many values, nested as the initial ones",
        )  # fmt: skip
    new = []
    for i, (part, old) in enumerate(zip(_flatten(made)[0], state, strict=True)):
        tensor = body.own(_tensor(part, body, old))
        if tensor.dtype != old.dtype or not _fits(tensor.shape, old.shape):
            raise UsageError(
                f"the body of {what} changes the dtype or shape of carried value {i}", code=104, tensor=tensor.name,
                expected=f"{old.dtype} {_text(old.shape)}, as initially", got=f"{tensor.dtype} {_text(tensor.shape)}",
                hint="cast it, or begin with a value of that dtype and shape",
            )  # fmt: skip
        new.append(tensor)
    return new


def _fits(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> bool:
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(
        x == y or not (isinstance(x, int) and isinstance(y, int)) for x, y in zip(a, b, strict=True)
    )


def _text(shape: tuple[Dim, ...] | None) -> str:
    return "of unknown rank" if shape is None else f"[{', '.join('?' if d is None else str(d) for d in shape)}]"


def _where(*values: Structure) -> Function:
    """The function in which a branch or loop is built: the innermost body, or where its operands are."""
    parts = [p for value in values for p in _flatten(value)[0]]
    for part in parts:
        if isinstance(part, Tensor):
            return part.function.graph.bodies[-1] if part.function.graph.bodies else part.function
    for part in parts:
        if isinstance(part, Operators):
            graph = getattr(part, "graph", None) or part.tensor().function.graph
            return graph.bodies[-1] if graph.bodies else graph.main
    raise UsageError(
        "nothing says in which graph to build this", code=101, expected="a tensor or variable among the initial values",
        got="numbers and arrays", hint="make one of them graph.constant(value)",
    )  # fmt: skip


def _tensor(value: Any, function: Function, like: Tensor | None) -> Tensor:
    """As a tensor; numbers and arrays become constants, of the dtype of `like` where there is one."""
    if isinstance(value, Operators):
        return value.tensor()
    data = np.asarray(value)
    if like is not None and like.dtype != "bf16":
        data = data.astype(numpy_dtype(like.dtype))
    elif data.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic):
        data = data.astype(np.float32)
    return function.constant(data)


def _flatten(value: Structure) -> tuple[list[Any], Callable[[Iterator[Any]], Structure]]:
    """The parts of a structure in order, and what puts others in their places."""
    if value is None:
        return [], lambda parts: None
    if isinstance(value, dict):
        keys = list(value)
        flat, rebuild = _flatten([value[k] for k in keys])
        return flat, lambda parts: dict(zip(keys, rebuild(parts), strict=True))
    if isinstance(value, tuple | list):
        inner = [_flatten(v) for v in value]
        kind: Any = getattr(type(value), "_make", type(value))  # a named tuple is made by _make
        return [p for flat, _ in inner for p in flat], lambda parts: kind([rebuild(parts) for _, rebuild in inner])
    return [value], next


def _map(function: Callable[[Any], Any], value: Structure) -> Structure:
    flat, rebuild = _flatten(value)
    return rebuild(iter([function(p) for p in flat]))


def _shape_of(value: Structure) -> str:
    """How a structure is nested, as text: (*, [*, *])."""
    if value is None:
        return "None"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_shape_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return ("({})" if isinstance(value, tuple) else "[{}]").format(", ".join(_shape_of(v) for v in value))
    return "*"


__all__ = ["cond", "scan", "while_loop"]
