"""Losses of real numbers and of directions, elementwise and broadcast where nothing else is said."""

from __future__ import annotations

from linnet.autodiff._tools import elementwise
from linnet.graph import Tensor
from linnet.optimizers._step import number


def mse(prediction: Tensor, target: Tensor) -> Tensor:
    """(prediction - target) ** 2."""
    return elementwise([prediction, target], lambda y, t: (y - t) * (y - t), prediction.dtype)


def mae(prediction: Tensor, target: Tensor) -> Tensor:
    """|prediction - target|; its gradient is 0 where they are equal."""
    return elementwise([prediction, target], lambda y, t: abs(y - t), prediction.dtype)


def huber(prediction: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    """Half the square of the difference up to delta, then delta * (|difference| - delta / 2) (Huber 1964)."""
    limit = number("delta", delta, least=1e-30)
    return elementwise(
        [prediction, target],
        lambda y, t: (abs(y - t) <= limit).select(0.5 * (y - t) * (y - t), limit * (abs(y - t) - 0.5 * limit)),
        prediction.dtype,
    )


def smooth_l1(prediction: Tensor, target: Tensor, beta: float = 1.0) -> Tensor:
    """Half the square of the difference over beta, up to beta; then |difference| - beta / 2 (Girshick 2015). beta 0: mae."""
    limit = number("beta", beta, least=0.0)
    if limit == 0:
        return mae(prediction, target)
    return elementwise(
        [prediction, target],
        lambda y, t: (abs(y - t) < limit).select(0.5 / limit * (y - t) * (y - t), abs(y - t) - 0.5 * limit),
        prediction.dtype,
    )


def cosine(a: Tensor, b: Tensor, axis: int = -1, epsilon: float = 1e-8) -> Tensor:
    """1 - the cosine of the angle between vectors along `axis`, which is gone from the result. Norms are `epsilon` at least."""
    product, left, right = ((x * y).sum(axis) for x, y in ((a, b), (a, a), (b, b)))
    return elementwise(
        [product, left, right],
        lambda p, x, y: 1.0 - p / ((x.max(epsilon**2) * y.max(epsilon**2)).sqrt()),
        a.dtype,
    )


def cosine_embedding(a: Tensor, b: Tensor, target: Tensor, margin: float = 0.0) -> Tensor:
    """For pairs [..., size] that belong together (target 1) 1 - cosine, for others (-1) what the cosine is above margin."""
    distance = cosine(a, b)
    return elementwise([distance, target], lambda d, t: (t > 0).select(d, (1.0 - d - margin).max(0.0)), distance.dtype)
