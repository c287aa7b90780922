"""Branches and loops written as Python functions over tensors: `cond`, `while_loop`, `scan`. They become `if` and
`while` nodes. Outside values that the functions use are captured. A state may be nested in tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from linnet.builder import ops
from linnet.clib.errors import UsageError
from linnet.ir.body import Body
from linnet.ir.dtypes import Dim
from linnet.ir.exact import floats_as_f32, numbers_of
from linnet.ir.function import Function, Operators, Tensor, emit

Structure = Any
"""A tensor, a variable, a number, an array, or a tuple, list or dict of structures. None is an empty structure."""


def cond(
    pred: Operators, then_fn: Callable[..., Structure], else_fn: Callable[..., Structure], *operands: Structure
) -> Structure:
    """Returns `then_fn(*operands)` if `pred` is true, else `else_fn(*operands)`. Only that function runs.

    pred: a bool scalar. Both functions must return results of the same structure, dtypes and shapes. Gradients flow
    through the branch, and into captured values. Raises UsageError if the branches differ.
    """
    condition = pred.tensor()
    function = _where(condition, *operands)
    if condition.dtype != "bool" or condition.shape not in ((), (1,), None):
        raise UsageError(
            "the condition must be a bool scalar", code=103, tensor=condition.name, expected="bool []",
            got=f"{condition.dtype} {_text(condition.shape)}", hint="use a comparison such as x.sum() > 0",
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
            "the two branches of cond return different structures", code=101, expected=results[0][2], got=results[1][2],
            hint="return equally many values, nested in the same way, from both",
        )  # fmt: skip
    for body, (parts, _, _), others in zip(bodies, results, likes[::-1], strict=True):
        with body.open():
            body.outputs = [body.own(_tensor(p, body, o)) for p, o in zip(parts, others, strict=True)]
    for i, (yes, no) in enumerate(zip(bodies[0].outputs, bodies[1].outputs, strict=True)):
        if yes.dtype != no.dtype or not _fits(yes.shape, no.shape):
            raise UsageError(
                f"the two branches of cond differ in the dtype or shape of result {i}",
                code=104,
                tensor=yes.name,
                expected=f"{yes.dtype} {_text(yes.shape)} as in then_fn",
                got=f"{no.dtype} {_text(no.shape)} in else_fn",
                hint="cast or expand one of the two",
            )
    made = branch_node(condition, bodies[0], bodies[1])
    return results[0][1](iter(made))


def branch_node(condition: Tensor, yes: Body, no: Body) -> list[Tensor]:
    """Creates the `if` node of two bodies. Both bodies are made to capture the same outside values."""
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
    """Repeats `state = body_fn(state)` while `cond_fn(state)` is true, starting from `initial`. Returns the last state.

    initial: a structure of tensors, numbers or arrays (a Python float becomes f32, an int i64). Every iteration must
    keep the dtypes and shapes of its parts. maximum: the largest number of iterations, a number or an i64 scalar; None:
    no limit. Gradients flow through. For them, values of every iteration are kept. So without a maximum, the memory
    grows while the loop runs, up to the `max_bytes` of the session. Raises UsageError if body_fn changes structure,
    dtype or shape, or if cond_fn does not return a bool scalar.
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
    """Computes `carry, y = fn(carry, x)` for each `x` along axis 0 of `xs`. Returns the last carry, and the `y`s
    stacked along a new axis 0.

    initial: a structure. Every iteration must keep the dtypes and shapes of its parts. xs: a structure of tensors with
    the same first size. If xs is None, `length` (a number or an i64 scalar) gives the number of iterations, and `x` is
    None. reverse: iterate from the last element to the first; each `y` keeps the position of its `x`. Gradients flow
    through. Raises UsageError under the same conditions as while_loop.
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
                "fn of scan must return a pair", code=101, expected="(carry, y)", got=type(made).__name__,
                hint="return (carry, None) if nothing is to be stacked",
            )  # fmt: skip
        new = _carried(made[0], initial, state, body, "scan")
        stacked, rebuild_y = _flatten(made[1])
        body.outputs = [holds, *new, *(body.own(_tensor(s, body, None)) for s in stacked)]
    results = loop_node(body, trips, None, start, len(stacked))
    ys = results[len(start) :]
    if reverse:
        ys = [ops.copy([y], kind="slice", starts=[-1], ends=[-(1 << 63)], axis=[0], steps=[-1])[0] for y in ys]
    return rebuild(iter(results[: len(start)])), rebuild_y(iter(ys))


def loop_node(
    body: Body, trips: Tensor | None, begins: Tensor | None, start: Sequence[Tensor], stacked: int
) -> list[Tensor]:
    """Creates the `while` node of a body. Its outputs are the carried values, then the stacked values."""
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
    """A number of iterations as an i64 scalar tensor."""
    tensor = _tensor(value, function, None)
    if tensor.dtype not in ("i32", "i64") or tensor.shape not in ((), (1,)):
        raise UsageError(
            "the number of iterations must be an integer scalar", code=103, tensor=tensor.name, expected="i64 []",
            got=f"{tensor.dtype} {_text(tensor.shape)}",
        )  # fmt: skip
    tensor = tensor if tensor.dtype == "i64" else ops.cast(tensor, dtype="i64")
    return tensor if tensor.shape == () else ops.reshape(tensor, [])


def _length(rows: list[Tensor], length: int | Tensor | None, function: Function) -> Tensor:
    sizes: set[Dim] = {None if t.shape is None else t.shape[0] for t in rows if t.shape != ()}
    if any(t.shape == () for t in rows) or len([s for s in sizes if isinstance(s, int)]) > 1:
        raise UsageError(
            "the sequences given to scan differ in length", code=104, expected="equal sizes of axis 0",
            got=", ".join(f"'{t.name}' {_text(t.shape)}" for t in rows),
        )  # fmt: skip
    if length is not None:
        if isinstance(length, int) and any(isinstance(s, int) and s < length for s in sizes):
            raise UsageError("length exceeds the length of xs", code=104, expected=f"at most {sizes}", got=str(length))
        return _scalar(length, function)
    if not rows:
        raise UsageError(
            "scan cannot determine the number of iterations", code=101, expected="xs or length=", got="neither"
        )
    return ops.reshape(ops.shape(rows[0], start=0, end=1), [])


def _condition(value: Any) -> Tensor:
    if not isinstance(value, Operators):
        raise UsageError("cond_fn must return a tensor", code=103, expected="a bool scalar", got=type(value).__name__)
    tensor = value.tensor()
    if tensor.dtype != "bool" or tensor.shape not in ((), (1,)):
        raise UsageError(
            "cond_fn must return a bool scalar", code=103, tensor=tensor.name, expected="bool []",
            got=f"{tensor.dtype} {_text(tensor.shape)}", hint="use a comparison such as x.sum() > 0",
        )  # fmt: skip
    return tensor if tensor.shape == () else ops.reshape(tensor, [])


def _carried(made: Structure, initial: Structure, state: Sequence[Tensor], body: Body, what: str) -> list[Tensor]:
    """The values one iteration passes to the next, checked against the initial values."""
    if _shape_of(made) != _shape_of(initial):
        raise UsageError(
            f"the body of {what} changes the structure of the state", code=101, expected=_shape_of(initial),
            got=_shape_of(made), hint="return equally many values, nested like the initial ones",
        )  # fmt: skip
    new = []
    for i, (part, old) in enumerate(zip(_flatten(made)[0], state, strict=True)):
        tensor = body.own(_tensor(part, body, old))
        if tensor.dtype != old.dtype or not _fits(tensor.shape, old.shape):
            raise UsageError(
                f"the body of {what} changes the dtype or shape of carried value {i}",
                code=104,
                tensor=tensor.name,
                expected=f"{old.dtype} {_text(old.shape)} as in the initial value",
                got=f"{tensor.dtype} {_text(tensor.shape)}",
                hint="cast it, or use an initial value of that dtype and shape",
            )
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
    """The function in which a branch or loop is built: the innermost body being built, or else the function of its
    operands."""
    parts = [p for value in values for p in _flatten(value)[0]]
    for part in parts:
        if isinstance(part, Tensor):
            return part.function.graph.bodies[-1] if part.function.graph.bodies else part.function
    for part in parts:
        if isinstance(part, Operators):
            graph = getattr(part, "graph", None) or part.tensor().function.graph
            return graph.bodies[-1] if graph.bodies else graph.main
    raise UsageError(
        "cannot determine the graph in which to build the branch or loop",
        code=101,
        expected="a tensor or variable among the initial values",
        got="only numbers and arrays",
        hint="turn one of them into a tensor with graph.constant(value)",
    )


def _tensor(value: Any, function: Function, like: Tensor | None) -> Tensor:
    """The value as a tensor. Numbers and arrays become constants with the dtype of `like` if it is given."""
    if isinstance(value, Operators):
        return value.tensor()
    return function.constant(floats_as_f32(value) if like is None else numbers_of(value, like.dtype))


def _flatten(value: Structure) -> tuple[list[Any], Callable[[Iterator[Any]], Structure]]:
    """The leaves of a structure in order, and a function that rebuilds the structure from other leaves."""
    if value is None:
        return [], lambda parts: None
    if isinstance(value, dict):
        keys = list(value)
        flat, rebuild = _flatten([value[k] for k in keys])
        return flat, lambda parts: dict(zip(keys, rebuild(parts), strict=True))
    if isinstance(value, tuple | list):
        inner = [_flatten(v) for v in value]
        kind: Any = getattr(type(value), "_make", type(value))  # named tuples are built with _make
        return [p for flat, _ in inner for p in flat], lambda parts: kind([rebuild(parts) for _, rebuild in inner])
    return [value], next


def _map(function: Callable[[Any], Any], value: Structure) -> Structure:
    flat, rebuild = _flatten(value)
    return rebuild(iter([function(p) for p in flat]))


def _shape_of(value: Structure) -> str:
    """Describes as text how a structure is nested, for example (*, [*, *])."""
    if value is None:
        return "None"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_shape_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return ("({})" if isinstance(value, tuple) else "[{}]").format(", ".join(_shape_of(v) for v in value))
    return "*"


__all__ = ["cond", "scan", "while_loop"]
