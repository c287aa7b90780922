"""Initial values of variables. Each initializer uses a random generator seeded from the graph's seed and the variable's
name. So each variable has different values, and every run gives the same values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.arguments import check_all
from linnet.ir.dtypes import DTypeLike, dtype_of
from linnet.ir.dtypes import zeros as zeros_of
from linnet.ir.exact import numbers_of

Shape = int | Sequence[int]


@dataclasses.dataclass(frozen=True)
class Initializer:
    """A shape and how to fill it. seed: replaces the seed that is derived from the graph's seed and the variable's
    name."""

    shape: tuple[int, ...]
    dtype: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], npt.NDArray[Any]]
    seed: int | None = None

    def value(self, seed: Sequence[int]) -> npt.NDArray[Any]:
        """Returns the array. seed: the seed that the graph derives."""
        generator = np.random.Generator(
            np.random.Philox(np.random.SeedSequence(self.seed if self.seed is not None else seed))
        )
        return numbers_of(self.draw(generator, self.shape), self.dtype, copy=False)


def _made(
    shape: Shape,
    dtype: DTypeLike,
    seed: int | None,
    draw: Callable[[np.random.Generator, tuple[int, ...]], npt.NDArray[Any]],
) -> Initializer:
    return Initializer((shape,) if isinstance(shape, int) else tuple(shape), dtype_of(dtype), draw, seed)


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """The numbers of inputs and outputs of one unit, for x @ w with w [in, out] or for a conv with w [out, in/group,
    k...]."""
    if len(shape) < 2:
        return (shape[0] if shape else 1,) * 2
    if len(shape) == 2:
        return shape[0], shape[1]
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def zeros(shape: Shape, dtype: DTypeLike = "f32") -> Initializer:
    """All elements 0."""
    return _made(shape, dtype, None, lambda _, s: zeros_of(s, dtype))


def constant(shape: Shape, value: float, dtype: DTypeLike = "f32") -> Initializer:
    """All elements equal to `value`."""
    return _made(shape, dtype, None, lambda _, s: np.full(s, value))


def uniform(
    shape: Shape, low: float = -0.05, high: float = 0.05, dtype: DTypeLike = "f32", seed: int | None = None
) -> Initializer:
    """Uniform distribution in [low, high)."""
    return _made(shape, dtype, seed, lambda g, s: g.uniform(low, high, s))


def normal(
    shape: Shape, mean: float = 0.0, deviation: float = 0.05, dtype: DTypeLike = "f32", seed: int | None = None
) -> Initializer:
    """Normal distribution with the given mean and standard deviation."""
    return _made(shape, dtype, seed, lambda g, s: g.normal(mean, deviation, s))


def he(shape: Shape, dtype: DTypeLike = "f32", seed: int | None = None) -> Initializer:
    """Normal distribution with standard deviation sqrt(2 / inputs), for layers followed by relu (He et al. 2015)."""
    return _made(shape, dtype, seed, lambda g, s: g.normal(0.0, math.sqrt(2.0 / max(fans(s)[0], 1)), s))


def glorot(shape: Shape, dtype: DTypeLike = "f32", seed: int | None = None) -> Initializer:
    """Uniform distribution in +-sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010)."""

    def draw(generator: np.random.Generator, s: tuple[int, ...]) -> npt.NDArray[Any]:
        limit = math.sqrt(6.0 / max(sum(fans(s)), 1))
        return generator.uniform(-limit, limit, s)

    return _made(shape, dtype, seed, draw)


check_all(globals(), ("Initializer", "constant", "fans", "glorot", "he", "normal", "uniform", "zeros"), strict=True)
