"""Code shared by TFLite's float and integer LSTMs: the positions of their operands, and the loop over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.scope import own_output
from linnet.ir.function import Tensor, emit
from linnet.ir.graph import graph_of

Step = Callable[[Operation, Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


class Layer(NamedTuple):
    """Indices of the operands of one direction of an LSTM. Groups of four are: input, forget, cell and output gate."""

    inputs: Sequence[int]
    recurrent: Sequence[int]
    peephole: Sequence[int]  # input, forget, output
    bias: Sequence[int]
    projection: int
    hidden: int
    cell: int
    norm: Sequence[int] = ()
    extra: Sequence[int] = ()  # weights of the auxiliary input


def over_time(
    op: Operation, rows: Sequence[Tensor], states: Sequence[Tensor], step: Step, reverse: bool
) -> list[Tensor]:
    """The states after all steps, then the first state after each step, stacked.

    step(op, rows of a step, states) returns states. rows: [time, ...], read along dimension 0, from the end if `reverse`."""
    count = rows[0].shape[0] if rows[0].shape else None
    if count == 1:
        after = step(op, [op.copy([r], kind="squeeze", axes=[0]) for r in rows], states)
        return [*after, op.copy([after[0]], kind="unsqueeze", axes=[0])]
    last = op.emit("shape", [rows[0]], start=0, end=1)
    trips = op.reshape(last, [])
    last = op.map([last], lambda v: v - 1)
    body = graph_of(op.function).function(f"steps_{op.output().name}")
    iteration = body.placeholder("iteration", "i64", ())
    condition = body.placeholder("condition", "bool", ())
    inner = op.within(body)
    carried = []
    for state in states:
        carried.append(body.placeholder(state.name, state.dtype, state.shape))
        carried[-1].quantization = state.quantization
    captured = []
    for tensor in [last, *rows]:
        captured.append(body.placeholder(tensor.name, tensor.dtype, tensor.shape))
        captured[-1].quantization = tensor.quantization
    place = inner.map([captured[0], iteration], lambda n, i: n - i) if reverse else iteration
    place = inner.reshape(place, [])
    current = [inner.emit("gather", [r, place], r.quantization, axis=0) for r in captured[1:]]
    after = step(inner, current, carried)
    for tensor in (condition, *after, after[0]):
        body.outputs.append(own_output(body, tensor, {*body.inputs, *body.outputs}))
    made = emit(
        "while", [trips, None, *states, last, *rows], {"body_function": body, "carried": len(states)}, len(states) + 1,
        function=op.function,
    )  # fmt: skip
    made = list(made)  # a copy: the node keeps its own list
    for tensor, state in zip(made, [*states, states[0]], strict=True):
        tensor.quantization = state.quantization
    if reverse:
        made[-1] = op.slice(made[-1], 0, 1 << 62, -(1 << 62), -1)
    return made
