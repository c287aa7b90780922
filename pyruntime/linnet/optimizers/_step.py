"""The parts of one optimizer step: its scalars, the map node that applies a rule, and the state (kept in variables)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.ir.expr import Expr
from linnet.ir.function import Function, Tensor, Variable
from linnet.ir.graph import Graph
from linnet.ir.program import REGISTER


@dataclasses.dataclass(frozen=True)
class Step:
    """The learning rate and the other scalars of a step. All variables of the step share them.

    function: where the step is built. rate, scalars: numbers or scalar tensors. Inside the body of a map they are
        expressions.
    when: a bool scalar; if it is false, nothing changes.
    """

    function: Function
    rate: Any
    scalars: dict[str, Any]
    when: Tensor | None = None
    casts: dict[Any, Tensor] = dataclasses.field(default_factory=dict)  # created once for all variables

    def read(self, variable: Variable) -> Tensor:
        """The variable's value from before the run."""
        return self.function.read(variable)

    def of(self, w: Tensor) -> Step:
        """A copy whose scalars have the dtype in which w is computed. Otherwise an f64 rate would make everything
        f64."""
        kind = REGISTER[w.dtype]

        def cast(value: Any) -> Any:
            if not isinstance(value, Tensor) or value.dtype == kind:
                return value
            if (value, kind) not in self.casts:
                self.casts[value, kind] = value.cast(kind)
            return self.casts[value, kind]

        scalars = {key: cast(value) for key, value in self.scalars.items()}
        return dataclasses.replace(self, rate=cast(self.rate), scalars=scalars)

    def with_scalars(self, **scalars: Any) -> Step:
        """A copy with additional scalars."""
        return dataclasses.replace(self, scalars={**self.scalars, **scalars})

    def map(
        self, inputs: Sequence[Tensor], body: Callable[..., Sequence[Expr]], old: Sequence[Tensor], name: str
    ) -> list[Tensor]:
        """Creates one map. body(step, *inputs) returns the new values of `old`, each in its dtype; `old` must be among
        the inputs."""
        operands = list(inputs)
        places: dict[str, int] = {}
        for key, value in [("", self.rate), *self.scalars.items()]:
            if isinstance(value, Tensor):
                places[key] = len(operands)
                operands.append(value)
        operands += [] if self.when is None else [self.when]

        def whole(*values: Expr) -> list[Expr]:
            inside = Step(
                self.function,
                values[places[""]] if "" in places else self.rate,
                {key: values[places[key]] if key in places else value for key, value in self.scalars.items()},
            )
            made = body(inside, *values[: len(inputs)])
            if self.when is None:
                return list(made)
            return [values[-1].select(new, values[inputs.index(o)]) for new, o in zip(made, old, strict=True)]

        made = pointwise(operands, whole, [t.dtype for t in old], name=name)
        assert isinstance(made, list)
        return made


def state(graph: Graph, name: str, value: npt.ArrayLike) -> Variable:
    """A state variable with this name, which no optimizer trains. It is created only if it does not exist, so
    signatures share it."""
    if name not in graph.variables:
        where = graph.place_variable(name)
        graph.variables[name] = Variable(name, np.asarray(value), graph=graph, trainable=False, placement=where)
    return graph.variables[name]


def number(name: str, value: Any, *, least: float | None = None, below: float | None = None) -> float:
    """The value as a finite float in [least, below). Raises UsageError."""
    expected = (
        "a number" if least is None else f"{least:g} or more" + ("" if below is None else f" and below {below:g}")
    )
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if not np.isfinite(found) or (least is not None and found < least) or (below is not None and found >= below):
        raise UsageError("the value is out of range", code=101, tensor=name, expected=expected, got=repr(value))
    return found
