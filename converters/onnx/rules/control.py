"""Rules of control flow. An If whose condition is known is replaced by the branch that is taken; other branches, and the
bodies of Loop and Scan, become functions, which take what they use from outside as operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import onnx

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.registry import rule
from linnet.graph import Dim, Tensor

if TYPE_CHECKING:
    from linnet.converters.onnx.importer import Body

ROUNDS = 4  # tries to find shapes of carried values that every iteration keeps


@rule("If")
def if_(op: Operation) -> Sequence[Tensor | None]:
    condition = op.value(0)
    branches: list[onnx.GraphProto] = [op.attribute("then_branch"), op.attribute("else_branch")]
    if condition is not None:
        return op.importer.branch(branches[0 if bool(condition.reshape(-1)[0]) else 1], op.scope)
    found = len(op.importer.problems)
    bodies = [op.importer.body(branch, op.scope) for branch in branches]
    if len(op.importer.problems) > found:
        return [op.importer.placeholder(name) for name in op.node.output]
    for body, branch in zip(bodies, branches, strict=True):
        for tensor in op.importer.results(body, branch):
            op.importer.give(body, tensor)
    captured = list(dict.fromkeys(t for body in bodies for t in body.captured))
    for body in bodies:
        body.function.inputs = [body.capture(t) for t in captured]
    then_function, else_function = (body.function for body in bodies)
    operands = [op.input(0), *captured]
    return op.emit_all("if", operands, len(op.node.output), then_function=then_function, else_function=else_function)


def merged(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """A shape that holds for both."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(m if m == n else None for m, n in zip(a, b, strict=True))


def repeat(
    op: Operation,
    graph: onnx.GraphProto,
    trips: Tensor | None,
    condition: Tensor | None,
    carried: Sequence[Tensor],
    begin: Callable[[Body, Tensor, Tensor], None],
    end: Callable[[Body, Tensor, list[Tensor | None]], list[Tensor | None]],
) -> list[Tensor | None]:
    """A `while` of a body. begin(body, iteration, condition) names the values the subgraph takes besides carried ones;
    end(body, condition, outputs) gives (condition, carried..., scanned...) from the subgraph's outputs."""
    importer = op.importer
    shapes = [t.shape for t in carried]
    for attempt in range(ROUNDS):
        found = len(importer.problems)
        body = importer.loop_body(graph, op.scope, [(t.dtype, s) for t, s in zip(carried, shapes, strict=True)], begin)
        if len(importer.problems) > found:
            return [importer.placeholder(name) for name in op.node.output]
        inputs = body.function.inputs
        results = end(body, inputs[1], op.importer.results(body, graph))
        after = [t.shape if t is not None else None for t in results[1 : 1 + len(carried)]]
        wider = [merged(a, b) for a, b in zip(shapes, after, strict=True)]
        if wider == shapes:
            break
        shapes = wider if attempt < ROUNDS - 2 else [None] * len(carried)
        importer.graph.functions.remove(body.function)
    for tensor in results:
        importer.give(body, tensor)
    first = 2 + len(carried)
    extra = list(body.captured)
    body.function.inputs = [*inputs[:first], *(body.captured[t] for t in extra)]
    count = len(results) - 1
    given = op.emit_all(
        "while", [trips, condition, *carried, *extra], count, body_function=body.function, carried=len(carried)
    )
    return list(given)


@rule("Loop")
def loop(op: Operation) -> Sequence[Tensor | None]:
    """inputs: trip count, condition, carried values; the body takes (iteration, condition, carried...)."""
    graph: onnx.GraphProto = op.attribute("body")
    carried = [op.input(i) for i in range(2, len(op.inputs))]
    names = [i.name for i in graph.input]
    if len(names) != 2 + len(carried) or len(graph.output) != 1 + len(op.node.output):
        raise op.unsupported("its body takes or gives another number of values than the loop", "export the model again")

    def begin(body: Body, iteration: Tensor, condition: Tensor) -> None:
        body.values[names[0]] = _as_declared(op, iteration, graph.input[0])
        body.values[names[1]] = _as_declared(op, condition, graph.input[1])
        for name, tensor in zip(names[2:], body.function.inputs[2:], strict=False):
            body.values[name] = tensor

    def end(body: Body, condition: Tensor, outputs: list[Tensor | None]) -> list[Tensor | None]:
        return outputs

    trips, condition = op.optional(0), op.optional(1)
    if trips is None and condition is None:  # for ever, says the specification; ONNX Runtime obeys the body's condition
        condition = op.constant(True)
    return repeat(op, graph, trips, condition, carried, begin, end)


def _as_declared(op: Operation, tensor: Tensor, declared: onnx.ValueInfoProto) -> Tensor:
    """The iteration and the condition are scalars; some bodies declare them as lists of one element."""
    if len(declared.type.tensor_type.shape.dim) == 1:
        return op.importer.emitted("copy", tensor, kind="unsqueeze", axes=[0])
    return tensor


def scanned(
    op: Operation, graph: onnx.GraphProto, carried: Sequence[Tensor], rows: Sequence[Tensor]
) -> list[Tensor | None]:
    """States after a Scan, then what its body gave, stacked along dimension 0. rows: read along dimension 0."""
    names = [i.name for i in graph.input]
    states = len(carried)

    def begin(body: Body, iteration: Tensor, condition: Tensor) -> None:
        for name, tensor in zip(names[:states], body.function.inputs[2:], strict=False):
            body.values[name] = tensor
        for name, row in zip(names[states:], rows, strict=True):
            body.values[name] = op.importer.emitted("gather", body.capture(row), iteration, kind="take", axis=0)

    def end(body: Body, condition: Tensor, outputs: list[Tensor | None]) -> list[Tensor | None]:
        return [condition, *outputs]

    trips = op.reshape(op.shape_of(rows[0], 0, 1), ())
    return repeat(op, graph, trips, None, carried, begin, end)


@rule("Scan", since=9)
def scan(op: Operation) -> Sequence[Tensor | None]:
    """inputs: state values, then sequences, of which the body takes a slice per iteration; it gives states and slices."""
    graph: onnx.GraphProto = op.attribute("body")
    sequences = int(op.attribute("num_scan_inputs"))
    states = len(op.inputs) - sequences
    stacked = len(op.node.output) - states
    in_axes = list(op.attribute("scan_input_axes") or [0] * sequences)
    in_reversed = list(op.attribute("scan_input_directions") or [0] * sequences)
    out_axes = list(op.attribute("scan_output_axes") or [0] * stacked)
    out_reversed = list(op.attribute("scan_output_directions") or [0] * stacked)
    if states < 0 or sequences < 1 or len(graph.input) != len(op.inputs) or len(graph.output) != states + stacked:
        raise op.unsupported("its body takes or gives another number of values than the node", "export the model again")
    rows = []  # the sequences, in the order in which they are read, along dimension 0
    for i in range(sequences):
        x = op.input(states + i)
        rank = rank_of(x, f"input {states + i}")
        axis = in_axes[i] % rank
        x = op.transpose(x, [axis, *(d for d in range(rank) if d != axis)])
        rows.append(op.slice(x, 0, -1, -(1 << 62), -1) if in_reversed[i] else x)
    results = scanned(op, graph, [op.input(i) for i in range(states)], rows)
    for i in range(stacked):
        y = results[states + i]
        if y is None:
            continue
        if out_reversed[i]:
            y = op.slice(y, 0, -1, -(1 << 62), -1)
        if out_axes[i]:
            rank = rank_of(y, f"output {states + i}")
            order = list(range(1, rank))
            order.insert(out_axes[i] % rank, 0)
            y = op.transpose(y, order)
        results[states + i] = y
    return results


@rule("Scan")
def scan_8(op: Operation) -> Sequence[Tensor | None]:
    """Opset 8: every operand has a batch first, of which the body sees one element; sequences run along dimension 1."""
    graph: onnx.GraphProto = op.attribute("body")
    sequences = int(op.attribute("num_scan_inputs"))
    directions = list(op.attribute("directions") or [0] * sequences)
    if op.optional(0) is not None:
        raise op.unsupported("Scan with sequence_lens is not supported", "export it with opset 9 or newer")
    shape = op.input(1).shape
    batch = shape[0] if shape else None
    if not isinstance(batch, int):
        raise op.unknown("the size of the batch is not known")
    states = len(op.inputs) - 1 - sequences
    elements = []
    for index in range(batch):
        operands = [op.squeeze(op.slice(op.input(i), 0, index, index + 1), [0]) for i in range(1, len(op.inputs))]
        rows = operands[states:]
        rows = [op.slice(x, 0, -1, -(1 << 62), -1) if r else x for x, r in zip(rows, directions, strict=True)]
        elements.append(scanned(op, graph, operands[:states], rows))
    results: list[Tensor | None] = []
    for parts in zip(*elements, strict=True):
        given = [op.unsqueeze(t, [0]) for t in parts if t is not None]
        results.append(op.concat(given, 0) if given else None)
    return results


@rule("SequenceMap")
def sequence_map(op: Operation) -> Tensor:
    raise op.unsupported(f"{op.node.op_type} is not supported yet", "unroll it when exporting")
