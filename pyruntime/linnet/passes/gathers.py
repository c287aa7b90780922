"""Changes lookups in tables that are computed from constants: rows are looked up first, and only these are computed. So
an embedding stored in 8 or 16 bits keeps this size in memory, and planning does not widen the whole table."""

from __future__ import annotations

import numpy as np

from linnet.builder.mapping import program_of
from linnet.ir.function import Function, Node, Tensor, emit
from linnet.ir.scopes import agree
from linnet.passes.kept_types import rewrites
from linnet.passes.rewrite import join_sources, put_in_place, splice


@rewrites("gather")
def look_up_first(function: Function) -> bool:
    """gather(map(constants), indices) along the first axis becomes map(gather(constant, indices), ...).

    This is done only if all readers of the table are such gathers, and if the table has more bytes than the constants
    from which it is computed. Otherwise it is better to compute the table once while planning. Returns whether anything
    changed.
    """
    places: dict[Node, list[Node]] = {}
    consumers, given = function.consumers(), set(function.outputs)
    for table in list(function.nodes):
        if table.op != "map" or len(table.outputs) != 1 or table.outputs[0] in given:
            continue
        readers = consumers.get(table.outputs[0], [])
        fits = readers and all(_looks_up(r, table.outputs[0]) and agree(table, r) for r in readers)
        if fits and _narrow(table):
            for reader in readers:
                _exchange(function, table, reader, places)
    splice(function, places)
    return bool(places)


def _looks_up(node: Node, table: Tensor) -> bool:
    if node.op != "gather" or node.attributes["kind"] != "take" or table.rank is None:
        return False
    indices = node.inputs[1]
    computed = indices is not None and indices is not table and indices.data is None
    return computed and node.attributes["axis"] in (0, -table.rank)


def _narrow(node: Node) -> bool:
    """Whether the map loads only constants, which have fewer bytes than its result, and works row by row."""
    shape = node.outputs[0].static_shape
    program = program_of(node)
    if not shape or program is None or len(program.loads) != len(node.inputs):
        return False
    if any(i.opcode == "iota" for i in program.code) or node.outputs[0].quantization is not None:
        return False
    read = 0
    for operand in node.inputs:
        if operand is None or operand.data is None:
            return False
        quantization = operand.quantization
        if quantization is not None and len(quantization.scale) > 1:
            return False
        read += operand.data.nbytes
    itemsize = {"f64": 8, "i64": 8, "u64": 8, "f32": 4, "i32": 4, "u32": 4}.get(node.outputs[0].dtype, 2)
    return read < int(np.prod(shape)) * itemsize


def _exchange(function: Function, table: Node, gather: Node, places: dict[Node, list[Node]]) -> None:
    shape = table.outputs[0].static_shape
    assert shape is not None
    before = len(function.nodes)
    operands: list[Tensor] = []
    for operand in table.inputs:
        assert operand is not None and operand.data is not None
        data = operand.data
        if data.ndim < len(shape):
            operands.append(operand)
        elif data.shape[0] == 1 != shape[0]:  # the same for all rows
            operands.append(function.constant(data[0], operand.name, operand.dtype, operand.quantization))
        else:
            attributes = {**gather.attributes, "axis": 0}
            quantization = [operand.quantization]
            operands += emit("gather", [operand, gather.inputs[1]], attributes, 1, gather.name, function, quantization)
    (result,) = emit("map", operands, table.attributes, 1, gather.name, function, dtypes=[table.outputs[0].dtype])
    put_in_place(places, gather, result, before, join_sources(table.source, gather.source))
