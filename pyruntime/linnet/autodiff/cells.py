"""RNN, GRU and LSTM expressed as scans over ordinary nodes: the definition of op `recurrent` with all its options. Their
gradients are used where recurrent_gradient has no kernel (other activations, clipping, peepholes, coupled gates) and in
second derivatives, where gates and cells have gradients too. cells_back.py does the same for the op recurrent_gradient."""

from __future__ import annotations

from collections.abc import Callable

from linnet.autodiff._tools import elementwise, filled, number, shape_of
from linnet.builder import ops
from linnet.builder.control import scan
from linnet.clib.errors import GraphError
from linnet.ir.expr import Expr
from linnet.ir.function import Node, Tensor

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
_DEFAULTS = {"rnn": (1,), "gru": (0, 1), "lstm": (0, 1, 1)}
_State = tuple[Tensor, ...]
_Step = Callable[[_State, Tensor], tuple[_State, list[Tensor], Tensor | None]]
"""(state, row of p) -> the next state, the gates after their activations, and this step's part of output `cells`."""


Walked = Callable[[_State, _State], tuple[_State, list[Tensor]]]
"""(state, rows of a step) -> the next state, and the values to stack."""


def sizes(node: Node, weights: Tensor) -> tuple[int, int, int]:
    """Returns three numbers of a recurrent node or of its gradient: hidden units, the width of all gates together, and
    directions. Raises GraphError."""
    hidden = shape_of(weights)[2]
    if not isinstance(hidden, int):
        raise GraphError(
            "the gradient rule needs a fixed number of hidden units",
            code=304,
            got=str(weights.shape),
            hint="use fixed sizes",
        )
    return hidden, GATES[node.attribute("kind")] * hidden, 2 if node.attribute("direction") == "bidirectional" else 1


def real(weights: Tensor) -> Tensor:
    """The weights as floats. Weights of 8 bits become the real numbers that they represent; the rounding of the state has
    the gradient 1."""
    return weights if weights.quantization is None else ops.dequantize(weights, dtype="f32")


def cells(node: Node, operands: list[Tensor | None], kept: bool = False) -> list[Tensor]:
    """Computes the outputs y, y_h and y_c that a `recurrent` node would have with the given operands, which are in the
    same order. For kinds other than lstm, y_h is returned again in place of y_c. kept: also return gates and cells."""
    p, weights, *rest = operands
    initial_h, initial_c, lengths, peepholes, bias = [*rest, None, None, None, None, None][:5]
    assert p is not None and weights is not None
    weights = real(weights)
    kind, direction = node.attribute("kind"), node.attribute("direction")
    hidden, width, directions = sizes(node, weights)
    made: list[list[Tensor]] = []
    finals = []
    for d in range(directions):
        x = part(p, 2, d * width, width)
        none = zeros(x, hidden)
        h = none if initial_h is None else row_of(initial_h, d)
        c = none if initial_c is None else row_of(initial_c, d)
        state: _State = (h, c) if kind == "lstm" else (h,)
        step = _CELLS[kind](
            node, d, hidden, row_of(weights, d), *(None if t is None else row_of(t, d) for t in (peepholes, bias))
        )
        final, stacks = walk_steps(_outputs(step, kept), state, [x], lengths, direction == "reverse" or d == 1)
        made.append(stacks)
        finals.append(final)
    states = [stacked([final[i] for final in finals], 0) for i in range(len(finals[0]))]
    outputs = [stacked([stacks[0] for stacks in made], 1), states[0], states[-1]]
    if kept:
        outputs.append(ops.concat([stacks[1] for stacks in made], 2) if directions > 1 else made[0][1])
        outputs.append(stacked([stacks[2] for stacks in made], 1))
    return outputs


def _outputs(step: _Step, kept: bool) -> Walked:
    """The outputs of a step, together with the values to stack."""

    def outputs(state: _State, rows: _State) -> tuple[_State, list[Tensor]]:
        new, gates, cell = step(state, rows[0])
        if not kept:
            return new, [new[0]]
        joined = ops.concat(gates, -1) if len(gates) > 1 else gates[0]
        return new, [new[0], joined, filled(new[0], 0.0) if cell is None else cell]

    return outputs


def walk_steps(
    step: Walked, state: _State, rows: list[Tensor], lengths: Tensor | None, reverse: bool
) -> tuple[_State, list[Tensor]]:
    """A scan over rows [time, batch, ...]. After the end of a batch row (by its length), the row's state stays
    unchanged and zeros are stacked."""
    if lengths is None:
        final, made = scan(step, state, tuple(rows), reverse=reverse)
        return final, made
    zero, one = rows[0].function.constant(0), rows[0].function.constant(1)
    steps = ops.range_(zero, ops.reshape(ops.shape(rows[0], start=0, end=1), []), one)
    ends = ops.copy([ops.cast(lengths, dtype="i64")], kind="unsqueeze", axis=[1])[0]

    def masked(state: _State, row: _State) -> tuple[_State, list[Tensor]]:
        here = elementwise([row[-1], ends], lambda t, n: t < n, "bool")
        new, made = step(state, row[:-1])
        kept = tuple(ops.where(here, a, b) for a, b in zip(new, state, strict=True))
        return kept, [elementwise([here, y], lambda m, v: m.select(v, 0.0), y.dtype) for y in made]

    final, made = scan(masked, state, (*rows, steps), reverse=reverse)
    return final, made


def _rnn(node: Node, d: int, hidden: int, w: Tensor, peepholes: Tensor | None, bias: Tensor | None) -> _Step:
    f = _activation(node, d, 0)

    def step(state: _State, row: Tensor) -> tuple[_State, list[Tensor], None]:
        h = f(ops.add(row, ops.matmul(state[0], w, transpose_b=True)))
        return (h,), [h], None

    return step


def _gru(node: Node, d: int, hidden: int, w: Tensor, peepholes: Tensor | None, bias: Tensor | None) -> _Step:
    f, g = _activation(node, d, 0), _activation(node, d, 1)
    gates, last = part(w, 0, 0, 2 * hidden), part(w, 0, 2 * hidden, hidden)

    def step(state: _State, row: Tensor) -> tuple[_State, list[Tensor], Tensor]:
        (h,) = state
        x = split(row, 3)
        z, r = (
            f(ops.add(a, b))
            for a, b in zip(x[:2], split(ops.matmul(h, gates, transpose_b=True), 2), strict=True)
        )  # fmt: skip
        if node.attribute("linear_before_reset"):
            kept = ops.matmul(h, last, transpose_b=True)
            kept = kept if bias is None else ops.add(kept, bias)
            product = ops.multiply(r, kept)
        else:
            kept = ops.multiply(r, h)
            product = ops.matmul(kept, last, transpose_b=True)
        n = g(ops.add(x[2], product))
        return (elementwise([z, n, h], lambda z, n, h: n + (h - n) * z, h.dtype),), [z, r, n], kept

    return step


def _lstm(node: Node, d: int, hidden: int, w: Tensor, peepholes: Tensor | None, bias: Tensor | None) -> _Step:
    f, g, h_of = (_activation(node, d, i) for i in range(3))
    peep = None if peepholes is None else split(peepholes, 3)  # input, output, forget

    def step(state: _State, row: Tensor) -> tuple[_State, list[Tensor], Tensor]:
        h, c = state
        i, o, forget, new = split(ops.add(row, ops.matmul(h, w, transpose_b=True)), 4)
        if peep is not None:
            i, forget = ops.add(i, ops.multiply(peep[0], c)), ops.add(forget, ops.multiply(peep[2], c))
        i = f(i)
        forget = elementwise([i], lambda v: 1.0 - v) if node.attribute("input_forget") else f(forget)
        new = g(new)
        c = elementwise([forget, c, i, new], lambda f, c, i, n: f * c + i * n, c.dtype)
        o = f(o if peep is None else ops.add(o, ops.multiply(peep[1], c)))
        return (ops.multiply(o, h_of(c, clip=False)), c), [i, o, forget, new], c

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
"""Indexed by the numbers in the attribute `activations`; each takes alpha and beta."""


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


def part(x: Tensor, axis: int, start: int, size: int) -> Tensor:
    if shape_of(x)[axis] == size:
        return x
    return ops.copy([x], kind="slice", starts=[start], ends=[start + size], axis=[axis], steps=[1])[0]


def row_of(x: Tensor, d: int) -> Tensor:
    return ops.copy([part(x, 0, d, 1)], kind="squeeze", axis=[0])[0]


def split(x: Tensor, count: int) -> list[Tensor]:
    return ops.copy([x], kind="split", axis=-1, outputs=count) if count > 1 else [x]


def stacked(parts: list[Tensor], axis: int) -> Tensor:
    rows = [ops.copy([t], kind="unsqueeze", axis=[axis])[0] for t in parts]
    return rows[0] if len(rows) == 1 else ops.concat(rows, axis)


def zeros(x: Tensor, hidden: int) -> Tensor:
    """Zeros [batch, hidden], sized from x [time, batch, gates * hidden]."""
    batch = shape_of(x)[1]
    if isinstance(batch, int):
        like = Tensor(x.function, "", x.dtype, (batch, hidden))
        return filled(like, 0.0)
    sizes = ops.concat([ops.shape(x, start=1, end=2), x.function.constant([hidden])], 0)
    return ops.copy([number(x, 0.0), sizes], kind="expand")[0]
