"""Rounding that has a gradient: `stop_gradient` and `on_grid`.
The straight-through estimator of Bengio et al. 2013: a rounded value passes its gradient on as if it were not rounded."""

from __future__ import annotations

from linnet import ops
from linnet.graph import Tensor
from linnet.mapping import Expr, pointwise

STOPPED = "stop_gradient"  # provenance of the nodes at which a gradient ends


def stop_gradient(x: Tensor) -> Tensor:
    """x itself, which no gradient passes: what it is computed from counts as constant. It costs nothing when running."""
    function = x.function
    source, function.source = function.source, STOPPED
    try:
        return ops.copy([x], kind="identity")[0]
    finally:
        function.source = source


def on_grid(
    x: Tensor,
    scale: Tensor | float,
    zero: Tensor | float,
    low: int,
    high: int,
    rounding: bool = True,
) -> Tensor:
    """x as integers in [low, high] of this scale and zero point give it back, f32: saturated round(x / scale), times scale,
    as the map opcode `store_quantized` and the op `quantize` round: half to even.

    scale, zero: numbers, or f32 tensors that broadcast against x; those have gradients too. The gradient passes through the
    rounding: inside the range, ends included, it is 1 for x and (rounded - x / scale) for the scale (learned step
    size, Esser et al. 2020); outside, x has none. rounding: False only saturates.
    """
    tensors = [t for t in (scale, zero) if isinstance(t, Tensor)]

    def of(given: tuple[Expr, ...], value: Tensor | float) -> Expr | float:
        return given[tensors.index(value)] if isinstance(value, Tensor) else float(value)

    def codes(v: Expr, *given: Expr) -> Expr:
        s, z = of(given, scale), of(given, zero)
        v = v / s
        least, most = (v.lift(end - z) for end in (float(low), float(high)))
        # Of equal operands the second has the gradient: x, at the ends of the range.
        return most.min(least.max(v))

    def back(c: Expr, *given: Expr) -> Expr:
        return c * of(given, scale)

    inside: Tensor = pointwise([x, *tensors], codes, "f32")
    if rounding:
        error = stop_gradient(pointwise([inside], lambda c: c.unary("round") - c, "f32"))
        inside = pointwise([inside, error], lambda c, e: c + e, "f32")
    made: Tensor = pointwise([inside, *tensors], back, "f32")
    return made
