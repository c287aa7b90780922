"""Export rules for normalizations and softmax.
Optional scales and offsets that ONNX requires become constants of ones and zeros."""

from __future__ import annotations

import math

import numpy as np

from linnet.converters.export.products import back, channels_first
from linnet.converters.export.writer import Writer, export
from linnet.converters.problems import Unsupported
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Node


@export("softmax")
def softmax(w: Writer, node: Node) -> str:
    op = "LogSoftmax" if node.attribute("log") else "Softmax"
    return str(w.emit(op, [w.operand(node, 0)], axis=int(node.attribute("axis"))))


@export("batch_norm")
def batch_norm(w: Writer, node: Node) -> str:
    x, perm = channels_first(w, node, w.operand(node, 0))
    names = [x, *(w.operand(node, i) for i in range(1, 5))]
    return back(w, w.emit("BatchNormalization", names, epsilon=float(node.attribute("epsilon"))), perm)


@export("group_norm")
def group_norm(w: Writer, node: Node) -> str:
    tensor, groups = node.inputs[0], int(node.attribute("groups"))
    assert tensor is not None
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    known = weights.shape[0] if weights is not None and weights.shape else None
    channels = tensor.shape[int(node.attribute("channel_axis"))] if tensor.shape is not None else known
    x, perm = channels_first(w, node, w.operand(node, 0))
    scale, bias = w.operand(node, 1), w.operand(node, 2)
    if not scale or not bias:
        if not isinstance(channels, int):
            raise Unsupported(
                "scale or bias is missing and the number of channels is unknown", "give the input a known shape"
            )
        scale = scale or w.constant(np.ones(channels, numpy_dtype(tensor.dtype)), "ones")
        bias = bias or w.constant(np.zeros(channels, numpy_dtype(tensor.dtype)), "zeros")
    epsilon = float(node.attribute("epsilon"))
    if groups == 0 or groups == channels:
        return back(w, w.emit("InstanceNormalization", [x, scale, bias], epsilon=epsilon), perm)
    if w.opset < 21:
        raise Unsupported("group normalization with a scale per channel needs opset 21", "call to_onnx with opset=21")
    return back(w, w.emit("GroupNormalization", [x, scale, bias], epsilon=epsilon, num_groups=groups), perm)


@export("layer_norm")
def layer_norm(w: Writer, node: Node) -> list[str]:
    x = node.inputs[0]
    assert x is not None
    axis, epsilon = int(node.attribute("axis")), float(node.attribute("epsilon"))
    scale, bias = w.operand(node, 1), w.operand(node, 2)
    if node.attribute("rms"):
        return [_rms(w, node, axis, epsilon, scale, bias)]
    if not scale:
        shape = (x.shape or ())[axis:]
        if not shape or not all(isinstance(d, int) for d in shape):
            raise Unsupported(
                "the scale is missing and the normalized sizes are unknown", "give the input a known shape"
            )
        sizes = [d for d in shape if isinstance(d, int)]
        scale = w.constant(np.ones(sizes, numpy_dtype(x.dtype)), "ones")
        assert math.prod(sizes) >= 0
    made = w.emit("LayerNormalization", [w.of(x), scale, bias], len(node.outputs), axis=axis, epsilon=epsilon)
    return [made] if isinstance(made, str) else list(made)


def _rms(w: Writer, node: Node, axis: int, epsilon: float, scale: str, bias: str) -> str:
    """x / sqrt(mean(x^2) + epsilon), written as separate ops: RMSNormalization exists only from opset 23."""
    x = node.inputs[0]
    assert x is not None
    if len(node.outputs) > 1 or x.rank is None:
        raise Unsupported("RMS normalization needs one output and an input of known rank", "leave out the statistics")
    axes = w.integers(list(range(axis % x.rank, x.rank)))
    name = w.of(x)
    square = w.emit("ReduceMean", [w.emit("Mul", [name, name]), axes], keepdims=1)
    shifted = w.emit("Add", [square, w.constant(np.asarray(epsilon, numpy_dtype(x.dtype)), "epsilon")])
    made = w.emit("Div", [name, w.emit("Sqrt", [shifted])])
    made = w.emit("Mul", [made, scale]) if scale else made
    return str(w.emit("Add", [made, bias]) if bias else made)
