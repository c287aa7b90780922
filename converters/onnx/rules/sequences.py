"""Rules for sequences and optionals. A sequence of known length is a list of tensors during conversion, and needs no nodes.
Any other sequence is `Packed` (values.py); its ops become slices, concats and reshapes that use its table of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from linnet.converters.onnx import subgraphs
from linnet.converters.onnx.narrow import KINDS
from linnet.converters.onnx.operation import Operation, rank_of, storage_of
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.logic import cast_to
from linnet.converters.onnx.values import Listed, Maybe, Packed, Value, as_sequence, flat, packed, row_of
from linnet.ir.function import Tensor


def _elements(op: Operation, index: int = 0) -> Listed | Packed:
    return as_sequence(op.any(index), f"input {index}")


def _common_rank(sequence: Listed, *more: Tensor) -> int | None:
    ranks = {t.rank for t in (*sequence.items, *more)}
    return ranks.pop() if len(ranks) == 1 else None


def _position(op: Operation, index: int) -> Tensor:
    """A position as an i64 scalar."""
    return op.reshape(cast_to(op, op.input(index), "i64"), [])


def _number(op: Operation, value: Any) -> Tensor:
    return op.constant(np.array(value, np.int64))


@rule("SequenceConstruct")
def sequence_construct(op: Operation) -> Value:
    items = op.all_inputs()
    if len({(t.dtype, op.importer.kinds.get(t)) for t in items}) > 1:
        raise op.unsupported("the elements have different types", "use elements of one type")
    return Listed(tuple(items), items[0].dtype, op.kind(0))


@rule("SequenceEmpty")
def sequence_empty(op: Operation) -> Value:
    number = op.attribute("dtype", 0) or onnx.TensorProto.FLOAT
    return Listed((), storage_of(number, "the element"), KINDS.get(number))


@rule("SequenceLength")
def sequence_length(op: Operation) -> Tensor:
    sequence = _elements(op)
    if isinstance(sequence, Listed):
        return _number(op, len(sequence.items))
    return op.reshape(op.shape_of(sequence.shapes, 0, 1), [])


def _place(op: Operation, sequence: Listed, index: int, extra: int = 0) -> int:
    """A constant position in a list, counted from the front. extra: 1 if the position after the last element is allowed."""
    position, count = op.ints(index), len(sequence.items)
    assert position is not None
    if not position or not -count <= position[0] < count + extra:
        found = position[0] if position else "(empty)"
        raise op.unsupported(
            f"position {found} is out of range in a sequence of {count}", f"use {-count} to {count + extra - 1}"
        )
    return position[0] + (count if position[0] < 0 else 0)


@rule("SequenceAt")
def sequence_at(op: Operation) -> Tensor:
    sequence = _elements(op)
    if isinstance(sequence, Listed):
        if op.ints(1) is not None:
            return sequence.items[_place(op, sequence, 1)]
        sequence = packed(op, sequence, _common_rank(sequence))
    table = _Table(op, sequence)
    return table.element(table.wrapped(_position(op, 1)))


@rule("SequenceInsert")
def sequence_insert(op: Operation) -> Value:
    sequence, tensor, last = _elements(op), op.input(1), op.optional(2) is None
    if isinstance(sequence, Listed):
        if last or op.ints(2) is not None:
            place = len(sequence.items) if last else _place(op, sequence, 2, 1)
            items = (*sequence.items[:place], tensor, *sequence.items[place:])
            return Listed(items, tensor.dtype, op.kind(1))
        sequence = packed(op, sequence, _common_rank(sequence, tensor), tensor.dtype)
    if sequence.rank != tensor.rank and sequence.rank is not None:
        sequence = packed(op, sequence, None)
    values, shapes = flat(op, tensor), op.unsqueeze(row_of(op, tensor, sequence.rank), [0])
    if last:
        values, shapes = op.concat([sequence.values, values], 0), op.concat([sequence.shapes, shapes], 0)
    else:
        table = _Table(op, sequence)
        at = table.wrapped(_position(op, 2))
        start = table.start(at)
        values = op.concat([table.values(None, start), values, table.values(start, None)], 0)
        shapes = op.concat([table.rows(None, at), shapes, table.rows(at, None)], 0)
    return Packed(op.of_kind(values, op.kind(1)), shapes, sequence.rank)


@rule("SequenceErase")
def sequence_erase(op: Operation) -> Value:
    sequence, last = _elements(op), op.optional(1) is None
    if isinstance(sequence, Listed):
        if last or op.ints(1) is not None:
            if last and not sequence.items:
                raise op.unsupported("an element is erased from an empty sequence", "insert an element first")
            place = len(sequence.items) - 1 if last else _place(op, sequence, 1)
            return Listed((*sequence.items[:place], *sequence.items[place + 1 :]), sequence.dtype, sequence.kind)
        sequence = packed(op, sequence, _common_rank(sequence))
    table = _Table(op, sequence)
    at = table.wrapped(_number(op, -1) if last else _position(op, 1))
    behind = op.map([at], lambda v: v + 1)
    values = op.concat([table.values(None, table.start(at)), table.values(table.start(behind), None)], 0)
    shapes = op.concat([table.rows(None, at), table.rows(behind, None)], 0)
    return Packed(op.of_kind(values, op.importer.kinds.get(sequence.values)), shapes, sequence.rank)


@rule("SplitToSequence")
def split_to_sequence(op: Operation) -> Value:
    x, given = op.input(0), op.optional(1)
    rank = rank_of(x, "input 0")
    axis, keep = op.attribute("axis", 0), bool(op.attribute("keepdims", 1))
    axis += rank if axis < 0 else 0
    length = x.shape[axis] if x.shape is not None else None
    sizes, each = op.ints(1), given is None or given.rank == 0
    # In the ONNX specification, keepdims has no effect if `split` is given. ONNX Runtime, and PyTorch's
    # exporter for unbind, expect that it has an effect if `split` is 1.
    keep = keep or (given is not None and not (each and sizes == [1]))
    if sizes is not None and any(s < 0 for s in sizes):
        raise op.unsupported(f"the lengths {sizes} contain a negative number", "use lengths of 0 or more")
    if each and sizes and sizes[0] < 1:
        raise op.unsupported("the input cannot be split into parts of length 0", "use a length of at least 1")
    if each and isinstance(length, int) and (given is None or sizes):
        size = sizes[0] if sizes else 1
        sizes = [min(size, length - i) for i in range(0, length, size)]
    elif each:
        sizes = None
    if sizes is not None:
        parts = op.emit_all("copy", [x], len(sizes), kind="split", axis=axis, shape=sizes) if sizes else []
        return Listed(
            tuple(op.of_kind(t if keep else op.squeeze(t, [axis]), op.kind(0)) for t in parts), x.dtype, op.kind(0)
        )
    dims = op.shape_of(x)
    total = op.slice(dims, 0, axis, axis + 1)
    if given is None:
        lengths = op.expand(_number(op, [1]), total)
    elif each:
        step = op.reshape(cast_to(op, given, "i64"), [1])
        count = op.map([total, step], lambda n, s: (n + s - 1) / s)
        places = op.emit("range", [_number(op, 0), op.reshape(count, []), _number(op, 1)])
        lengths = op.map([places, step, total], lambda i, s, n: (n - i * s).min(s))
    else:
        lengths = cast_to(op, given, "i64")
    wide = op.expand(op.unsqueeze(dims, [0]), op.concat([op.shape_of(lengths), _number(op, [rank])], 0))
    columns = [op.slice(wide, 1, 0, axis), op.unsqueeze(lengths, [1]), op.slice(wide, 1, axis + 1, rank)]
    whole = Packed(flat(op, x), op.concat(columns, 1), rank)
    if axis:  # along other axes than 0 the parts are interleaved in x
        order = flat(op, _Table(op, whole).order(axis))
        whole = Packed(op.emit("scatter", [whole.values, order, whole.values]), whole.shapes, rank)
    op.of_kind(whole.values, op.kind(0))
    return whole if keep else Packed(whole.values, op.concat([columns[0], columns[2]], 1), rank - 1)


@rule("ConcatFromSequence")
def concat_from_sequence(op: Operation) -> Tensor:
    sequence, axis, fresh = _elements(op), int(op.attribute("axis")), bool(op.attribute("new_axis", 0))
    if isinstance(sequence, Listed):
        if not sequence.items:
            raise op.unsupported("the sequence is empty", "insert a tensor before concatenating it")
        rank = rank_of(sequence.items[0], "the first element") + fresh
        axis += rank if axis < 0 else 0
        parts = [op.unsqueeze(t, [axis]) if fresh else t for t in sequence.items]
        return op.of_kind(op.concat(parts, axis), sequence.kind)
    table = _Table(op, sequence)
    y = table.stacked(axis) if fresh else table.joined(axis)
    return op.of_kind(y, op.importer.kinds.get(sequence.values))


class _Table:
    """Positions of the elements of a packed sequence, computed by nodes from its table of shapes."""

    def __init__(self, op: Operation, sequence: Packed) -> None:
        self.op, self.sequence = op, sequence
        self.count = op.reshape(op.shape_of(sequence.shapes, 0, 1), [])
        dims = sequence.shapes if sequence.rank is not None else op.slice(sequence.shapes, 1, 1, 1 << 30)
        self.sizes = op.reduce(dims, "prod", [1], keep_dims=False)

    def wrapped(self, position: Tensor) -> Tensor:
        """Converts a position that may count from the back to one from the front."""
        return self.op.map([position, self.count], lambda i, n: (i < 0).select(i + n, i))

    def _slice(self, x: Tensor, start: Tensor | None, end: Tensor | None) -> Tensor:
        op = self.op
        limits = [
            _number(op, [default]) if t is None else op.reshape(t, [1]) for t, default in ((start, 0), (end, 1 << 60))
        ]
        return op.emit("copy", [x, *limits, _number(op, [0]), _number(op, [1])], kind="slice")

    def rows(self, start: Tensor | None, end: Tensor | None) -> Tensor:
        return self._slice(self.sequence.shapes, start, end)

    def values(self, start: Tensor | None, end: Tensor | None) -> Tensor:
        return self._slice(self.sequence.values, start, end)

    def start(self, position: Tensor) -> Tensor:
        """The offset of an element's values."""
        return self.op.reduce(self._slice(self.sizes, None, position), "sum", [0], keep_dims=False)

    def dims(self, position: Tensor) -> Tensor:
        """The dimensions of an element, 1-D."""
        op, rank = self.op, self.sequence.rank
        row = op.emit("gather", [self.sequence.shapes, position], kind="take", axis=0)
        if rank is not None:
            return row
        end = op.map([op.slice(row, 0, 0, 1)], lambda r: r + 1)
        return self._slice(row, _number(op, 1), end)

    def element(self, position: Tensor) -> Tensor:
        op = self.op
        start = self.start(position)
        size = op.emit("gather", [self.sizes, position], kind="take", axis=0)
        values = self.values(start, op.map([start, size], lambda a, b: a + b))
        y = op.emit("copy", [values, self.dims(position)], kind="reshape", allow_zero=True)
        return op.of_kind(y, op.importer.kinds.get(self.sequence.values))

    def stacked(self, axis: int) -> Tensor:
        """Stacks all elements along a new axis. They must have the same shape."""
        op, rank = self.op, self.sequence.rank
        shape = op.concat([op.reshape(self.count, [1]), self.dims(_number(op, 0))], 0)
        y = op.emit("copy", [self.sequence.values, shape], kind="reshape", allow_zero=True)
        if rank is None:
            if axis:
                raise op.unknown("the rank of the elements is unknown, so they can be stacked only along axis 0")
            return y
        axis += rank + 1 if axis < 0 else 0
        order = list(range(1, rank + 1))
        order.insert(axis, 0)
        return op.transpose(y, order)

    def joined(self, axis: int) -> Tensor:
        """Concatenates all elements along an axis. Their lengths along this axis may differ."""
        op, rank = self.op, self.sequence.rank
        if rank is None and axis:
            raise op.unknown("the rank of the elements is unknown, so they can be concatenated only along axis 0")
        axis += (rank or 0) if axis < 0 else 0
        first, total = self.dims(_number(op, 0)), op.reduce(self.lengths(axis), "sum", [0])
        shape = op.concat([op.slice(first, 0, 0, axis), total, op.slice(first, 0, axis + 1, 1 << 30)], 0)
        values = self.sequence.values
        if axis:  # axis 0 needs no reordering
            values = op.emit("gather", [values, self.order(axis)], kind="take", axis=0)
        return op.emit("copy", [values, shape], kind="reshape", allow_zero=True)

    def lengths(self, axis: int) -> Tensor:
        """The size of one dimension in every element, [n]."""
        column = axis + (self.sequence.rank is None)
        return self.op.squeeze(self.op.slice(self.sequence.shapes, 1, column, column + 1), [1])

    def order(self, axis: int) -> Tensor:
        """For each number of the concatenated elements, its index in `values`. The result is [outer, total, inner],
        where total is the length of the axis."""
        op, zero, first, lengths = self.op, _number(self.op, 0), self.dims(_number(self.op, 0)), self.lengths(axis)
        total = op.reduce(lengths, "sum", [0])
        outer = op.reduce(op.slice(first, 0, 0, axis), "prod", [0])
        inner = op.reduce(op.slice(first, 0, axis + 1, 1 << 30), "prod", [0])
        ends = op.emit("cumsum", [lengths, zero])
        places = op.emit("range", [zero, op.reshape(total, []), _number(op, 1)])
        passed = op.map([op.unsqueeze(places, [1]), op.unsqueeze(ends, [0])], lambda j, e: (e <= j).cast("i64"), "i64")
        owner = op.reduce(passed, "sum", [1], keep_dims=False)

        def of_owner(x: Tensor) -> Tensor:
            return op.reshape(op.emit("gather", [x, owner], kind="take", axis=0), [1, -1, 1])

        offsets = op.emit("cumsum", [self.sizes, zero], exclusive=True)
        operands = [of_owner(t) for t in (offsets, ends, lengths)]
        grid = op.expand(_number(op, [[[0]]]), op.concat([outer, total, inner], 0))
        return op.map(
            [grid, *operands, op.reshape(inner, [1, 1, 1])],
            lambda g, start, end, n, i: g + start + g.iota(0) * n * i + (g.iota(1) - (end - n)) * i + g.iota(2),
        )


@rule("SequenceMap")
def sequence_map(op: Operation) -> Sequence[Value]:
    """Runs the body once per element. Sequences of unknown length use the loop that ONNX defines."""
    sequences = [op.any(i) for i in range(len(op.inputs))]
    lengths = {len(s.items) for s in sequences if isinstance(s, Listed)}
    if any(isinstance(s, Packed) for s in sequences):
        return op.fallback()
    as_sequence(sequences[0], "input 0")
    if len(lengths) > 1:
        raise op.unsupported(f"its sequences have different lengths: {sorted(lengths)}", "use sequences of one length")
    graph: onnx.GraphProto = op.attribute("body")
    rows: list[list[Value]] = []
    for index in range(lengths.pop()):
        given = {
            info.name: s.items[index] if isinstance(s, Listed) else s
            for info, s in zip(graph.input, sequences, strict=True)
        }
        rows.append(subgraphs.branch(op.importer, graph, op.scope, given))
    results: list[Value] = []
    for index, info in enumerate(graph.output):
        number = info.type.tensor_type.elem_type or onnx.TensorProto.FLOAT
        items = tuple(t for row in rows if isinstance(t := row[index], Tensor))
        dtype = items[0].dtype if items else storage_of(number)
        results.append(Listed(items, dtype, KINDS.get(number)))
    return results


@rule("Optional")
def optional(op: Operation) -> Value:
    op.ignore("type")
    return op.any(0)


@rule("OptionalHasElement")
def optional_has_element(op: Operation) -> Tensor:
    value = op.any(0)
    if isinstance(value, Maybe):
        return value.present
    return op.constant(np.array(value is not None))


@rule("OptionalGetElement")
def optional_get_element(op: Operation) -> Value:
    """Returns the value. If the value is absent, its tensors are empty. A run then fails only if it needs elements of
    these tensors."""
    value = op.any(0)
    if value is None:
        raise op.unsupported("the optional is empty", "pass a value for the input, or check OptionalHasElement first")
    return value.value if isinstance(value, Maybe) else value
