"""The base class of all optimizers: slots (the state of a rule) and step counters as variables, the learning rate, and
one map node per variable. An optimizer adds ordinary nodes to the graph; the C library knows nothing of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from linnet.autodiff import SparseRows, gradients
from linnet.autodiff._tools import FLOAT_DTYPES, behind, elementwise, expand_like, filled, inner_reads
from linnet.autodiff.walk import reached
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import has_floats
from linnet.ir.expr import Expr
from linnet.ir.function import Operators, Tensor, Variable, refuse_other_graphs
from linnet.ir.graph import Graph, graph_of
from linnet.ir.scopes import beside
from linnet.optimizers._step import Step, number, state
from linnet.optimizers.scaling import DynamicLossScale, all_finite, unscaled

Rate = float | Tensor | Variable | Callable[[Tensor], Tensor]
"""A learning rate: a number, a scalar tensor or variable, or a schedule (a function of the step, an f64 scalar that
starts at 0)."""
Updates = dict[Variable, Tensor]
Gradient = Tensor | SparseRows
Clip = Callable[[dict[Variable, Gradient]], dict[Variable, Gradient]]


class Optimizer:
    """Turns gradients into updates of variables.

    A subclass defines `rule` and names its state in `slots`:

        class Lion(linnet.Optimizer):
            slots = ("momentum",)

            def rule(self, w, g, rate, momentum):
                return w - rate * (0.9 * momentum + 0.1 * g).sign(), 0.99 * momentum + 0.01 * g

    learning_rate: see Rate.
    weight_decay: the variable times this factor is added to its gradient (L2).
    decoupled: weight_decay does not change the gradient; instead, weight_decay * rate times the variable is subtracted
    before the step.
    decay: selects the variables to which weight decay applies; default: all.
    maximize: ascend instead of descend.
    clip: a function of all gradients that returns those to apply, called before anything else (see linnet.clip).
    lazy: affects variables whose gradient is SparseRows (as for an embedding). Rows without a gradient and their slots
        do not change, as in torch.optim.SparseAdam, and the cost of a step does not depend on the number of rows.
        Without lazy, the result equals that of a dense gradient. For SGD and AdaGrad without weight decay, lazy makes
        no difference to the result.
    loss_scale: a number or a DynamicLossScale by which the loss is multiplied before it is differentiated, so that
        small gradients do not become 0 in 16 bits.
    """

    slots: ClassVar[Mapping[str, float] | Sequence[str]] = ()
    """State per variable, in its shape: names, or names with their initial value (default 0)."""
    rows: ClassVar[str] = "lazy"
    """"exact": a zero gradient changes nothing, so sparse equals dense. "lazy": the user chooses. "never": rows depend
    on each other."""

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        *,
        weight_decay: float = 0.0,
        decoupled: bool = False,
        decay: Callable[[Variable], bool] | None = None,
        maximize: bool = False,
        clip: Clip | None = None,
        lazy: bool = False,
        loss_scale: float | DynamicLossScale | None = None,
    ) -> None:
        self.learning_rate = learning_rate
        if isinstance(learning_rate, int | float | np.number):
            self.learning_rate = number("learning_rate", learning_rate, least=0.0)
        elif not callable(learning_rate) and not isinstance(learning_rate, Operators):
            raise UsageError(
                "the learning rate has the wrong type", code=101, tensor="learning_rate",
                expected="a number, a schedule, or a scalar tensor", got=repr(learning_rate),
            )  # fmt: skip
        if lazy and self.rows == "never":
            raise UsageError(
                f"{type(self).__name__} cannot be lazy because each row's update depends on all rows", code=101,
                tensor="lazy", hint="use Adam, Momentum or AdaGrad for this variable",
            )  # fmt: skip
        self.weight_decay = number("weight_decay", weight_decay, least=0.0)
        self.decoupled, self.decay, self.maximize = decoupled, decay, maximize
        self.clip, self.lazy, self.loss_scale = clip, lazy, loss_scale
        if isinstance(loss_scale, int | float | np.number):
            self.loss_scale = number("loss_scale", loss_scale, least=1e-30)
        self._names: weakref.WeakKeyDictionary[Graph, str] = weakref.WeakKeyDictionary()

    # Methods that a subclass may define.

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        """Returns the new value of the variable, then of each slot, as expressions of one map
        (linnet.builder.mapping.Expr: Python's operators, and methods such as sqrt, exp, abs, sign, max, min, select).
        Returns one expression if there are no slots."""
        raise NotImplementedError(f"{type(self).__name__} does not define rule")

    def scalars(self, step: Tensor) -> dict[str, Tensor]:
        """Scalars that all variables share. The names are those under which `rule` receives them. step: f64 scalar, 1
        at the first step."""
        return {}

    def update(self, variable: Variable, w: Tensor, g: Tensor, slots: list[Tensor], step: Step) -> list[Tensor]:
        """New values of the variable and its slots. This method computes them by `rule`, in one map. Override it if a
        rule is not pointwise."""

        def body(step: Step, w: Expr, g: Expr, *own: Expr) -> Sequence[Expr]:
            w, g = self.decayed(variable, w, g, step.rate)
            made = self.rule(w, g, step.rate, *own, **step.scalars)
            made = (made,) if isinstance(made, Expr) else tuple(made)
            if len(made) != 1 + len(slots):
                raise UsageError(
                    f"{type(self).__name__}.rule returns the wrong number of values", code=101,
                    expected=f"{1 + len(slots)}: the variable and {', '.join(self._slots()) or 'no slots'}",
                    got=str(len(made)),
                )  # fmt: skip
            return made

        return step.map([w, g, *slots], body, [w, *slots], self.name(variable))

    def update_rows(
        self, variable: Variable, w: Tensor, g: SparseRows, slots: list[Tensor], step: Step
    ) -> list[Tensor]:
        """New values if only some rows have a gradient: applies `update` to these rows and leaves the others
        unchanged."""
        total = g.sums()
        made = self.update(variable, total.take(w), total.rows, [total.take(s) for s in slots], step)
        return [total.put(old, new) for old, new in zip([w, *slots], made, strict=True)]

    def updates(self, given: Mapping[Variable, Gradient], step: Step) -> Updates:
        """New values of all variables and their slots. Override this if the variables depend on each other."""
        made: Updates = {}
        for variable, g in given.items():
            w = step.read(variable)
            scalars = step.of(w)  # all variables share them, so they are not placed with one of them
            with beside(variable):
                slots = [self._slot(variable, name, value) for name, value in self._slots().items()]
                old = [step.read(s) for s in slots]
                if isinstance(g, SparseRows) and not self._takes_rows(variable):
                    g = g.tensor(w)
                change = self.update_rows if isinstance(g, SparseRows) else self.update
                new = change(variable, w, g, old, scalars)  # type: ignore[arg-type]
            made.update(zip([variable, *slots], new, strict=True))
        return made

    # Methods for users.

    def minimize(self, loss: Operators, variables: Sequence[Variable] | None = None) -> Updates:
        """Updates that make `loss` smaller, for `graph.signature(..., updates=...)`.

        loss: a float tensor with one element. variables: those to train; default: all trainable ones that the loss
        depends on. Other updates of the loss (`graph.side_update`: moving averages, counters) are included. Raises
        UsageError if there is nothing to train. Raises GraphError for a node whose op has no gradient.
        """
        loss = loss.tensor()
        if loss.shape is None or any(d != 1 for d in loss.shape):
            raise UsageError(
                "the loss to minimize must be one number",
                code=104,
                tensor=loss.name,
                expected="shape []",
                got="an unknown shape" if loss.shape is None else str(list(loss.shape)),
                hint="use its .mean() or .sum()",
            )
        return {**graph_of(loss).side_updates_of([loss]), **self.apply(self.differentiate(loss, variables))}

    def differentiate(self, loss: Tensor, variables: Sequence[Variable] | None = None) -> dict[Variable, Gradient]:
        """The gradients that `minimize` applies to these variables. The default is all trainable variables that the
        loss depends on."""
        if variables is None:
            used = {*(t.variable for t in behind(loss)), *inner_reads(loss)}
            variables = [v for v in graph_of(loss).trainable_variables if v in used and has_floats(v.value)]
        if not variables:
            raise UsageError(
                "the loss does not depend on any trainable variable", code=101, tensor=loss.name,
                hint="pass the variables, or create some with graph.variable",
            )  # fmt: skip
        refuse_other_graphs(graph_of(loss), *variables)
        chosen = set(variables)
        sources = [t for t in behind(loss) if t.variable in chosen]
        if loss not in reached(loss.function.nodes, sources):
            raise UsageError(
                "no gradient of the loss reaches any variable to be trained", code=101, tensor=loss.name,
                expected="a path from " + ", ".join(f"'{v.name}'" for v in variables[:3]),
                hint="integer results, such as those of argmax and comparisons, have no gradient",
            )  # fmt: skip
        scale: Any = self.loss_scale.scale(loss) if isinstance(self.loss_scale, DynamicLossScale) else self.loss_scale
        if scale is None:
            return dict(zip(variables, gradients(loss, variables, sparse=True), strict=True))
        seed = expand_like(scale.cast(loss.dtype), loss) if isinstance(scale, Tensor) else filled(loss, scale)
        found = gradients(loss, variables, seed, sparse=True)
        return {v: unscaled(g, scale) for v, g in zip(variables, found, strict=True)}

    def apply(self, gradients: Mapping[Variable, Gradient], when: Tensor | None = None) -> Updates:
        """Updates from given gradients: one per variable, with the variable's shape. when: a bool scalar of the same
        function; if it is false, nothing changes and the step is not counted. Raises UsageError."""
        for variable, g in gradients.items():
            _check(variable, g)
        if not gradients:
            raise UsageError("there are no gradients to apply", code=101, expected="one or more gradients", got="none")
        given = dict(gradients) if self.clip is None else self.clip(dict(gradients))
        first = next(iter(gradients.values()))
        like = first.rows if isinstance(first, SparseRows) else first
        counter = state(graph_of(like), f"{self._name(graph_of(like))}/step", np.int64(0))
        count = counter.tensor(like)
        rate: Any = self.learning_rate
        if not isinstance(rate, float):
            rate = rate.tensor(like) if isinstance(rate, Operators) else rate(count.cast("f64"))
            if isinstance(rate, Tensor) and (rate.shape != () or rate.dtype not in FLOAT_DTYPES):
                raise UsageError(
                    "the learning rate must be one number", code=104, tensor=rate.name, expected="a float of shape []",
                    got=f"{rate.dtype} {rate.shape}",
                )  # fmt: skip
            rate = rate if isinstance(rate, Tensor) else number("learning_rate", rate, least=0.0)
        updates: Updates = {}
        if isinstance(self.loss_scale, DynamicLossScale):
            finite = all_finite(list(gradients.values()))
            updates = self.loss_scale.updates(finite)
            when = finite if when is None else elementwise([when, finite], lambda a, b: a & b, "bool")
        step = Step(like.function, rate, dict(self.scalars((count + 1).cast("f64"))), when)
        following = count + 1 if when is None else elementwise([when, count], lambda c, n: n + c.cast("i64"), "i64")
        return {**updates, counter: following, **self.updates(given, step)}

    def name(self, variable: Variable) -> str:
        """Name of the optimizer's variables and nodes for a variable: "<variable>/<optimizer>"."""
        return f"{variable.name}/{self._name(graph_of(variable))}"

    def decayed(self, variable: Variable, w: Any, g: Any, rate: Any) -> tuple[Any, Any]:
        """The variable and its gradient as `rule` receives them: after `maximize` and weight decay."""
        g = -g if self.maximize else g
        if not self._decays(variable):
            return w, g
        if self.decoupled:
            return w * (1.0 - rate * self.weight_decay), g
        return w, g + self.weight_decay * w

    def _decays(self, variable: Variable) -> bool:
        return self.weight_decay != 0 and (self.decay is None or self.decay(variable))

    def _takes_rows(self, variable: Variable) -> bool:
        """Whether to update this variable by rows."""
        return self.lazy or (self.rows == "exact" and not self._decays(variable))

    def _slots(self) -> dict[str, float]:
        return dict(self.slots) if isinstance(self.slots, Mapping) else dict.fromkeys(self.slots, 0.0)

    def _slot(self, variable: Variable, name: str, value: float) -> Variable:
        """The variable of a slot, in at least f32: a moving average in 16 bits would stop changing."""
        dtype = np.float64 if variable.value.dtype == np.float64 else np.float32
        shape = variable.value.shape
        start = (
            np.full(shape, value, dtype) if value else np.zeros(shape, dtype)
        )  # zeros take no memory before they are used
        return state(graph_of(variable), f"{self.name(variable)}/{name}", start)

    def _name(self, graph: Graph) -> str:
        """The class name in lower case. It gets a number if the graph has other optimizers of this class."""
        if graph not in self._names:
            base = candidate = type(self).__name__.lower()
            count = 1
            while f"{candidate}/step" in graph.variables:
                count += 1
                candidate = f"{base}_{count}"
            self._names[graph] = candidate
        return self._names[graph]


def _check(variable: Variable, g: Gradient) -> None:
    """Raises UsageError for anything that cannot be a gradient of this variable."""
    refuse_other_graphs(g.function.graph, variable)
    if not has_floats(variable.value):
        raise UsageError(
            "only float variables can be trained", code=103, tensor=variable.name, expected="a float dtype",
            got=str(variable.value.dtype),
        )  # fmt: skip
    if g.dtype not in FLOAT_DTYPES:
        raise UsageError(
            "the variable's gradient is not a float tensor",
            code=103,
            tensor=variable.name,
            expected="a float dtype",
            got=g.dtype,
        )
    own = variable.value.shape
    fits = g.shape is None or (
        len(g.shape) == len(own) and all(a in (b, None) for a, b in zip(g.shape, own, strict=True))
    )
    if not fits:
        raise UsageError(
            "the variable's gradient has the wrong shape", code=104, tensor=variable.name, expected=str(list(own)),
            got=str(list(g.shape or ())),
        )  # fmt: skip
