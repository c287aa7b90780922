"""Packs constants that need only 2 or 4 bits per element: several share a byte of the file. Nodes unpack them during planning.
Only operands of dequantize and map are packed. Integer kernels read bytes, which stay in the memory-mapped file."""

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
        for tensor in [t for t in function.tensors() if t.data is not None and t.quantization is None]:
            bits = bits_of(tensor)
            fits = readers.get(tensor) and all(n.op in traits.DECODES for n in readers[tensor]) and tensor not in given
            if bits and fits:
                nodes, function.nodes = function.nodes, []
                unpacked = unpack(function, tensor, bits)
                made, function.nodes = function.nodes, nodes
                for node in readers[tensor]:
                    node.inputs = [unpacked if t is tensor else t for t in node.inputs]
                before.setdefault(min(readers[tensor], key=place.__getitem__), []).extend(made)
        splice(function, {node: [*made, node] for node, made in before.items()})


def bits_of(tensor: Tensor) -> int:
    """Bits per element that are enough for a byte constant: 2 or 4. 0 if it needs 8 bits or is too small to be worth
    packing."""
    data = tensor.data
    if data is None or tensor.dtype not in ("i8", "u8") or data.size < SMALLEST:
        return 0
    low, high = int(data.min()), int(data.max())
    for bits in (2, 4):
        half = 1 << (bits - 1)
        if (-half <= low and high < half) if tensor.dtype == "i8" else high < 2 * half:
            return bits
    return 0


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
