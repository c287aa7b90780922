"""Rules for ops that move elements. All become the runtime op `copy`, which has ONNX's semantics.
Known operands become attributes. The others stay operands, which are evaluated during planning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.logic import cast_to
from linnet.ir.function import Tensor


def as_i64(op: Operation, tensor: Tensor) -> Tensor:
    """Casts sizes and axes to i64, because ONNX also allows i32 for some of them."""
    if tensor.dtype == "i64":
        return tensor
    if tensor.data is not None:
        return op.constant(tensor.data.astype(np.int64))
    return cast_to(op, tensor, "i64")


@rule("Reshape")
def reshape(op: Operation) -> Tensor:
    return op.reshape(op.input(0), as_i64(op, op.input(1)), bool(op.attribute("allowzero", 0)))


@rule("Flatten")
def flatten(op: Operation) -> Tensor:
    return flattened(op, op.input(0), op.attribute("axis"))


def flattened(op: Operation, x: Tensor, axis: int) -> Tensor:
    """x as a matrix: the dimensions before `axis` are its rows."""
    axis += x.rank if axis < 0 and x.rank is not None else 0
    if x.static_shape is not None:
        return op.reshape(x, [int(np.prod(x.static_shape[:axis])), int(np.prod(x.static_shape[axis:]))], True)
    tail = x.shape[axis:] if x.shape else (None,)
    if axis == 1 and 0 not in tail and all(isinstance(d, int) for d in tail):
        return op.reshape(x, [-1, int(np.prod([d for d in tail if isinstance(d, int)]))])
    head = op.reduce(op.shape_of(x, 0, axis), "prod", [0]) if axis else op.constant(np.ones(1, np.int64))
    rest = op.reduce(op.shape_of(x, axis), "prod", [0])
    return op.reshape(x, op.concat([head, rest], 0), True)


@rule("Transpose")
def transpose(op: Operation) -> Tensor:
    x = op.input(0)
    perm = op.attribute("perm")
    if perm is None:
        if x.rank is None:
            return op.emit("copy", [x], kind="transpose")
        perm = list(reversed(range(x.rank)))
    return op.transpose(x, list(perm))


@rule("Concat")
def concat(op: Operation) -> Tensor:
    return op.concat(op.all_inputs(), op.attribute("axis", 1))


def _split(op: Operation, x: Tensor, axis: int, sizes: Sequence[int] | Tensor | None) -> list[Tensor]:
    count = len(op.node.output)
    if isinstance(sizes, Tensor):
        return op.emit_all("copy", [x, as_i64(op, sizes)], count, kind="split", axis=axis)
    if sizes is None:
        extent = x.shape[axis] if x.shape is not None else None
        if not isinstance(extent, int):
            return op.emit_all("copy", [x], count, kind="split", axis=axis)
        size = -(-extent // count)  # the last part may be smaller
        sizes = [max(0, min(size, extent - i * size)) for i in range(count)]
    return op.emit_all("copy", [x], count, kind="split", axis=axis, shape=list(sizes))


@rule("Split")
def split_by_attribute(op: Operation) -> list[Tensor]:
    return _split(op, op.input(0), op.attribute("axis"), op.attribute("split"))


@rule("Split", since=13)
def split(op: Operation) -> list[Tensor]:
    op.attribute("num_outputs")  # which limits.py compares with the outputs
    sizes = op.optional(1)
    known: Sequence[int] | Tensor | None = op.ints(1)
    return _split(op, op.input(0), op.attribute("axis"), known if known is not None else sizes)


@rule("Slice")
def slice_by_attributes(op: Operation) -> Tensor:
    starts, ends = op.attribute("starts"), op.attribute("ends")
    axes = op.attribute("axes") or list(range(len(starts)))
    return op.emit("copy", [op.input(0)], kind="slice", starts=starts, ends=ends, axes=axes, steps=[1] * len(starts))


@rule("Slice", since=10)
def slice_(op: Operation) -> Tensor:
    x = op.input(0)
    starts, ends, axes, steps = (op.ints(i) for i in range(1, 5))
    fixed = starts is not None and ends is not None
    fixed = fixed and (op.optional(3) is None or axes is not None) and (op.optional(4) is None or steps is not None)
    if fixed and starts is not None and ends is not None:
        if not starts:
            return x
        return op.emit(
            "copy", [x], kind="slice", starts=starts, ends=ends,
            axes=axes or list(range(len(starts))), steps=steps or [1] * len(starts),
        )  # fmt: skip
    operands = [x, *(as_i64(op, op.input(i)) for i in (1, 2))]
    count = op.shape_of(op.input(1))  # the number of axes; a constant if it is known
    zero, one = (op.constant(np.array(v, np.int64)) for v in (0, 1))
    given = [as_i64(op, t) if t is not None else None for t in (op.optional(3), op.optional(4))]
    axes_of = given[0] if given[0] is not None else op.emit("range", [zero, op.reshape(count, []), one])
    steps_of = given[1] if given[1] is not None else op.expand(op.reshape(one, [1]), count)
    return op.emit("copy", [*operands, axes_of, steps_of], kind="slice")


MODES = ("constant", "reflect", "edge", "wrap")


def _mode(op: Operation) -> str:
    mode = str(op.attribute("mode"))
    if mode not in MODES:
        raise op.unsupported(f"pad mode {mode!r} is not supported", "use constant, reflect, edge or wrap")
    return mode


@rule("Pad")
def pad_by_attributes(op: Operation) -> Tensor:
    return op.emit(
        "copy",
        [op.input(0)],
        kind="pad",
        pads=op.attribute("pads"),
        pad_mode=_mode(op),
        value=op.attribute("value"),
    )


@rule("Pad", since=11)
def pad(op: Operation) -> Tensor:
    x, pads, value, axes = op.input(0), op.ints(1), op.optional(2), op.optional(3)
    mode = _mode(op)
    value = value if mode == "constant" else None  # the other modes do not use it
    known = value is None or value.data is not None
    if pads is not None and known and (axes is None or axes.data is not None):
        number = (
            0.0 if value is None or value.data is None or value.data.size == 0 else float(value.data.reshape(-1)[0])
        )
        if value is None or (value.dtype != "bf16" and (value.dtype not in ("i64", "u64") or abs(number) < 2**53)):
            return op.emit("copy", [x], kind="pad", pads=pads, pad_mode=mode, value=number, axes=op.ints(3) or [])
    if value is None and mode == "constant":
        value = op.constant(np.zeros(()), x.dtype)
    elif value is not None and value.rank != 0:
        value = op.reshape(value, [])
    operands = [x, as_i64(op, op.input(1)), value]
    if axes is not None:
        operands.append(as_i64(op, axes))
    return op.emit("copy", operands, kind="pad", pad_mode=mode)


@rule("Expand")
def expand(op: Operation) -> Tensor:
    return op.expand(op.input(0), as_i64(op, op.input(1)))


@rule("Tile")
def tile(op: Operation) -> Tensor:
    repeats = op.ints(1)
    if repeats:
        return op.emit("copy", [op.input(0)], kind="tile", shape=repeats)
    return op.emit("copy", [op.input(0), as_i64(op, op.input(1))], kind="tile")


def _squeeze(op: Operation, axes: Sequence[int] | None) -> Tensor:
    x = op.input(0)
    if axes:
        return op.squeeze(x, axes)
    if x.static_shape is not None:
        return op.squeeze(x, [i for i, d in enumerate(x.static_shape) if d == 1])
    return op.emit("copy", [x], kind="squeeze")


@rule("Squeeze")
def squeeze_by_attribute(op: Operation) -> Tensor:
    return _squeeze(op, op.attribute("axes"))


@rule("Squeeze", since=13)
def squeeze(op: Operation) -> Tensor:
    axes = op.optional(1)
    if axes is not None and axes.data is None:
        return op.emit("copy", [op.input(0), as_i64(op, axes)], kind="squeeze")
    return _squeeze(op, op.ints(1))


@rule("Unsqueeze")
def unsqueeze_by_attribute(op: Operation) -> Tensor:
    return op.unsqueeze(op.input(0), op.attribute("axes"))


@rule("Unsqueeze", since=13)
def unsqueeze(op: Operation) -> Tensor:
    axes = op.ints(1)
    if axes is None:
        return op.emit("copy", [op.input(0), as_i64(op, op.input(1))], kind="unsqueeze")
    return op.unsqueeze(op.input(0), axes)


@rule("DepthToSpace")
def depth_to_space(op: Operation) -> Tensor:
    mode = str(op.attribute("mode", "DCR")).lower()
    return op.emit(
        "copy", [op.input(0)], kind="depth_to_space", block=op.attribute("blocksize"), depth_mode=mode, axis=1
    )


@rule("SpaceToDepth")
def space_to_depth(op: Operation) -> Tensor:
    x, block = op.input(0), op.attribute("blocksize")
    if op.attribute("mode", "DCR") == "CRD":  # channels vary slowest: split both axes, then move the parts after them
        if x.static_shape is None or len(x.static_shape) != 4:
            raise op.unknown("mode CRD needs the shape of the input, which is unknown")
        n, c, h, w = x.static_shape
        parts = op.transpose(op.reshape(x, [n, c, h // block, block, w // block, block]), [0, 1, 3, 5, 2, 4])
        return op.reshape(parts, [n, c * block * block, h // block, w // block])
    return op.emit("copy", [op.input(0)], kind="space_to_depth", block=op.attribute("blocksize"), axis=1)


@rule("CenterCropPad")
def center_crop_pad(op: Operation) -> Tensor:
    """Crops axes that are too large and pads axes that are too small, around the centre. Half of the elements, rounded
    towards zero, are cut off or added at the front."""
    x, target = op.input(0), as_i64(op, op.input(1))
    rank = rank_of(x, "input 0")
    axes = [a + rank if a < 0 else a for a in (op.attribute("axes") or range(rank))]
    sizes = op.shape_of(x)
    if axes != list(range(rank)):
        sizes = op.emit("gather", [sizes, op.constant(np.array(axes, np.int64))], kind="take", axis=0)
    begins = op.map([target, sizes], lambda wanted, size: (wanted - size) / 2)
    ends = op.map([target, sizes, begins], lambda wanted, size, begin: wanted - size - begin)
    pads = op.concat([begins, ends], 0)
    zero = op.constant(np.zeros(()), x.dtype)
    known = [int(v) for v in pads.data] if pads.data is not None else None
    if known is not None:
        return op.emit("copy", [x], kind="pad", axes=axes, pads=known)
    return op.emit("copy", [x, pads, zero, op.constant(np.array(axes, np.int64))], kind="pad")
