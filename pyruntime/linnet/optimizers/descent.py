"""Gradient descent: plain, with momentum, and with one rate per layer. Names and meanings of options are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from linnet.autodiff import SparseRows
from linnet.autodiff._tools import elementwise
from linnet.clib.errors import UsageError
from linnet.ir.function import Tensor, Variable
from linnet.optimizers._step import Step, number
from linnet.optimizers.base import Optimizer, Rate


class SGD(Optimizer):
    """w - rate * g (Robbins and Monro 1951). A gradient of SparseRows changes only its rows, with or without `lazy`."""

    rows: ClassVar[str] = "exact"

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        return w - rate * g

    def update_rows(
        self, variable: Variable, w: Tensor, g: SparseRows, slots: list[Tensor], step: Step
    ) -> list[Tensor]:
        if step.when is not None or self._decays(variable):
            return super().update_rows(variable, w, g, slots, step)
        sign = 1.0 if self.maximize else -1.0
        (change,) = step.map([g.rows], lambda s, v: [v * s.rate * sign], [g.rows], self.name(variable))
        return [SparseRows(g.ids, change, g.shape, g.summed).add_to(w)]


class Momentum(Optimizer):
    """m = momentum * m + (1 - dampening) * g; w - rate * m (Polyak 1964): torch.optim.SGD with momentum.

    nesterov: w - rate * (g + momentum * m) (Sutskever et al. 2013), without dampening. As in PyTorch, the first m is g
    itself, without dampening.
    """

    slots = ("momentum",)

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        momentum: float = 0.9,
        *,
        nesterov: bool = False,
        dampening: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.momentum = number("momentum", momentum, least=0.0)
        self.dampening, self.nesterov = number("dampening", dampening, least=0.0), nesterov
        if nesterov and self.dampening:
            raise UsageError(
                "Nesterov momentum does not support dampening", code=101, expected="dampening 0", got=f"{dampening:g}"
            )

    def scalars(self, step: Tensor) -> dict[str, Tensor]:
        if not self.dampening:
            return {}
        return {"share": elementwise([step], lambda n: (n <= 1.0).select(1.0, n.lift(1.0 - self.dampening)), "f64")}

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        m = self.momentum * slots[0] + (g * scalars["share"] if scalars else g)
        return w - rate * (g + self.momentum * m if self.nesterov else m), m


def norm(x: Tensor) -> Tensor:
    """The Euclidean norm, a scalar."""
    return elementwise([(x * x).sum()], lambda v: v.sqrt(), x.dtype)


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017), for large batches.

    m = momentum * m + rate * trust * |w| / (|g| + weight_decay * |w| + epsilon) * (g + weight_decay * w); w - m. If |w|
    or |g| is 0, the ratio is 1. skip: selects the variables that get plain momentum, without the ratio and without
    weight decay; by default biases and other vectors.
    """

    slots = ("momentum",)
    rows: ClassVar[str] = "never"

    def __init__(
        self,
        learning_rate: Rate = 0.1,
        momentum: float = 0.9,
        *,
        trust: float = 1e-3,
        epsilon: float = 0.0,
        skip: Callable[[Variable], bool] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.momentum, self.trust = number("momentum", momentum, least=0.0), number("trust", trust, least=0.0)
        self.epsilon, self.skip = number("epsilon", epsilon, least=0.0), skip or vector

    def _decays(self, variable: Variable) -> bool:
        return super()._decays(variable) and not self.skip(variable)

    def update(self, variable: Variable, w: Tensor, g: Tensor, slots: list[Tensor], step: Step) -> list[Tensor]:
        if not self.skip(variable):
            decay = self.weight_decay if self._decays(variable) and not self.decoupled else 0.0

            def body(w: Any, g: Any) -> Any:
                ratio = self.trust * w / (g + decay * w + self.epsilon)
                return ((w > 0.0) & (g > 0.0)).select(ratio, 1.0)

            step = step.with_scalars(ratio=elementwise([norm(w), norm(g)], body, w.dtype))
        return super().update(variable, w, g, slots, step)

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        m = self.momentum * slots[0] + rate * scalars.get("ratio", 1.0) * g
        return w - m, m


def vector(variable: Variable) -> bool:
    """Whether a variable has at most one dimension, as biases and the scales of normalizations do."""
    return variable.value.ndim <= 1
