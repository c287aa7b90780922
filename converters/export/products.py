"""Export rules for products and windows: matmul, conv, conv_transpose, pool, recurrent, roi_align.
Channels-last ops get a transpose before and after. Quantized ops become float ops between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from linnet.converters.activations import ACTIVATIONS, GATES
from linnet.converters.export.writer import Writer, export
from linnet.converters.problems import Unsupported
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Node, Tensor
from linnet.passes.floats import dequantized

_AUTO_PAD = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def channels_first(w: Writer, node: Node, name: str) -> tuple[str, list[int] | None]:
    """Moves the channels of the first operand to axis 1. Also returns the permutation that undoes this, or None."""
    x = node.inputs[0]
    assert x is not None
    axis = int(node.attribute("channel_axis"))
    if x.rank is None:
        if axis == 1:
            return name, None
        raise Unsupported("the rank of the channels-last input is unknown", "give the input a known shape")
    if axis % x.rank == 1:
        return name, None
    return w.transposed(name, [0, x.rank - 1, *range(1, x.rank - 1)]), [0, *range(2, x.rank), 1]


def back(w: Writer, name: str, perm: list[int] | None) -> str:
    return name if perm is None else w.transposed(name, perm)


def window(node: Node, kernel: Sequence[int] = ()) -> dict[str, Any]:
    """The ONNX attributes for strides, dilations and padding."""
    mode = str(node.attribute("auto_pad"))
    found: dict[str, Any] = {
        name: list(node.attribute(name)) or None for name in ("strides", "dilations") if name in _names(node)
    }
    if mode in _AUTO_PAD:
        found["auto_pad"] = _AUTO_PAD[mode]
    else:
        found["pads"] = list(node.attribute("pads")) or None
    if kernel:
        found["kernel_shape"] = list(kernel)
    return found


def _names(node: Node) -> set[str]:
    from linnet._generated.op_table import OPS

    return set(OPS[node.op]["attributes"])


def operands(w: Writer, node: Node) -> tuple[str, str, str]:
    """x, w and bias as floats. The scale of an integer bias is the scale of x times the scale of w."""
    x, weights = node.inputs[0], node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    assert x is not None and weights is not None
    if bias is None or bias.dtype not in ("i32", "i64"):
        return w.real(x), w.real(weights), w.of(bias)
    if x.quantization is None or weights.quantization is None or bias.data is None:
        raise Unsupported("an integer bias must be a constant, and both factors need scales", "export the float model")
    scale = np.float64(x.quantization.scale[0]) * weights.quantization.scale.astype(np.float64)
    return w.real(x), w.real(weights), w.constant((bias.data * scale).astype(np.float32), bias.name)


def result(w: Writer, node: Node, name: str) -> str:
    """Quantizes a float result if the node's output is quantized."""
    y = node.outputs[0]
    if y.quantization is not None and y.dtype in ("i8", "u8", "i16"):
        return w.stored(name, y)
    return name


def _raw_integers(node: Node) -> bool:
    return (
        node.outputs[0].dtype in ("i32", "i64")
        and node.inputs[0] is not None
        and node.inputs[0].dtype not in ("i32", "i64")
    )


def _integer_product(w: Writer, node: Node, op: str, names: Sequence[str], **attributes: Any) -> str:
    """MatMulInteger or ConvInteger: sums of integers with the zero points subtracted."""
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        raise Unsupported("ONNX's MatMulInteger and ConvInteger take no bias", "export the float model")
    zeros = []
    for tensor in node.inputs[:2]:
        assert tensor is not None
        if tensor.dtype not in ("i8", "u8"):
            raise Unsupported(
                f"ONNX's MatMulInteger and ConvInteger take i8 or u8, not {tensor.dtype}", "export the float model"
            )
        q = tensor.quantization
        zero = np.zeros(1, np.int32) if q is None else q.zero.reshape(-1)
        zero = zero[0] if np.all(zero == zero[0]) else zero
        zeros.append(w.constant(np.asarray(zero, numpy_dtype(tensor.dtype)), "zero"))
    return str(w.emit(op, [*names, *zeros], **attributes))


@export("matmul")
def matmul(w: Writer, node: Node) -> str:
    a, b = node.inputs[0], node.inputs[1]
    assert a is not None and b is not None
    flags = [bool(node.attribute("transpose_a")), bool(node.attribute("transpose_b"))]
    if _raw_integers(node):
        names = [_swapped(w, w.of(t), t) if flag else w.of(t) for t, flag in zip((a, b), flags, strict=True)]
        return _integer_product(w, node, "MatMulInteger", names)
    x, y, bias = operands(w, node)
    if a.rank == 2 and b.rank == 2 and (bias or any(flags)) and "i" not in a.dtype[:1]:
        return result(w, node, w.emit("Gemm", [x, y, bias], transA=int(flags[0]), transB=int(flags[1])))
    x, y = (_swapped(w, n, t) if flag else n for n, t, flag in zip((x, y), (a, b), flags, strict=True))
    made = w.emit("MatMul", [x, y])
    return result(w, node, w.emit("Add", [made, bias]) if bias else made)


def _swapped(w: Writer, name: str, tensor: Tensor) -> str:
    """Swaps the last two dimensions."""
    if tensor.rank is None:
        raise Unsupported("the rank of the transposed matrix is unknown", "give the matrix a known shape")
    order = list(range(tensor.rank))
    return w.transposed(name, [*order[:-2], order[-1], order[-2]])


@export("conv")
def conv(w: Writer, node: Node) -> str:
    weights = node.inputs[1]
    assert weights is not None
    kernel = [d for d in (weights.shape or ())[2:] if isinstance(d, int)]
    settings = {**window(node, kernel), "group": int(node.attribute("group"))}
    if _raw_integers(node):
        x, perm = channels_first(w, node, w.operand(node, 0))
        return back(w, _integer_product(w, node, "ConvInteger", [x, w.of(weights)], **settings), perm)
    x, real, bias = operands(w, node)
    x, perm = channels_first(w, node, x)
    return back(w, result(w, node, w.emit("Conv", [x, real, bias], **settings)), perm)


@export("conv_transpose")
def conv_transpose(w: Writer, node: Node) -> str:
    weights = node.inputs[1]
    assert weights is not None
    kernel = [d for d in (weights.shape or ())[2:] if isinstance(d, int)]
    settings = {**window(node, kernel), "group": int(node.attribute("group"))}
    for name in ("output_padding", "output_shape"):
        settings[name] = list(node.attribute(name)) or None
    x, real, bias = operands(w, node)
    x, perm = channels_first(w, node, x)
    return back(w, result(w, node, w.emit("ConvTranspose", [x, real, bias], **settings)), perm)


@export("pool")
def pool(w: Writer, node: Node) -> list[str]:
    x, kind = node.inputs[0], str(node.attribute("kind"))
    assert x is not None
    settings = window(node, node.attribute("kernel"))
    settings["ceil_mode"] = int(node.attribute("ceil_mode"))
    integers = x.quantization is not None and kind != "max"
    name, perm = channels_first(w, node, w.real(x) if integers else w.of(x))
    if kind == "max":
        settings["storage_order"] = int(node.attribute("storage_order"))
        if len(node.outputs) > 1:
            if perm is not None:
                raise Unsupported("ONNX has no indices for a channels-last pool", "put the channels first")
            return list(w.emit("MaxPool", [name], 2, **settings))
        return [back(w, w.emit("MaxPool", [name], **settings), perm)]
    if kind == "average":
        if all(d == 1 for d in settings["dilations"] or ()) and w.opset < 19:
            settings.pop("dilations")
        made = w.emit("AveragePool", [name], count_include_pad=int(node.attribute("count_include_pad")), **settings)
    else:
        made = w.emit("LpPool", [name], p=int(node.attribute("p")), **settings)
    return [back(w, result(w, node, made) if integers else made, perm)]


_ACTIVATIONS = {
    "sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "affine": "Affine", "leakyrelu": "LeakyRelu",
    "thresholdedrelu": "ThresholdedRelu", "scaledtanh": "ScaledTanh", "hardsigmoid": "HardSigmoid", "elu": "Elu",
    "softsign": "Softsign", "softplus": "Softplus",
}  # fmt: skip


@export("recurrent")
def recurrent(w: Writer, node: Node) -> list[str]:
    """If a matmul with constant weights precedes the op, its operands become ONNX's X and W. Otherwise X is the op's
    operand p (the product) and W is a block of the identity matrix."""
    p, weights = node.inputs[0], node.inputs[1]
    assert p is not None and weights is not None
    kind, direction = str(node.attribute("kind")), str(node.attribute("direction"))
    shape = weights.static_shape
    if shape is None:
        raise Unsupported("the shape of the recurrent weights is unknown", "make the weights a constant")
    directions, width, hidden = shape
    assert width == GATES[kind] * hidden
    dtype = numpy_dtype(p.dtype)
    x, w_in, of_input = _projection(w, p, directions, width)
    if not x:
        eye = np.eye(directions * width, dtype=dtype).reshape(directions, width, directions * width)
        x, w_in, of_input = w.of(p), w.constant(eye, "identity"), None
    extra = node.inputs[6] if len(node.inputs) > 6 else None
    bias = ""
    if of_input is not None or extra is not None:
        both = np.zeros((directions, 2 * width), dtype)
        if of_input is not None:
            both[:, :width] = of_input.reshape(directions, width)
        if extra is not None:
            if extra.data is None:
                raise Unsupported(
                    "the bias of the state is not a constant", "make it a constant: ONNX keeps all biases in one"
                )
            both[:, 2 * width - hidden :] = extra.data
        bias = w.constant(both, "bias")
    names = [x, w_in, _state_weights(w, weights), bias, w.operand(node, 4), w.operand(node, 2)]
    settings: dict[str, Any] = {"hidden_size": hidden, "direction": direction, **_activations(node)}
    if node.attribute("clip"):
        settings["clip"] = float(node.attribute("clip"))
    if kind == "lstm":
        names += [w.operand(node, 3), w.operand(node, 5)]
        settings["input_forget"] = int(node.attribute("input_forget"))
    if kind == "gru":
        settings["linear_before_reset"] = int(node.attribute("linear_before_reset"))
    made = w.emit(kind.upper(), names, len(node.outputs), **settings)
    return [made] if isinstance(made, str) else list(made)


def _state_weights(w: Writer, weights: Tensor) -> str:
    """The weights as floats. DequantizeLinear has scales per block only since opset 21, and no ONNX op rounds the state."""
    q = weights.quantization
    if q is None or not q.block or weights.data is None:
        return w.real(weights)
    return w.constant(dequantized(weights.data, q), weights.name)


def _projection(w: Writer, p: Tensor, directions: int, width: int) -> tuple[str, str, np.ndarray[Any, Any] | None]:
    """(x, W [directions, width, inputs], bias) of the matmul that makes p; empty names if no usable matmul makes it."""
    maker = p.node
    if maker is None or maker.op != "matmul" or maker.attribute("transpose_a") or p.quantization is not None:
        return "", "", None
    x, weights = maker.inputs[0], maker.inputs[1]
    bias = maker.inputs[2] if len(maker.inputs) > 2 else None
    if (
        x is None
        or weights is None
        or weights.data is None
        or weights.data.ndim != 2
        or x.rank != 3
        or x.dtype != p.dtype
    ):
        return "", "", None
    if weights.dtype != p.dtype or (bias is not None and bias.data is None):
        return "", "", None
    data = weights.data if maker.attribute("transpose_b") else weights.data.T
    name = w.constant(np.ascontiguousarray(data).reshape(directions, width, -1), weights.name)
    given = None if bias is None or bias.data is None else np.broadcast_to(bias.data, (directions * width,))
    return w.of(x), name, given


def _activations(node: Node) -> dict[str, Any]:
    numbers = list(node.attribute("activations"))
    if not numbers:
        return {}
    by_number = {a.number: (name, a) for name, a in ACTIVATIONS.items()}
    found = [by_number[n] for n in numbers]
    alphas, betas = (list(node.attribute(n)) or [0.0] * len(found) for n in ("alpha", "beta"))
    return {
        "activations": [_ACTIVATIONS[name] for name, _ in found],
        "activation_alpha": [float(v) for v, (_, a) in zip(alphas, found, strict=True) if a.alpha is not None] or None,
        "activation_beta": [float(v) for v, (_, a) in zip(betas, found, strict=True) if a.beta is not None] or None,
    }


@export("roi_align")
def roi_align(w: Writer, node: Node) -> str:
    return str(
        w.emit(
            "RoiAlign", [w.operand(node, i) for i in range(3)], mode=str(node.attribute("kind")),
            output_height=int(node.attribute("height")), output_width=int(node.attribute("width")),
            sampling_ratio=int(node.attribute("sampling_ratio")), spatial_scale=float(node.attribute("spatial_scale")),
            coordinate_transformation_mode="half_pixel" if node.attribute("half_pixel") else "output_half_pixel",
        )
    )  # fmt: skip
