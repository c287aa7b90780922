"""Initial values of variables. An initializer draws from a generator that the graph seeds by its own seed and the
variable's name, so that every variable differs and every run is the same."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.graph import numpy_dtype

Shape = int | Sequence[int]


@dataclasses.dataclass(frozen=True)
class Initializer:
    """A shape and how to fill it. seed: instead of one from the graph's seed and the variable's name."""

    shape: tuple[int, ...]
    dtype: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], npt.NDArray[Any]]
    seed: int | None = None

    def value(self, seed: Sequence[int]) -> npt.NDArray[Any]:
        """The array; seed: what the graph gives."""
        generator = np.random.Generator(
            np.random.Philox(np.random.SeedSequence(self.seed if self.seed is not None else seed))
        )
        return np.asarray(self.draw(generator, self.shape), numpy_dtype(self.dtype))


def _made(
    shape: Shape, dtype: str, seed: int | None, draw: Callable[[np.random.Generator, tuple[int, ...]], npt.NDArray[Any]]
) -> Initializer:
    return Initializer((shape,) if isinstance(shape, int) else tuple(shape), dtype, draw, seed)


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """Inputs and outputs of one unit: of x @ w with w [in, out], and of a conv with w [out, in/group, k...]."""
    if len(shape) < 2:
        return (shape[0] if shape else 1,) * 2
    if len(shape) == 2:
        return shape[0], shape[1]
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def zeros(shape: Shape, dtype: str = "f32") -> Initializer:
    """All 0."""
    return _made(shape, dtype, None, lambda _, s: np.zeros(s, numpy_dtype(dtype)))  # memory that is untouched yet


def constant(shape: Shape, value: float, dtype: str = "f32") -> Initializer:
    """All of one value."""
    return _made(shape, dtype, None, lambda _, s: np.full(s, value))


def uniform(
    shape: Shape, low: float = -0.05, high: float = 0.05, dtype: str = "f32", seed: int | None = None
) -> Initializer:
    """Uniform in [low, high)."""
    return _made(shape, dtype, seed, lambda g, s: g.uniform(low, high, s))


def normal(
    shape: Shape, mean: float = 0.0, deviation: float = 0.05, dtype: str = "f32", seed: int | None = None
) -> Initializer:
    """Normal with a mean and a standard deviation."""
    return _made(shape, dtype, seed, lambda g, s: g.normal(mean, deviation, s))


def he(shape: Shape, dtype: str = "f32", seed: int | None = None) -> Initializer:
    """Normal with deviation sqrt(2 / inputs), for units that are followed by relu (He et al. 2015)."""
    return _made(shape, dtype, seed, lambda g, s: g.normal(0.0, math.sqrt(2.0 / max(fans(s)[0], 1)), s))


def glorot(shape: Shape, dtype: str = "f32", seed: int | None = None) -> Initializer:
    """Uniform in +-sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010)."""

    def draw(generator: np.random.Generator, s: tuple[int, ...]) -> npt.NDArray[Any]:
        limit = math.sqrt(6.0 / max(sum(fans(s)), 1))
        return generator.uniform(-limit, limit, s)

    return _made(shape, dtype, seed, draw)
