"""The names of nodes in a file, by which errors, timings and traces name them: those of the source model's nodes.
A node that a converter or a pass made from several source nodes is called like the one that does most of its work."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.ir import traits
from linnet.ir.function import Function, Node

_HEAVY = traits.family("product", "recurrent")


def step_names(function: Function) -> dict[Node, str]:
    """The name of each node, by which every tool and the file know it."""
    return dict(zip(function.nodes, node_names(function.nodes), strict=True))


def node_names(nodes: Sequence[Node]) -> list[str]:
    """The names of a function's nodes. A node keeps a name of its own. Otherwise it gets that of its source node, or of its
    first output if there is no source. Of several nodes from one source node, the heaviest gets the plain name, and the
    others the name with their op."""
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
    """A name of its own is never taken from a node; then come heavy ops."""
    return 2 if node.name else 1 if node.op in _HEAVY else 0


def _source_name(node: Node) -> str:
    parts = [(kind.lower(), name) for kind, _, name in (part.partition(":") for part in node.source.split("+")) if name]
    if not parts:
        return node.outputs[0].name if node.outputs else ""
    same = [name for kind, name in parts if node.op in kind]
    if same:
        return same[0]
    return parts[0][1] if node.op in _HEAVY else parts[-1][1]
