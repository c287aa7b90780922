"""The rule for SVDF: a layer over the last steps of a stream. Its weights are factored into features and weights over
time (Nakkiran et al. 2015). Its state is a variable that holds the features of those steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite.fixed_point import RANGES, quantize_multiplier
from linnet.converters.tflite.hybrid import UNIT
from linnet.converters.tflite.operation import Operation, dequantized, per_tensor
from linnet.converters.tflite.registry import rule
from linnet.converters.tflite.rules.recurrent import activated, matrix, vector
from linnet.ir.function import Tensor


@rule("SVDF")
def svdf(op: Operation) -> Tensor:
    """Operands: x [batch, input], features [filters, input], time [filters, memory], bias [units], state."""
    x, rank = op.input(0), int(op.option("rank"))
    time = op.require(2, "the weights over time")
    filters, memory = time.shape
    if rank < 1 or filters % rank:
        raise op.unsupported(
            f"rank {rank} does not divide the {filters} filters", "the model is damaged: export it again"
        )
    whole = x.dtype == "i8"
    state = op.input(4)
    if state.dtype != ("i16" if whole else "f32"):
        raise op.unsupported(
            f"the state has type {state.dtype}, but the input has type {x.dtype}",
            "use an i16 state for i8 inputs, else f32",
        )
    features = _integer_features(op, x) if whole else matrix(op, [1]).times(op, x)
    kept = op.slice(op.reshape(state, [-1, filters, memory]), 2, 1, memory)
    new = op.copy([features], kind="unsqueeze", axes=[2])
    window = op.copy([kept, new], kind="concat", axis=2) if memory > 1 else new
    after = op.reshape(window, [-1, filters * memory])
    after.quantization = state.quantization
    op.keep(4, after)
    if whole:
        return _integer_output(op, window, time, rank)
    quantization = op.input(2).quantization
    weights = op.constant(time.astype(np.float32) if quantization is None else dequantized(time, quantization))
    sums = op.reduce(op.map([window, weights], lambda v, w: v * w), "sum", [2], keep_dims=False)
    units = op.reduce(op.reshape(sums, [-1, filters // rank, rank]), "sum", [2], keep_dims=False)
    act, bias = activated(op, op.activation()), vector(op, 3)
    if bias is None:
        return op.map([units], act)
    return op.map([units, op.constant(bias)], lambda v, b: act(v + b))


def _integer_features(op: Operation, x: Tensor) -> Tensor:
    """The features as i16 at the scale of the state (reference_ops::EvalIntegerSVDF)."""
    (sx, _), (sw, _), (ss, _) = (_scale(op, i) for i in (0, 1, 4))
    weights = op.require(1, "the weights of the features")
    fixed, shift = quantize_multiplier(float(np.float32(np.float32(sx * sw) / ss)))
    sums = op.emit("matmul", [x, op.constant(weights, UNIT)], transpose_b=True, output_dtype="i32")
    low, high = RANGES["i16"]
    return op.map([sums], lambda v: v.fixed_multiply(fixed, -shift).max(low).min(high), "i16")


def _integer_output(op: Operation, window: Tensor, time: npt.NDArray[Any], rank: int) -> Tensor:
    (ss, _), (st, _) = _scale(op, 4), _scale(op, 2)
    spec = op.output()
    if spec.quantization is None:
        raise op.unsupported("the output has no quantization", "export the model again")
    sy, zy = per_tensor(spec.quantization, "the output")
    fixed, shift = quantize_multiplier(float(np.float32(np.float32(ss * st) / sy)))
    products = op.map([window, op.constant(time)], lambda v, w: v * w, "i32")
    sums = op.reduce(products, "sum", [2], keep_dims=False)
    units = op.reduce(op.reshape(sums, [-1, time.shape[0] // rank, rank]), "sum", [2], keep_dims=False)
    bias = op.optional(3)
    if bias is not None:
        units = op.map([units, bias], lambda v, b: v + b, "i32")
    low, high = RANGES[spec.dtype]
    return op.quantized(
        op.map([units], lambda v: (v.fixed_multiply(fixed, -shift) + zy).max(low).min(high), spec.dtype), spec
    )


def _scale(op: Operation, index: int) -> tuple[np.float32, int]:
    quantization = op.input(index).quantization
    if quantization is None:
        raise op.unsupported(f"operand {index} has no quantization", "export the model again")
    return per_tensor(quantization, f"operand {index}")
