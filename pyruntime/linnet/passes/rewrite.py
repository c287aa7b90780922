"""Helpers of the passes: replacing tensors, joining provenance, and deciding which nodes must stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linnet.ir import traits
from linnet.ir.function import Function, Node, Tensor, functions_of

EQUAL = "equal:"  # first in the provenance of a node that stands for several equal nodes


def join_sources(*sources: str) -> str:
    """The provenance of a node made from several nodes: each source once, in order, joined by "+"."""
    return "+".join(dict.fromkeys(part for source in sources for part in source.split("+") if part))


def origin(node: Node) -> str:
    """The node's provenance. For a node of a graph that was built in Python, it is the node's own name."""
    return node.source or (f"{node.op}:{node.name}" if node.name else "")


def take_in(node: Node, follower: Node) -> None:
    """Makes `node` compute the result of `follower`, its only reader, instead of its own. The value of `node` no longer
    exists; the last part of the provenance says which value the result is."""
    node.source, node.name = join_sources(origin(node), origin(follower)), ""
    node.placement = node.placement or follower.placement
    node.outputs[0] = follower.outputs[0]  # keeps the name and the position among the outputs
    node.outputs[0].node = node


def put_in_place(places: dict[Node, list[Node]], node: Node, result: Tensor, before: int, source: str = "") -> None:
    """Records in `places` that the nodes emitted after the first `before` nodes of the function replace `node`, and
    that `result` replaces its output. `splice` then moves them.

    source: provenance that is added to that of the new nodes.
    """
    function = result.function
    made = function.nodes[before:]
    del function.nodes[before:]
    assert result.node is not None
    for new in made:
        new.source, new.placement = join_sources(source, new.source), node.placement
    result.node.outputs, result.node.name = node.outputs, node.name
    node.outputs[0].node = result.node
    places[node] = made


def splice(function: Function, places: Mapping[Node, Sequence[Node]]) -> None:
    """Replaces each key of `places` by its nodes, in one pass over the function."""
    if places:
        function.nodes = [new for node in function.nodes for new in places.get(node, (node,))]


def has_effect(node: Node) -> bool:
    """Whether the node writes a variable, either itself or in a function that it calls."""
    if node.op == "assign":
        return True
    if node.op not in traits.CONTROL:
        return False
    holder = Function(node.outputs[0].function.graph, "")
    holder.nodes = [node]
    return any(has_effect(inner) for function in functions_of(holder) for inner in function.nodes)


def replace(function: Function, table: dict[Tensor, Tensor]) -> None:
    """Replaces every use of a key by its value, following chains in the table."""

    def final(tensor: Tensor) -> Tensor:
        while tensor in table:
            tensor = table[tensor]
        return tensor

    for node in function.nodes:
        node.inputs = [None if t is None else final(t) for t in node.inputs]
    function.outputs = [final(t) for t in function.outputs]
