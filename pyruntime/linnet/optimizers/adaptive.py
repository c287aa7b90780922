"""Optimizers with a separate learning rate for every element. Names and meanings of options are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from linnet.autodiff._tools import elementwise
from linnet.clib.errors import UsageError
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor, Variable
from linnet.optimizers._step import Step, number
from linnet.optimizers.base import Optimizer, Rate
from linnet.optimizers.descent import norm, vector


class AdaGrad(Optimizer):
    """Duchi, Hazan and Singer 2011: s = s + g * g; w - rate * g / (sqrt(s) + epsilon).

    rate_decay: the rate of step n (from 0) is learning_rate / (1 + n * rate_decay). initial: the initial s.
    """

    rows: ClassVar[str] = "exact"

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        epsilon: float = 1e-10,
        *,
        rate_decay: float = 0.0,
        initial: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.epsilon, self.rate_decay = (
            number("epsilon", epsilon, least=0.0),
            number("rate_decay", rate_decay, least=0.0),
        )
        self.slots = {"sum": number("initial", initial, least=0.0)}  # type: ignore[misc]

    def scalars(self, step: Tensor) -> dict[str, Tensor]:
        if not self.rate_decay:
            return {}
        return {"share": elementwise([step], lambda n: 1.0 / (1.0 + (n - 1.0) * self.rate_decay), "f64")}

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        total = slots[0] + g * g
        return w - rate * scalars.get("share", 1.0) * g / (total.sqrt() + self.epsilon), total


class AdaDelta(Optimizer):
    """Zeiler 2012: a step is sqrt(d + epsilon) / sqrt(s + epsilon) * g, with moving averages s of the squared gradients
    and d of the squared steps. Steps therefore stay about as large as the previous ones."""

    slots = ("square", "delta")

    def __init__(self, learning_rate: Rate = 1.0, rho: float = 0.9, epsilon: float = 1e-6, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.rho, self.epsilon = number("rho", rho, least=0.0, below=1.0), number("epsilon", epsilon, least=0.0)

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        square, delta = slots
        square = self.rho * square + (1 - self.rho) * g * g
        step = (delta + self.epsilon).sqrt() / (square + self.epsilon).sqrt() * g
        return w - rate * step, square, self.rho * delta + (1 - self.rho) * step * step


class RMSProp(Optimizer):
    """Tieleman and Hinton 2012: w - rate * g / (sqrt(s) + epsilon), with a moving average s of g squared.

    alpha: decay of the average. centered: uses the variance instead of s (Graves 2013). momentum: momentum factor of
        the steps.
    """

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        alpha: float = 0.99,
        epsilon: float = 1e-8,
        *,
        momentum: float = 0.0,
        centered: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, **options)
        self.alpha, self.epsilon = number("alpha", alpha, least=0.0), number("epsilon", epsilon, least=0.0)
        self.momentum, self.centered = number("momentum", momentum, least=0.0), centered
        self.slots = ("square", *["mean"][:centered], *["momentum"][: self.momentum > 0])  # type: ignore[misc]

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        square, *others = slots
        square = self.alpha * square + (1 - self.alpha) * g * g
        made, spread = [square], square
        if self.centered:
            made.append(others[0] + (1 - self.alpha) * (g - others[0]))
            spread = square - made[1] * made[1]
        step = g / (spread.sqrt() + self.epsilon)
        if self.momentum:
            step = self.momentum * others[-1] + step
            made.append(step)
        return w - rate * step, *made


class Adam(Optimizer):
    """Kingma and Ba 2015: w - rate * m' / (sqrt(v') + epsilon). m and v are moving averages of g and of g squared. m'
    and v' are m and v, corrected because they start at 0.

    betas: decay of the two averages. amsgrad: uses the largest v so far instead of v (Reddi et al. 2018). lazy: treat
    SparseRows as torch.optim.SparseAdam does.
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
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise UsageError("Adam needs two betas", code=101, tensor="betas", expected="two numbers", got=repr(betas))
        self.betas = [number(f"betas[{i}]", beta, least=0.0, below=1.0) for i, beta in enumerate(betas)]
        self.epsilon, self.amsgrad = number("epsilon", epsilon, least=0.0), amsgrad
        self.slots = ("m", "v", "v_max") if amsgrad else ("m", "v")  # type: ignore[misc]

    def scalars(self, step: Tensor) -> dict[str, Tensor]:
        """The bias corrections, in f64. In f32, the correction of v in the first step would have a relative error of
        more than 1e-5."""
        return {name: correction(step, beta) for name, beta in zip(("of_m", "of_v"), self.betas, strict=True)}

    def averages(self, g: Any, m: Any, v: Any) -> tuple[Any, Any]:
        """The moving averages updated with g."""
        return self.betas[0] * m + (1 - self.betas[0]) * g, self.betas[1] * v + (1 - self.betas[1]) * g * g

    def rule(self, w: Any, g: Any, rate: Any, *slots: Any, **scalars: Any) -> Any:
        m, v = self.averages(g, *slots[:2])
        top = [slots[2].max(v)] if self.amsgrad else []
        root = ((top[0] if top else v) * scalars["of_v"]).sqrt()
        return w - rate * scalars["of_m"] * m / (root + self.epsilon), m, v, *top


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): the step is applied to w * (1 - rate *
    weight_decay)."""

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


class LAMB(Adam):
    """Layer-wise adaptive moments for large batches (You et al. 2020): w - rate * |w| / |r| * r, where r = m' /
    (sqrt(v') + epsilon) + weight_decay * w is Adam's step plus weight decay. If |w| or |r| is 0, the ratio is 1.

    skip: selects the variables to which neither the ratio nor weight decay applies; by default biases and other
    vectors.
    """

    rows: ClassVar[str] = "never"

    def __init__(
        self,
        learning_rate: Rate = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        epsilon: float = 1e-6,
        *,
        weight_decay: float = 1e-2,
        skip: Callable[[Variable], bool] = vector,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, betas, epsilon, weight_decay=weight_decay, **options)
        self.skip = skip

    def update(self, variable: Variable, w: Tensor, g: Tensor, slots: list[Tensor], step: Step) -> list[Tensor]:
        skip, decay = self.skip(variable), self.weight_decay if self._decays(variable) else 0.0

        def direction(step: Step, w: Expr, g: Expr, *own: Expr) -> list[Expr]:
            m, v = self.averages(-g if self.maximize else g, *own)
            r = step.scalars["of_m"] * m / ((v * step.scalars["of_v"]).sqrt() + self.epsilon)
            r = r if skip else r + decay * w
            return [w - step.rate * r if skip else r, m, v]

        first, m, v = step.map([w, g, *slots], direction, [w, *slots], self.name(variable))
        if skip:
            return [first, m, v]

        def ratio(w: Expr, r: Expr) -> Expr:
            return ((w > 0.0) & (r > 0.0)).select(w / r, 1.0)

        scale = elementwise([norm(w), norm(first)], ratio, w.dtype)
        inner = step.with_scalars(ratio=scale)
        (made,) = inner.map([w, first], lambda s, w, r: [w - s.rate * s.scalars["ratio"] * r], [w], self.name(variable))
        return [made, m, v]


def correction(step: Tensor, beta: float) -> Tensor:
    """1 / (1 - beta ** step). This factor corrects a moving average that started at 0."""

    def body(n: Expr) -> Expr:
        return 1.0 / (1.0 - n.lift(beta) ** n)

    return elementwise([step], body, "f64")
