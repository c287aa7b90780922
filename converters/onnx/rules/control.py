"""Rules for control flow. An If with a known condition is replaced by the branch taken. Other branches, and the bodies of
Loop and Scan, become functions whose captured values are operands."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import onnx

from linnet.converters.onnx import subgraphs
from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.values import Carried, Form, Value, form_of, joined, leaves, merged_kinds, rebuilt, shaped
from linnet.ir.dtypes import Dim
from linnet.ir.function import Tensor
from linnet.ir.infer import common_shape

if TYPE_CHECKING:
    from linnet.converters.onnx.scope import Body

ROUNDS = 6  # attempts to find shapes of carried values that every iteration keeps


@rule("If")
def if_(op: Operation) -> Sequence[Value]:
    condition = op.value(0)
    branches: list[onnx.GraphProto] = [op.attribute("then_branch"), op.attribute("else_branch")]
    if condition is not None:
        return subgraphs.branch(op.importer, branches[0 if bool(condition.reshape(-1)[0]) else 1], op.scope)
    found = len(op.importer.problems)
    bodies = [_branch_body(op, branch) for branch in branches]
    if len(op.importer.problems) > found:
        return [op.importer.placeholder(name) for name in op.node.output]
    given = [subgraphs.results(op.importer, body, branch) for body, branch in zip(bodies, branches, strict=True)]
    forms = [joined(form_of(a), form_of(b)) for a, b in zip(*given, strict=True)]
    for body, values in zip(bodies, given, strict=True):
        values[:] = _in_form(op, body, values, forms)
        for tensor in _leaves(values):
            subgraphs.give(op.importer, body, tensor)
    captured = list(dict.fromkeys(t for body in bodies for t in body.captured))
    for body in bodies:
        body.function.inputs = [op.importer.captured(body, t) for t in captured]
    then_function, else_function = (body.function for body in bodies)
    operands = [op.input(0), *captured]
    sources = [_leaves(values) for values in given]
    results = op.emit_all("if", operands, len(sources[0]), then_function=then_function, else_function=else_function)
    merged_kinds(op, results, *sources)
    tensors = iter(results)
    return [rebuilt(value, tensors) for value in given[0]]


def _branch_body(op: Operation, branch: onnx.GraphProto) -> Body:
    """Converts a branch to a function. If a branch does not fit the known shapes (for example a network for another
    sampling rate), it is converted for any shapes, because only a run that takes the branch can show that the shapes do
    not fit. If an inner branch has problems even for any shapes, these problems are final: if each level tried again,
    the time would double with each level."""
    importer = op.importer
    found, functions = list(importer.problems), len(importer.graph.functions)
    body = subgraphs.body(importer, branch, op.scope)
    if all(id(problem) in importer.final for problem in importer.problems[len(found) :]):
        return body
    reported, importer.problems[:] = list(importer.problems), found
    del importer.graph.functions[functions:]
    body = subgraphs.body(importer, branch, op.scope, any_shape=True)
    if len(importer.problems) > len(found):
        importer.problems[:] = reported
        importer.final |= {id(problem): problem for problem in reported[len(found) :]}
    return body


def _leaves(values: Sequence[Value]) -> list[Tensor]:
    return [t for value in values for t in leaves(value)]


def _in_form(op: Operation, body: Body, values: Sequence[Value], forms: Sequence[Form | None]) -> list[Value]:
    """Converts values of a body to the given forms. The nodes that do this are inside the body."""
    inner = copy.copy(op)
    inner.function = body.function
    results: list[Value] = subgraphs.inside(
        op.importer, body, lambda: [shaped(inner, v, form) for v, form in zip(values, forms, strict=True)]
    )
    return results


def repeat(
    op: Operation,
    graph: onnx.GraphProto,
    trips: Tensor | None,
    condition: Tensor | None,
    carried: Sequence[Value],
    begin: Callable[[Body, Tensor, Tensor, list[Value]], None],
    end: Callable[[Body, Tensor, list[Value]], list[Value]],
) -> list[Value]:
    """Emits a `while` for a body. begin(body, iteration, condition, carried) names the values that the subgraph takes.
    end(body, condition, outputs) turns the subgraph's outputs into (condition, carried..., scanned...)."""
    importer = op.importer
    values, forms = list(carried), [form_of(v) for v in carried]
    shapes: list[tuple[Dim, ...] | None] = [t.shape for t in _leaves(values)]
    if (last := importer.carried.get(id(graph))) is not None:
        # The body around this loop is converted again. Beginning with the shapes that the loop needed then takes one attempt,
        # where loops inside each other would otherwise multiply their attempts.
        wanted = [joined(f, g) for f, g in zip(forms, last.forms, strict=True)]
        if wanted != forms:
            values, forms, shapes = _formed(op, carried, wanted)
        if len(shapes) == len(last.shapes):
            shapes = [common_shape(s, t) for s, t in zip(shapes, last.shapes, strict=True)]
    for attempt in range(ROUNDS):
        importer.carried[id(graph)] = Carried(graph, forms, shapes)
        found = len(importer.problems)
        outside = _leaves(values)
        named: list[Value] = []

        def enter(body: Body, iteration: Tensor, condition: Tensor) -> None:
            inside = body.function.inputs[2:]
            merged_kinds(op, inside, outside)  # noqa: B023
            tensors = iter(inside)
            named.extend(rebuilt(v, tensors) for v in values)  # noqa: B023
            begin(body, iteration, condition, named)  # noqa: B023

        body = subgraphs.loop_body(
            importer, graph, op.scope, [(t.dtype, s) for t, s in zip(outside, shapes, strict=True)], enter
        )
        if len(importer.problems) > found:
            lists = [i for i, f in enumerate(forms) if f is not None and f.kind == "list"]
            if not lists or attempt == ROUNDS - 1:
                return [importer.placeholder(name) for name in op.node.output]
            # the body fills an empty list: problems found with the empty list do not apply to the loop
            del importer.problems[found:]
            wanted = [_open(f) if i in lists else f for i, f in enumerate(forms)]
        else:
            results = end(body, body.function.inputs[1], subgraphs.results(importer, body, graph))
            after = results[1 : 1 + len(values)]
            wanted = [joined(f, form_of(v)) for f, v in zip(forms, after, strict=True)]
        if wanted != forms:
            values, forms, shapes = _formed(op, carried, wanted)
            importer.graph.functions.remove(body.function)
            continue
        results[1 : 1 + len(values)] = _in_form(op, body, after, forms)
        wider = [common_shape(s, t.shape) for s, t in zip(shapes, _leaves(results[1 : 1 + len(values)]), strict=True)]
        if wider == shapes:
            break
        shapes = wider if attempt < ROUNDS - 2 else [None] * len(shapes)
        importer.graph.functions.remove(body.function)
    else:
        raise op.unsupported("the types or shapes of its carried values keep changing", "carry values of one type")
    for value in results:
        if value is None:
            raise op.unsupported("the body returns an empty optional", "return tensors")
    given = _leaves(results)
    for tensor in given:
        subgraphs.give(importer, body, tensor)
    first = 2 + len(_leaves(values))
    extra = list(body.captured)
    body.function.inputs = [*body.function.inputs[:first], *(body.captured[t] for t in extra)]
    operands = [trips, condition, *_leaves(values), *extra]
    made = op.emit_all("while", operands, len(given) - 1, body_function=body.function, carried=first - 2)
    merged_kinds(op, made, given[1:])
    tensors = iter(made)
    return [rebuilt(v, tensors) for v in results[1:]]


def _formed(
    op: Operation, carried: Sequence[Value], forms: list[Form | None]
) -> tuple[list[Value], list[Form | None], list[tuple[Dim, ...] | None]]:
    """Returns the carried values in common forms, these forms, and the shapes of the values' tensors."""
    values: list[Value] = [shaped(op, v, form) for v, form in zip(carried, forms, strict=True)]
    return values, forms, [_open_shape(t, form) for v, form in zip(values, forms, strict=True) for t in leaves(v)]


def _open(form: Form | None) -> Form:
    """The form of a sequence of any length and rank."""
    assert form is not None
    return Form("packed", form.dtype, (None,), form.maybe)


def _open_shape(tensor: Tensor, form: Form | None) -> tuple[Dim, ...] | None:
    """The shape of a tensor of a growing sequence: its first dimension is open."""
    if form is None or form.kind != "packed" or not tensor.shape:
        return tensor.shape
    return (None, *tensor.shape[1:])


@rule("Loop")
def loop(op: Operation) -> Sequence[Value]:
    """Inputs: trip count, condition, carried values. The body takes (iteration, condition, carried...)."""
    graph: onnx.GraphProto = op.attribute("body")
    carried = [op.any(i) for i in range(2, len(op.inputs))]
    names = [i.name for i in graph.input]
    if len(names) != 2 + len(carried) or len(graph.output) != 1 + len(op.node.output):
        raise op.unsupported(
            "the loop and its body take or return different numbers of values", "export the model again"
        )

    def begin(body: Body, iteration: Tensor, condition: Tensor, values: list[Value]) -> None:
        body.values[names[0]] = _as_declared(op, iteration, graph.input[0])
        body.values[names[1]] = _as_declared(op, condition, graph.input[1])
        body.values.update(zip(names[2:], values, strict=True))

    def end(body: Body, condition: Tensor, outputs: list[Value]) -> list[Value]:
        return outputs

    trips, condition = op.optional(0), op.optional(1)
    if (
        trips is None and condition is None
    ):  # the specification says to loop forever; ONNX Runtime obeys the body's condition
        condition = op.constant(True)
    return repeat(op, graph, trips, condition, carried, begin, end)


def _as_declared(op: Operation, tensor: Tensor, declared: onnx.ValueInfoProto) -> Tensor:
    """Reshapes the iteration and the condition, which are scalars, because some bodies declare them as 1-element
    vectors."""
    if len(declared.type.tensor_type.shape.dim) == 1:
        return op.importer.emitted("copy", tensor, kind="unsqueeze", axes=[0])
    return tensor


def scanned(op: Operation, graph: onnx.GraphProto, carried: Sequence[Tensor], rows: Sequence[Tensor]) -> list[Tensor]:
    """The states after a Scan, followed by the body's outputs stacked along dimension 0. rows: read along dimension 0."""
    names = [i.name for i in graph.input]
    states = len(carried)

    def begin(body: Body, iteration: Tensor, condition: Tensor, values: list[Value]) -> None:
        body.values.update(zip(names[:states], values, strict=True))
        for name, row in zip(names[states:], rows, strict=True):
            taken = op.importer.emitted("gather", body.capture(row), iteration, kind="take", axis=0)
            body.values[name] = op.of_kind(taken, op.importer.kinds.get(row))

    def end(body: Body, condition: Tensor, outputs: list[Value]) -> list[Value]:
        return [condition, *outputs]

    trips = op.reshape(op.shape_of(rows[0], 0, 1), ())
    results = repeat(op, graph, trips, None, carried, begin, end)
    tensors = [value for value in results if isinstance(value, Tensor)]
    if len(tensors) != len(results):
        raise op.unsupported("its body returns a sequence, but a Scan returns tensors", "use Loop")
    return tensors


@rule("Scan", since=9)
def scan(op: Operation) -> Sequence[Value]:
    """Inputs: state values, then sequences. Each iteration takes a slice of every sequence and gives states and slices."""
    graph: onnx.GraphProto = op.attribute("body")
    sequences = int(op.attribute("num_scan_inputs"))
    states = len(op.inputs) - sequences
    stacked = len(op.node.output) - states
    in_axes = list(op.attribute("scan_input_axes") or [0] * sequences)
    in_reversed = list(op.attribute("scan_input_directions") or [0] * sequences)
    out_axes = list(op.attribute("scan_output_axes") or [0] * stacked)
    out_reversed = list(op.attribute("scan_output_directions") or [0] * stacked)
    if states < 0 or sequences < 1 or len(graph.input) != len(op.inputs) or len(graph.output) != states + stacked:
        raise op.unsupported(
            "the Scan and its body take or return different numbers of values", "export the model again"
        )
    rows = []  # the sequences in reading order, along dimension 0
    for i in range(sequences):
        x = op.input(states + i)
        rank = rank_of(x, f"input {states + i}")
        axis = in_axes[i] % rank
        x = op.transpose(x, [axis, *(d for d in range(rank) if d != axis)])
        rows.append(op.slice(x, 0, -1, -(1 << 62), -1) if in_reversed[i] else x)
    results = scanned(op, graph, [op.input(i) for i in range(states)], rows)
    for i in range(stacked):
        y = results[states + i]
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
def scan_8(op: Operation) -> Sequence[Value]:
    """Opset 8: every operand has a leading batch dimension, and the body sees one element. Sequences run along dimension 1."""
    graph: onnx.GraphProto = op.attribute("body")
    sequences = int(op.attribute("num_scan_inputs"))
    directions = list(op.attribute("directions") or [0] * sequences)
    if op.optional(0) is not None:
        raise op.unsupported("Scan with sequence_lens is not supported", "export the model with opset 9 or newer")
    shape = op.input(1).shape
    batch = shape[0] if shape else None
    if not isinstance(batch, int):
        raise op.unknown("the batch size is unknown")
    states = len(op.inputs) - 1 - sequences
    elements = []
    for index in range(batch):
        operands = [op.squeeze(op.slice(op.input(i), 0, index, index + 1), [0]) for i in range(1, len(op.inputs))]
        rows = operands[states:]
        rows = [op.slice(x, 0, -1, -(1 << 62), -1) if r else x for x, r in zip(rows, directions, strict=True)]
        elements.append(scanned(op, graph, operands[:states], rows))
    return [op.concat([op.unsqueeze(t, [0]) for t in parts], 0) for parts in zip(*elements, strict=True)]
