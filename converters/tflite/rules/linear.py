"""Rules for matrix products: FULLY_CONNECTED (weight [out, in]) and BATCH_MATMUL."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite import hybrid
from linnet.converters.tflite.fixed_point import quantize_multiplier
from linnet.converters.tflite.operation import Operation, per_tensor
from linnet.converters.tflite.registry import rule
from linnet.converters.tflite.rules.convolution import finish, one_scale, product_operands, product_quantization
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor


@rule("FULLY_CONNECTED")
def fully_connected(op: Operation) -> Tensor:
    if op.option("weights_format"):
        raise op.unsupported("shuffled weights are not supported", "export the model with the default weights format")
    x, weights = op.input(0), op.input(1)
    if weights.rank != 2 or weights.static_shape is None:
        raise op.unsupported(f"the weight has shape {weights.shape}", "use a weight of shape [out, in]")
    depth = weights.static_shape[1]
    keep = op.option("keep_dims")
    if x.rank != 2 and not (keep and x.shape is not None and x.shape[-1] == depth):
        x = op.reshape(x, [-1, depth])
    blocks = op.scope.subgraph.tensors[op.spec.inputs[1]].blocks
    if blocks is not None:
        return finish(op, _blockwise(op, x, op.require(1, "the weights"), *blocks))
    stored = numpy_dtype(weights.dtype)
    if hybrid.applies(x, stored, weights.quantization):
        assert weights.quantization is not None
        w = weights if weights.data is None else op.constant(hybrid.signed(weights.data))
        return finish(op, hybrid.matmul(op, x, w, weights.quantization.scale, op.optional(2), transpose_b=True))
    if weights.data is None:
        if x.quantization is not None:
            w, bias, integer = weights, op.optional(2), True
        else:
            w, bias, integer = op.real(weights), op.optional(2), False
    else:
        x, w, bias, integer = product_operands(op, x, weights.data, weights.quantization, op.optional(2))
    attributes: dict[str, Any] = {"transpose_b": True}
    if integer:
        attributes["requant"] = "tflite_single"
    if integer and x.dtype == "i16" and (exact := _wide(op, x, w, bias)) is not None:
        return exact
    return finish(op, op.emit("matmul", [x, w, bias], product_quantization(op, integer), **attributes))


def _blockwise(op: Operation, x: Tensor, value: npt.NDArray[Any], scales: int, size: int) -> Tensor:
    """A product with weights that have one scale per block of a row. The scales are in another constant."""
    tensors = op.scope.subgraph.tensors
    if (
        x.dtype != "f32"
        or value.dtype != np.int8
        or not 0 <= scales < len(tensors)
        or size < 1
        or value.shape[1] % size
    ):
        raise op.unsupported(
            f"blocks of {size} do not fit weights {list(value.shape)} and an input of {x.dtype}",
            "export the model again",
        )
    scale = op.importer.model.value(tensors[scales]).astype(np.float32)
    if scale.size != value.size // size:
        raise op.unsupported(f"there are {scale.size} scales for {value.size // size} blocks", "export the model again")
    flat = op.reshape(x, [-1, value.shape[1]])
    y = hybrid.matmul_by_blocks(op, flat, value, scale.reshape(value.shape[0], -1), op.optional(2))
    if x.rank == 2 or not op.option("keep_dims"):
        return y
    lead = op.emit("shape", [x], start=0, end=(x.rank or 1) - 1)
    shape = op.copy([lead, op.constant(np.array([value.shape[0]], np.int64))], kind="concat", axis=0)
    return op.copy([y, shape], kind="reshape")


def _wide(op: Operation, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor | None:
    """For 16-bit activations: the reference kernel multiplies the 64-bit sum by the full Q31 multiplier (convolutions
    truncate it to 16 bits). The product has up to 79 bits and is computed in two halves. Returns None for a multiplier
    of 2^15 or more."""
    spec = op.output()
    if spec.quantization is None or w.quantization is None:
        return None
    assert x.quantization is not None
    (sx, _), (sy, zy) = per_tensor(x.quantization, "the input"), per_tensor(spec.quantization, "the output")
    pairs = [quantize_multiplier(float(sx) * float(s) / float(sy)) for s in w.quantization.scale.reshape(-1)]
    if any(not -31 <= shift <= 15 for _, shift in pairs):
        return None
    fixed, right = (op.constant(np.array(v, np.int64)) for v in ([f for f, _ in pairs], [15 - s for _, s in pairs]))
    low, high = op.limits(op.activation())
    sums = op.emit("matmul", [x, w, bias], transpose_b=True, output_dtype="i64")

    def body(v: Expr, f: Expr, t: Expr) -> Expr:
        half = v.lift(1).binary("shift_left", t + 15)
        below = ((v & 0xFFFF) * f + half).binary("shift_right", 16)
        return ((v.binary("shift_right", 16) * f + below).binary("shift_right", t) + zy).max(low).min(high)

    return op.quantized(op.map([sums, fixed, right], body, spec.dtype), spec)


@rule("BATCH_MATMUL")
def batch_matmul(op: Operation) -> Tensor:
    a, b = op.input(0), op.input(1)
    attributes: dict[str, Any] = {"transpose_a": op.option("adjoint_x"), "transpose_b": op.option("adjoint_y")}
    integer = a.quantization is not None and b.quantization is not None
    if integer and b.quantization is not None and b.quantization.axis is not None:
        if b.data is None:
            raise op.unsupported(
                "the second operand is quantized per axis but not a constant", "quantize it per tensor"
            )
        if b.quantization.axis != (b.rank or 0) - (2 if attributes["transpose_b"] else 1):
            raise op.unsupported(
                f"the second operand is quantized along axis {b.quantization.axis}", "quantize its columns"
            )
        attributes["requant"] = "tflite"
    elif integer:
        a, b = one_scale(op, a, b)
        attributes["requant"] = "tflite"
    elif hybrid.applies(a, numpy_dtype(b.dtype), b.quantization):
        assert b.quantization is not None
        if attributes.pop("transpose_a"):
            order = list(range(op.rank()))
            a = op.transpose(a, [*order[:-2], order[-1], order[-2]])
        return hybrid.matmul(op, a, b, b.quantization.scale, None, **attributes)
    y = op.emit("matmul", [a, b], product_quantization(op, integer), **attributes)
    return op.quantized(y, op.output()) if integer else y
