"""Backpropagation through RNN, GRU and LSTM expressed as scans over ordinary nodes: the definition of op
`recurrent_gradient`. Its own gradients are second derivatives of `recurrent`."""

from __future__ import annotations

from collections.abc import Callable

from linnet.autodiff._tools import elementwise
from linnet.autodiff.cells import GATES, part, row_of, sizes, split, stacked, walk_steps, zeros
from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.ir.expr import Expr
from linnet.ir.function import Node, Tensor

_State = tuple[Tensor, ...]


def cells_back(node: Node, operands: list[Tensor | None]) -> list[Tensor]:
    """Computes the outputs dp, dh, dc and dq that a `recurrent_gradient` node would have with the given operands, which
    are in the same order. For kinds other than lstm, dh is returned again in place of dc. For kinds other than gru, dp
    is returned again in place of dq."""
    weights, gates, y, kept, initial_h, initial_c, lengths, dy, dy_h, dy_c = [*operands, *[None] * 10][:10]
    assert weights is not None and gates is not None
    kind, direction = node.attribute("kind"), node.attribute("direction")
    hidden, width, directions = sizes(node, weights)
    made: list[list[Tensor]] = []
    finals = []
    for d in range(directions):
        back = direction == "reverse" or d == 1

        def of(x: Tensor, d: int = d) -> Tensor:
            """The part [time, batch, hidden] of this direction."""
            return ops.copy([part(x, 1, d, 1)], kind="squeeze", axis=[1])[0]

        own = part(gates, 2, d * width, width)
        rows = [own]
        if kind == "lstm":
            assert kept is not None
            rows += [of(kept), before(kept, initial_c, lengths, d, back)]
        elif kind == "gru":
            assert kept is not None and y is not None
            rows += [of(kept), before(y, initial_h, lengths, d, back)]
        none = zeros(own, hidden)
        state: _State = tuple(none if g is None else row_of(g, d) for g in (dy_h, dy_c)[: 2 if kind == "lstm" else 1])
        if dy is not None:
            rows.append(of(dy))
        final, stacks = walk_steps(
            _step(kind, node.attribute("relu"), row_of(weights, d), dy is not None), state, rows, lengths, not back
        )
        finals.append(final)
        made.append(stacks)
    dh, dc = (stacked([final[i] for final in finals], 0) for i in (0, -1))
    dp, dq = (ops.concat([s[i] for s in made], 2) if directions > 1 else made[0][i] for i in (0, -1))
    return [dp, dh, dc, dq]


def _step(kind: str, relu: bool, w: Tensor, given: bool) -> Callable[[_State, _State], tuple[_State, list[Tensor]]]:
    """Maps (gradients of the state after a step, the step's rows) to (gradients of the state before the step, [dp, and
    for a gru dq]). given: whether the last row is the gradient of the step's output."""

    def step(state: _State, rows: _State) -> tuple[_State, list[Tensor]]:
        gates, *rest = rows
        dh = ops.add(state[0], rest.pop()) if given else state[0]
        parts = split(gates, GATES[kind])
        if kind == "rnn":
            dp = elementwise([dh, gates], _rnn_relu if relu else _rnn, dh.dtype)
            return (ops.matmul(dp, w),), [dp]
        if kind == "gru":
            *slopes, through_reset, past = pointwise([dh, *parts, *rest], _gru)
            dp, dq = ops.concat(slopes, -1), ops.concat([*slopes[:2], through_reset], -1)
            return (ops.add(past, ops.matmul(dq, w)),), [dp, dq]
        *slopes, dc = pointwise([dh, state[1], *parts, *rest], _lstm)
        dp = ops.concat(slopes, -1)
        return (ops.matmul(dp, w), dc), [dp]

    return step


def _rnn(dh: Expr, y: Expr) -> Expr:
    return dh * (1.0 - y * y)


def _rnn_relu(dh: Expr, y: Expr) -> Expr:
    return (y > 0.0).select(dh, 0.0)


def _gru(dh: Expr, z: Expr, r: Expr, n: Expr, product: Expr, h: Expr) -> tuple[Expr, ...]:
    dn = dh * (1.0 - z) * (1.0 - n * n)
    return dh * (h - n) * z * (1.0 - z), dn * product * r * (1.0 - r), dn, dn * r, dh * z


def _lstm(dh: Expr, dc: Expr, i: Expr, o: Expr, f: Expr, new: Expr, cell: Expr, c: Expr) -> tuple[Expr, ...]:
    t = cell.unary("tanh")
    dc = dc + dh * o * (1.0 - t * t)
    return dc * new * i * (1.0 - i), dh * t * o * (1.0 - o), dc * c * f * (1.0 - f), dc * i * (1.0 - new * new), dc * f


def before(y: Tensor, initial: Tensor | None, lengths: Tensor | None, d: int, back: bool) -> Tensor:
    """The states before each step of direction d, [time, batch, hidden], derived from the states after each step, y
    [time, directions, batch, hidden]. Values after the end of a row are undefined. back: whether the direction runs
    from the last step to the first."""
    y = ops.copy([part(y, 1, d, 1)], kind="squeeze", axis=[1])[0]
    starts, ends = ([1], [2**31 - 1]) if back else ([0], [-1])
    rest = ops.copy([y], kind="slice", starts=starts, ends=ends, axis=[0], steps=[1])[0]
    if initial is None:  # y is 0 past a row's length, and so is the initial state
        return ops.copy([rest], kind="pad", pads=[0, 1] if back else [1, 0], axis=[0])[0]
    first = part(initial, 0, d, 1)
    moved = ops.concat([rest, first] if back else [first, rest], 0)
    if not back or lengths is None:
        return moved
    # In the backward direction, a row begins at its own last step.
    zero, one = y.function.constant(0), y.function.constant(1)
    steps = ops.range_(zero, ops.gather(ops.shape(y), zero), one)
    steps = ops.copy([steps], kind="unsqueeze", axis=[1, 2])[0]
    last = ops.copy([ops.cast(lengths, dtype="i64")], kind="unsqueeze", axis=[0, 2])[0]
    return elementwise([steps, last, moved, first], lambda t, n, m, f: (t + 1).eq(n).select(f, m), y.dtype)
