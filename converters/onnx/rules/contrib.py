"""Rules for more ops of domain com.microsoft: ONNX ops in another layout or with an older name, ops that optimizers make by
fusing around norms and activations, and layers with integer weights. Definitions: ONNX Runtime, docs/ContribOperators.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from linnet.converters.onnx import blocks
from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr
from linnet.converters.onnx.registry import MICROSOFT, NEWEST_OPSET, Rule, find, rule
from linnet.converters.onnx.rules.microsoft import activated, fast_gelu, fused_matmul, gelu
from linnet.converters.onnx.rules.movement import as_i64
from linnet.converters.onnx.rules.quantization import qlinear_conv
from linnet.converters.onnx.rules.quantized_ops import standing_in
from linnet.converters.onnx.values import Value
from linnet.ir.function import Tensor


def newest(op_type: str) -> Rule:
    """The newest rule of the ai.onnx op."""
    found = find(op_type, NEWEST_OPSET)
    assert found is not None
    return found


def only(result: Value | Sequence[Value]) -> Tensor:
    """The first of the outputs that a rule returned."""
    first = result[0] if isinstance(result, Sequence) else result
    assert isinstance(first, Tensor)
    return first


# ---- the same op elsewhere


@rule("GatherND", domain=MICROSOFT, like="GatherND")
@rule("GridSample", domain=MICROSOFT, like="GridSample")
@rule("Range", domain=MICROSOFT, like="Range")
@rule("Trilu", domain=MICROSOFT, like="Trilu")
def under_its_name(op: Operation) -> Value | Sequence[Value]:
    if op.node.op_type == "Range" and op.optional(2) is None:
        one = op.constant(np.ones(()), op.input(0).dtype)
        return newest("Range")(standing_in(op, [op.input(0), op.input(1), one]))
    return newest(op.node.op_type)(op)


@rule("TransposeMatMul", domain=MICROSOFT)
def transpose_matmul(op: Operation) -> Tensor:
    return only(fused_matmul(op))  # an older name of FusedMatMul


@rule("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(op: Operation) -> Tensor:
    given = [n for n in ("activation_alpha", "activation_beta", "activation_gamma") if op.has(n)]
    op.ignore("activation_axis")
    return activated(op, only(fused_matmul(op)), op.attribute("activation", ""), [op.attribute(n) for n in given])


@rule("ExpandDims", domain=MICROSOFT)
def expand_dims(op: Operation) -> Tensor:
    return op.unsqueeze(op.input(0), [int(v) for v in op.require_value(1, "the axis").reshape(-1)])


def channels_first(op: Operation, x: Tensor) -> Tensor:
    rank = rank_of(x, "input 0")
    return op.transpose(x, [0, rank - 1, *range(1, rank - 1)])


def channels_last(op: Operation, x: Tensor) -> Tensor:
    rank = rank_of(x, "the result")
    return op.transpose(x, [0, *range(2, rank), 1])


@rule("NhwcConv", domain=MICROSOFT, like="Conv")
@rule("NhwcFusedConv", domain=MICROSOFT, like="Conv")
@rule("NhwcMaxPool", domain=MICROSOFT, like="MaxPool")
def nhwc(op: Operation) -> Tensor:
    """The rule for ops with channels last. Only for NhwcConv, the weights have their channels last too."""
    kind = {"NhwcConv": "Conv", "NhwcFusedConv": "FusedConv", "NhwcMaxPool": "MaxPool"}[op.node.op_type]
    operands = [None if op.optional(i) is None else op.input(i) for i in range(len(op.inputs))]
    for index in (0, 3, *([1] if kind == "Conv" else [])):
        if index < len(operands) and (x := operands[index]) is not None:
            operands[index] = channels_first(op, x)
    found = find("FusedConv", 1, MICROSOFT) if kind == "FusedConv" else newest(kind)
    assert found is not None
    return channels_last(op, only(found(standing_in(op, operands))))


@rule("QLinearConv", domain=MICROSOFT, like="QLinearConv")
def qlinear_conv_in_either_layout(op: Operation) -> Tensor:
    if not op.attribute("channels_last", 0):
        return only(qlinear_conv(op))
    operands = [channels_first(op, op.input(0)), *(op.optional(i) for i in range(1, len(op.inputs)))]
    return channels_last(op, only(qlinear_conv(standing_in(op, operands))))


# ---- around norms and activations


@rule("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(op: Operation) -> Tensor:
    """Softmax of data + bias over all dimensions from `axis` on. The bias may lack inner or outer dimensions of the
    data."""
    x, bias = op.input(0), op.input(1)
    rank, axis = rank_of(x, "input 0"), int(op.attribute("axis", 1))
    op.ignore("is_inner_broadcast")  # the bias has the rank of the data, with ones in broadcast dimensions
    y = op.map([x, bias], lambda v, b: v + b)
    axis += rank if axis < 0 else 0
    if axis == rank - 1:
        return op.emit("softmax", [y], axis=-1)
    flat = op.reshape(y, op.concat([op.shape_of(y, 0, axis), op.constant(np.array([-1], np.int64))], 0))
    return op.reshape(op.emit("softmax", [flat], axis=-1), op.shape_of(x))


@rule("BiasAdd", domain=MICROSOFT)
def bias_add(op: Operation) -> Tensor:
    return op.map([op.input(0), op.input(1), op.input(2)], lambda x, b, s: x + b + s)


@rule("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(op: Operation) -> Tensor:
    """The first half of the channels times the GELU of the second half."""
    x = op.map([op.input(0), op.input(1)], lambda x, b: x + b)
    width = x.shape[-1] if x.shape else None
    if not isinstance(width, int):
        raise op.unknown("the number of channels is unknown")
    halves = op.emit_all("copy", [x], 2, kind="split", axis=-1, shape=[width // 2] * 2)
    return op.map(halves, lambda a, b: a * gelu(b))


@rule("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(op: Operation) -> Tensor:
    operands = [op.input(0), op.input(1), *([op.input(2)] if op.optional(2) is not None else [])]
    return op.map([op.emit("matmul", operands)], fast_gelu)


@rule("GroupNorm", "SkipGroupNorm", domain=MICROSOFT)
def group_norm(op: Operation) -> list[Tensor]:
    """Group norm, with channels last unless channels_last = 0, followed by SiLU if activation is 1. SkipGroupNorm
    normalizes x + skip + bias."""
    x, skip, bias = op.input(0), op.optional(3), op.optional(4)
    last, rank = bool(op.attribute("channels_last", 1)), rank_of(x, "input 0")
    for other in (skip, bias):
        if other is None:
            continue
        if other.rank == 1 and not last:
            other = op.reshape(other, [1, -1, *[1] * (rank - 2)])
        elif other.rank == 2:  # [batch, channels]
            other = op.unsqueeze(other, list(range(1, rank - 1)) if last else list(range(2, rank)))
        x = op.map([x, other], lambda a, b: a + b)
    attributes = {"groups": int(op.attribute("groups", 32)), "epsilon": float(op.attribute("epsilon", 1e-5))}
    y = channels_first(op, x) if last else x
    y = op.emit("group_norm", [y, op.input(1), op.input(2)], **attributes)
    y = channels_last(op, y) if last else y
    if op.attribute("activation", 0):
        y = op.map([y], lambda v: v * v.sigmoid())
    return [y, x] if op.wants(1) else [y]


@rule("CDist", domain=MICROSOFT)
def cdist(op: Operation) -> Tensor:
    """Distances between every row of a and every row of b. They are computed as sums of squared differences, which
    avoids cancellation."""
    metric = str(op.attribute("metric", "sqeuclidean"))
    if metric not in ("euclidean", "sqeuclidean"):
        raise op.unsupported(f"metric {metric!r} is not supported", "use euclidean or sqeuclidean")
    a, b = op.unsqueeze(op.input(0), [1]), op.unsqueeze(op.input(1), [0])
    squares = op.map([a, b], lambda x, y: (x - y) * (x - y))
    y = op.reduce(squares, "sum", [2], keep_dims=False)
    return op.map([y], lambda v: v.sqrt()) if metric == "euclidean" else y


# ---- integers


def scaled(op: Operation, x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """(x - zero) * scale as f32; the parameters broadcast to x."""

    def body(v: Expr, s: Expr, *z: Expr) -> Expr:
        return (v - z[0] if z else v).cast("f32") * s

    return op.map([x, scale, *([zero] if zero is not None else [])], body, "f32")


@rule("QEmbedLayerNormalization", domain=MICROSOFT)
def qembed_layer_norm(op: Operation) -> list[Tensor | None]:
    """EmbedLayerNormalization with 8-bit tables: rows are gathered as integers."""
    ids, segments, mask = op.input(0), op.optional(1), op.optional(7)
    epsilon = op.attribute("epsilon", 1e-12)
    op.ignore("mask_index_type")

    def number(table: int) -> list[Tensor]:
        return [op.reshape(op.input(i), []) for i in (table + 6, table + 11)]

    length = op.shape_of(ids, 1, 2)
    zero = op.constant(np.zeros(1, np.int64))
    terms = [
        scaled(op, op.emit("gather", [op.input(2), ids], kind="take", axis=0), *number(2)),
        scaled(op, op.emit("copy", [op.input(3), zero, length, zero], kind="slice"), *number(3)),
    ]
    if segments is not None:
        terms.append(scaled(op, op.emit("gather", [op.input(4), segments], kind="take", axis=0), *number(4)))
    x = op.map(terms, lambda v, w, *rest: v + w + rest[0] if rest else v + w)
    parameters = [scaled(op, op.input(i), *number(i)) for i in (5, 6)]
    outputs: list[Tensor | None] = [op.emit("layer_norm", [x, *parameters], axis=-1, epsilon=epsilon)]
    if op.wants(1):
        counted = op.map([ids], lambda v: v * 0, "i32") if mask is None else op.cast(mask, "i32")
        outputs.append(op.reduce(counted, "sum", [1], keep_dims=False))
    return outputs


@rule("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(op: Operation) -> Tensor:
    """Gathers rows of a table of 4- or 8-bit integers. Each block along the last axis has its own scale. A byte holds two 4-bit
    integers, the low one first."""
    bits, block = int(op.attribute("bits", 4)), int(op.attribute("block_size", 128))
    table, indices, scales, zeros = op.input(0), as_i64(op, op.input(1)), op.input(2), op.optional(3)
    rank = rank_of(table, "input 0")
    axis, along = int(op.attribute("gather_axis", 0)) % rank, int(op.attribute("quantize_axis", 1)) % rank
    if axis == along or along != rank - 1 or axis != 0:
        raise op.unsupported(
            "only the first axis can be gathered and only the last quantized", "export the table with these axes"
        )
    is_packed = bits == 4 and op.kind(0) is None
    if is_packed and table.dtype != "u8":
        raise op.unsupported(f"4-bit integers are packed into {table.dtype}, not u8", "pack them into u8")

    if (y := _narrow_rows(op, table, scales, zeros, bits, block, is_packed, along)) is not None:
        return op.cast(op.emit("gather", [y, indices], kind="take", axis=0, dtype="f32"), scales.dtype)

    def unpacked(x: Tensor, size: int | None) -> Tensor:
        if not is_packed:
            return x
        parts = [op.map([x], lambda v, s=shift: v.binary("shift_right", s).binary("and", 15)) for shift in (0, 4)]
        joined = op.concat([op.unsqueeze(t, [rank_of(x, "a row")]) for t in parts], rank_of(x, "a row"))
        shape = op.concat([op.shape_of(x, 0, -1), op.constant(np.array([-1], np.int64))], 0)
        flat = op.reshape(joined, shape)
        return flat if size is None else op.slice(flat, -1, 0, size)

    def rows(x: Tensor) -> Tensor:
        return op.emit("gather", [x, indices], kind="take", axis=0)

    count = scales.shape[-1] if scales.shape else None
    if not isinstance(count, int):
        raise op.unknown("the number of blocks is unknown")
    codes = unpacked(rows(table), None)
    operands: list[Tensor | None] = [codes, op.cast(rows(scales), "f32")]
    if zeros is not None:
        operands.append(unpacked(rows(zeros), count))
    elif is_packed or (bits == 8 and table.dtype == "u8"):
        operands.append(op.map([rows(scales)], lambda s: s.other(1 << (bits - 1), "i32"), "u8"))
    where = rank_of(codes, "the rows") - 1
    y = op.emit("dequantize", operands, dtype="f32", axis=where, block=block)
    return op.cast(y, scales.dtype)


def _narrow_rows(
    op: Operation,
    table: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bits: int,
    block: int,
    is_packed: bool,
    axis: int,
) -> Tensor | None:
    """The table as a constant of 4 or 8 bits, if the table and its parameters are constant."""
    if table.data is None or scales.data is None or (zeros is not None and zeros.data is None):
        return None

    def codes(data: np.ndarray[Any, Any], size: int | None) -> np.ndarray[Any, Any]:
        return np.stack([data & 15, data >> 4], -1).reshape(*data.shape[:-1], -1)[..., :size] if is_packed else data

    stored, zero = codes(table.data, None), None
    if zeros is not None and zeros.data is not None:
        zero = codes(zeros.data, scales.data.shape[-1])
    elif stored.dtype.kind == "u" and (is_packed or bits == 8):
        zero = np.full(scales.data.shape, 1 << (bits - 1), np.uint8)
    found = blocks.narrow(stored, scales.data, zero, bits, axis, block)
    return None if found is None else op.function.constant(found[0], table.name, quantization=found[1])


@rule("Inverse", domain=MICROSOFT)
def inverse(op: Operation) -> Tensor:
    """Unrolled Gauss-Jordan elimination with partial pivoting; a singular matrix gives non-finite numbers."""
    x = op.input(0)
    n = x.shape[-1] if x.shape else None
    if not isinstance(n, int) or n < 1:
        raise op.unknown("the size of the matrices is unknown")
    if n > 64:
        raise op.unsupported(f"the matrices have {n} rows; Inverse supports up to 64", "use smaller matrices")
    a = op.reshape(x, [-1, n, n])
    unit = op.expand(op.constant(np.eye(n)[None], x.dtype), op.shape_of(a))
    a = op.concat([a, unit], 2)
    for k in range(n):
        size = op.map([op.slice(op.slice(a, 2, k, k + 1), 1, k, n)], abs)
        pivot = op.map([op.reduce(size, "argmax", [1])], lambda i, k=k: i + k)
        rows = op.map(
            [op.constant(np.arange(n).reshape(1, -1, 1)), pivot],
            lambda row, chosen, k=k: row.eq(k).select(chosen, row.eq(chosen).select(k, row)),
            "i64",
        )
        a = op.emit("gather", [a, rows], kind="nd", batch_dims=1)
        top = op.slice(a, 1, k, k + 1)
        a = op.map(
            [a, op.slice(a, 2, k, k + 1), top, op.slice(top, 2, k, k + 1)],
            lambda v, left, up, t, k=k: v.iota(1).eq(k).select(v / t, v - left / t * up),
        )
    return op.reshape(op.slice(a, 2, n, 2 * n), op.shape_of(x))
