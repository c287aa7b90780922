"""Rounding with a gradient: `stop_gradient` and `on_grid`.
This is the straight-through estimator of Bengio et al. 2013: the gradient passes through a rounding as if nothing were
rounded."""

from __future__ import annotations

from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor

STOPPED = "stop_gradient"  # provenance of nodes that stop a gradient


def stop_gradient(x: Tensor) -> Tensor:
    """Returns x, but no gradient passes through: everything from which x is computed counts as constant. It costs
    nothing at run time."""
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
    """Rounds x to an integer in [low, high] with this scale and zero point, and returns the value that the integer
    represents, as f32. So the result is round(x / scale), saturated, times scale. Halves are rounded to even, as in the
    map opcode `store_quantized` and the op `quantize`.

    scale, zero: numbers, or f32 tensors that broadcast against x; tensors get gradients too. The gradient passes
    through the rounding. Inside the range, ends included, it is 1 for x and (rounded - x / scale) for the scale
    (learned step size, Esser et al. 2020). Outside the range, x gets no gradient. rounding: False only saturates.
    """
    tensors = [t for t in (scale, zero) if isinstance(t, Tensor)]

    def of(given: tuple[Expr, ...], value: Tensor | float) -> Expr | float:
        return given[tensors.index(value)] if isinstance(value, Tensor) else float(value)

    def codes(v: Expr, *given: Expr) -> Expr:
        s, z = of(given, scale), of(given, zero)
        v = v / s
        least, most = (v.lift(end - z) for end in (float(low), float(high)))
        # If the operands are equal, the second gets the gradient. That is x at the ends of the range.
        return most.min(least.max(v))

    def back(c: Expr, *given: Expr) -> Expr:
        return c * of(given, scale)

    inside: Tensor = pointwise([x, *tensors], codes, "f32")
    if rounding:
        error = stop_gradient(pointwise([inside], lambda c: c.unary("round") - c, "f32"))
        inside = pointwise([inside, error], lambda c, e: c + e, "f32")
    made: Tensor = pointwise([inside, *tensors], back, "f32")
    return made
