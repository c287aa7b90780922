"""The gradient of `while`: a loop from the last iteration to the first, over values that the forward loop is changed to
stack. It stacks the results of heavy ops. The backward loop recomputes what maps and copies compute from stacked or
captured values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from linnet.autodiff._tools import FLOAT_DTYPES, elementwise, filled
from linnet.autodiff.control import ancestors, arguments_of, back, inline, place_of, prune
from linnet.autodiff.sparse import Gradients, SparseRows, rows_of, sum_of
from linnet.builder import ops
from linnet.builder.control import loop_node
from linnet.clib.errors import GraphError
from linnet.ir import traits
from linnet.ir.body import Body
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.symbolic import elements_of

_CHEAP = traits.POINTWISE | traits.COPIES | traits.family("shape")


def while_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Gradients of carried values are carried, and those of captured values are summed. If only gathers read a captured
    tensor (the sequence of a scan, an embedding), the gradients of its rows are stacked and put in place after the
    loop.
    """
    trips = node.inputs[0]
    function: Function = node.attribute("body_function")
    if not _steady(node):  # one row per iteration
        numbers = _stacked(node, function.inputs, function.outputs, [function.inputs[0]])[0]
        trips, function = ops.shape(numbers, start=0, end=1), node.attribute("body_function")
    elif trips is None:
        raise GraphError(
            "the loop never ends: it has no maximum, and its condition is always true", code=301,
            hint="give while_loop a maximum",
        )  # fmt: skip
    given, carried = [*given, *[None] * (len(node.outputs) - len(given))], node.attribute("carried")
    changing = _changing(node, given, needs)
    count = trips if trips.shape == () else ops.reshape(trips, [])
    body = Body(place_of(node), f"{function.name}_gradient")
    with body.open():
        step = body.parameter(Tensor(body.outer, "iteration", "i64", ()))
        holds = body.parameter(Tensor(body.outer, "condition", "bool", ()))
        after = [body.parameter(node.outputs[k], f"gradient_{k}") for k in changing]
        last = elementwise([count, step], lambda n, j: n - 1 - j)  # index of the iteration whose gradient this is
        before = [body.tensor(t.name, t.dtype, t.shape) for t in function.inputs[2 : 2 + carried]]
        captured = arguments_of(node.inputs[2 + carried :], needs[2 + carried :])
        entry: list[Tensor | None] = [last, body.constant(np.array(True)), *before, *captured]
        results = inline(function, body, entry)
        forward, inside = (
            list(body.nodes),
            [t for t, n in zip(captured, needs[2 + carried :], strict=True) if t is not None and n],
        )
        rows = _rows(inside, forward, results)
        summed = [t for t in inside if all(n.inputs[0] is not t for n in rows)]
        seeds: list[tuple[Tensor, Tensor | None]] = [(results[1 + k], g) for k, g in zip(changing, after, strict=True)]
        for result, g in zip(results[1 + carried :], given[carried:], strict=True):
            seeds.append((result, None if g is None else ops.gather(g, last)))
        wanted = [*(before[k] for k in changing), *summed, *(n.outputs[0] for n in rows)]
        slopes = dict(zip(wanted, back([n for n in forward if n not in rows], seeds, wanted), strict=True))
        summed = [t for t in summed if slopes[t] is not None]
        rows = [n for n in rows if slopes[n.outputs[0]] is not None]
        totals = [body.parameter(t, "total") for t in summed]
        body.outputs = [holds]
        body.outputs += [filled(before[k], 0.0) if (s := slopes[before[k]]) is None else s for k in changing]
        for total, t in zip(totals, summed, strict=True):
            body.outputs.append(ops.add(total, _sure(slopes[t])))
        body.outputs += [_sure(slopes[n.outputs[0]]) for n in rows]
        body.outputs += [_sure(n.inputs[1]) for n in rows]
        kept = _kept(body, results, before, captured, last)
        stacks = _stacked(node, entry, results, kept)
        read = [Node("gather", [body.own(stack), last], [t], {}) for t, stack in zip(kept, stacks, strict=True)]
        for reader in read:
            reader.outputs[0].node = reader
        at = body.nodes.index(_sure(last.node)) + 1
        body.nodes[at:at] = read
        prune(body)
    outer = dict(zip(captured, node.inputs[2 + carried :], strict=True))
    start = [filled(node.outputs[k], 0.0) if (g := given[k]) is None else g for k in changing]
    start += [filled(_sure(outer[t]), 0.0) for t in summed]
    made = loop_node(body, count, None, start, 2 * len(rows))
    found: dict[Tensor, Tensor | SparseRows] = dict(zip([*(before[k] for k in changing), *summed], made, strict=False))
    stacked = made[len(start) :]
    placed: dict[Tensor, list[Tensor | SparseRows]] = {}
    for n, slope, places in zip(rows, stacked, stacked[len(rows) :], strict=False):
        own = _sure(n.inputs[0])
        part = _placed(_sure(outer[own]), slope, places, count, n.inputs[1] is last)
        placed.setdefault(own, []).append(part)
    found |= {own: sum_of(parts, _sure(outer[own])) for own, parts in placed.items()}
    return [None, None, *(None if t is None else found.get(t) for t in (*before, *captured))]


_T = TypeVar("_T")


def _sure(value: _T | None) -> _T:
    assert value is not None
    return value


def _steady(node: Node) -> bool:
    """Tells whether only the number of iterations ends the loop."""
    function, begins = node.attribute("body_function"), node.inputs[1] if len(node.inputs) > 1 else None
    holds = function.outputs[0]
    always = holds is function.inputs[1] or (holds.data is not None and bool(holds.data.all()))
    return always and (begins is None or (begins.data is not None and bool(begins.data.all())))


def _changing(node: Node, given: Sequence[Tensor | None], needs: Sequence[bool]) -> list[int]:
    """The carried values whose gradients are carried back: those that depend on a wanted value and on which the result
    depends."""
    function, carried = node.attribute("body_function"), node.attribute("carried")
    parameters, results = function.inputs[2 : 2 + carried], function.outputs[1 : 1 + carried]
    floats = [t.dtype in FLOAT_DTYPES for t in parameters]
    moved = {k for k in range(carried) if needs[2 + k]}
    sources = {t for t, need in zip(function.inputs[2 + carried :], needs[2 + carried :], strict=False) if need}
    asked = {k for k in range(carried) if given[k] is not None}
    stacked = [t for t, g in zip(function.outputs[1 + carried :], given[carried:], strict=True) if g is not None]
    behind = [ancestors([t]) for t in results]
    asked |= {k for k in range(carried) if parameters[k] in ancestors(stacked)}
    for _ in range(carried + 1):
        now = sources | {parameters[k] for k in moved}
        moved |= {k for k in range(carried) if floats[k] and behind[k] & now}
        asked |= {k for k in range(carried) if any(parameters[k] in behind[other] for other in asked)}
    return sorted(k for k in moved & asked if floats[k])


def _rows(inside: Sequence[Tensor], forward: Sequence[Node], results: Sequence[Tensor]) -> list[Node]:
    """The gathers along axis 0 whose source tensor has no other readers."""
    found = []
    for tensor in inside:
        readers = [n for n in forward if tensor in n.inputs]
        simple = all(
            n.op == "gather" and n.inputs[1] is not tensor and n.attribute("kind") == "take"
            and n.attribute("axis") == 0 and n.attribute("batch_dims") == 0 for n in readers
        )  # fmt: skip
        if simple and tensor not in results:
            found += readers
    return found


def _kept(
    body: Body, results: Sequence[Tensor], before: Sequence[Tensor], captured: Sequence[Tensor | None], last: Tensor
) -> list[Tensor]:
    """Values of the forward body that the backward body reads and does not recompute. A loop whose number of iterations
    is known only in the run is run again."""
    forward = {
        t.node for t in ancestors(results, [last])
    }  # for a loop within the loop, also the values that it was changed to stack
    kept: list[Tensor] = []
    seen: set[Tensor] = set()
    around, carried = set(captured), set(before)
    pending = list(body.outputs)
    while pending:
        tensor = pending.pop()
        if tensor in seen or tensor is last:
            continue
        seen.add(tensor)
        maker = tensor.node
        if tensor in carried:
            kept.append(tensor)
        elif maker is None:
            continue
        elif maker not in forward or maker.op in _CHEAP or (maker.op == "gather" and maker.inputs[0] in around):
            pending += [t for t in maker.inputs if t is not None]
        elif maker.op == "while" and _row_count(maker) is None:
            # Its stacks may have another length in every iteration, so they cannot be stacked.
            pending += [t for t in maker.inputs if t is not None]
        else:
            kept.append(tensor)
    return kept


def _stacked(
    node: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], kept: Sequence[Tensor]
) -> list[Tensor]:
    """Makes a loop stack more values and returns the stacks. inputs, outputs: those of the loop's body, or those of a
    copy of the body that is part of other nodes and contains `kept`."""
    carried = node.attribute("carried")
    known = dict(zip(outputs[1 + carried :], node.outputs[carried:], strict=True))
    new = [t for t in dict.fromkeys(kept) if t not in known]
    if new:
        old: Function = node.attribute("body_function")
        source, needed = outputs[0].function, ancestors([*outputs, *new], [t for t in inputs if t is not None])
        part = Function(old.graph, old.name)
        part.inputs = [part.tensor(t.name, t.dtype, t.shape) for t in old.inputs]
        ends = {t for t in inputs if t is not None}
        view = Function(old.graph, old.name)
        view.inputs, view.outputs = [t for t in inputs if t is not None], [*outputs, *new]
        view.nodes = [n for n in source.nodes if any(t in needed and t not in ends for t in n.outputs)]
        part.outputs = inline(view, part, [p for p, t in zip(part.inputs, inputs, strict=True) if t is not None])
        node.attributes = {**node.attributes, "body_function": part}
        function, rows = node.outputs[0].function, _row_count(node)
        for tensor in new:
            shape = None if tensor.shape is None else (rows, *tensor.shape)
            known[tensor] = function.tensor(f"{tensor.name}_kept", tensor.dtype, shape)
            known[tensor].node = node
            node.outputs.append(known[tensor])
    return [known[t] for t in kept]


def _row_count(node: Node) -> int | str | None:
    known = elements_of(node.inputs[0]) if _steady(node) else None
    return known[0] if known else None


def _placed(x: Tensor, rows: Tensor, places: Tensor, count: Tensor, backwards: bool) -> Tensor | SparseRows:
    """The gradient of x from the gradients of some of its rows; for a variable, as SparseRows. backwards: the places
    are in the order from the last iteration to the first."""
    length, known = x.shape[0] if x.shape else None, elements_of(count)
    if backwards and length is not None and known == (length,):
        return ops.copy([rows], kind="slice", starts=[-1], ends=[-(1 << 63)], axis=[0], steps=[-1])[0]
    if x.variable is not None and x.static_shape is not None:
        return rows_of(x, places, rows)
    rank = places.rank
    at = ops.copy([places], kind="unsqueeze", axis=[0 if rank is None else rank])[0]
    return ops.scatter(filled(x, 0.0), at, rows, kind="nd", reduction="add")
