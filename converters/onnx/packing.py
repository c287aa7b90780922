"""Packs constants that need only 2 or 4 bits per element: several share a byte of the file. Nodes unpack them during planning.
Operands of dequantize and map are packed, and weights of products. Weights of 16 bits that need only 8 get a byte each."""

from __future__ import annotations

import numpy as np

from linnet.builder.mapping import pointwise
from linnet.facade import Graph
from linnet.ir import traits
from linnet.ir.expr import Expr
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.passes.rewrite import splice

SMALLEST = 1024  # elements; for smaller constants the nodes cost more than the saved bytes


def pack(graph: Graph) -> None:
    """Packs every suitable constant in every function."""
    for function in graph.functions:
        readers, given = function.consumers(), set(function.outputs)
        place = {node: i for i, node in enumerate(function.nodes)}
        before: dict[Node, list[Node]] = {}  # the unpacking nodes to insert before a node
        for tensor in [t for t in function.tensors() if t.data is not None and t not in given]:
            bits, uses = bits_of(tensor), readers.get(tensor, [])
            if tensor.quantization is None:
                fits = all(n.op in traits.DECODES for n in uses)
            else:
                fits = not tensor.quantization.block and all(_multiplies_by(n, tensor) for n in uses)
            if bits and uses and fits:
                nodes, function.nodes = function.nodes, []
                unpacked = unpack(function, tensor, bits) if bits < 8 else widened(function, tensor)
                unpacked.quantization = tensor.quantization
                made, function.nodes = function.nodes, nodes
                for node in readers[tensor]:
                    node.inputs = [unpacked if t is tensor else t for t in node.inputs]
                before.setdefault(min(readers[tensor], key=place.__getitem__), []).extend(made)
        splice(function, {node: [*made, node] for node, made in before.items()})


def _multiplies_by(node: Node, weights: Tensor) -> bool:
    return (
        node.op in traits.PRODUCTS
        and [t is weights for t in node.inputs].count(True) == 1
        and node.inputs[1] is weights
    )


def bits_of(tensor: Tensor) -> int:
    """Bits per element that are enough for a byte constant: 2 or 4; and 8 for quantized numbers of 16 bits that span at most
    256. 0 if it needs all bits or is too small to be worth packing."""
    data = tensor.data
    if data is None or tensor.dtype not in ("i8", "u8", "i16") or data.size < SMALLEST:
        return 0
    low, high = int(data.min()), int(data.max())
    if tensor.dtype == "i16":
        return 8 if high - low < 256 and tensor.quantization is not None else 0
    for bits in (2, 4):
        half = 1 << (bits - 1)
        if (-half <= low and high < half) if tensor.dtype == "i8" else high < 2 * half:
            return bits
    return 0


def widened(function: Function, tensor: Tensor) -> Tensor:
    """Emits a node that adds the least number of an i16 constant to bytes."""
    assert tensor.data is not None
    least = int(tensor.data.min())
    stored = function.tensor(
        f"{tensor.name}_bytes", "u8", tensor.data.shape
    )  # gets its data at the end, as in `unpack`
    made: Tensor = pointwise([stored], lambda byte: byte + least, "i16", function=function)
    stored.data = (tensor.data.astype(np.int32) - least).astype(np.uint8)
    return made


def unpack(function: Function, tensor: Tensor, bits: int) -> Tensor:
    """Emits nodes that unpack the constant from its packed bytes, first element in the lowest bits."""
    assert tensor.data is not None and tensor.static_shape is not None
    parts, mask = 8 // bits, (1 << bits) - 1
    flat = tensor.data.reshape(-1).view(np.uint8) & np.uint8(mask)
    flat = np.pad(flat, (0, -flat.size % parts)).reshape(-1, parts)
    packed = np.bitwise_or.reduce(flat << (np.arange(parts, dtype=np.uint8) * np.uint8(bits)), axis=1, dtype=np.uint8)
    stored = function.tensor(
        f"{tensor.name}_packed", "u8", (packed.size, 1)
    )  # gets its data only at the end, so that nothing is folded

    def body(byte: Expr) -> tuple[Expr, ...]:
        if tensor.dtype == "u8":
            return tuple(byte.binary("shift_right", i * bits) & mask for i in range(parts))
        return tuple(
            byte.binary("shift_left", 32 - (i + 1) * bits).binary("shift_right", 32 - bits) for i in range(parts)
        )

    columns = pointwise([stored], body, [tensor.dtype] * parts, function=function)
    y = emit("copy", columns, {"kind": "concat", "axis": 1})[0]
    y = emit("copy", [y], {"kind": "reshape", "shape": [-1]})[0]
    if y.static_shape != (tensor.data.size,):
        y = emit("copy", [y], {"kind": "slice", "axes": [0], "starts": [0], "ends": [tensor.data.size], "steps": [1]})[
            0
        ]
    stored.data = packed.reshape(-1, 1)
    return emit("copy", [y], {"kind": "reshape", "shape": list(tensor.static_shape)})[0]
