"""What the passes share: replacing tensors, joining provenance, and which nodes must stay.
A replacement never makes an output of a function an input, a constant, or a second copy of another output."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from linnet.file import functions_of
from linnet.graph import Function, Node, Tensor


def join_sources(*sources: str) -> str:
    """Provenance of a node made of several: each once, in order, joined by "+"."""
    return "+".join(dict.fromkeys(part for source in sources for part in source.split("+") if part))


def put_in_place(places: dict[Node, list[Node]], node: Node, result: Tensor, before: int, source: str = "") -> None:
    """The nodes emitted since the function had `before` of them are to take the place of `node`, and `result` that of its
    output: they are noted in `places`, for `splice`.

    source: provenance that theirs is joined to.
    """
    function = result.function
    made = function.nodes[before:]
    del function.nodes[before:]
    assert result.node is not None
    for new in made:
        new.source = join_sources(source, new.source)
    result.node.outputs, result.node.name = node.outputs, node.name
    node.outputs[0].node = result.node
    places[node] = made


def splice(function: Function, places: Mapping[Node, Sequence[Node]]) -> None:
    """Puts the nodes of each value in the place of its key, all at once."""
    if places:
        function.nodes = [new for node in function.nodes for new in places.get(node, (node,))]


def has_effect(node: Node) -> bool:
    """Whether the node writes a variable, itself or in a function that it names."""
    if node.op == "assign":
        return True
    if node.op not in ("if", "while", "call"):
        return False
    holder = Function(node.outputs[0].function.graph, "")
    holder.nodes = [node]
    return any(has_effect(inner) for function in functions_of(holder) for inner in function.nodes)


def may_replace(given: Container[Tensor], old: Tensor, new: Tensor) -> bool:
    """Whether every use of `old`, as one of the outputs that the function gives too, may become a use of `new`."""
    return old not in given or (new.node is not None and new not in given)


def replace(function: Function, table: dict[Tensor, Tensor]) -> None:
    """Every use of a key becomes a use of its value (followed through the table)."""

    def final(tensor: Tensor) -> Tensor:
        while tensor in table:
            tensor = table[tensor]
        return tensor

    for node in function.nodes:
        node.inputs = [None if t is None else final(t) for t in node.inputs]
    function.outputs = [final(t) for t in function.outputs]
