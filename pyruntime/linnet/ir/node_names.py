"""The names of nodes in a file, which errors, timings and traces use. A node has the name of a node of the source
model. If a converter or a pass made a node from several source nodes, it has the name of the source node that does most
of its work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linnet.ir import traits
from linnet.ir.function import Function, Node

_HEAVY = traits.family("product", "recurrent")


def step_names(function: Function) -> dict[Node, str]:
    """The name of each node, as in the file and in every tool."""
    return dict(zip(function.nodes, node_names(function.nodes), strict=True))


def merged_into(steps: Mapping[str, str]) -> dict[str, str]:
    """Maps the name of each source node that has no step of its own to the first step of which it became a part. steps:
    {name of a step: its `source`}."""
    found: dict[str, str] = {}
    for step, source in steps.items():
        for part in source.split("+"):
            found.setdefault(part.partition(":")[2], step)
    return {name: step for name, step in found.items() if name and name not in steps}


def node_names(nodes: Sequence[Node]) -> list[str]:
    """The names of a function's nodes. If a node has a name, it keeps it. Otherwise it gets the name of its source
    node, or of its first output if there is no source. If several nodes come from one source node, the heaviest gets
    the plain name, and the others get the name with their op."""
    wanted = [node.name or _source_name(node) for node in nodes]
    owner: dict[str, int] = {}
    for i, (node, name) in enumerate(zip(nodes, wanted, strict=True)):
        if name not in owner or (_rank(node) > _rank(nodes[owner[name]])):
            owner[name] = i
    taken, found = set(owner), []
    for i, (node, name) in enumerate(zip(nodes, wanted, strict=True)):
        if name and owner[name] != i and not node.name:
            base = candidate = f"{name}/{node.op}"
            number = 1
            while candidate in taken:
                number += 1
                candidate = f"{base}_{number}"
            taken.add(candidate)
            name = candidate
        found.append(name)
    return found


def _rank(node: Node) -> int:
    """Returns the priority with which a node gets a name. Nodes with names of their own come first, so that they keep
    them; then come heavy ops."""
    return 2 if node.name else 1 if node.op in _HEAVY else 0


def _source_name(node: Node) -> str:
    parts = [(kind.lower(), name) for kind, _, name in (part.partition(":") for part in node.source.split("+")) if name]
    if not parts:
        return node.outputs[0].name if node.outputs else ""
    same = [name for kind, name in parts if node.op in kind]
    if same:
        return same[0]
    return parts[0][1] if node.op in _HEAVY else parts[-1][1]
