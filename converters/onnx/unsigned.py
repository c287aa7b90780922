"""Unsigned 16-bit activations of quantized models, as signed ones, and products of 16-bit activations with zero points. linnet's
fast kernels for 16 bits read signed numbers without zero points. All of this is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.converters.onnx.quantized_values import Values
from linnet.ir import traits
from linnet.ir.dtypes import Quantization
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.passes.kept_types import rewrites

_HALF = 32768


@rewrites(traits.CONVERTS)
def sign_activations(function: Function) -> None:
    """Makes tensors of u16 that are quantized and then only dequantized i16: 32768 is subtracted from the integers and from
    their zero point, so that the real values stay the same."""
    readers, outputs = function.consumers(), set(function.outputs)
    nodes, function.nodes = function.nodes, []
    source = function.source
    for node in nodes:
        y = node.outputs[0]
        uses = readers.get(y, [])
        suits = y.dtype == "u16" and y not in outputs and y.quantization is None and bool(uses) and _whole(node)
        if not suits or not all(_whole(n) and n.inputs[0] is y for n in uses):
            function.nodes.append(node)
            continue
        function.source = node.source
        x, scale, zero = (*node.inputs, None)[:3]
        attributes = {**node.attributes, "dtype": "i16"}
        made = emit("quantize", [x, scale, _moved(function, zero)], attributes, 1, node.name, function, dtypes=["i16"])[
            0
        ]
        made.name, made.shape = y.name, y.shape if made.shape is None else made.shape
        for use in uses:
            use.inputs = [made, use.inputs[1], _moved(function, (*use.inputs, None)[2])]
    function.source = source


def _whole(node: Node) -> bool:
    """Whether a quantize or dequantize node has scale and zero point as constants for the whole tensor."""
    if node.op not in traits.CONVERTS or node.attribute("block"):
        return False
    scale, zero = (*node.inputs, None, None)[1:3]
    given = [t for t in (scale, zero) if t is not None]
    return scale is not None and all(t.data is not None and t.data.size == 1 for t in given)


def _moved(function: Function, zero: Tensor | None) -> Tensor:
    """The zero point of the signed numbers."""
    number = 0 if zero is None or zero.data is None else int(zero.data.reshape(-1)[0])
    shape = () if zero is None or zero.data is None else zero.data.shape
    return function.constant(np.full(shape, number - _HALF, np.int16), "zero" if zero is None else zero.name)


def symmetric(
    values: Values, node: Node, x: Tensor, w: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, dict[str, Any]]:
    """The operands (w, x, bias) and attributes of a product of i16 activations, without zero points.

    With the zero points a and b, sum((x - a) * (w - b)) = sum(x * (w - b)) - a * sum(w - b). The last term becomes a part of the
    bias, and padding gets the value a. Weights of 8 bits with a zero point become differences of 16 bits, of which the file
    keeps 8 (linnet.converters.onnx.packing)."""
    assert x.quantization is not None and w.quantization is not None and w.data is not None
    attributes = dict(node.attributes)
    zero, own = int(x.quantization.zero[0]), w.quantization
    zeros = own.zero.astype(np.int64).reshape([-1 if i == own.axis else 1 for i in range(w.data.ndim)])
    differences = w.data.astype(np.int64) - zeros
    if zero and (terms := _terms(values, node, x, attributes, differences, zero)) is not None:
        x, added = terms
        old = np.zeros(1, np.int64) if bias is None or bias.data is None else bias.data.astype(np.int64)
        name = f"{w.name}/bias" if bias is None else bias.name
        bias = values.function.constant(old.reshape(-1) + added, name)
    if np.any(own.zero):
        q = Quantization(own.scale, np.zeros_like(own.zero), own.axis, 16)
        w = values.function.constant(differences.astype(np.int16), w.name, quantization=q)
    return w, x, bias, attributes


def _terms(
    values: Values, node: Node, x: Tensor, attributes: dict[str, Any], w: npt.NDArray[np.int64], zero: int
) -> tuple[Tensor, npt.NDArray[np.int64]] | None:
    """The activations without their zero point, and what the bias of each output then gains. None for products that pad in a
    way that needs the shape. Changes the attributes: the padding is a step of its own."""
    axis = traits.output_axis(node.op)
    if axis is None:
        if w.ndim != 2:
            return None
        added = -zero * w.sum(axis=1 if attributes.get("transpose_b") else 0)
    elif axis == 0:
        added = -zero * w.reshape(w.shape[0], -1).sum(axis=1)
    else:
        return None
    function, q = values.function, x.quantization
    assert q is not None
    pads = list(attributes.get("pads") or ())
    if axis == 0 and str(attributes.get("auto_pad", "explicit")) not in ("explicit", "valid"):
        return None
    if any(pads) and str(attributes.get("auto_pad", "explicit")) == "explicit":
        half, last = len(pads) // 2, int(attributes.get("channel_axis", 1)) != 1
        ends = [[0, *p, 0] if last else [0, 0, *p] for p in (pads[:half], pads[half:])]
        amounts = function.constant(np.array([*ends[0], *ends[1]], np.int64))
        value = function.constant(np.array(zero, np.int16))
        x = values.emit("copy", [x, amounts, value], {"kind": "pad"}, "i16", q)
        attributes["pads"] = [0] * len(pads)
    plain = Quantization(q.scale, np.zeros_like(q.zero), None, 16)
    return values.emit("copy", [x], {"kind": "identity"}, "i16", plain), added
