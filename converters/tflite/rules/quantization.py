"""Rules of QUANTIZE, DEQUANTIZE, CAST and DENSIFY. Constants are converted now: float16 weights become f32 here."""

from __future__ import annotations

import numpy as np

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.graph import Tensor


@rule("QUANTIZE")
def quantize(op: Operation) -> Tensor:
    x, spec = op.input(0), op.output()
    if spec.quantization is None:
        raise op.unsupported("the output has no quantization", "export it again")
    return op.requantize(x, spec) if op.is_quantized() else op.store(x)


@rule("DEQUANTIZE")
def dequantize(op: Operation) -> Tensor:
    x = op.input(0)
    if x.dtype == "f16":
        return op.constant(x.data.astype(np.float32)) if x.data is not None else op.cast(x, "f32")
    if x.quantization is None:
        raise op.unsupported("the input has no quantization", "export it again")
    return op.real(x)


@rule("CAST")
def cast(op: Operation) -> Tensor:
    return op.cast(op.input(0), op.output().dtype)


@rule("DENSIFY")
def densify(op: Operation) -> Tensor:
    return op.input(0)  # sparse constants are read dense
