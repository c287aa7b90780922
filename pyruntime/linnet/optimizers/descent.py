"""Gradient descent, plain and with momentum. Names and meanings of options are PyTorch's."""

from __future__ import annotations

from typing import Any

from linnet.autodiff._tools import elementwise
from linnet.errors import UsageError
from linnet.graph import Tensor
from linnet.optimizers.base import Optimizer, Rate, number


class SGD(Optimizer):
    """w - rate * g (Robbins and Monro 1951)."""

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        return w - rate * g


class Momentum(Optimizer):
    """m = momentum * m + (1 - dampening) * g; w - rate * m (Polyak 1964), torch.optim.SGD with momentum.

    nesterov: w - rate * (g + momentum * m) (Sutskever et al. 2013), without dampening. As in PyTorch, the first m is g
    itself, not dampened.
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
        self.dampening = number("dampening", dampening, least=0.0)
        self.nesterov = nesterov
        if nesterov and self.dampening:
            raise UsageError(
                "Nesterov's momentum has no dampening", code=101, expected="dampening 0", got=f"{dampening:g}"
            )

    def scalars(self, step: Tensor) -> dict[str, Tensor]:
        if not self.dampening:
            return {}
        first = elementwise([step], lambda n: (n <= 1.0).select(1.0, n.lift(1.0 - self.dampening)), "f64")
        return {"share": first}

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        m = self.momentum * slots[0] + (g * scalars["share"] if scalars else g)
        return w - rate * (g + self.momentum * m if self.nesterov else m), m
