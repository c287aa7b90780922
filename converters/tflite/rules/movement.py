"""Rules for ops that only move elements. The result keeps the quantization; padding uses the stored zero point."""

from __future__ import annotations

import numpy as np

from linnet.converters.tflite.fixed_point import round_away
from linnet.converters.tflite.operation import Operation, per_tensor, same_quantization
from linnet.converters.tflite.registry import rule
from linnet.converters.tflite.schema import TensorSpec
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor


@rule("RESHAPE")
def reshape(op: Operation) -> Tensor:
    x = op.input(0)
    shape = op.ints(1)
    if shape is None and op.optional(1) is None:
        shape = op.option("shape")
        shape = list(op.output().shape) if shape is None else shape
    if shape is None:
        return op.as_declared(op.copy([x, op.indices(1)], kind="reshape", allow_zero=True))
    return op.as_declared(op.reshape(x, shape))


@rule("SQUEEZE")
def squeeze(op: Operation) -> Tensor:
    x, rank = op.input(0), op.rank()
    axes = [op.axis(a, rank) for a in op.option("axes") or ()]
    if not axes:
        axes = [i for i, d in enumerate(x.shape or ()) if d == 1]
    return op.as_declared(op.copy([x], kind="squeeze", axes=axes) if axes else op.copy([x], kind="identity"))


@rule("EXPAND_DIMS")
def expand_dims(op: Operation) -> Tensor:
    axis = int(op.require(1, "the axis").reshape(-1)[0])
    return op.as_declared(op.copy([op.input(0)], kind="unsqueeze", axes=[op.axis(axis, op.rank() + 1)]))


@rule("TRANSPOSE")
def transpose(op: Operation) -> Tensor:
    return op.as_declared(op.transpose(op.input(0), [int(v) for v in op.require(1, "the permutation")]))


@rule("CONCATENATION")
def concatenation(op: Operation) -> Tensor:
    """Requantizes parts whose quantization differs from that of the output. For u8 parts this is done in floats
    (ConcatenationWithScaling)."""
    spec = op.output()
    parts = [op.input(i) for i in range(len(op.inputs))]

    def rescaled(p: Tensor, spec: TensorSpec) -> Tensor:
        assert p.quantization is not None and spec.quantization is not None
        (sx, zx), (sy, zy) = per_tensor(p.quantization, "an operand"), per_tensor(spec.quantization, "the output")
        scale = sx * (np.float32(1) / sy)
        values = np.arange(256).astype(np.float32) * scale + np.float32(-zx) * scale
        table = np.clip(round_away(values) + zy, 0, 255).astype(np.uint8)
        return op.quantized(op.lookup(p, table, 0), spec)

    if spec.quantization is not None:
        target = spec.quantization
        parts = [
            (rescaled if spec.dtype == "u8" else op.requantize)(p, spec)
            if p.quantization is not None and not same_quantization(p.quantization, target)
            else p
            for p in parts
        ]
    y = parts[0] if len(parts) == 1 else op.copy(parts, kind="concat", axis=op.axis(op.option("axis"), op.rank()))
    return op.activate(op.as_declared(y))


@rule("PACK")
def pack(op: Operation) -> Tensor:
    axis = op.axis(op.option("axis"), op.rank() + 1)
    parts = [op.copy([op.input(i)], kind="unsqueeze", axes=[axis]) for i in range(len(op.inputs))]
    return op.as_declared(parts[0] if len(parts) == 1 else op.copy(parts, kind="concat", axis=axis))


def _split(op: Operation, x: Tensor, axis: int, sizes: list[int]) -> list[Tensor]:
    q = [x.quantization] * len(sizes)
    if len(sizes) == 1:
        return [op.copy([x], kind="identity")]
    return op.emit_all("copy", [x], len(sizes), q if x.quantization else (), kind="split", axis=axis, shape=sizes)


def _known(op: Operation, x: Tensor, axis: int) -> int:
    size = None if x.shape is None else x.shape[axis]
    if not isinstance(size, int):
        raise op.unsupported(f"dimension {axis} is unknown", "set the input shapes with input_shapes")
    return size


@rule("UNPACK")
def unpack(op: Operation) -> list[Tensor]:
    x, axis = op.input(0), op.axis(op.option("axis"), op.rank())
    if _known(op, x, axis) != len(op.outputs):
        raise op.unsupported(
            f"it has {len(op.outputs)} outputs for {_known(op, x, axis)} slices", "export the model again"
        )
    parts = _split(op, x, axis, [1] * len(op.outputs))
    return [op.as_declared(op.copy([p], kind="squeeze", axes=[axis]), i) for i, p in enumerate(parts)]


@rule("SPLIT")
def split(op: Operation) -> list[Tensor]:
    x, count = op.input(1), len(op.outputs)
    axis = op.axis(int(op.require(0, "the axis").reshape(-1)[0]), op.rank(1))
    parts = _split(op, x, axis, [_known(op, x, axis) // count] * count)
    return [op.as_declared(p, i) for i, p in enumerate(parts)]


@rule("SPLIT_V")
def split_v(op: Operation) -> list[Tensor]:
    x, sizes = op.input(0), [int(v) for v in op.require(1, "the sizes").reshape(-1)]
    axis = op.axis(int(op.require(2, "the axis").reshape(-1)[0]), op.rank())
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = _known(op, x, axis) - sum(sizes) - 1
    return [op.as_declared(p, i) for i, p in enumerate(_split(op, x, axis, sizes))]


@rule("SLICE")
def slice_(op: Operation) -> Tensor:
    """Begin and size per axis. A size of -1 means the rest of the axis."""
    x, rank = op.input(0), op.rank()
    begin, size = op.ints(1), op.ints(2)
    if begin is None or size is None:  # computed at run time
        starts, sizes = op.indices(1), op.indices(2)
        stops = op.map([starts, sizes], lambda a, n: (n < 0).select(a.lift(FAR), a + n))
        return op.as_declared(op.copy([x, starts, stops], kind="slice"))
    ends = [FAR if s == -1 else b + s for b, s in zip(begin, size, strict=True)]
    return op.as_declared(op.copy([x], kind="slice", axes=list(range(rank)), starts=begin, ends=ends, steps=[1] * rank))


FAR = 1 << 62  # past the end of any axis


@rule("STRIDED_SLICE")
def strided_slice(op: Operation) -> Tensor:
    """NumPy's slicing, with masks for omitted entries (TensorFlow's StridedSlice)."""
    x, rank = op.input(0), op.rank()
    steps = [int(v) for v in op.require(3, "strides").reshape(-1)]
    masks = {n: int(op.option(f"{n}_mask")) for n in ("begin", "end", "ellipsis", "new_axis", "shrink")}
    bits = {n: [bool(m >> i & 1) for i in range(len(steps))] for n, m in masks.items()}
    used = sum(1 for i in range(len(steps)) if not bits["new_axis"][i] and not bits["ellipsis"][i])
    axis, place = 0, 0  # place: index in the result, before shrinking
    axes: list[int] = []
    entries: list[int] = []  # index into begin, end and strides, for each of the axes
    gone, fresh = [], []
    for i in range(len(steps)):
        if bits["ellipsis"][i]:
            axis += rank - used
            place += rank - used
            continue
        if bits["new_axis"][i]:
            fresh.append(place)
        else:
            axes.append(axis)
            entries.append(i)
            if bits["shrink"][i]:
                gone.append(place)
            axis += 1
        place += 1
    y = _strided(op, x, axes, entries, steps, bits) if axes else x
    if fresh:
        y = op.copy([y], kind="unsqueeze", axes=fresh)
    if gone:
        y = op.copy([y], kind="squeeze", axes=gone)
    return op.as_declared(y)


def _strided(
    op: Operation, x: Tensor, axes: list[int], entries: list[int], steps: list[int], bits: dict[str, list[bool]]
) -> Tensor:
    """The slice itself. If an entry removes its axis (shrink), it takes one element."""
    shrink = [bits["shrink"][i] for i in entries]
    strides = [1 if s else steps[i] for i, s in zip(entries, shrink, strict=True)]
    begin, end, offset = op.ints(1), op.ints(2), bool(op.option("offset"))
    first = [None if bits["begin"][i] and not s else i for i, s in zip(entries, shrink, strict=True)]
    last = [None if bits["end"][i] and not s else i for i, s in zip(entries, shrink, strict=True)]
    front, behind = [0 if s > 0 else FAR for s in strides], [FAR if s > 0 else -FAR for s in strides]
    if begin is not None and end is not None:
        starts = [f if i is None else begin[i] for f, i in zip(front, first, strict=True)]
        ends = []
        for i, s, e, b in zip(last, shrink, behind, starts, strict=True):
            stop = (b + 1 if b != -1 else FAR) if s else e if i is None else end[i] + (begin[i] if offset else 0)
            ends.append(stop)
        return op.copy([x], kind="slice", axes=axes, starts=starts, ends=ends, steps=strides)
    places = op.constant(np.array(entries, np.int64))
    given = [op.emit("gather", [op.indices(i), places], axis=0) for i in (1, 2)]
    flags = [op.constant(np.array(v)) for v in ([i is None for i in first], [i is None for i in last], shrink)]
    edges = [op.constant(np.array(v, np.int64)) for v in (front, behind)]
    starts_now = op.map([given[0], flags[0], edges[0]], lambda b, f, e: f.select(e, b))

    def stop_of(b: Expr, e: Expr, s: Expr, f: Expr, one: Expr, edge: Expr) -> Expr:
        ending = e + b if offset else e
        return one.select((s.eq(-1)).select(s.lift(FAR), s + 1), f.select(edge, ending))

    stops = op.map([*given, starts_now, flags[1], flags[2], edges[1]], stop_of)
    extra = [op.constant(np.array(v, np.int64)) for v in (axes, strides)]
    return op.copy([x, starts_now, stops, *extra], kind="slice")


@rule("PAD", "PADV2")
def pad(op: Operation) -> Tensor:
    x = op.input(0)
    value = 0.0
    given = op.optional(2)
    if given is not None:
        value = float(op.require(2, "the pad value").reshape(-1)[0])
    elif x.quantization is not None:
        value = float(per_tensor(x.quantization, "the input")[1])
    given_amounts = op.ints(1)
    if given_amounts is None:  # computed at run time
        pads = op.reshape(op.transpose(op.indices(1), [1, 0]), [-1])
        return op.as_declared(op.copy([x, pads], kind="pad", value=value))
    return op.as_declared(op.pad(x, [*given_amounts[::2], *given_amounts[1::2]], value))


@rule("MIRROR_PAD")
def mirror_pad(op: Operation) -> Tensor:
    """REFLECT omits the edge. SYMMETRIC repeats the edge; it uses a gather along each axis."""
    x = op.input(0)
    amounts = op.require(1, "the paddings").reshape(-1, 2).astype(np.int64)
    if op.option("mode") == 0:
        return op.as_declared(op.pad(x, [int(v) for v in (*amounts[:, 0], *amounts[:, 1])], mode="reflect"))
    for axis, (before, after) in enumerate(amounts.tolist()):
        size = _known(op, x, axis)
        if max(before, after) > size:
            raise op.unsupported(f"a symmetric pad of {max(before, after)} exceeds the {size} elements", "pad less")
        if before or after:
            op.limit(size)
            order = [*range(before - 1, -1, -1), *range(size), *range(size - 1, size - 1 - after, -1)]
            x = op.emit("gather", [x, op.constant(np.array(order, np.int64))], x.quantization, axis=axis)
    return op.as_declared(x)


@rule("TILE")
def tile(op: Operation) -> Tensor:
    return op.as_declared(op.copy([op.input(0), op.indices(1)], kind="tile"))


@rule("BROADCAST_TO")
def broadcast_to(op: Operation) -> Tensor:
    return op.as_declared(op.copy([op.input(0), op.indices(1)], kind="expand"))


@rule("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def blocks(op: Operation) -> Tensor:
    kind = op.spec.op.lower()
    return op.as_declared(op.copy([op.input(0)], kind=kind, axis=-1, block=op.option("block")))


@rule("SPACE_TO_BATCH_ND")
def space_to_batch(op: Operation) -> Tensor:
    x, rank = op.input(0), op.rank()
    sizes = [int(v) for v in op.require(1, "the block shape").reshape(-1)]
    amounts = op.require(2, "the paddings").reshape(-1, 2).tolist()
    tail = rank - 1 - len(sizes)
    if any(before or after for before, after in amounts):
        value = 0.0 if x.quantization is None else float(per_tensor(x.quantization, "the input")[1])
        x = op.pad(x, [0, *(a[0] for a in amounts), *[0] * tail, 0, *(a[1] for a in amounts), *[0] * tail], value)
    dims = [_known(op, x, i) for i in range(rank)]
    split = [dims[0]]
    for d, b in zip(dims[1:], sizes, strict=False):
        split += [d // b, b]
    y = op.reshape(x, [*split, *dims[1 + len(sizes) :]])
    inner, outer = [2 + 2 * i for i in range(len(sizes))], [1 + 2 * i for i in range(len(sizes))]
    y = op.transpose(y, [*inner, 0, *outer, *range(1 + 2 * len(sizes), y.rank or 0)])
    batch = dims[0] * int(np.prod(sizes))
    return op.as_declared(
        op.reshape(y, [batch, *(d // b for d, b in zip(dims[1:], sizes, strict=False)), *dims[1 + len(sizes) :]])
    )


@rule("BATCH_TO_SPACE_ND")
def batch_to_space(op: Operation) -> Tensor:
    x, rank = op.input(0), op.rank()
    sizes = [int(v) for v in op.require(1, "the block shape").reshape(-1)]
    crops = op.require(2, "the crops").reshape(-1, 2).tolist()
    dims, count = [_known(op, x, i) for i in range(rank)], len(sizes)
    batch = dims[0] // int(np.prod(sizes))
    y = op.reshape(x, [*sizes, batch, *dims[1:]])
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    y = op.transpose(y, [*order, *range(2 * count + 1, rank + count)])
    y = op.reshape(y, [batch, *(d * b for d, b in zip(dims[1:], sizes, strict=False)), *dims[1 + count :]])
    for i, (before, after) in enumerate(crops):
        if before or after:
            y = op.slice(y, 1 + i, before, dims[1 + i] * sizes[i] - after)
    return op.as_declared(y)


@rule("REVERSE_V2")
def reverse(op: Operation) -> Tensor:
    y = op.input(0)
    for axis in (int(v) for v in op.require(1, "the axes").reshape(-1)):
        y = op.slice(y, op.axis(axis, op.rank()), 1 << 62, -(1 << 62), -1)
    return op.as_declared(y)


@rule("REVERSE_SEQUENCE")
def reverse_sequence(op: Operation) -> Tensor:
    """Reverses the first `length` steps of each batch element and keeps the others."""
    x, lengths, rank = op.input(0), op.indices(1), op.rank()
    axis, batch = op.axis(op.option("sequence_axis"), rank), op.axis(op.option("batch_axis"), rank)
    if axis == batch:
        raise op.unsupported("time and batch are the same axis", "the model is damaged: export it again")
    order = [batch, axis, *(d for d in range(rank) if d not in (axis, batch))]
    moved = op.transpose(x, order)
    steps = op.constant(np.arange(op.limit(_known(op, x, axis)))[None].astype(np.int64))
    column = op.copy([lengths], kind="unsqueeze", axes=[1])
    places = op.map([steps, column], lambda t, n: (t < n).select(n - 1 - t, t))
    places = op.copy([places], kind="unsqueeze", axes=[2])
    y = op.emit("gather", [moved, places], x.quantization, kind="nd", batch_dims=1)
    return op.as_declared(op.transpose(y, [order.index(d) for d in range(rank)]))


@rule("MATRIX_DIAG")
def matrix_diag(op: Operation) -> Tensor:
    """[..., n] to [..., n, n], with the elements on the diagonal and 0 elsewhere."""
    x, rank = op.input(0), op.rank()
    size = _known(op, x, rank - 1)
    op.limit(size * size)
    column = op.copy([x], kind="unsqueeze", axes=[rank])
    y = op.map([column, op.constant(np.eye(size, dtype=np.int8))], lambda v, on: on.select(v, v.lift(0)), x.dtype)
    return op.quantized(y, op.output()) if x.quantization is not None else y


@rule("MATRIX_SET_DIAG")
def matrix_set_diag(op: Operation) -> Tensor:
    """Matrices [..., m, n] with their diagonals replaced by [..., min(m, n)]."""
    x, diagonal, rank = op.input(0), op.input(1), op.rank()
    rows, columns = _known(op, x, rank - 2), _known(op, x, rank - 1)
    op.limit(rows * columns)
    spread = op.copy([diagonal], kind="unsqueeze", axes=[rank - 1 if rows <= columns else rank - 2])
    on = op.constant(np.eye(rows, columns, dtype=np.int8))
    y = op.map([x, spread, on], lambda v, d, o: o.select(d, v), x.dtype)
    return op.quantized(y, op.output()) if x.quantization is not None else y
