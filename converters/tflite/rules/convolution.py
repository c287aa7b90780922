"""Rules for convolutions. TFLite's weights [out, k..., in] become [out, in/group, k...]; channels are the last axis.
Integers accumulate exactly and are requantized with TFLite's double rounding (reference_integer_ops)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.converters.tflite import hybrid
from linnet.converters.tflite.fixed_point import RANGES
from linnet.converters.tflite.operation import Operation, dequantized, per_tensor
from linnet.converters.tflite.registry import rule
from linnet.ir.dtypes import Quantization
from linnet.ir.function import Tensor

PADDING = {0: "same_upper", 1: "valid"}


def padding(op: Operation) -> str:
    value = op.option("padding")
    if value not in PADDING:
        raise op.unsupported(f"padding {value} is not supported", "use SAME or VALID")
    return PADDING[value]


def weight(op: Operation, index: int) -> tuple[npt.NDArray[Any], Quantization | None]:
    """The value and quantization of a weight, which must be a constant or a DEQUANTIZE of a constant."""
    tensor = op.input(index)
    if tensor.data is None:
        raise op.unsupported(f"the weight (input {index}) is not a constant", "export it as a constant")
    return tensor.data, tensor.quantization


def product_operands(
    op: Operation, x: Tensor, value: npt.NDArray[Any], quantization: Quantization | None, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, bool]:
    """Returns (x, weight, bias, whether it is an integer product). The weight is transposed so that its output channels
    are at axis 0.

    If TFLite has no hybrid kernel, float activations with integer weights are computed in floats.
    """
    integer = x.quantization is not None and x.dtype in RANGES
    if not integer:
        if value.dtype == np.float16:
            value = value.astype(np.float32)
        elif quantization is not None:
            value = dequantized(value, quantization)
        elif value.dtype != np.float32:
            raise op.unsupported(f"the weight has type {value.dtype} but no quantization", "export the model again")
        if bias is not None and bias.quantization is not None:
            bias = op.real(bias)
        if bias is not None and bias.dtype == "f16":
            bias = op.cast(bias, "f32")
        return x, op.constant(np.ascontiguousarray(value)), bias, False
    if quantization is None:
        raise op.unsupported(
            "the activations are integers, but the weight has no quantization", "quantize the weight too"
        )
    w = op.constant(np.ascontiguousarray(value), quantization)
    if bias is not None and bias.data is not None:
        wide = "i64" if x.dtype == "i16" else "i32"
        if bias.dtype not in ("i32", "i64"):
            raise op.unsupported(f"the bias of an integer product has type {bias.dtype}", "quantize the model again")
        bias = op.constant(bias.data.astype(np.int64 if wide == "i64" else np.int32))
    return x, w, bias, True


def one_scale(op: Operation, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Marks the operands with the scales (float(sx * sw), 1).

    For weights quantized per tensor, TFLite rounds this product to a float before dividing by the output's scale
    (GetQuantizedConvolutionMultipler)."""
    assert x.quantization is not None and w.quantization is not None
    sx, zx = per_tensor(x.quantization, "the input")
    sw, zw = per_tensor(w.quantization, "the weight")
    product = np.float32(sx * sw)
    if float(product) == float(sx) * float(sw):
        return x, w
    relabelled = op.emit("copy", [x], Quantization(np.array([product]), np.array([zx], np.int32)), kind="identity")
    value = Quantization(np.ones(1, np.float32), np.array([zw], np.int32))
    if w.data is not None:
        return relabelled, op.constant(w.data, value)
    return relabelled, op.emit("copy", [w], value, kind="identity")


def finish(op: Operation, y: Tensor) -> Tensor:
    """Applies the fused activation to an integer or float product."""
    spec = op.output()
    if y.dtype in RANGES:
        y = op.quantized(y, spec)
    return op.activate(y)


def product_quantization(op: Operation, integer: bool) -> Quantization | None:
    if not integer:
        return None
    spec = op.output()
    if spec.quantization is None:
        raise op.unsupported(f"the integer output {spec.name!r} has no quantization", "quantize the model again")
    return spec.quantization


def moved(quantization: Quantization | None, axis: int) -> Quantization | None:
    """The quantization of a weight whose channels moved to `axis`."""
    if quantization is None or quantization.axis is None:
        return quantization
    return Quantization(quantization.scale, quantization.zero, axis)


def _axis_check(op: Operation, quantization: Quantization | None, axis: int) -> None:
    if quantization is not None and quantization.axis not in (None, axis):
        raise op.unsupported(f"the weight is quantized along axis {quantization.axis}", f"quantize along axis {axis}")


@rule("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_3D")
def conv(op: Operation) -> Tensor:
    kind = op.spec.op
    value, quantization = weight(op, 1)
    spatial = 3 if kind == "CONV_3D" else 2
    if value.ndim != spatial + 2:
        raise op.unsupported(f"the weight has rank {value.ndim}", "the model is damaged: export it again")
    x = op.input(0)
    channels = None if x.shape is None else x.shape[-1]
    group = 1
    if kind == "CONV_2D":
        _axis_check(op, quantization, 0)
        value = value.transpose(0, 3, 1, 2)
        if isinstance(channels, int) and value.shape[1] and channels % value.shape[1] == 0:
            group = channels // value.shape[1]
    elif kind == "DEPTHWISE_CONV_2D":
        _axis_check(op, quantization, 3)
        value = value.transpose(3, 0, 1, 2)
        multiplier = op.option("multiplier")
        group = channels if isinstance(channels, int) else value.shape[0] // max(multiplier, 1)
    else:  # [d, h, w, in, out]
        _axis_check(op, quantization, 4)
        value = value.transpose(4, 3, 0, 1, 2)
    names = ("d", "h", "w")[3 - spatial :]
    attributes: dict[str, Any] = {
        "strides": [op.option(f"stride_{n}") for n in names], "dilations": [op.option(f"dilation_{n}") for n in names],
        "auto_pad": padding(op), "group": group, "channel_axis": -1,
    }  # fmt: skip
    if hybrid.applies(x, value.dtype, quantization):
        assert quantization is not None
        return finish(op, _hybrid(op, x, hybrid.signed(value), quantization.scale.reshape(-1), attributes))
    x, w, bias, integer = product_operands(op, x, value, moved(quantization, 0), op.optional(2))
    if integer:
        attributes["requant"] = "tflite"
        x, w = one_scale(op, x, w) if x.dtype == "u8" else (x, w)
    return finish(op, op.emit("conv", [x, w, bias], product_quantization(op, integer), **attributes))


def _hybrid(
    op: Operation, x: Tensor, value: npt.NDArray[Any], scale: npt.NDArray[Any], attributes: dict[str, Any]
) -> Tensor:
    """Activations are rounded symmetrically if the weights have one scale. They are rounded asymmetrically if the weights have
    scales per channel, or the convolution has groups or is depthwise. Factors are multiplied in the order of the kernels."""
    if op.spec.op == "DEPTHWISE_CONV_2D":
        return hybrid.conv(op, x, value, scale, op.optional(2), True, attributes, lambda v, s, c: v * (c * s))
    several = bool(np.any(scale != scale[0])) or attributes["group"] != 1
    if several:
        return hybrid.conv(op, x, value, scale, op.optional(2), True, attributes, lambda v, s, c: v * c * s)
    return hybrid.conv(op, x, value, scale[:1], op.optional(2), False, attributes, lambda v, s, c: v * (s * c))


@rule("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE")
def transpose_conv(op: Operation) -> Tensor:
    """Operands: output shape, weight [out, kh, kw, in] or [kd, kh, kw, out, in], x, bias."""
    size = [int(v) for v in op.require(0, "the output shape")]
    value, quantization = weight(op, 1)
    x = op.input(2)
    names = ("h", "w") if op.spec.op == "TRANSPOSE_CONV" else ("d", "h", "w")
    rank = len(names) + 2
    if value.ndim != rank or len(size) != rank or x.shape is None or len(x.shape) != rank:
        raise op.unsupported(f"an operand does not have rank {rank}", "the model is damaged: export it again")
    _axis_check(op, quantization, 0)
    value = value.transpose(3, 0, 1, 2) if rank == 4 else value.transpose(4, 3, 0, 1, 2)
    x, w, bias, integer = product_operands(op, x, value, moved(quantization, 1), op.optional(3))
    strides = [op.option(f"stride_{n}") for n in names]
    dilations = [op.option(f"dilation_{n}") if rank == 5 else 1 for n in names]
    kernel = [d * (k - 1) + 1 for k, d in zip(value.shape[2:], dilations, strict=True)]
    attributes: dict[str, Any] = {
        "strides": strides, "dilations": dilations, "channel_axis": -1,
        **transposed_pads(op, x, kernel, strides, size[1:-1]),
    }  # fmt: skip
    if integer:
        attributes["requant"] = "tflite"
        x, w = one_scale(op, x, w) if x.dtype == "u8" else (x, w)
    return finish(op, op.emit("conv_transpose", [x, w, bias], product_quantization(op, integer), **attributes))


def transposed_pads(
    op: Operation, x: Tensor, kernel: Sequence[int], strides: Sequence[int], size: Sequence[int]
) -> dict[str, Any]:
    """The padding that gives an output of this size: elements to cut off (SAME: half of them at the front) or to add at
    the end."""
    begins, ends, extra = [], [], []
    for i, (k, stride, wanted) in enumerate(zip(kernel, strides, size, strict=True)):
        d = None if x.shape is None else x.shape[1 + i]
        if not isinstance(d, int):
            raise op.unsupported("the size of the input is unknown", "set the input shapes with input_shapes")
        total = (d - 1) * stride + k - wanted  # negative if the output is larger than the part that is written
        begin = max(total, 0) // 2 if padding(op) == "same_upper" else 0
        begins.append(begin)
        ends.append(max(total - begin, 0))
        extra.append(max(begin - total, 0))
    return {"pads": [*begins, *ends], "output_padding": extra}
