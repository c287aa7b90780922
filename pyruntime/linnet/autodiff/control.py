"""Gradients of `if` and `call`, and helpers shared with the gradient of `while` (loops.py). The helpers inline functions,
walk back through them, and remove nodes that no result needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from linnet.autodiff._tools import filled
from linnet.autodiff.sparse import Gradients, SparseRows, add_up
from linnet.autodiff.walk import walk
from linnet.builder import ops
from linnet.builder.control import branch_node
from linnet.ir.body import Body
from linnet.ir.function import Function, Node, Tensor


def call_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Inlines the function's nodes, as the C library does, and differentiates them."""
    function = node.outputs[0].function
    end = len(function.nodes)
    arguments = [None if t is None else ops.copy([t])[0] for t in node.inputs]
    for inner, outer in zip(inline(node.attribute("callee"), function, arguments), node.outputs, strict=True):
        outer.node = Node("copy", [inner], [outer], {"kind": "identity"}, node.name, node.source, node.placement)
        function.nodes.append(outer.node)
    inlined, at = function.nodes[end:], function.nodes.index(node)
    function.nodes[at:] = [*inlined, *function.nodes[at + 1 : end]]
    seeds = {t: g for t, g in zip(node.outputs, given, strict=True) if g is not None}
    wanted = [t for t, need in zip(arguments, needs, strict=True) if t is not None and need]
    found = dict(zip(wanted, walk(inlined, seeds, wanted), strict=True))
    return [None if t is None else found.get(t) for t in arguments]


def if_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """The gradient is another `if`. It recomputes the branch that ran and walks back through it. The forward node keeps
    no values for this gradient, because a branch that does not run has no values."""
    condition, captured = node.inputs[0], node.inputs[1:]
    assert condition is not None
    bodies = []
    for key, name in (("then_function", "then_gradient"), ("else_function", "else_gradient")):
        body = Body(place_of(node), name)
        with body.open():
            arguments = arguments_of(captured, needs[1:])
            results = inline(node.attribute(key), body, arguments)
            nodes = list(body.nodes)
            wanted = [t for t, need in zip(arguments, needs[1:], strict=True) if t is not None and need]
            found = back(nodes, zip(results, given, strict=True), wanted)
            body.outputs = [filled(t, 0.0) if g is None else g for t, g in zip(wanted, found, strict=True)]
            prune(body)
        bodies.append(body)
    made = iter(branch_node(condition, bodies[0], bodies[1]))
    return [None, *(next(made) if need else None for need in needs[1:])]


def place_of(node: Node) -> Function:
    """The function that receives new nodes: the innermost open body, or else the node's own function."""
    function = node.outputs[0].function
    return function.graph.bodies[-1] if function.graph.bodies else function


def arguments_of(captured: Sequence[Tensor | None], needs: Sequence[bool]) -> list[Tensor | None]:
    """Returns the tensors as the open body captures them. Each tensor that needs a gradient gets an alias of its own,
    so that no two of them are the same tensor."""
    found: list[Tensor | None] = []
    for tensor, need in zip(captured, needs, strict=True):
        if tensor is not None:
            body = tensor.function.graph.bodies[-1]
            tensor = ops.copy([tensor])[0] if need else body.own(tensor)
        found.append(tensor)
    return found


def inline(function: Function, into: Function, arguments: Sequence[Tensor | None]) -> list[Tensor]:
    """Appends copies of the function's nodes to `into`, with the arguments in place of its inputs. Returns its outputs
    there."""
    table = dict(zip(function.inputs, arguments, strict=False))

    def own(t: Tensor) -> Tensor:
        made = table.get(t)
        if made is None:
            if t.variable is not None and t.node is None:
                made = into.read(t.variable)
            else:
                made = dataclasses.replace(t, function=into, name=into.unique(t.name), node=None)
            table[t] = made
        return made

    for node in function.nodes:
        inputs = [None if t is None else own(t) for t in node.inputs]
        outputs, attributes = [own(t) for t in node.outputs], dict(node.attributes)
        made = dataclasses.replace(node, inputs=inputs, outputs=outputs, attributes=attributes)
        for tensor in made.outputs:
            tensor.node = made
        into.nodes.append(made)
    return [own(t) for t in function.outputs]


def back(
    nodes: Sequence[Node], seeds: Iterable[tuple[Tensor, Tensor | None]], wanted: Sequence[Tensor]
) -> list[Tensor | None]:
    """Runs `walk` inside the open body. The seeds may come from any function, and several may belong to one tensor."""
    parts: dict[Tensor, list[Tensor]] = {}
    for tensor, g in seeds:
        if g is not None:
            parts.setdefault(tensor, []).append(g.function.graph.bodies[-1].own(g))
    found = walk(nodes, {t: add_up(group) for t, group in parts.items()}, wanted)
    return [g.tensor(t) if isinstance(g, SparseRows) else g for t, g in zip(wanted, found, strict=True)]


def ancestors(outputs: Iterable[Tensor], ends: Iterable[Tensor] = ()) -> set[Tensor]:
    """All tensors on which the outputs depend, including the outputs. The search stops at `ends`."""
    seen: set[Tensor] = set()
    pending, stop = list(outputs), set(ends)
    while pending:
        tensor = pending.pop()
        if tensor not in seen:
            seen.add(tensor)
            if tensor.node is not None and tensor not in stop:
                pending += [t for t in tensor.node.inputs if t is not None]
    return seen


def prune(body: Body) -> None:
    """Keeps only the nodes that the outputs need, and captures the outside tensors that these nodes use."""
    used = ancestors(body.outputs)
    body.nodes = [n for n in body.nodes if any(t in used and t.node is n for t in n.outputs)]
    body.captured = {outer: own for outer, own in body.captured.items() if own in used}
