"""Rules for the custom ops of MediaPipe's models, according to their public definitions (mediapipe/util/tflite/operations):
transposed convolution with bias, pooling with positions and its inverse, and regions given by landmarks (version 2)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from linnet.builder.mapping import pointwise
from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.converters.tflite.rules.convolution import PADDING, product_operands, weight
from linnet.converters.tflite.rules.detection import options
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor


def integers(op: Operation, count: int) -> list[int]:
    """Reads options stored as a plain C struct of integers that begins with the padding (1: SAME, 2: VALID)."""
    if len(op.spec.custom) < 4 * count:
        raise op.unsupported(
            f"its options have {len(op.spec.custom)} bytes; expected {4 * count}", "export the model again"
        )
    found = list(struct.unpack_from(f"<{count}i", op.spec.custom))
    if found[0] not in (1, 2) or any(not 0 < v < 1 << 12 for v in found[1:]):
        raise op.unsupported(f"its options {found} are out of range", "export the model again")
    return [found[0] - 1, *found[1:]]


def sizes(op: Operation, x: Tensor, rank: int) -> list[int]:
    if x.static_shape is None or len(x.static_shape) != rank:
        raise op.unsupported(
            f"an operand has shape {x.shape}; expected rank {rank}", "set the input shapes with input_shapes"
        )
    return list(x.static_shape)


@rule("CUSTOM:Convolution2DTransposeBias")
def transposed_with_bias(op: Operation) -> Tensor:
    """Operands: x, weight [out, kh, kw, in], bias. SAME cuts off the part that exceeds the size given by the
    strides."""
    padding, stride_w, stride_h = integers(op, 3)
    value, quantization = weight(op, 1)
    x, w, bias, _ = product_operands(op, op.input(0), value.transpose(3, 0, 1, 2), quantization, op.input(2))
    begins, ends = [], []
    for size, k, stride in zip(sizes(op, x, 4)[1:3], value.shape[1:3], (stride_h, stride_w), strict=True):
        total = max(0, k - (size - 1) % stride - 1) if PADDING[padding] == "same_upper" else 0
        begins.append(total // 2)
        ends.append(total - total // 2)
    return op.emit("conv_transpose", [x, w, bias], strides=[stride_h, stride_w], pads=[*begins, *ends], channel_axis=-1)


def offset(size: int, stride: int, kernel: int, out: int) -> int:
    """The part of the padding for SAME that is at the front (ComputePadding)."""
    return max((out - 1) * stride + kernel - size, 0) // 2


@rule("CUSTOM:MaxPoolingWithArgmax2D")
def pool_with_positions(op: Operation) -> list[Tensor]:
    """The maxima and their positions in the window: row * width + column, as a float slightly above the whole number."""
    padding, stride_w, stride_h, width, height = integers(op, 5)
    x = op.input(0)
    _, rows, columns, depth = sizes(op, x, 4)
    y, places = op.emit_all(
        "pool", [x], 2, kind="max", kernel=[height, width], strides=[stride_h, stride_w], auto_pad=PADDING[padding],
        channel_axis=-1,
    )  # fmt: skip
    top, left = 0, 0
    if PADDING[padding] == "same_upper":
        top, left = (
            offset(rows, stride_h, height, -(-rows // stride_h)),
            offset(columns, stride_w, width, -(-columns // stride_w)),
        )

    def inside(place: Expr) -> Expr:
        row, column = place / (columns * depth) % rows, place / depth % columns
        row, column = row - place.iota(1) * stride_h + top, column - place.iota(2) * stride_w + left
        return (row * width + column).cast("f32") + 0.1

    return [y, op.map([places], inside, "f32")]


@rule("CUSTOM:MaxUnpooling2D")
def unpool(op: Operation) -> Tensor:
    """Writes each element back to its position in the window, with zeros elsewhere. Positions outside the result are dropped."""
    _, stride_w, stride_h, width, height = integers(op, 5)
    x, positions = op.input(0), op.input(1)
    batch, rows, columns, depth = sizes(op, x, 4)
    out_rows, out_columns = rows * height, columns * width
    count = op.limit(batch * out_rows * out_columns * depth)
    top, left = offset(out_rows, stride_h, height, rows), offset(out_columns, stride_w, width, columns)

    def place(position: Expr) -> Expr:
        p = position.cast("i64")
        row, column = p.iota(1) * stride_h - top + p / width, p.iota(2) * stride_w - left + p % width
        at = ((p.iota(0) * out_rows + row) * out_columns + column) * depth + p.iota(3)
        good = (row >= 0) & (row < out_rows) & (column >= 0) & (column < out_columns)
        return good.select(at, at.lift(count))

    places = op.map([positions], place, "i64")
    zeros = op.constant(np.zeros(count + 1, np.float32))
    flat = op.emit("scatter", [zeros, op.reshape(places, [-1]), op.reshape(x, [-1])], kind="elements", axis=0)
    return op.reshape(op.slice(flat, 0, 0, count), [batch, out_rows, out_columns, depth])


@rule("CUSTOM:TransformLandmarks")
def transform_landmarks(op: Operation) -> Tensor:
    """Operands: points [1, n, 2 or 3] and a matrix [1, 4, 4]. The upper rows of the matrix transform the points' first
    two coordinates."""
    x, matrix = op.input(0), op.reshape(op.input(1), [4, 4])
    _, _, width = sizes(op, x, 3)
    if width not in (2, 3):
        raise op.unsupported(f"the points have {width} coordinates; expected 2 or 3", "export the model again")
    linear, shift = op.slice(op.slice(matrix, 0, 0, 2), 1, 0, 2), op.slice(op.slice(matrix, 0, 0, 2), 1, 3, 4)
    moved = op.emit("matmul", [op.slice(x, 2, 0, 2), linear], transpose_b=True)
    moved = op.map([moved, op.reshape(shift, [2])], lambda a, b: a + b)
    return moved if width == 2 else op.copy([moved, op.slice(x, 2, 2, 3)], kind="concat", axis=2)


@rule("CUSTOM:TransformTensorBilinear")
def transform_tensor(op: Operation) -> Tensor:
    """Cuts out a region [1, height, width, c] of x. A matrix [1, 4, 4] gives the position of each pixel. Pixels are
    interpolated bilinearly; outside x they are 0."""
    config = options(op)
    x, matrix = op.input(0), op.reshape(op.input(1), [16])
    _, rows, columns, depth = sizes(op, x, 4)
    height, width = int(config["output_height"]), int(config["output_width"])
    op.limit(height * width * depth)
    numbers = op.emit_all("copy", [matrix], 16, kind="split", axis=0, shape=[1] * 16)
    grid = op.constant(np.arange(height * width, dtype=np.int64).reshape(-1, 1))

    def coordinate(
        pixel: Expr, a: Expr, b: Expr, shift: Expr
    ) -> Expr:  # pixels are half a step from the corner of their cell
        return a * (pixel % width).cast("f32") + b * (pixel / width).cast("f32") + (shift + (a * 0.5 + b * 0.5 - 0.5))

    at_x, at_y = (op.map([grid, numbers[r], numbers[r + 1], numbers[r + 3]], coordinate, "f32") for r in (0, 4))
    flat = op.reshape(x, [rows * columns, depth])
    corners = []
    for down, right in ((0, 0), (0, 1), (1, 0), (1, 1)):

        def index(u: Expr, v: Expr, down: int = down, right: int = right) -> Expr:
            column = (u.floor().cast("i64") + right).max(0).min(columns - 1)
            return (v.floor().cast("i64") + down).max(0).min(rows - 1) * columns + column

        places = op.reshape(op.map([at_x, at_y], index, "i64"), [height * width])
        corners.append(op.emit("gather", [flat, places], axis=0))

    def blend(u: Expr, v: Expr, q11: Expr, q21: Expr, q12: Expr, q22: Expr) -> Expr:
        right, lower = u - u.floor(), v - v.floor()
        upper = q11 * (right.lift(1.0) - right) + q21 * right
        under = q12 * (right.lift(1.0) - right) + q22 * right
        inside = (u >= 0.0) & (u <= columns - 1.0) & (v >= 0.0) & (v <= rows - 1.0)
        return inside.select(under * lower + upper * (lower.lift(1.0) - lower), u.lift(0.0))

    return op.reshape(op.map([at_x, at_y, *corners], blend), [1, height, width, depth])


@rule("CUSTOM:Landmarks2TransformMatrix")
def landmarks_to_matrix(op: Operation) -> Tensor:
    """The matrix [1, 4, 4] that maps pixels of an upright region to the box around a subset of points [1, n, 3]."""
    config: dict[str, Any] = options(op)
    x = op.input(0)
    if "subset_idxs" not in config or x.rank != 3:
        raise op.unsupported("version 1 of the op is not supported", "export the model with version 2 of the op")
    count = sizes(op, x, 3)[1]
    chosen = [int(i) for i in config["subset_idxs"]]
    ends = [int(config["left_rotation_idx"]), int(config["right_rotation_idx"])]
    if not chosen or any(not 0 <= i < count for i in (*chosen, *ends)):
        raise op.unsupported(f"the point indices {chosen} do not fit {count} points", "export the model again")
    wide, high = int(config["output_width"]), int(config["output_height"])
    target = float(config["target_rotation_radians"])
    columns = [op.reshape(op.slice(x, 2, i, i + 1), [count]) for i in (0, 1)]
    (x0, x1), (y0, y1) = ([op.slice(c, 0, i, i + 1) for i in ends] for c in columns)
    angle = op.map([x0, x1, y0, y1], lambda a, b, c, d: -(d - c).binary("atan2", b - a) + target)
    subset = [op.emit("gather", [c, op.constant(np.array(chosen, np.int64))], axis=0) for c in columns]
    turned = [
        op.map([*subset, angle], lambda u, v, r: u * r.cos() - v * r.sin()),
        op.map([*subset, angle], lambda u, v, r: u * r.sin() + v * r.cos()),
    ]
    low, most = [op.reduce(t, "min", [0]) for t in turned], [op.reduce(t, "max", [0]) for t in turned]
    scale_x, scale_y = float(config["scale_x"]) / wide, float(config["scale_y"]) / high

    def entries(r: Expr, left: Expr, upper: Expr, right: Expr, lower: Expr) -> list[Expr]:
        u, v = (left + right) / 2.0, (upper + lower) / 2.0
        c, s = (-r).cos(), (-r).sin()
        sx, sy = (right - left) * scale_x, (lower - upper) * scale_y
        a, b, d, e = c * sx, -s * sy, s * sx, c * sy
        shift_x, shift_y = -wide / 2.0, -high / 2.0
        return [a, b, a * shift_x + b * shift_y + (u * c - v * s), d, e, d * shift_x + e * shift_y + (u * s + v * c)]

    a, b, c, d, e, f = pointwise([angle, *low, *most], entries, function=op.function)
    zero, one = (op.constant(np.array([v], np.float32)) for v in (0, 1))
    rows = [a, b, zero, c, d, e, zero, f, zero, zero, one, zero, zero, zero, zero, one]
    return op.reshape(op.copy(rows, kind="concat", axis=0), [1, 4, 4])
