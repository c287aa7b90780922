"""Losses for real numbers and for the directions of vectors. They are elementwise and broadcast, unless stated
otherwise."""

from __future__ import annotations

from typing import Any

from linnet.autodiff._tools import elementwise
from linnet.ir.function import Operators, Tensor
from linnet.losses._operands import operands
from linnet.optimizers._step import number


def mse(prediction: Operators, target: Any) -> Tensor:
    """(prediction - target) ** 2."""
    y, t = operands(prediction, target)
    return elementwise([y, t], lambda y, t: (y - t) * (y - t), y.dtype)


def mae(prediction: Operators, target: Any) -> Tensor:
    """|prediction - target|. Its gradient is 0 where both are equal."""
    y, t = operands(prediction, target)
    return elementwise([y, t], lambda y, t: abs(y - t), y.dtype)


def huber(prediction: Operators, target: Any, delta: float = 1.0) -> Tensor:
    """Half the squared difference up to delta; beyond it, delta * (|difference| - delta / 2) (Huber 1964)."""
    limit = number("delta", delta, least=1e-30)
    y, t = operands(prediction, target)
    return elementwise(
        [y, t],
        lambda y, t: (abs(y - t) <= limit).select(0.5 * (y - t) * (y - t), limit * (abs(y - t) - 0.5 * limit)),
        y.dtype,
    )


def smooth_l1(prediction: Operators, target: Any, beta: float = 1.0) -> Tensor:
    """Half the squared difference divided by beta, up to beta; beyond it, |difference| - beta / 2 (Girshick 2015). If
    beta is 0, this is mae."""
    limit = number("beta", beta, least=0.0)
    if limit == 0:
        return mae(prediction, target)
    y, t = operands(prediction, target)
    return elementwise(
        [y, t],
        lambda y, t: (abs(y - t) < limit).select(0.5 / limit * (y - t) * (y - t), abs(y - t) - 0.5 * limit),
        y.dtype,
    )


def cosine(a: Operators, b: Any, axis: int = -1, epsilon: float = 1e-8) -> Tensor:
    """1 - the cosine of the angle between vectors along `axis`. The result does not have that axis. Norms are at least
    `epsilon`."""
    u, v = operands(a, b)
    product, left, right = ((x * y).sum(axis) for x, y in ((u, v), (u, u), (v, v)))
    return elementwise(
        [product, left, right],
        lambda p, x, y: 1.0 - p / ((x.max(epsilon**2) * y.max(epsilon**2)).sqrt()),
        u.dtype,
    )


def cosine_embedding(a: Operators, b: Any, target: Any, margin: float = 0.0) -> Tensor:
    """For pairs [..., size]: 1 - cosine for similar pairs (target 1), max(0, cosine - margin) for dissimilar pairs
    (target -1)."""
    first, second, sign = operands(a, b, target)
    distance = cosine(first, second)
    return elementwise([distance, sign], lambda d, t: (t > 0).select(d, (1.0 - d - margin).max(0.0)), distance.dtype)
