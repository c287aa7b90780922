"""Straight-through gradients of quantize and dequantize (Bengio et al. 2013; for scales: learned step size, Esser et
al. 2020). The gradient of a quantized tensor is the gradient with respect to the real value that it represents, (stored
- zero) * scale.
"""

from __future__ import annotations

import numpy as np

from linnet.autodiff._tools import elementwise, first, operand, shape_of, static, unbroadcast
from linnet.autodiff.sparse import Gradients, Rule
from linnet.builder import ops
from linnet.ir.function import Node, Tensor

_LIMITS = {"i8": (-128, 127), "u8": (0, 255), "i16": (-(1 << 15), (1 << 15) - 1), "u16": (0, (1 << 16) - 1)}


def quantize_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """Inside the range, x gets the full gradient, and the scale gets -x / scale times the gradient. Outside the range,
    both are 0."""
    x, y, g = first(node, given)
    scale, zero = _grid(node, x, y)
    low, high = _LIMITS[y.dtype]

    def inside(v: Tensor, times: bool) -> Tensor:
        def body(g, v, s, z):  # type: ignore[no-untyped-def]
            stored = (v / s).unary("round") + z.cast(v.kind)
            fits = (stored >= float(low)).select((stored <= float(high)).select(1.0, 0.0), 0.0)
            return fits.eq(0.0).select(0.0, -g * v / s if times else g)

        return elementwise([g, v, scale, zero], body, x.dtype)

    result: list[Tensor | None] = [inside(x, False) if needs[0] else None]
    if len(needs) > 1 and needs[1]:
        result.append(_summed(node, inside(x, True), x))
    return result


def dequantize_gradient(node: Node, given: list[Tensor | None], needs: list[bool]) -> Gradients:
    """x gets the full gradient; the scale gets (stored - zero) times the gradient."""
    x, _, g = first(node, given)
    result: list[Tensor | None] = [g if needs[0] else None]
    if len(needs) > 1 and needs[1]:
        _, zero = _grid(node, x, x)
        slope = elementwise([g, x, zero], lambda g, q, z: g * (q.cast(g.kind) - z.cast(g.kind)), g.dtype)
        result.append(_summed(node, slope, x))
    return result


def _grid(node: Node, x: Tensor, quantized: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and zero point, broadcast against x."""
    scale, zero = operand(node, 1), operand(node, 2)
    if scale is None:
        q = quantized.quantization
        assert q is not None  # the shape rule requires one of the two
        shape = [-1 if i == q.axis else 1 for i in range(len(shape_of(x)))] if q.axis is not None else []
        values = (np.asarray(v).reshape(shape) for v in (q.scale, q.zero))
        scale, zero = (x.function.constant(v) for v in values)
        return scale, zero
    if zero is None:
        zero = elementwise([scale], lambda s: s * 0.0, "i32")
    return _spread(node, scale, x), _spread(node, zero, x)


def _spread(node: Node, t: Tensor, x: Tensor) -> Tensor:
    """Broadcasts a scale per tensor, per slice along an axis, or per block of an axis."""
    rank, axis, block = len(shape_of(x)), node.attribute("axis"), node.attribute("block")
    if len(shape_of(t)) == 0 or t.shape == (1,):
        return ops.reshape(t, [])
    axis %= rank
    if not block:
        return ops.reshape(t, [-1 if i == axis else 1 for i in range(rank)])
    (size,) = static(x, [axis])
    return ops.gather(t, t.function.constant(np.arange(size) // block), axis=axis)


def _summed(node: Node, g: Tensor, x: Tensor) -> Tensor:
    """The gradient of the scale operand, summed from the gradients of its elements."""
    scale = node.inputs[1]
    assert scale is not None
    rank, axis, block = len(shape_of(x)), node.attribute("axis") % len(shape_of(x)), node.attribute("block")
    g = g if g.dtype == scale.dtype else ops.cast(g, dtype=scale.dtype)
    if len(shape_of(scale)) == 0 or scale.shape == (1,):
        total = ops.reduce(g, kind="sum", keep_dims=False)
        return total if scale.shape == () else ops.reshape(total, [1])
    if not block:
        return ops.reduce(g, kind="sum", axis=[i for i in range(rank) if i != axis], keep_dims=False)
    (size,) = static(x, [axis])
    count = -(-size // block)
    pads = [0] * rank + [count * block - size if i == axis else 0 for i in range(rank)]
    whole = ops.copy([g], kind="pad", pads=pads)[0] if any(pads) else g
    sizes = [d for i, n in enumerate(static(x)) for d in ((count, block) if i == axis else (n,))]
    return unbroadcast(ops.reduce(ops.reshape(whole, sizes), kind="sum", axis=[axis + 1], keep_dims=False), scale)


RULES: dict[str, Rule] = {"quantize": quantize_gradient, "dequantize": dequantize_gradient}
