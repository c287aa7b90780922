"""RNN, GRU and LSTM written out as scans over ordinary nodes: the definition of op `recurrent` with all its options.
Its gradients serve where recurrent_gradient has no kernel: other activations, clipping, peepholes, coupled gates."""

from __future__ import annotations

from collections.abc import Callable

from linnet import ops
from linnet.autodiff._tools import elementwise, filled, number, shape_of
from linnet.control import scan
from linnet.errors import GraphError
from linnet.graph import Node, Tensor
from linnet.mapping import Expr

_GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_DEFAULTS = {"rnn": (1,), "gru": (0, 1), "lstm": (0, 1, 1)}
_State = tuple[Tensor, ...]
_Step = Callable[[_State, Tensor], _State]


def cells(node: Node, operands: list[Tensor | None]) -> list[Tensor]:
    """The outputs y, y_h and (lstm) y_c of a `recurrent` node, from other operands in the same order."""
    p, weights, *rest = operands
    initial_h, initial_c, lengths, peepholes, bias = [*rest, None, None, None, None, None][:5]
    assert p is not None and weights is not None
    hidden = shape_of(weights)[2]
    if not isinstance(hidden, int):
        raise GraphError("its rule needs a fixed number of hidden units", code=304, got=str(weights.shape))
    kind, direction = node.attribute("kind"), node.attribute("direction")
    directions, width = 2 if direction == "bidirectional" else 1, _GATES[kind] * hidden
    ys, finals = [], []
    for d in range(directions):
        x = _part(p, 2, d * width, width)
        zeros = _zeros(x, hidden)
        h = zeros if initial_h is None else _row(initial_h, d)
        c = zeros if initial_c is None else _row(initial_c, d)
        state: _State = (h, c) if kind == "lstm" else (h,)
        step = _CELLS[kind](
            node, d, hidden, _row(weights, d), *(None if t is None else _row(t, d) for t in (peepholes, bias))
        )
        y, final = _walk(step, state, x, lengths, direction == "reverse" or d == 1)
        ys.append(y)
        finals.append(final)
    states = [_stacked([final[i] for final in finals], 0) for i in range(len(finals[0]))]
    return [_stacked(ys, 1), *states]


def _walk(step: _Step, state: _State, x: Tensor, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, _State]:
    """A scan that leaves a row's state alone past its length."""
    if lengths is None:

        def plain(state: _State, row: Tensor) -> tuple[_State, Tensor]:
            state = step(state, row)
            return state, state[0]

        final, y = scan(plain, state, x, reverse=reverse)
        return y, final
    zero, one = x.function.constant(0), x.function.constant(1)
    steps = ops.range_(zero, ops.reshape(ops.shape(x, start=0, end=1), []), one)
    ends = ops.copy([ops.cast(lengths, dtype="i64")], kind="unsqueeze", axes=[1])[0]

    def masked(state: _State, row: tuple[Tensor, Tensor]) -> tuple[_State, Tensor]:
        here = elementwise([row[1], ends], lambda t, n: t < n, "bool")
        new = step(state, row[0])
        kept = tuple(ops.where(here, a, b) for a, b in zip(new, state, strict=True))
        return kept, elementwise([here, new[0]], lambda m, h: m.select(h, 0.0), x.dtype)

    final, y = scan(masked, state, (x, steps), reverse=reverse)
    return y, final


def _rnn(node: Node, d: int, hidden: int, w: Tensor, peepholes: Tensor | None, bias: Tensor | None) -> _Step:
    f = _activation(node, d, 0)
    return lambda state, row: (f(ops.add(row, ops.matmul(state[0], w, transpose_b=True))),)


def _gru(node: Node, d: int, hidden: int, w: Tensor, peepholes: Tensor | None, bias: Tensor | None) -> _Step:
    f, g = _activation(node, d, 0), _activation(node, d, 1)
    gates, last = _part(w, 0, 0, 2 * hidden), _part(w, 0, 2 * hidden, hidden)

    def step(state: _State, row: Tensor) -> _State:
        (h,) = state
        x = _split(row, 3)
        z, r = (
            f(ops.add(a, b))
            for a, b in zip(x[:2], _split(ops.matmul(h, gates, transpose_b=True), 2), strict=True)
        )  # fmt: skip
        if node.attribute("linear_before_reset"):
            product = ops.matmul(h, last, transpose_b=True)
            product = ops.multiply(r, product if bias is None else ops.add(product, bias))
        else:
            product = ops.matmul(ops.multiply(r, h), last, transpose_b=True)
        n = g(ops.add(x[2], product))
        return (elementwise([z, n, h], lambda z, n, h: n + (h - n) * z, h.dtype),)

    return step


def _lstm(node: Node, d: int, hidden: int, w: Tensor, peepholes: Tensor | None, bias: Tensor | None) -> _Step:
    f, g, h_of = (_activation(node, d, i) for i in range(3))
    peep = None if peepholes is None else _split(peepholes, 3)  # input, output, forget

    def step(state: _State, row: Tensor) -> _State:
        h, c = state
        i, o, forget, new = _split(ops.add(row, ops.matmul(h, w, transpose_b=True)), 4)
        if peep is not None:
            i, forget = ops.add(i, ops.multiply(peep[0], c)), ops.add(forget, ops.multiply(peep[2], c))
        i = f(i)
        forget = elementwise([i], lambda v: 1.0 - v) if node.attribute("input_forget") else f(forget)
        c = elementwise([forget, c, i, g(new)], lambda f, c, i, n: f * c + i * n, c.dtype)
        o = f(o if peep is None else ops.add(o, ops.multiply(peep[1], c)))
        return ops.multiply(o, h_of(c, clip=False)), c

    return step


_CELLS = {"rnn": _rnn, "gru": _gru, "lstm": _lstm}

_ACTIVATIONS: list[Callable[[Expr, float, float], Expr]] = [
    lambda x, a, b: x.unary("sigmoid"),
    lambda x, a, b: x.unary("tanh"),
    lambda x, a, b: x.max(0.0),
    lambda x, a, b: x * a + b,
    lambda x, a, b: (x >= 0.0).select(x, x * a),
    lambda x, a, b: (x >= a).select(x, 0.0),
    lambda x, a, b: (x * b).unary("tanh") * a,
    lambda x, a, b: (x * a + b).max(0.0).min(1.0),
    lambda x, a, b: (x >= 0.0).select(x, x.min(0.0).unary("expm1") * a),
    lambda x, a, b: x / (abs(x) + 1.0),
    lambda x, a, b: x.max(0.0) + (-abs(x)).unary("exp").unary("log1p"),
]
"""By the numbers of the attribute `activations`, with alpha and beta."""


def _activation(node: Node, d: int, index: int) -> Callable[..., Tensor]:
    kind = node.attribute("kind")
    given, at = node.attribute("activations"), d * len(_DEFAULTS[kind]) + index
    number = given[at] if given else _DEFAULTS[kind][index]
    alpha, beta = (values[at] if (values := node.attribute(name)) else 0.0 for name in ("alpha", "beta"))
    limit = node.attribute("clip")

    def apply(x: Tensor, clip: bool = True) -> Tensor:
        def body(v: Expr) -> Expr:
            return _ACTIVATIONS[number](v.max(-limit).min(limit) if clip and limit > 0 else v, alpha, beta)

        return elementwise([x], body, x.dtype)

    return apply


def _part(x: Tensor, axis: int, start: int, size: int) -> Tensor:
    if shape_of(x)[axis] == size:
        return x
    return ops.copy([x], kind="slice", starts=[start], ends=[start + size], axes=[axis], steps=[1])[0]


def _row(x: Tensor, d: int) -> Tensor:
    return ops.copy([_part(x, 0, d, 1)], kind="squeeze", axes=[0])[0]


def _split(x: Tensor, count: int) -> list[Tensor]:
    return ops.copy([x], kind="split", axis=-1, outputs=count) if count > 1 else [x]


def _stacked(parts: list[Tensor], axis: int) -> Tensor:
    rows = [ops.copy([t], kind="unsqueeze", axes=[axis])[0] for t in parts]
    return rows[0] if len(rows) == 1 else ops.concat(rows, axis)


def _zeros(x: Tensor, hidden: int) -> Tensor:
    """[batch, hidden], from x [time, batch, gates * hidden]."""
    batch = shape_of(x)[1]
    if isinstance(batch, int):
        like = Tensor(x.function, "", x.dtype, (batch, hidden))
        return filled(like, 0.0)
    sizes = ops.concat([ops.shape(x, start=1, end=2), x.function.constant([hidden])], 0)
    return ops.copy([number(x, 0.0), sizes], kind="expand")[0]
