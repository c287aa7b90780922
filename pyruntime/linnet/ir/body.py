"""Body: the function of a branch or loop while it is being built. It captures outside values automatically when they
are used. While a body is open, every new node goes into it (Function.emit), even if its operands belong to another
function."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from linnet.clib.errors import UsageError
from linnet.ir.function import Function, Tensor, Variable, refuse_other_graphs


class Body(Function):
    """A function inside `outer`. Its inputs are `parameters`, followed by one input for each captured outside tensor
    (`captured`)."""

    def __init__(self, outer: Function, name: str) -> None:
        super().__init__(outer.graph, name)
        self.outer, self.placement = outer, outer.placement
        self.parameters: list[Tensor] = []
        self.iteration: Tensor | None = None  # loop counter, if this is a loop body
        self.captured: dict[Tensor, Tensor] = {}  # from a tensor of `outer` to the parameter that carries it in
        self._constants: dict[Tensor, Tensor] = {}
        self._reads: dict[Variable, Tensor] = {}

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Nodes created inside this context go into this function."""
        bodies = self.graph.bodies
        bodies.append(self)
        try:
            yield
        finally:
            bodies.pop()
            self.inputs = [*self.parameters, *self.captured.values()]

    def parameter(self, like: Tensor, name: str = "") -> Tensor:
        """A new parameter with the dtype and shape of `like`."""
        made = dataclasses.replace(self._like(like, name), data=None, elements=None)
        self.parameters.append(made)
        return made

    def _like(self, tensor: Tensor, name: str = "") -> Tensor:
        return dataclasses.replace(
            tensor, function=self, name=self.unique(name or tensor.name), node=None, variable=None
        )

    def own(self, tensor: Tensor) -> Tensor:
        """The tensor as seen from this function: a parameter that brings in the value, or a copy of the constant."""
        if tensor.function is self:
            return tensor
        refuse_other_graphs(self.graph, tensor)
        if tensor.data is not None:
            if tensor not in self._constants:
                self._constants[tensor] = self._like(tensor)
            return self._constants[tensor]
        outer = self.outer.own(tensor) if isinstance(self.outer, Body) else tensor
        if outer.function is not self.outer:
            raise UsageError(
                f"the tensor belongs to function '{tensor.function.name}' and cannot be used here",
                code=101,
                tensor=tensor.name,
                expected=f"a tensor of '{self.name}' or of a function around it",
                hint="a value leaves a branch or loop only as its result",
            )
        if outer not in self.captured:
            self.captured[outer] = self._like(outer)
        return self.captured[outer]

    def read(self, variable: Variable) -> Tensor:
        """The variable's value from before the run. It is read outside the body and comes in through a parameter."""
        if variable not in self._reads:
            self._reads[variable] = self.own(self.outer.read(variable))
        return self._reads[variable]
