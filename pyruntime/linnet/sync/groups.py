"""Finds parameter groups from the nodes of the update. A group is a set of variables whose updates depend on each
other. A group is never divided between servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from linnet.ir.function import Function, Node, Tensor
from linnet.ir.graph import graph_of
from linnet.sync.contract import variable_of


@dataclasses.dataclass(frozen=True)
class Groups:
    """groups: sets of variables that must be on one server (parameters with their optimizer state), in the order of the
    update. shared: variables of which every server has a copy. These are step counters, which depend on no gradient,
    and variables that never change."""

    groups: list[list[str]]
    shared: list[str]


class Dependencies:
    """For every tensor of an update, the gradients and variables on which it depends."""

    def __init__(self, function: Function) -> None:
        self._behind: dict[Tensor, frozenset[str]] = {}
        self.assigns: dict[str, Node] = {}  # by the variable's name
        for node in function.nodes:
            names = self.of(node.inputs)
            self._behind |= dict.fromkeys(node.outputs, names)
            if node.op == "assign":
                variable = _variable(node)
                assert variable not in self.assigns, f"'{variable}' is assigned twice"
                self.assigns[variable] = node

    def of(self, tensors: Iterable[Tensor | None]) -> frozenset[str]:
        """The names of the variables and inputs on which the tensors depend. An input is a gradient; it appears as 'd '
        followed by the variable's name."""
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
    names, inputs = graph_of(tensor).signatures, tensor.function.inputs
    signature = next(s for s in names.values() if s.function is tensor.function)
    return "d " + variable_of(signature.inputs[inputs.index(tensor)])


def _variable(node: Node) -> str:
    target = node.inputs[0]
    assert target is not None and target.variable is not None
    return target.variable.name


def groups_of(function: Function) -> Groups:
    """The groups of an update. function: the function of the signature `update/all`."""
    behind = Dependencies(function)
    uses = {name: behind.of(node.inputs[1:]) for name, node in behind.assigns.items()}
    shared = {name for name, used in uses.items() if not any(u.startswith("d ") for u in used)}
    while True:  # whatever reads a member of a group belongs to the group
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
