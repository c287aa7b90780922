"""Cross-layer equalization (Nagel et al. 2019), from the values seen. If a channel uses little of its tensor's 8-bit
range, the product that makes it scales it up, and the product that reads it scales it down. The range stays the same."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.function import Function, Node, Tensor
from linnet.quantization.clamps import keeps_scale
from linnet.quantization.rows import as_rows, from_rows

_MOST = 8.0  # by which a channel is scaled: the reader's weights of this channel lose as much of their precision
Floats = npt.NDArray[np.float64]
Factors = dict[Node, dict[str, Floats]]  # of a product: of the channels that it made, and that it read


@dataclasses.dataclass(frozen=True)
class Pair:
    """A product, the tensor that it makes (possibly after an activation that keeps scales, such as ReLU), and the
    product that is its only reader."""

    maker: Node
    between: Tensor
    reader: Node
    axis: int  # of the channels of `between`


def pairs(function: Function) -> list[Pair]:
    """The pairs of products with constant weights between which channels can be scaled."""
    consumers, outputs = function.consumers(), set(function.outputs)
    found = []
    for maker in function.nodes:
        if not _constant(maker):
            continue
        between = maker.outputs[0]
        users = consumers.get(between, [])
        if len(users) == 1 and between not in outputs and users[0].inputs[0] is between and keeps_scale(users[0]):
            between = users[0].outputs[0]
            users = consumers.get(between, [])
        if len(users) != 1 or between in outputs or users[0].inputs[0] is not between or not _constant(users[0]):
            continue
        axis = _axis(maker)
        if axis == _axis(users[0]) and _channels(maker) == _read(users[0]):
            found.append(Pair(maker, between, users[0], axis))
    return found


def pairs_of(graph: Graph, observed: Container[Tensor]) -> list[Pair]:
    """The pairs in all functions of a graph. Only pairs whose tensor was observed are included."""
    return [pair for function in graph.functions for pair in pairs(function) if pair.between in observed]


def _constant(node: Node) -> bool:
    """Whether the node is a convolution or matrix product with constant f32 weights and bias."""
    if node.op not in traits.PRODUCTS or traits.output_axis(node.op) not in (0, None):
        return False
    w, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    if w is None or w.data is None or w.dtype != "f32" or (bias is not None and bias.data is None):
        return False
    return node.op not in traits.MATRICES or (w.data.ndim == 2 and not node.attributes.get("transpose_a", False))


def _axis(node: Node) -> int:
    """The axis of the channels: -1 for matrix products and for convolutions with channels last, else 1."""
    return -1 if node.op in traits.MATRICES else int(node.attributes.get("channel_axis", 1))


def _channels(node: Node) -> int:
    """The number of channels that a product makes."""
    w = node.inputs[1]
    assert w is not None and w.data is not None
    return int(np.prod(as_rows(node, w.data).shape[:2]))


def _read(node: Node) -> int:
    """The number of channels that a product reads."""
    w = node.inputs[1]
    assert w is not None and w.data is not None
    if node.op in traits.MATRICES:
        return int(as_rows(node, w.data).shape[2])
    return int(w.data.shape[1]) * int(node.attributes.get("group", 1))


def factors(found: Iterable[Pair], peaks: Mapping[Tensor, Floats], most: Callable[[Tensor], float]) -> Factors:
    """The factors of the channels between each pair. peaks: the largest value of each channel. most: gives the largest
    value that a tensor's range holds, or 0 if the tensor is not stored as integers."""
    table: Factors = {}
    for pair in found:
        peak, end = peaks.get(pair.between), most(pair.between)
        if peak is None or end <= 0 or len(peak) != _channels(pair.maker):
            continue
        room = np.clip(end / np.maximum(peak, end * 1e-6), 1.0, _MOST)
        by = np.where(peak > end * 1e-6, np.sqrt(room), 1.0)
        table.setdefault(pair.maker, {})["made"] = by
        table.setdefault(pair.reader, {})["read"] = by
    return table


def scaled(node: Node, w: npt.NDArray[Any], by: Mapping[str, Floats]) -> Floats:
    """The weights, multiplied by the factors of their output channels and divided by the factors of their input
    channels."""
    rows = as_rows(node, np.asarray(w, np.float64))
    if "made" in by:
        rows = rows * by["made"].reshape(rows.shape[0], rows.shape[1], 1)
    if "read" in by:
        rows = rows / columns(node, by["read"])[:, None, :]
    return from_rows(node, rows, w.shape)


def columns(node: Node, by: Floats) -> Floats:
    """For each column of a product's rows, the factor of the column's input channel: [groups, columns]."""
    w = node.inputs[1]
    assert w is not None and w.data is not None
    matrix = node.op in traits.MATRICES
    groups = 1 if matrix else int(node.attributes.get("group", 1))
    taps = 1 if matrix else math.prod(w.data.shape[2:])
    return np.repeat(by.reshape(groups, -1), taps, axis=1)
