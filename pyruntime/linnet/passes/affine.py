"""Scales and offsets per channel behind a convolution or matrix product go into its weight and bias.
That is batch-norm folding (Jacob et al. 2018, section 3.2), and the same for Mul, Add, Sub and Div by constants."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.graph import Function, Node, Tensor
from linnet.mapping import Program, pointwise, program_of
from linnet.passes.rewrite import join_sources

Array = npt.NDArray[Any]
FLOATS = {"f32": np.float32, "f64": np.float64}
LINEAR = frozenset({"conv", "conv_transpose", "matmul"})


def absorb(function: Function) -> bool:
    """Folds what follows conv, conv_transpose and matmul with constant weights into them, until nothing changes."""
    readers, given = function.consumers(), set(function.outputs)
    gone: set[Node] = set()
    for node in function.nodes:
        while node.op in LINEAR and (follower := only_reader(node, readers, given)) is not None:
            if not _absorb_one(function, node, follower):
                break
            gone.add(follower)
    function.nodes = [node for node in function.nodes if node not in gone]
    return bool(gone)


def only_reader(node: Node, readers: Mapping[Tensor, Sequence[Node]], given: Container[Tensor]) -> Node | None:
    """The one node that reads the first output of `node`. given: what leaves the function, and so is read outside too."""
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
    replaced = follower.outputs[0]
    node.outputs[0] = replaced  # keeps the name and the place among the outputs
    replaced.node = node
    node.source = join_sources(node.source, follower.source)
    # what the follower read besides y is constant, so the node may stay where it is
    return True


def _channels(node: Node, w: Array) -> int | None:
    """How many output channels the weight makes; None where there is no such axis."""
    if node.op == "conv":
        return int(w.shape[0])
    if node.op == "conv_transpose":
        return int(w.shape[1] * node.attributes["group"])
    return int(w.shape[0 if node.attributes["transpose_b"] else 1]) if w.ndim == 2 else None


def _axis(node: Node, rank: int) -> int:
    axis = -1 if node.op == "matmul" else int(node.attributes["channel_axis"])
    return axis + rank if axis < 0 else axis


def _scaled(node: Node, w: Array, scale: Array) -> Array:
    wide = w.astype(np.float64)
    if node.op == "conv":
        return wide * scale.reshape(-1, *[1] * (w.ndim - 1))
    if node.op == "conv_transpose":  # [in, out/group, k...]: the input channels of a group share their outputs
        group = node.attributes["group"]
        parts = wide.reshape(group, w.shape[0] // group, *w.shape[1:])
        return (parts * scale.reshape(group, 1, w.shape[1], *[1] * (w.ndim - 2))).reshape(w.shape)
    return wide * (scale[:, None] if node.attributes["transpose_b"] else scale)


def affine_of(node: Node, x: Tensor, channels: int, axis: int) -> tuple[Array, Array] | None:
    """(scale, offset) per channel, in f64, when the node computes x * scale + offset with constants; else None."""
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
    """Walks the program with pairs (scale, offset) for values; anything not affine in x ends it."""
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
    """A constant that broadcasts along every axis but the channels', as one number per channel."""
    if tensor is None or tensor.data is None or tensor.dtype not in FLOATS or tensor.data.ndim > rank:
        return None
    shape = [1] * (rank - tensor.data.ndim) + list(tensor.data.shape)
    if any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] not in (1, channels):
        return None
    return np.broadcast_to(tensor.data.astype(np.float64).reshape(-1), (channels,))


def statistics(node: Node) -> tuple[Array, Array] | None:
    """(scale, offset) of a batch_norm with constant operands; else None."""
    operands = [t.data for t in node.inputs[1:] if t is not None and t.data is not None and t.dtype in FLOATS]
    if len(operands) != 4:
        return None
    gamma, beta, mean, variance = (o.astype(np.float64) for o in operands)
    scale = gamma / np.sqrt(variance + node.attributes["epsilon"])
    return scale, beta - mean * scale


def normalizations_to_maps(function: Function) -> None:
    """A batch_norm that no weight took becomes x * scale + offset, which joins the maps around it."""
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
        fresh.outputs, fresh.source = node.outputs, node.source
        node.outputs[0].node = fresh
        function.nodes[position] = fresh
