"""Scopes say on which machine or device the nodes and variables of a graph should be: `Graph.device` and
`Graph.colocate_with`. Each node and variable keeps its placement as a device string (linnet.DeviceSpec)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from linnet.clib.errors import UsageError
from linnet.ir.device_spec import DeviceSpec
from linnet.ir.function import Function, Node, Operators, Tensor, Variable, emit, refuse_other_graphs

Where = str | DeviceSpec | None
"""A device string, a DeviceSpec, or None: anywhere."""


class Scopes:
    """Base of Graph: the scopes that are open."""

    def __init__(self) -> None:
        # outermost first; with whether a scope replaces the outer ones, instead of adding to them
        self._placed: list[tuple[bool, DeviceSpec | Callable[[Node], Where]]] = []

    @contextlib.contextmanager
    def device(self, where: Where | Callable[[Node], Where]) -> Iterator[None]:
        """`with graph.device("/job:worker/task:1/device:opencl:0"):` places the nodes and variables made inside. Parts may be
        missing. Scopes nest: what an inner scope does not say, the outer one says. None ends the outer scopes.

        where: a device string as DeviceSpec.parse reads it, a DeviceSpec, None, or a function of a node (linnet.ir's Node:
        op, name, inputs, outputs, and in `placement` what the outer scopes say), which returns one of these; there,
        None leaves the node as it is. For a variable, the function gets a node with the op "variable" and its name.
        Raises UsageError if the string is malformed.
        """
        scope = (where is None, where if callable(where) else _spec(where))
        with self._within(scope):
            yield

    @contextlib.contextmanager
    def colocate_with(self, other: Operators) -> Iterator[None]:
        """`with graph.colocate_with(x):` places the nodes and variables made inside exactly where the tensor or variable x
        is placed, whatever outer scopes say. Raises UsageError for a tensor of another graph."""
        refuse_other_graphs(self, other)  # type: ignore[arg-type]  # Graph, the only subclass, is the home of tensors
        with self._within((True, DeviceSpec.parse(placement_of(other)))):
            yield

    @contextlib.contextmanager
    def _within(self, scope: tuple[bool, DeviceSpec | Callable[[Node], Where]]) -> Iterator[None]:
        self._placed.append(scope)
        try:
            yield
        finally:
            self._placed.pop()

    def place(self, node: Node) -> str:
        """The placement of a new node: its own one, changed by the open scopes."""
        if not self._placed:
            return node.placement
        spec = DeviceSpec.parse(node.placement)
        for alone, where in self._placed:
            if callable(where):
                node.placement = str(spec)
                found = where(node)
                spec = spec if found is None else spec.merged(_spec(found))
            else:
                spec = where if alone else spec.merged(where)
        return str(spec)

    def place_variable(self, name: str) -> str:
        """The placement of a new variable."""
        return self.place(Node("variable", [], [], {}, name))


def _spec(where: Where) -> DeviceSpec:
    if where is None or isinstance(where, DeviceSpec):
        return where or DeviceSpec()
    if not isinstance(where, str):
        raise UsageError(
            "a device scope is neither a device string nor a DeviceSpec", code=101, tensor="device",
            expected="as in /job:worker/task:1/device:opencl:0", got=type(where).__name__,
        )  # fmt: skip
    return DeviceSpec.parse(where)


def placement_of(x: Operators) -> str:
    """The placement of a variable, or of what makes a tensor; "" for anywhere."""
    if isinstance(x, Variable):
        return x.placement
    if isinstance(x, Tensor) and x.node is not None:
        return x.node.placement
    return x.variable.placement if isinstance(x, Tensor) and x.variable is not None else ""


def beside(variable: Variable) -> contextlib.AbstractContextManager[None]:
    """A context in which nodes and variables are placed as the variable is, if it is placed at all."""
    graph = variable.graph
    if not variable.placement or not isinstance(graph, Scopes):
        return contextlib.nullcontext()
    return graph.colocate_with(variable)


def assign(variable: Variable, new: Tensor) -> Tensor:
    """A node that gives the variable a new value, placed as the variable is."""
    with beside(variable):
        return emit("assign", [variable.tensor(new), new], {})[0]


@contextlib.contextmanager
def following(function: Function, x: Operators) -> Iterator[None]:
    """A context in which the nodes made in this function are placed as x is, unless an open scope says otherwise."""
    before, function.placement = function.placement, placement_of(x)
    try:
        yield
    finally:
        function.placement = before


def agree(*nodes: Node) -> bool:
    """Whether passes may make one node of these. A placed node may take in those that can be anywhere."""
    return len({node.placement for node in nodes if node.placement}) < 2
