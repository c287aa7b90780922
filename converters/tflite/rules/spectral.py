"""Rules for Fourier transforms. Complex numbers exist only between these ops. They are f32 tensors with the real and
the imaginary part along a last dimension of 2."""

from __future__ import annotations

import numpy as np

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.ir.function import Tensor


@rule("RFFT2D")
def rfft2d(op: Operation) -> Tensor:
    """x [..., h, w], cropped or zero-padded to the given sizes, times the matrices of roots of unity."""
    x, rank = op.input(0), op.rank()
    sizes = [int(v) for v in op.require(1, "the sizes").reshape(-1)]
    op.limit(max(sizes) ** 2)
    for axis, size in zip((rank - 2, rank - 1), sizes, strict=True):
        extent = x.shape[axis] if x.shape is not None else None
        if not isinstance(extent, int):
            raise op.unsupported("the size of the input is unknown", "set the input shapes with input_shapes")
        if extent > size:
            x = op.slice(x, axis, 0, size)
        elif extent < size:
            pads = [0] * rank
            pads[axis] = size - extent
            x = op.pad(x, [*[0] * rank, *pads])
    height, width = sizes
    bins = width // 2 + 1
    angle = -2 * np.pi / width * (np.outer(np.arange(width), np.arange(bins)) % width)
    real, imaginary = (op.emit("matmul", [x, op.constant(f(angle).astype(np.float32))]) for f in (np.cos, np.sin))
    if height > 1:
        angle = -2 * np.pi / height * (np.outer(np.arange(height), np.arange(height)) % height)
        cos, sin = (op.constant(f(angle).astype(np.float32)) for f in (np.cos, np.sin))
        parts = [op.emit("matmul", [m, v]) for v in (real, imaginary) for m in (cos, sin)]
        real = op.map([parts[0], parts[3]], lambda a, b: a - b)
        imaginary = op.map([parts[1], parts[2]], lambda a, b: a + b)
    pair = [op.copy([v], kind="unsqueeze", axes=[rank]) for v in (real, imaginary)]
    return op.copy(pair, kind="concat", axis=rank)


@rule("REAL", "IMAG", "COMPLEX_ABS")
def parts(op: Operation) -> Tensor:
    x = op.input(0)
    if op.scope.subgraph.tensors[op.spec.inputs[0]].type_name != "COMPLEX64":
        raise op.unsupported("the operand is not complex64", "cast it to complex64 before exporting")
    axis = op.rank() - 1
    real, imaginary = op.emit_all("copy", [x], 2, kind="split", axis=axis, shape=[1, 1])
    if op.spec.op == "COMPLEX_ABS":
        part = op.map([real, imaginary], lambda a, b: (a * a + b * b).sqrt())
    else:
        part = real if op.spec.op == "REAL" else imaginary
    return op.copy([part], kind="squeeze", axes=[axis])
