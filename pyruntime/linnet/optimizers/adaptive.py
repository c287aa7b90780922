"""Optimizers that give every element a learning rate of its own. Names and meanings of options are PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.autodiff._tools import elementwise
from linnet.graph import Tensor
from linnet.mapping import Expr
from linnet.optimizers.base import Optimizer, Rate, number


class Adam(Optimizer):
    """Kingma and Ba 2015: w - rate * m' / (sqrt(v') + epsilon), with moving averages m of g and v of g squared, each
    corrected for its beginning at 0.

    betas: of the two averages. amsgrad: the largest v so far in place of v (Reddi et al. 2018).
    """

    def __init__(
        self,
        learning_rate: Rate = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        *,
        amsgrad: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.betas = [number(f"betas[{i}]", beta, least=0.0, below=1.0) for i, beta in enumerate(betas)]
        self.epsilon, self.amsgrad = number("epsilon", epsilon, least=0.0), amsgrad
        self.slots = ("m", "v", "v_max") if amsgrad else ("m", "v")  # type: ignore[misc]

    def scalars(self, step: Tensor) -> dict[str, Tensor]:
        """The corrections, in f64: in f32 the first of them would be off by 5e-5."""
        return {name: correction(step, beta) for name, beta in zip(("of_m", "of_v"), self.betas, strict=True)}

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        m, v, *top = slots
        m = self.betas[0] * m + (1 - self.betas[0]) * g
        v = self.betas[1] * v + (1 - self.betas[1]) * g * g
        top = [top[0].max(v)] if self.amsgrad else []
        root = ((top[0] if top else v) * scalars["of_v"]).sqrt()
        return w - rate * scalars["of_m"] * m / (root + self.epsilon), m, v, *top


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): w * (1 - rate * weight_decay) takes the step."""

    def __init__(
        self,
        learning_rate: Rate = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        *,
        weight_decay: float = 1e-2,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, betas, epsilon, weight_decay=weight_decay, decoupled=True, **options)


def correction(step: Tensor, beta: float) -> Tensor:
    """1 / (1 - beta ** step): what makes a moving average that began at 0 the mean of what it has seen."""

    def body(n: Expr) -> Expr:
        return 1.0 / (1.0 - n.lift(beta) ** n)

    return elementwise([step], body, "f64")
