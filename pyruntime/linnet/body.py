"""Body: the function of a branch or of a loop while it is being built, which takes what it uses from outside by itself.
While one is open, every node goes into it (_ops.emit), whatever function its operands belong to."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from linnet.errors import UsageError
from linnet.graph import Function, Tensor, Variable


class Body(Function):
    """A function inside `outer`. Its inputs are `parameters`, then one for each tensor taken from outside (`captured`)."""

    def __init__(self, outer: Function, name: str) -> None:
        super().__init__(outer.graph, name)
        self.outer = outer
        self.parameters: list[Tensor] = []
        self.iteration: Tensor | None = None  # of a loop: its counter
        self.captured: dict[Tensor, Tensor] = {}  # tensor of `outer`: ours
        self._constants: dict[Tensor, Tensor] = {}
        self._reads: dict[Variable, Tensor] = {}

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Nodes made inside go into this function."""
        bodies = self.graph.bodies
        bodies.append(self)
        try:
            yield
        finally:
            bodies.pop()
            self.inputs = [*self.parameters, *self.captured.values()]

    def parameter(self, like: Tensor, name: str = "") -> Tensor:
        """A new parameter of the dtype and shape of `like`."""
        made = dataclasses.replace(self._like(like, name), data=None, elements=None)
        self.parameters.append(made)
        return made

    def _like(self, tensor: Tensor, name: str = "") -> Tensor:
        return dataclasses.replace(
            tensor, function=self, name=self.unique(name or tensor.name), node=None, variable=None
        )

    def own(self, tensor: Tensor) -> Tensor:
        """The tensor as one of this function: a parameter that carries it in, or a constant of its own."""
        if tensor.function is self:
            return tensor
        if tensor.data is not None:
            if tensor not in self._constants:
                self._constants[tensor] = self._like(tensor)
            return self._constants[tensor]
        outer = self.outer.own(tensor) if isinstance(self.outer, Body) else tensor
        if outer.function is not self.outer:
            raise UsageError(
                f"it belongs to function '{tensor.function.name}'", code=101, tensor=tensor.name,
                expected=f"a tensor of '{self.name}' or of what is around it",
                hint="a value leaves a branch or a loop only as its result",
            )  # fmt: skip
        if outer not in self.captured:
            self.captured[outer] = self._like(outer)
        return self.captured[outer]

    def read(self, variable: Variable) -> Tensor:
        """The variable's value from before the run, read outside and brought in."""
        if variable not in self._reads:
            self._reads[variable] = self.own(self.outer.read(variable))
        return self._reads[variable]
