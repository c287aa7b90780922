"""What all optimizers share: slots and step counters as variables, the learning rate, and one map per variable.
An optimizer emits ordinary nodes; C knows nothing of it."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from linnet.errors import UsageError
from linnet.graph import Graph, Tensor, Variable
from linnet.mapping import FLOATS, REGISTER, Expr, pointwise
from linnet.operators import Operators

Rate = float | Tensor | Variable | Callable[[Tensor], Tensor]
"""A learning rate: a number; a scalar tensor or variable; or a schedule, a function of the step (f64 scalar, 0 at first)."""
Updates = dict[Variable, Tensor]
Gradients = Mapping[Variable, Tensor]


class Optimizer:
    """Turns gradients into updates of variables.

    A subclass gives `rule`, and names its state in `slots`:

        class Lion(linnet.Optimizer):
            slots = ("momentum",)

            def rule(self, w, g, rate, momentum):
                return w - rate * (0.9 * momentum + 0.1 * g).sign(), 0.99 * momentum + 0.01 * g

    learning_rate: see Rate. weight_decay: this much of the variable is added to its gradient (L2); or, decoupled, this much
    of it times the rate is taken off before the step. decay: which variables that is for; all when absent. maximize: climb
    instead of descend. clip: from all gradients those that are applied, before anything else (linnet.clip has the usual).
    """

    slots: ClassVar[Mapping[str, float] | Sequence[str]] = ()
    """State per variable, of its shape: names, or names with the value they begin with (0 otherwise)."""

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        *,
        weight_decay: float = 0.0,
        decoupled: bool = False,
        maximize: bool = False,
        clip: Callable[[dict[Variable, Tensor]], dict[Variable, Tensor]] | None = None,
        decay: Callable[[Variable], bool] | None = None,
    ) -> None:
        self.learning_rate = learning_rate
        self.weight_decay = number("weight_decay", weight_decay, least=0.0)
        self.decoupled, self.maximize, self.clip, self.decay = decoupled, maximize, clip, decay
        if isinstance(learning_rate, int | float | np.number):
            self.learning_rate = number("learning_rate", learning_rate, least=0.0)
        elif not callable(learning_rate) and not isinstance(learning_rate, Operators):
            raise UsageError(
                "this is no learning rate", code=101, tensor="learning_rate",
                expected="a number, a schedule, or a scalar tensor", got=repr(learning_rate),
            )  # fmt: skip
        self._names: weakref.WeakKeyDictionary[Graph, str] = weakref.WeakKeyDictionary()

    # What a subclass may give.

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        """The new value of the variable, and then of each slot, as expressions of one map (linnet.mapping.Expr: Python's
        operators, and methods such as sqrt, exp, abs, sign, max, min, select). One expression when there are no slots."""
        raise NotImplementedError(f"{type(self).__name__} has no rule")

    def scalars(self, step: Tensor) -> dict[str, Tensor]:
        """Scalars that all variables share, by the name under which `rule` gets them. step: f64 scalar, 1 at the first."""
        return {}

    def update(self, variable: Variable, w: Tensor, g: Tensor, rate: Any, slots: list[Tensor], scalars: Any) -> Any:
        """New values of the variable and its slots, as tensors; here by `rule`, in one map. To override where a rule is not
        pointwise. w, slots: current values; rate: a number or a scalar; scalars: those of `scalars`, of w's type."""
        names = list(scalars)
        operands = [w, g, *slots, *([] if isinstance(rate, float) else [rate]), *scalars.values()]

        def body(w: Expr, g: Expr, *rest: Expr) -> Sequence[Expr]:
            own, rest = rest[: len(slots)], rest[len(slots) :]
            speed, rest = (rate, rest) if isinstance(rate, float) else (rest[0], rest[1:])
            w, g = self.decayed(variable, w, g, speed)
            made = self.rule(w, g, speed, *own, **dict(zip(names, rest, strict=True)))
            made = (made,) if isinstance(made, Expr) else tuple(made)
            if len(made) != 1 + len(slots):
                raise UsageError(
                    f"{type(self).__name__}.rule gives too few or too many values", code=101,
                    expected=f"{1 + len(slots)}: the variable and {', '.join(self._slots()) or 'no slots'}",
                    got=str(len(made)),
                )  # fmt: skip
            return made

        return pointwise(operands, body, [w.dtype, *(s.dtype for s in slots)], name=self.name(variable))

    # What a user calls.

    def minimize(self, loss: Tensor, variables: Sequence[Variable] | None = None) -> Updates:
        """Updates that make `loss` smaller, for `graph.signature(..., updates=...)`.

        loss: a float tensor of one element. variables: those to train; by default all trainable ones that the loss depends
        on. What else the loss updates (`graph.side_update`: moving averages, counters) comes along.
        Raises UsageError when there is nothing to train, GraphError for a node that has no gradient.
        """
        from linnet.autodiff import gradients

        if loss.shape is None or any(d != 1 for d in loss.shape):
            raise UsageError(
                "a loss to minimize is one number", code=104, tensor=loss.name, expected="shape []",
                got="an unknown shape" if loss.shape is None else str(list(loss.shape)), hint="take its .mean() or .sum()",
            )  # fmt: skip
        if variables is None:
            used = {t.variable for t in behind(loss)}
            trainable = loss.function.graph.trainable_variables
            variables = [v for v in trainable if v in used and v.value.dtype.kind == "f"]
        if not variables:
            raise UsageError(
                "the loss depends on no trainable variable", code=101, tensor=loss.name,
                hint="give the variables, or make some with graph.variable",
            )  # fmt: skip
        made = self.apply(dict(zip(variables, gradients(loss, variables), strict=True)))
        return {**loss.function.graph.side_updates_of([loss]), **made}

    def apply(self, gradients: Gradients) -> Updates:
        """Updates by gradients that are known already, one per variable, each of its variable's dtype and shape."""
        if not gradients:
            raise UsageError("there are no gradients to apply", code=101)
        first = next(iter(gradients.values()))
        graph = first.function.graph
        given = dict(gradients) if self.clip is None else self.clip(dict(gradients))
        counter = self._variable(graph, f"{self._name(graph)}/step", np.asarray(0, np.int64))
        step = counter.tensor(first)
        shared = self.scalars((step + 1).cast("f64"))
        rate: Any = self.learning_rate
        if not isinstance(rate, float):
            rate = rate.tensor(first) if isinstance(rate, Operators) else rate(step.cast("f64"))
        updates: Updates = {counter: step + 1}
        scalars: dict[str, dict[str, Tensor]] = {}  # by register type: one cast for all variables
        for variable, g in given.items():
            w = variable.tensor(g)
            kind = REGISTER[w.dtype]
            if kind not in FLOATS:
                raise UsageError(
                    "only floats are trained", code=103, tensor=variable.name, expected="a float type", got=w.dtype
                )
            if kind not in scalars:
                every = shared if isinstance(rate, float) else {**shared, "": rate}
                scalars[kind] = {n: t if t.dtype == kind else t.cast(kind) for n, t in every.items()}
            own = dict(scalars[kind])
            speed = own.pop("", rate)
            slots = [self._slot(variable, name, value) for name, value in self._slots().items()]
            values = self.update(variable, w, g, speed, [s.tensor(g) for s in slots], own)
            updates.update(zip([variable, *slots], values, strict=True))
        return updates

    def name(self, variable: Variable) -> str:
        """What the optimizer's variables and nodes for a variable are called: "<variable>/<optimizer>"."""
        assert variable.graph is not None
        return f"{variable.name}/{self._name(variable.graph)}"

    def decayed(self, variable: Variable, w: Any, g: Any, rate: Any) -> tuple[Any, Any]:
        """Variable and gradient as the rule gets them: after `maximize` and weight decay."""
        g = -g if self.maximize else g
        if not self.weight_decay or (self.decay is not None and not self.decay(variable)):
            return w, g
        if self.decoupled:
            return w * (1.0 - rate * self.weight_decay), g
        return w, g + self.weight_decay * w

    def _slots(self) -> dict[str, float]:
        return dict(self.slots) if isinstance(self.slots, Mapping) else dict.fromkeys(self.slots, 0.0)

    def _slot(self, variable: Variable, name: str, value: float) -> Variable:
        """f32 at least: a moving average of 16 bits stands still."""
        assert variable.graph is not None
        dtype = np.float64 if variable.value.dtype == np.float64 else np.float32
        return self._variable(
            variable.graph, f"{self.name(variable)}/{name}", np.full(variable.value.shape, value, dtype)
        )

    @staticmethod
    def _variable(graph: Graph, name: str, value: Any) -> Variable:
        """The variable of this name, made when it is not there yet: signatures share slots."""
        if name not in graph.variables:
            graph.variables[name] = Variable(name, np.asarray(value), graph=graph, trainable=False)
        return graph.variables[name]

    def _name(self, graph: Graph) -> str:
        """The class in small letters; numbered when the graph has other optimizers of this class."""
        if graph not in self._names:
            base = candidate = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()
            count = 1
            while f"{candidate}/step" in graph.variables:
                count += 1
                candidate = f"{base}_{count}"
            self._names[graph] = candidate
        return self._names[graph]


def number(name: str, value: Any, *, least: float | None = None, below: float | None = None) -> float:
    """The value as a float within [least, below). Raises UsageError."""
    expected = (
        "a number"
        if least is None
        else f"{least:g} or more"
        if below is None
        else f"{least:g} or more, below {below:g}"
    )
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = float("nan")
    if not np.isfinite(found) or (least is not None and found < least) or (below is not None and found >= below):
        raise UsageError("this value is out of range", code=101, tensor=name, expected=expected, got=repr(value))
    return found


def behind(loss: Tensor) -> set[Tensor]:
    """Every tensor that the loss depends on, and the loss."""
    seen, pending = {loss}, [loss]
    while pending:
        node = pending.pop().node
        for tensor in node.inputs if node is not None else ():
            if tensor is not None and tensor not in seen:
                seen.add(tensor)
                pending.append(tensor)
    return seen
