"""Products of quantized models on their integers: convolutions and matrix products, with their biases and clamps."""

from __future__ import annotations

import numpy as np

from linnet.builder.mapping import pointwise
from linnet.converters.onnx.quantized_numbers import LIMITS, clamp_limits, dequantized, saturates, signed
from linnet.converters.onnx.quantized_values import Values
from linnet.converters.onnx.unsigned import symmetric
from linnet.ir import traits
from linnet.ir.dtypes import Quantization
from linnet.ir.expr import Expr
from linnet.ir.function import Node, Tensor
from linnet.passes.rewrite import join_sources

BIAS_LIMIT = 2.0**30  # a larger bias could overflow the 32-bit sum
WIDE_BIAS_LIMIT = 2.0**46  # of a 64-bit sum, of which requantization takes 47 bits


def product(values: Values, node: Node) -> bool:
    x, w = (values.stored.get(t) if t is not None else None for t in node.inputs[:2])
    if x is None or w is None or x.quantization is None or w.quantization is None or x.data is not None:
        return False
    wide = x.dtype == "i16"
    if x.dtype not in LIMITS or x.quantization.axis is not None:
        return False
    if w.dtype not in (("i8", "u8", "i16") if wide else ("i8", "u8")):
        return False
    if w.data is None and node.op not in traits.MATRICES:
        return False
    if wide and w.data is None and np.any(w.quantization.zero):
        return False  # only the reference subtracts it
    if node.op in traits.MATRICES and (x.rank is None or w.rank is None or min(x.rank, w.rank) < 2):
        return False
    w = signed(w)
    assert w.quantization is not None
    if w.quantization.axis is not None and w.quantization.axis != traits.weight_axis(
        node.op, node.attributes, w.rank or 0
    ):
        return False
    if wide and w.dtype == "i16" and np.any(w.quantization.zero):
        return False  # the differences do not fit into 16 bits
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    integer_bias = None
    if bias is not None:
        integer_bias = _bias(values, bias, x.quantization, w.quantization, wide)
        if integer_bias is None:
            return False
    attributes = {**node.attributes}
    if wide and w.data is not None:
        w, x, integer_bias, attributes = symmetric(values, node, x, w, integer_bias)
    assert w.quantization is not None
    y = node.outputs[0]
    target, behind = values.sink(y), y
    if target is None and y not in values.outputs and len(values.readers.get(y, ())) == 1:
        clamp = values.readers[y][0]
        limits, next_target = clamp_limits(clamp), values.sink(clamp.outputs[0])
        if limits is not None and next_target is not None and saturates(limits, *next_target):
            target, behind = next_target, clamp.outputs[0]
            values.skipped.add(clamp)
            values.function.source = join_sources(node.source, clamp.source)
    q, dtype = target if target is not None else (None, "f32")
    mixed = node.op in traits.MATRICES and not np.all(w.quantization.zero == w.quantization.zero[0])
    if mixed and not wide and dtype != "i16":
        made = _columns(values, node, x, w, integer_bias, dtype, q)
    else:
        attributes["output_dtype"] = dtype
        made = values.emit(node.op, [x, w, integer_bias], attributes, dtype, q)
    if made.node is not None:
        made.node.name = node.name
    if target is not None:
        values.sunk(behind, made)
    else:
        values.new[y] = values.named(made, y)
    return True


def _columns(
    values: Values, node: Node, x: Tensor, w: Tensor, bias: Tensor | None, dtype: str, q: Quantization | None
) -> Tensor:
    """Emits a product whose weight columns have different zero points, which only the reference kernel supports.

    It uses one common zero point. Then it subtracts the remaining part of each zero point times the row sums of x,
    which are a product with ones. This is exact in i32, and the result is requantized as usual."""
    assert w.data is not None and w.quantization is not None and x.quantization is not None
    zeros = w.quantization.zero.astype(np.int32)
    common = int(np.median(zeros))
    shared = Quantization(w.quantization.scale, np.full_like(zeros, common), w.quantization.axis)
    sums = {**node.attributes, "output_dtype": "i32"}
    product = values.emit("matmul", [x, values.with_quantization(w, shared), bias], sums, "i32", None)
    depth = w.data.shape[1 if node.attribute("transpose_b") else 0]
    unit = Quantization(np.ones(1, np.float32), np.zeros(1, np.int32))
    ones = values.function.constant(np.ones((depth, 1), np.int8), "ones", quantization=unit)
    rows = values.emit("matmul", [x, ones], {**sums, "transpose_b": False}, "i32", None)
    scale = (x.quantization.scale[:1] * w.quantization.scale).astype(np.float32)
    if q is not None:
        scale = scale / q.scale[0]
    operands = [product, rows, values.function.constant(zeros - np.int32(common), f"{w.name}_zero")]
    operands.append(values.function.constant(scale.astype(np.float32), f"{w.name}_scale"))

    def body(y: Expr, r: Expr, z: Expr, s: Expr) -> Expr:
        value = (y - r * z).cast("f32") * s
        if q is None:
            return value
        low, high = LIMITS[dtype]
        return (value.round() + float(q.zero[0])).max(low).min(high)

    made: Tensor = pointwise(operands, body, dtype, function=values.function)
    made.quantization = q
    return made


def _bias(values: Values, bias: Tensor, x: Quantization, w: Quantization, wide: bool) -> Tensor | None:
    """The bias as integers whose scale is the scale of x times the scale of w. The model's own integers are used if
    they have this scale."""
    scale = np.float64(x.scale[0]) * w.scale.astype(np.float64)
    source = values.stored.get(bias)
    if source is not None and source.data is not None and source.quantization is not None:
        own = source.quantization
        fits = source.dtype == "i32" and not np.any(own.zero)
        if fits and np.allclose(own.scale.astype(np.float64), scale, rtol=1e-5, atol=0):
            return values.function.constant(source.data.reshape(-1), bias.name)
        numbers = dequantized(source.data, own)
    else:
        data = values.now(bias).data
        if data is None or data.dtype != np.float32:
            return None
        numbers = data
    stored = np.rint(numbers.reshape(-1).astype(np.float64) / scale)
    if not np.all(np.abs(stored) < (WIDE_BIAS_LIMIT if wide else BIAS_LIMIT)):
        return None
    return values.function.constant(stored.astype(np.int64 if wide else np.int32), bias.name)
