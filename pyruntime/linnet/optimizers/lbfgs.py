"""L-BFGS as a graph. Variables hold the last pairs of steps and gradient changes; the two-loop recursion consists of
ordinary nodes. All variables that are trained together form one vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from linnet.autodiff import SparseRows
from linnet.autodiff._tools import elementwise
from linnet.autodiff._tools import number as scalar
from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import dtype_of
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor, Variable
from linnet.ir.graph import graph_of
from linnet.optimizers._step import Step, number, state
from linnet.optimizers.base import Gradient, Optimizer, Rate, Updates


class LBFGS(Optimizer):
    """Limited-memory BFGS (Nocedal 1980; Nocedal and Wright 2006, algorithm 7.4), as torch.optim.LBFGS with max_iter=1.
    Each run is one iteration with a fixed step of learning_rate times the direction (the length of the very first step
    is at most 1).
    There is no line search, so use a rate below 1 if full steps overshoot. Run it several times on one batch for more
    iterations.

    history: number of pairs that are kept. tolerance: a step is skipped if no gradient is larger than this.
    tolerance_change: a step is also skipped if the slope along the direction is not steeper than this. With 0, it
    continues to the last digit. The memory is 2 * history + 2 times that of the variables.
    """

    rows: ClassVar[str] = "never"

    def __init__(
        self, learning_rate: Rate = 1.0, history: int = 10, *, tolerance: float = 1e-7, tolerance_change: float = 1e-9,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(learning_rate, **options)
        self.history = int(number("history", history, least=1))
        self.tolerance = number("tolerance", tolerance, least=0.0)
        self.tolerance_change = number("tolerance_change", tolerance_change, least=0.0)

    def scalars(self, step: Tensor) -> dict[str, Tensor]:
        return {"step": step}

    def updates(self, given: Mapping[Variable, Gradient], step: Step) -> Updates:
        variables = list(given)
        dtypes = {dtype_of(v.value.dtype) for v in variables}
        if len(dtypes) > 1 or dtypes & {"f16"}:
            raise UsageError(
                "L-BFGS needs variables of one dtype",
                code=103,
                tensor=variables[0].name,
                expected="all f32, or all f64",
                got=", ".join(sorted(dtypes)),
            )
        reads = {v: step.read(v) for v in variables}
        dense = {v: g.tensor(reads[v]) if isinstance(g, SparseRows) else g for v, g in given.items()}
        pairs = [self._decayed_map(v, reads[v], dense[v], step) for v in variables]
        w, g = (_flat(list(group)) for group in zip(*pairs, strict=True))
        memory = self._memory(variables, w)
        move, changed = self._direction(g, step.of(w), {name: step.read(v) for name, v in memory.items()})
        updates = {memory[name]: value for name, value in changed.items()}
        pieces = ops.copy([elementwise([w, move], lambda a, b: a + b, w.dtype)], kind="split", axis=0,
                          shape=[v.value.size for v in variables], outputs=len(variables))  # fmt: skip
        updates.update({v: ops.reshape(p, v.value.shape) for v, p in zip(variables, pieces, strict=True)})
        return updates

    def _decayed_map(self, variable: Variable, w: Tensor, g: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """The variable and its gradient after `maximize` and weight decay, flattened."""
        if self._decays(variable) or self.maximize:

            def body(s: Step, w: Expr, g: Expr) -> tuple[Expr, Expr]:
                return self.decayed(variable, w, g, s.rate)

            w, g = step.of(w).map([w, g], body, [w, g], self.name(variable))
        return ops.reshape(w, [-1]), ops.reshape(g, [-1])

    def _memory(self, variables: list[Variable], w: Tensor) -> dict[str, Variable]:
        """The state, by name: ring buffers of steps and gradient changes, the number of stored pairs, the scale of the
        initial Hessian, and the gradient and step of the last run."""
        graph, dtype = graph_of(w), variables[0].value.dtype
        size, name = sum(v.value.size for v in variables), self._name(graph_of(w))
        shapes: dict[str, Any] = {
            "steps": (self.history, size), "changes": (self.history, size), "scale": (), "gradient": size, "move": size,
        }  # fmt: skip
        made = {key: state(graph, f"{name}/{key}", np.zeros(shape, dtype)) for key, shape in shapes.items()}
        made["stored"] = state(graph, f"{name}/stored", np.int64(0))
        return made

    def _direction(self, g: Tensor, step: Step, old: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The vector to add to the variables, and the new state."""
        change = g - old["gradient"]
        curvature, square = (change * old["move"]).sum(), (change * change).sum()
        good = elementwise(
            [curvature], lambda c: c > 1e-10, "bool"
        )  # false at the first step, because the last step is 0
        slot = elementwise([old["stored"]], lambda n: n % self.history, "i64")

        def ring(name: str, row: Tensor) -> Tensor:
            kept = ops.where(good, row, ops.gather(old[name], slot))
            return ops.scatter(old[name], ops.reshape(slot, [1, 1]), ops.reshape(kept, [1, -1]), kind="nd")

        steps, changes = ring("steps", old["move"]), ring("changes", change)
        stored = elementwise([old["stored"], good], lambda n, c: n + c.cast("i64"), "i64")
        scale = elementwise(
            [good, curvature, square, old["scale"], old["stored"]],
            lambda c, ys, yy, last, n: c.select(ys / yy, (n > 0).select(last, 1.0)), g.dtype,
        )  # fmt: skip
        d = _two_loops(elementwise([g], lambda v: -v, g.dtype), scale, steps, changes, stored, self.history)
        largest, total, slope = abs(g).max(), abs(g).sum(), (g * d).sum()
        start = step.scalars["step"]

        def pace(n: Expr, total: Expr, largest: Expr, slope: Expr, rate: Expr) -> Expr:
            first = (n <= 1.0).select((1.0 / total).min(1.0), 1.0)
            return ((largest > self.tolerance) & (slope <= -self.tolerance_change)).select(first * rate, 0.0)

        rate = step.rate if isinstance(step.rate, Tensor) else scalar(g, step.rate)
        speed = elementwise([start, total, largest, slope, rate], pace, g.dtype)
        move = elementwise([d, speed], lambda v, t: (t > 0.0).select(v * t, 0.0), g.dtype)
        new = {"steps": steps, "changes": changes, "scale": scale, "gradient": g, "move": move, "stored": stored}
        if step.when is not None:
            new = {key: ops.where(step.when, value, old[key]) for key, value in new.items()}
            move = elementwise([step.when, move], lambda c, v: c.select(v, 0.0), g.dtype)
        return move, new


def _two_loops(q: Tensor, scale: Tensor, steps: Tensor, changes: Tensor, stored: Tensor, history: int) -> Tensor:
    """The inverse Hessian times q. It is computed from the pairs in the ring buffers, from the newest to the oldest and
    back. Pairs that are not stored yet count as 0."""
    taken: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for age in range(history):
        slot, there = pointwise(
            [stored], lambda n, age=age: ((n - (1 + age)).max(0) % history, n > age), ["i64", "bool"]
        )
        s, y = ops.gather(steps, slot), ops.gather(changes, slot)
        rho = elementwise([there, (s * y).sum()], lambda c, v: c.select(1.0 / v, 0.0), q.dtype)
        share = rho * (s * q).sum()
        q = elementwise([q, share, y], lambda a, b, c: a - b * c, q.dtype)
        taken.append((s, y, rho, share))
    d = q * scale
    for s, y, rho, share in reversed(taken):
        back = rho * (y * d).sum()
        d = elementwise([d, s, share, back], lambda a, b, c, e: a + b * (c - e), q.dtype)
    return d


def _flat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else ops.concat(parts, 0)
