"""Parameter groups: which variables an update ties together, found in the nodes of the update itself. A group is never
spread over servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from linnet.graph import Function, Node, Tensor
from linnet.sync.contract import variable_of


@dataclasses.dataclass(frozen=True)
class Groups:
    """groups: sets of variables that one server must hold, in the order of the update; parameters with their optimizer state.
    shared: what every server holds for itself: counters of steps, which depend on no gradient, and values nobody changes."""

    groups: list[list[str]]
    shared: list[str]


class Dependencies:
    """Of every tensor of an update: the gradients and variables behind it."""

    def __init__(self, function: Function) -> None:
        self._behind: dict[Tensor, frozenset[str]] = {}
        self.assigns: dict[str, Node] = {}  # by the name of the variable
        for node in function.nodes:
            names = self.of(node.inputs)
            self._behind |= dict.fromkeys(node.outputs, names)
            if node.op == "assign":
                variable = _variable(node)
                assert variable not in self.assigns, f"'{variable}' is assigned twice"
                self.assigns[variable] = node

    def of(self, tensors: Iterable[Tensor | None]) -> frozenset[str]:
        """The names of what is behind tensors: variables, and inputs as the variable whose gradient they are, after 'd '."""
        found: set[str] = set()
        for tensor in tensors:
            if tensor is None or tensor.data is not None:
                continue
            if tensor.variable is not None and tensor.node is None:
                found.add(tensor.variable.name)
            else:
                found |= self._behind.get(tensor, frozenset()) if tensor.node is not None else {_input(tensor)}
        return frozenset(found)


def _input(tensor: Tensor) -> str:
    names, inputs = tensor.function.graph.signatures, tensor.function.inputs
    signature = next(s for s in names.values() if s.function is tensor.function)
    return "d " + variable_of(signature.inputs[inputs.index(tensor)])


def _variable(node: Node) -> str:
    target = node.inputs[0]
    assert target is not None and target.variable is not None
    return target.variable.name


def groups_of(function: Function) -> Groups:
    """The groups of an update. function: that of a signature `update/all`."""
    behind = Dependencies(function)
    uses = {name: behind.of(node.inputs[1:]) for name, node in behind.assigns.items()}
    shared = {name for name, used in uses.items() if not any(u.startswith("d ") for u in used)}
    while True:  # what reads something that belongs to a group belongs to it as well
        kept = {name for name in shared if all(u in shared or u not in uses for u in uses[name])}
        if kept == shared:
            break
        shared = kept
    parent = {name: name for name in uses if name not in shared}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    for name in uses.keys() - shared:
        for used in uses[name]:
            other = used.removeprefix("d ")
            if other != used:
                parent.setdefault(other, other)
            if other in parent:
                parent[root(other)] = root(name)
    made: dict[str, list[str]] = {}
    for name in [v for v in function.graph.variables if v in parent]:
        made.setdefault(root(name), []).append(name)
    constants = {t.variable.name for t in function.tensors() if t.variable is not None} - set(parent)
    return Groups(list(made.values()), [v for v in function.graph.variables if v in constants])


def part(function: Function, variables: Iterable[str]) -> tuple[list[Tensor], list[Node]]:
    """The inputs and nodes that the updates of these variables need."""
    wanted = set(variables)
    pending = [n for n in function.nodes if n.op == "assign" and _variable(n) in wanted]
    seen = {id(n) for n in pending}
    read: set[Tensor] = set()
    while pending:
        for tensor in pending.pop().inputs:
            if tensor is None:
                continue
            read.add(tensor)
            if tensor.node is not None and id(tensor.node) not in seen:
                seen.add(id(tensor.node))
                pending.append(tensor.node)
    return [t for t in function.inputs if t in read], [n for n in function.nodes if id(n) in seen]
