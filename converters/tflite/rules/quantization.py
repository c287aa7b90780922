"""Rules for QUANTIZE, DEQUANTIZE, CAST and DENSIFY. Constants are converted during conversion: float16 weights become
f32 here."""

from __future__ import annotations

import numpy as np

from linnet.converters.tflite.complex_numbers import COMPLEX
from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Tensor

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


@rule("QUANTIZE")
def quantize(op: Operation) -> Tensor:
    x, spec = op.input(0), op.output()
    if spec.quantization is None:
        raise op.unsupported("the output has no quantization", "export the model again")
    return op.requantize(x, spec) if x.quantization is not None else op.store(x)


@rule("DEQUANTIZE")
def dequantize(op: Operation) -> Tensor:
    x = op.input(0)
    if x.dtype == "f16":
        return op.constant(x.data.astype(np.float32)) if x.data is not None else op.cast(x, "f32")
    if x.quantization is None:
        raise op.unsupported("the input has no quantization", "export the model again")
    return op.real(x)


@rule("CAST")
def cast(op: Operation) -> Tensor:
    """A complex number becomes its real part. A real number gets 0 as its imaginary part."""
    x, given = op.input(0), op.scope.subgraph.tensors[op.spec.inputs[0]].type_name == COMPLEX
    if given:
        axis = op.rank() - 1
        x = op.copy([op.slice(x, axis, 0, 1)], kind="squeeze", axes=[axis])
    if op.output().type_name == COMPLEX:
        rank = x.rank or 0
        real = op.copy([op.cast(x, "f32")], kind="unsqueeze", axes=[rank])
        return op.pad(real, [0] * (2 * rank + 1) + [1])
    return op.cast(x, op.output().dtype)


@rule("DENSIFY")
def densify(op: Operation) -> Tensor:
    return op.input(0)  # sparse constants are already dense when read


@rule("BITCAST")
def bitcast(op: Operation) -> Tensor:
    """Reinterprets the bytes as another element type. If the size of the elements changes, a last dimension is added or
    removed."""
    x, wanted = op.input(0), op.output().dtype
    if x.data is not None:
        kind, value = numpy_dtype(wanted), np.ascontiguousarray(x.data)
        if kind.itemsize > value.itemsize:
            return op.constant(value.view(kind)[..., 0])
        return op.constant(
            value.reshape(*value.shape, 1).view(kind) if kind.itemsize < value.itemsize else value.view(kind)
        )
    have, want, rank = numpy_dtype(x.dtype).itemsize, numpy_dtype(wanted).itemsize, op.rank()
    if have == want:
        return op.copy([x], kind="bitcast", dtype=wanted)
    if not all(d in INTEGERS for d in (x.dtype, wanted)):
        raise op.unsupported(
            f"BITCAST from {x.dtype} to {wanted} is not supported", "use integers where the sizes differ"
        )
    if have > want:  # little-endian: lowest bits first
        shifts = op.constant(np.arange(have // want, dtype=np.int64) * 8 * want)
        column = op.copy([x], kind="unsqueeze", axes=[rank])
        return op.map([column, shifts], lambda v, s: v.cast("i64").binary("shift_right", s), wanted)
    mask = (1 << 8 * have) - 1
    shifts = op.constant(np.arange(want // have, dtype=np.int64) * 8 * have)
    parts = op.map([x, shifts], lambda v, s: (v.cast("i64") & mask).binary("shift_left", s), "i64")
    return op.cast(op.reduce(parts, "sum", [rank - 1], keep_dims=False), wanted)
