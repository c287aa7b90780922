"""Folds scales and offsets per channel after a convolution or matrix product into its weight and bias. This is
batch-norm folding (Jacob et al. 2018, section 3.2). Mul, Add, Sub and Div with constants are folded in the same way."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.builder.mapping import pointwise, program_of
from linnet.ir import traits
from linnet.ir.function import Function, Node, Tensor
from linnet.ir.program import Program
from linnet.ir.scopes import agree
from linnet.passes.kept_types import rewrites
from linnet.passes.rewrite import take_in

Array = npt.NDArray[Any]
FLOATS = {"f32": np.float32, "f64": np.float64}


@rewrites(traits.PRODUCTS)
def absorb(function: Function) -> bool:
    """Folds the affine ops that follow a conv, conv_transpose or matmul with constant weights into these weights, until
    nothing changes."""
    readers, given = function.consumers(), set(function.outputs)
    gone: set[Node] = set()
    for node in function.nodes:
        while node.op in traits.PRODUCTS and (follower := only_reader(node, readers, given)) is not None:
            if not agree(node, follower) or not _absorb_one(function, node, follower):
                break
            gone.add(follower)
    function.nodes = [node for node in function.nodes if node not in gone]
    return bool(gone)


def only_reader(node: Node, readers: Mapping[Tensor, Sequence[Node]], given: Container[Tensor]) -> Node | None:
    """The single node that reads the first output of `node`, or None. given: the function's outputs, which are also
    read outside the function."""
    y = node.outputs[0]
    found = readers.get(y, ())
    return found[0] if len(found) == 1 and y not in given else None


def _absorb_one(function: Function, node: Node, follower: Node) -> bool:
    y = node.outputs[0]
    if y.dtype not in FLOATS or y.rank is None or y.quantization is not None:
        return False
    w = node.inputs[1]
    if w is None or w.data is None or w.dtype != y.dtype:
        return False
    channels = _channels(node, w.data)
    old = node.inputs[2] if len(node.inputs) > 2 else None
    if channels is None or (old is not None and old.data is None):
        return False
    found = affine_of(follower, y, channels, _axis(node, y.rank))
    if found is None:
        return False
    scale, offset = found
    bias = np.zeros(channels) if old is None or old.data is None else old.data.astype(np.float64)
    bias = np.broadcast_to(bias, (channels,)) * scale + offset
    kind = FLOATS[y.dtype]
    if not np.all(scale == 1):
        node.inputs[1] = function.constant(_scaled(node, w.data, scale).astype(kind), w.name)
    if old is not None or np.any(offset):
        node.inputs = [*node.inputs[:2], function.constant(bias.astype(kind), f"{w.name}_bias")]
    take_in(node, follower)
    # the follower's other operands are constant, so the node can keep its position
    return True


def _channels(node: Node, w: Array) -> int | None:
    """How many output channels the weight has, or None if there is no such axis."""
    axis = traits.output_axis(node.op)
    if axis is None:
        return int(w.shape[0 if node.attributes["transpose_b"] else 1]) if w.ndim == 2 else None
    return int(w.shape[axis] * (node.attributes["group"] if axis else 1))


def _axis(node: Node, rank: int) -> int:
    axis = int(node.attributes.get("channel_axis", -1))
    return axis + rank if axis < 0 else axis


def _scaled(node: Node, w: Array, scale: Array) -> Array:
    wide = w.astype(np.float64)
    axis = traits.output_axis(node.op)
    if axis == 0:
        return wide * scale.reshape(-1, *[1] * (w.ndim - 1))
    if axis == 1:  # [in, out/group, k...]: the input channels of a group share its outputs
        group = node.attributes["group"]
        parts = wide.reshape(group, w.shape[0] // group, *w.shape[1:])
        return (parts * scale.reshape(group, 1, w.shape[1], *[1] * (w.ndim - 2))).reshape(w.shape)
    return wide * (scale[:, None] if node.attributes["transpose_b"] else scale)


def affine_of(node: Node, x: Tensor, channels: int, axis: int) -> tuple[Array, Array] | None:
    """(scale, offset) per channel in f64 if the node computes x * scale + offset with constants, else None."""
    if node.op == "batch_norm" and node.inputs[0] is x and x.rank is not None:
        own = node.attributes["channel_axis"]
        if (own + x.rank if own < 0 else own) != axis:
            return None
        return statistics(node)
    if node.op != "map" or len(node.outputs) != 1 or node.outputs[0].dtype != x.dtype:
        return None
    if x.shape is None or node.outputs[0].shape is None or len(node.outputs[0].shape) != len(x.shape):
        return None
    program = program_of(node)
    if program is None or program.stores[0].quantized:
        return None
    return _evaluate(program, node, x, channels, axis)


def _evaluate(program: Program, node: Node, x: Tensor, channels: int, axis: int) -> tuple[Array, Array] | None:
    """Interprets the program with pairs (scale, offset) as values. Returns None if a value is not affine in x."""
    values: list[tuple[Array, Array]] = []
    zero, one = np.zeros(channels), np.ones(channels)
    assert x.rank is not None
    for instruction in program.code:
        opcode, args = instruction.opcode, [values[r] for r in instruction.args]
        if opcode == "load":
            tensor = node.inputs[instruction.operand]
            if tensor is x:
                values.append((one, zero))
                continue
            number = _per_channel(tensor, channels, axis, x.rank)
            if number is None:
                return None
            values.append((zero, number))
        elif opcode == "const":
            values.append((zero, np.full(channels, float(instruction.number))))
        elif opcode in ("add", "sub"):
            sign = 1 if opcode == "add" else -1
            values.append((args[0][0] + sign * args[1][0], args[0][1] + sign * args[1][1]))
        elif opcode == "mul" and not (np.any(args[0][0]) and np.any(args[1][0])):
            (a, b), (c, d) = args
            values.append((a * d + c * b, b * d))
        elif opcode == "div" and not np.any(args[1][0]) and np.all(args[1][1] != 0):
            values.append((args[0][0] / args[1][1], args[0][1] / args[1][1]))
        elif opcode == "neg":
            values.append((-args[0][0], -args[0][1]))
        else:
            return None
    scale, offset = values[program.stores[0].register]
    if not np.all(np.isfinite(scale)) or not np.all(np.isfinite(offset)) or not np.any(scale):
        return None
    return scale, offset


def _per_channel(tensor: Tensor | None, channels: int, axis: int, rank: int) -> Array | None:
    """A constant as one number per channel, if it is uniform along every axis except the channel axis."""
    if tensor is None or tensor.data is None or tensor.dtype not in FLOATS or tensor.data.ndim > rank:
        return None
    shape = [1] * (rank - tensor.data.ndim) + list(tensor.data.shape)
    if any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(tensor.data.astype(np.float64).reshape(-1), (channels,))


def statistics(node: Node) -> tuple[Array, Array] | None:
    """(scale, offset) of a batch_norm with constant operands, else None."""
    operands = [t.data for t in node.inputs[1:] if t is not None and t.data is not None and t.dtype in FLOATS]
    if len(operands) != 4:
        return None
    gamma, beta, mean, variance = (o.astype(np.float64) for o in operands)
    scale = gamma / np.sqrt(variance + node.attributes["epsilon"])
    return scale, beta - mean * scale


@rewrites("batch_norm")
def normalizations_to_maps(function: Function) -> None:
    """If a batch_norm was not folded into a weight, turns it into x * scale + offset, which fuses with the maps around
    it."""
    for position, node in enumerate(list(function.nodes)):
        x = node.inputs[0] if node.op == "batch_norm" else None
        found = statistics(node) if x is not None and x.dtype in FLOATS else None
        if x is None or x.rank is None or x.data is not None or found is None:
            continue
        axis = node.attributes["channel_axis"]
        tail = [1] * (x.rank - 1 - (axis + x.rank if axis < 0 else axis))
        scale, offset = (function.constant(v.astype(FLOATS[x.dtype]).reshape(-1, *tail), node.name) for v in found)
        made: Tensor = pointwise([x, scale, offset], lambda v, s, o: v * s + o, x.dtype, function=function)
        fresh = function.nodes.pop()
        assert made.node is fresh
        fresh.outputs, fresh.source, fresh.placement = node.outputs, node.source, node.placement
        node.outputs[0].node = fresh
        function.nodes[position] = fresh
