"""Makers of ops that move, create or look up elements: reshapes, slices, pads, gathers, scatters, sorting, shape arithmetic.
Indices and shapes are constants, inputs, or computed from shapes, as exporters write them."""

from __future__ import annotations

import numpy as np

from tests.onnx_graphs.builder import ANY, FLOATS, INTS, LARGEST, Array, Builder, Refused, Value, maker, type_number

INDICES = ("int64", "int32")


def sizes(b: Builder, values: object) -> Value:
    """Integers that an op needs: usually a constant, sometimes an input, or computed by nodes."""
    array = np.asarray(values, np.int64).reshape(-1)
    if b.chance(12) and array.size:
        parts = [b.const(array[: array.size // 2]), b.input(array[array.size // 2 :])]
        return b.add("Concat", parts, axis=0)
    return b.given(array)


def with_axes(
    b: Builder, op: str, since: int, inputs: list[Value | None], axes: list[int] | None, **attributes: object
) -> Value:
    """An op whose axes became an input in opset `since`."""
    if axes is None:
        return b.add(op, inputs, **attributes)
    if b.opset >= since:
        return b.add(op, [*inputs, sizes(b, axes)], **attributes)
    return b.add(op, inputs, axes=axes, **attributes)


def split_size(b: Builder, size: int) -> list[int]:
    """Up to four random factors of a size."""
    dims = []
    for _ in range(b.integer(0, 3)):
        factor = b.choice([f for f in range(1, min(size, 12) + 1) if size % f == 0]) if size else b.integer(0, 2)
        dims.append(factor)
        size = size // factor if factor else 0
    return [*dims, size]


@maker("movement", 4)
def reshape(b: Builder) -> None:
    x = b.pick(*ANY)
    dims = split_size(b, x.array.size)
    if x.array.size and b.chance(50):
        dims[b.integer(0, len(dims) - 1)] = -1
    if len(dims) <= x.rank and b.chance(30):
        for i, d in enumerate(dims):
            if d == x.shape[i] and d:
                dims[i] = 0
    allow = {"allowzero": 1} if b.opset >= 14 and x.array.size == 0 and -1 not in dims else {}
    b.add("Reshape", [x, sizes(b, dims)], **allow)


@maker("movement", 2)
def flatten(b: Builder) -> None:
    x = b.pick(*ANY)
    low = -x.rank if b.opset >= 11 else 0
    b.add("Flatten", [x], **({"axis": b.integer(low, x.rank)} if b.chance(80) else {}))


@maker("movement", 4)
def transpose(b: Builder) -> None:
    x = b.pick(*ANY)
    b.add("Transpose", [x], **({"perm": b.permutation(x.rank)} if b.chance(85) and x.rank else {}))


@maker("movement", 2)
def squeeze(b: Builder) -> None:
    x = b.pick(*ANY, where=lambda v: 1 in v.shape)
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    axes = None if b.chance(20) else [ones[i] for i in b.subset(len(ones))]
    if axes is not None and b.opset >= 11:
        axes = b.negated(axes, x.rank)
    with_axes(b, "Squeeze", 13, [x], axes)


@maker("movement", 2)
def unsqueeze(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[0, 1, 2, 3, 4])
    rank = x.rank + b.integer(1, 2)
    axes = b.permutation(rank)[: rank - x.rank]
    if b.opset < 13:
        axes.sort()
    with_axes(b, "Unsqueeze", 13, [x], b.negated(axes, rank) if b.opset >= 11 else axes)


@maker("movement", 4)
def concat(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[1, 2, 3, 4, 5])
    axis = b.axis(x.rank)
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    fitting = [
        v for v in b.values if v.dtype == x.dtype and v.rank == x.rank and v.shape[:axis] + v.shape[axis + 1 :] == rest
    ]
    parts = [x] if fitting else [x, x]
    for _ in range(b.integer(0, 3)):
        part = (*x.shape[:axis], b.integer(0, 3), *x.shape[axis + 1 :])
        parts.append(b.choice(fitting) if fitting and b.chance(60) else b.given(b.data(x.dtype, part)))
    if sum(p.array.size for p in parts) > LARGEST:
        raise Refused("too large")
    b.add("Concat", [parts[i] for i in b.permutation(len(parts))], axis=b.negated([axis], x.rank)[0])


@maker("movement", 3)
def split(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[1, 2, 3, 4])
    axis = b.axis(x.rank)
    count, size = b.integer(1, 4), x.shape[axis]
    at = b.negated([axis], x.rank)[0] if b.opset >= 11 else axis
    if b.chance(40) and (size % count == 0 or b.opset >= 18):
        b.node("Split", [x], count, axis=at, **({"num_outputs": count} if b.opset >= 18 else {}))
        return
    cuts = [0, *sorted(b.ints(count - 1, 0, size)), size]
    parts = [int(d) for d in np.diff(cuts)]
    if b.opset >= 13:
        b.node("Split", [x, b.given(np.asarray(parts, np.int64))], count, axis=at)
    else:
        b.node("Split", [x], count, axis=at, split=parts)


@maker("movement", 5)
def slices(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[1, 2, 3, 4, 5])
    axes = b.subset(x.rank)
    far = [-(2**63) + 1, 2**63 - 1, 2**31 - 1, -(2**31)]
    starts = [b.choice(far) if b.chance(6) else b.integer(-x.shape[a] - 2, x.shape[a] + 2) for a in axes]
    ends = [b.choice(far) if b.chance(15) else b.integer(-x.shape[a] - 2, x.shape[a] + 2) for a in axes]
    if b.opset < 10:
        b.add("Slice", [x], starts=starts, ends=ends, axes=axes)
        return
    steps = [b.choice([1, 1, 2, -1, -2, 3, -3, 2**31]) for _ in axes]
    dtype = b.choice(INDICES)
    if dtype == "int32":
        starts, ends = ([max(min(v, 2**31 - 1), -(2**31)) for v in vs] for vs in (starts, ends))
        steps = [min(v, 2**31 - 1) for v in steps]
        if any(s < 0 and e == 2**31 - 1 for s, e in zip(steps, ends, strict=True)):
            raise Refused("ONNX Runtime takes the largest i32 for the end of the axis in either direction")
    lengths = [
        len(range(*slice(s, e, t).indices(x.shape[a]))) for s, e, t, a in zip(starts, ends, steps, axes, strict=True)
    ]
    if 0 in lengths and min(steps) < 0:
        raise Refused("ONNX Runtime has shapes of its own where a slice backwards leaves nothing")
    values = [starts, ends, b.negated(axes, x.rank) if b.chance(90) else None, steps if b.chance(70) else None]
    if values[2] is None:
        values = [starts, ends, None, values[3]]
    b.add("Slice", [x, *(None if v is None else b.given(np.asarray(v, dtype)) for v in values)])


@maker("movement", 4)
def pad(b: Builder) -> None:
    x = b.pick(*(FLOATS if b.chance(60) else ANY), ranks=[1, 2, 3, 4])
    mode = b.choice(["constant", "constant", "reflect", "edge", "wrap"])
    if mode == "reflect":
        most = [d - 1 for d in x.shape]
    else:
        most = [3] * x.rank
    pads = [
        b.integer(min(0, -1 if d > 2 and b.chance(20) else 0), max(min(m, 3), 0))
        for m, d in zip(most * 2, x.shape * 2, strict=True)
    ]
    value = b.choice([0.0, 1.0, 7.0]) if x.array.dtype.kind != "b" else True
    if b.opset < 11:
        b.add("Pad", [x], pads=pads, mode=mode, **({"value": float(value)} if b.chance(50) else {}))
        return
    axes = None
    if b.opset >= 18 and b.chance(40):
        axes = b.subset(x.rank)
        pads = [pads[i] for i in axes] + [pads[x.rank + i] for i in axes]
    fill = b.given(np.asarray(value, x.dtype)) if b.chance(60) else None
    b.add(
        "Pad",
        [x, sizes(b, pads), fill, None if axes is None else b.given(np.asarray(b.negated(axes, x.rank), np.int64))],
        mode=mode,
    )


@maker("movement", 2)
def expand(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[0, 1, 2, 3, 4])
    dims = [b.choice([1, d]) if d != 1 else b.integer(0 if b.chance(5) else 1, 4) for d in x.shape]
    dims = [*b.ints(b.integer(0, 1), 1, 3), *dims] if b.chance(50) else dims[b.integer(0, x.rank) :]
    if np.prod(np.broadcast_shapes(tuple(dims), x.shape)) > LARGEST:
        raise Refused("too large")
    b.add("Expand", [x, sizes(b, dims)])


@maker("movement", 2)
def tile(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[1, 2, 3, 4])
    repeats = [b.choice([1, 1, 2, 3, 0 if b.chance(5) else 1]) for _ in x.shape]
    if x.array.size * np.prod(repeats) > LARGEST:
        raise Refused("too large")
    b.add("Tile", [x, sizes(b, repeats)])


@maker("movement", 2)
def blocks(b: Builder) -> None:
    block = b.choice([1, 2, 2, 3])
    x = b.pick(*FLOATS, ranks=[4])
    _, c, h, w = x.shape
    if b.chance(50):
        y = b.add("Expand", [x, b.const(np.asarray([1, 1, 1, 1], np.int64))]) if c % (block * block) == 0 else b.add(
            "Concat", [x] * (block * block), axis=1
        )  # fmt: skip
        b.add("DepthToSpace", [y], blocksize=block, **({"mode": b.choice(["DCR", "CRD"])} if b.opset >= 11 else {}))
    else:
        pads = [0, 0, 0, 0, 0, 0, -h % block, -w % block]
        y = b.add("Pad", [x, b.const(np.asarray(pads, np.int64))]) if b.opset >= 11 else b.add("Pad", [x], pads=pads)
        b.add("SpaceToDepth", [y], blocksize=block)


@maker("movement", 1)
def trilu(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[2, 3, 4])
    b.add(
        "Trilu", [x, b.given(np.asarray(b.integer(-8, 8), np.int64)) if b.chance(70) else None], upper=b.integer(0, 1)
    )


@maker("movement", 1)
def center_crop_pad(b: Builder) -> None:
    x = b.pick(*FLOATS, *INTS, ranks=[1, 2, 3])
    axes = b.subset(x.rank)
    if b.chance(30):
        b.add("CenterCropPad", [x, sizes(b, b.ints(x.rank, 1, 8))])
    else:
        b.add("CenterCropPad", [x, sizes(b, b.ints(len(axes), 1, 8))], axes=b.negated(axes, x.rank))


def indices(b: Builder, size: int, shape: tuple[int, ...], dtype: str = "") -> Array:
    if size == 0:
        raise Refused("nothing to look up")
    low = -size if b.opset >= 11 else 0
    rng = np.random.default_rng(b.integer(0, 255))
    return np.asarray(rng.integers(low, size, shape)).astype(dtype or b.choice(INDICES))


@maker("indexing", 4)
def gather(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[1, 2, 3, 4])
    axis = b.axis(x.rank)
    at = b.given(indices(b, x.shape[axis], b.shape(b.integer(0, 2), 4)))
    b.add("Gather", [x, at], axis=b.negated([axis], x.rank)[0])


@maker("indexing", 2)
def gather_elements(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[1, 2, 3])
    axis = b.axis(x.rank)
    shape = tuple(
        b.integer(0 if b.chance(5) else 1, 5) if i == axis else b.integer(1, d) if d else 0
        for i, d in enumerate(x.shape)
    )
    b.add("GatherElements", [x, b.given(indices(b, x.shape[axis], shape))], axis=b.negated([axis], x.rank)[0])


@maker("indexing", 2)
def gather_nd(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[1, 2, 3, 4])
    batch = b.integer(0, min(2, x.rank - 1)) if b.opset >= 12 else 0
    depth = b.integer(1, x.rank - batch)
    outer = (*x.shape[:batch], *b.shape(b.integer(0, 2), 3))
    parts = [indices(b, x.shape[batch + i], outer, "int64") for i in range(depth)]
    b.add("GatherND", [x, b.given(np.stack(parts, -1))], **({"batch_dims": batch} if b.opset >= 12 else {}))


@maker("indexing", 2)
def scatter_elements(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[1, 2, 3])
    axis = b.axis(x.rank)
    shape = tuple(b.integer(1, d) if d else 0 for d in x.shape)
    reductions = ["none"] + (["add", "mul"] if b.opset >= 16 else []) + (["max", "min"] if b.opset >= 18 else [])
    reduction = b.choice(reductions)
    at = indices(b, x.shape[axis], shape)
    if reduction == "none":  # each position once: the order of two writes is undefined
        order = np.argsort(np.random.default_rng(b.integer(0, 99)).random(x.shape), axis=axis)
        at = order[tuple(slice(0, n) for n in shape)].astype(at.dtype)
    op = "ScatterElements" if b.opset >= 11 else "Scatter"
    kind = {"reduction": reduction} if reduction != "none" else {}
    updates = b.given(b.data(x.dtype, shape, "mild"))
    b.add(op, [x, b.given(at), updates], axis=b.negated([axis], x.rank)[0] if b.opset >= 11 else axis, **kind)


@maker("indexing", 2)
def scatter_nd(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[1, 2, 3])
    depth = b.integer(1, x.rank)
    outer = int(np.prod(x.shape[:depth]))
    if not outer:
        raise Refused("nothing to write to")
    count = b.integer(1, min(outer, 6))
    flat = np.random.default_rng(b.integer(0, 99)).permutation(outer)[:count]
    at = np.stack(np.unravel_index(flat, x.shape[:depth]), -1).astype(np.int64)
    reductions = ["none"] + (["add", "mul"] if b.opset >= 16 else []) + (["max", "min"] if b.opset >= 18 else [])
    reduction = b.choice(reductions)
    kind = {"reduction": reduction} if reduction != "none" else {}
    b.add("ScatterND", [x, b.given(at), b.given(b.data(x.dtype, (count, *x.shape[depth:]), "mild"))], **kind)


@maker("indexing", 2)
def one_hot(b: Builder) -> None:
    x = b.given(b.data(b.choice([*INDICES, "float32"]), b.shape(b.integer(1, 3), 4), "mild").round())
    axis = b.integer(-x.rank - 1, x.rank)
    values = b.data(b.choice(["float32", "int64", "int32", "bool"]), (2,), "mild")
    b.add("OneHot", [x, b.given(np.asarray(b.integer(1, 9), b.choice(["int64", "int32"]))), b.given(values)], axis=axis)


@maker("indexing", 3)
def top_k(b: Builder) -> None:
    x = b.pick("float32", "int64", "int32", "float64", "float16", "int8", "uint8", ranks=[1, 2, 3, 4])
    axis = b.axis(x.rank)
    if np.isnan(x.array.astype(np.float64)).any():
        raise Refused("the order of NaN is open")
    k = b.integer(0 if b.chance(5) else 1, x.shape[axis]) if x.shape[axis] else 0
    if b.opset < 10:
        b.node("TopK", [x], 2, axis=axis, k=k)
        return
    more = {"largest": b.integer(0, 1)} if b.opset >= 11 else {}
    b.node("TopK", [x, b.given(np.asarray([k], np.int64))], 2, axis=b.negated([axis], x.rank)[0], **more)


@maker("indexing", 2)
def arg(b: Builder) -> None:
    x = b.pick("float32", "int32", "float64", "int8", "uint8", "int64", ranks=[1, 2, 3, 4])
    axis = b.axis(x.rank)
    if np.isnan(x.array.astype(np.float64)).any():
        raise Refused("the order of NaN is open")
    more = {"select_last_index": b.integer(0, 1)} if b.opset >= 12 else {}
    at = b.negated([axis], x.rank)[0] if b.opset >= 11 else axis
    b.add(b.choice(["ArgMax", "ArgMin"]), [x], axis=at, keepdims=b.integer(0, 1), **more)


@maker("indexing", 2)
def cumulative(b: Builder) -> None:
    x = b.pick("float32", "float64", "int32", "int64", ranks=[1, 2, 3])
    axis = b.negated([b.axis(x.rank)], x.rank)[0]
    b.add(
        "CumSum", [x, b.given(np.asarray(axis, b.choice(INDICES)))], exclusive=b.integer(0, 1), reverse=b.integer(0, 1)
    )


@maker("indexing", 1)
def compress(b: Builder) -> None:
    x = b.pick(*ANY, ranks=[1, 2, 3], where=lambda v: v.array.size > 0)
    if b.chance(50):
        b.add("Compress", [x, b.given(b.data("bool", (b.integer(1, max(1, x.array.size)),)))])
    else:
        axis = b.axis(x.rank)
        at = b.negated([axis], x.rank)[0] if b.opset >= 11 else axis
        b.add("Compress", [x, b.given(b.data("bool", (b.integer(1, max(1, x.shape[axis])),)))], axis=at)


@maker("indexing", 1)
def nonzero(b: Builder) -> None:
    b.add("NonZero", [b.pick("float32", "int64", "bool", "int32", "uint8", ranks=[0, 1, 2, 3])])


@maker("indexing", 1)
def reverse_sequence(b: Builder) -> None:
    x = b.pick(*FLOATS, *INTS, ranks=[2, 3, 4])
    batch = b.integer(0, 1)
    if 0 in x.shape[:2]:
        raise Refused("empty")
    lengths = np.random.default_rng(b.integer(0, 99)).integers(1, x.shape[1 - batch] + 1, x.shape[batch])
    b.add("ReverseSequence", [x, b.given(lengths.astype(np.int64))], batch_axis=batch, time_axis=1 - batch)


@maker("shapes", 3)
def shape_arithmetic(b: Builder) -> None:
    """The nodes that exporters write for x.view(x.size(0), -1)."""
    x = b.pick(*ANY, ranks=[1, 2, 3, 4])
    if 0 in x.shape:
        raise Refused("empty")
    shape = b.add("Shape", [x])
    at = b.integer(0, x.rank - 1)
    if b.chance(60):
        dim = b.add("Gather", [shape, b.const(np.asarray([at], np.int64), plain=True)], axis=0)
    elif b.opset >= 10:
        dim = b.add("Slice", [shape, b.const(np.asarray([at])), b.const(np.asarray([at + 1]))])
    else:
        dim = b.add("Slice", [shape], starts=[at], ends=[at + 1], axes=[0])
    rest = b.const(np.asarray([-1], np.int64))
    if b.chance(30):
        factor = b.const(np.asarray([b.integer(1, 2)], np.int64))
        dim = b.add(b.choice(["Mul", "Div"]), [dim, factor])
    y = b.add("Concat", [dim, rest] if b.chance(60) else [rest, dim], axis=0)
    b.add("Reshape", [x, y])


@maker("shapes", 2)
def shape_only(b: Builder) -> None:
    x = b.pick(*ANY)
    if b.chance(30):
        b.add("Size", [x])
    elif b.opset >= 15 and b.chance(50):
        b.add(
            "Shape",
            [x],
            **({"start": b.integer(-5, 5)} if b.chance(70) else {}),
            **({"end": b.integer(-5, 5)} if b.chance(50) else {}),
        )
    else:
        b.add("Shape", [x])


@maker("shapes", 2)
def constant_of_shape(b: Builder) -> None:
    from onnx import numpy_helper

    dims = list(b.shape(b.integer(0, 3), 5))
    value = numpy_helper.from_array(b.data(b.choice(ANY), (1,), "mild"))
    b.add("ConstantOfShape", [sizes(b, dims)], **({"value": value} if b.chance(80) else {}))


@maker("shapes", 2)
def ranges(b: Builder) -> None:
    dtype = b.choice(["int64", "int32", "float32", "float64", "int16"])
    start, step = b.integer(-4, 4), b.choice([1, 2, 3, -1, -2])
    end = start + step * b.integer(0, 9) + b.integer(-1, 1)
    scale = 0.5 if np.dtype(dtype).kind == "f" else 1
    b.add("Range", [b.given(np.asarray(v * scale, dtype)) for v in (start, end, step)])


@maker("shapes", 1)
def eye(b: Builder) -> None:
    x = b.pick(*FLOATS, *INTS, ranks=[2])
    b.add(
        "EyeLike",
        [x],
        **({"k": b.integer(-3, 3)} if b.chance(60) else {}),
        **({"dtype": type_number(b.choice(["float32", "int64", "float64"]))} if b.chance(50) else {}),
    )


@maker("shapes", 2)
def expand_like(b: Builder) -> None:
    """Expands a mask or a bias to another tensor's shape."""
    x = b.pick(*ANY, ranks=[1, 2, 3, 4])
    shape = b.add("Shape", [x])
    small = b.given(b.data(b.choice(ANY), [d if b.chance(50) else 1 for d in x.shape]))
    b.add("Expand", [small, shape])
