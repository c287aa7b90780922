"""Rules for ops of detectors: suppression of overlapping boxes, and pooling over regions of an image.
MaxRoiPool gathers the pixels of all bins; the number of pixels per bin depends on the boxes."""

from __future__ import annotations

import numpy as np

from linnet.converters.onnx.operation import Operation
from linnet.converters.onnx.program import Expr, pointwise
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.movement import as_i64
from linnet.ir.function import Tensor

LOWEST = float("-inf")


@rule("NonMaxSuppression")
def non_max_suppression(op: Operation) -> Tensor:
    """If max_output_boxes_per_class is missing, nothing is selected, because ONNX's default is 0."""
    most = op.optional(2)
    most = op.constant(np.zeros(1, np.int64)) if most is None else as_i64(op, most)
    boxes, scores = op.cast(op.input(0), "f32"), op.cast(op.input(1), "f32")
    center = bool(op.attribute("center_point_box", 0))
    return op.emit("nms", [boxes, scores, most, op.optional(3), op.optional(4)], center_point_box=center)


class Axis:
    """Sampling positions of the bins of every region along one axis. There are `each` steps per bin; a region may use
    fewer of them."""

    def __init__(self, op: Operation, bins: int, each: Tensor) -> None:
        self.op, self.bins, self.each = op, bins, each
        zero, one = op.constant(np.int64(0)), op.constant(np.int64(1))
        end = op.map([each], lambda n: n * bins)
        self.numbers = op.unsqueeze(op.emit("range", [zero, end, one]), [0])

    def split(self, number: Expr, each: Expr) -> tuple[Expr, Expr]:
        """Splits a sampling position into (bin, step in the bin)."""
        place = number.binary("div", each)
        return place, number - place * each

    def shape(self) -> Tensor:
        """[bins, steps] as 1-D i64."""
        return self.op.concat([self.op.constant(np.array([self.bins], np.int64)), self.op.reshape(self.each, [1])], 0)


def most_steps(op: Operation, counts: Tensor) -> Tensor:
    """The largest number of steps of any region, at least 1, as an i64 scalar."""
    greatest = op.reduce(counts, "max", [0, 1], keep_dims=False)
    return op.map([greatest], lambda n: n.max(1), "i64")


def size_of(op: Operation, x: Tensor, axis: int) -> Tensor:
    """A dimension as an f32 scalar."""
    return op.cast(op.reshape(op.shape_of(x, axis, axis + 1), []), "f32")


def column(op: Operation, rois: Tensor, index: int) -> Tensor:
    return op.slice(rois, 1, index, index + 1)


def sampled(
    op: Operation, image: Tensor, width: Tensor, image_size: Tensor, batch: Tensor, y: Tensor, x: Tensor
) -> Tensor:
    """The image [pixels, channels] sampled at rows y [r, h] and columns x [r, w] of batch entries [r]. Returns [r, h,
    w, channels]."""
    places = op.map(
        [op.reshape(batch, [-1, 1, 1]), op.unsqueeze(y, [2]), op.unsqueeze(x, [1]), width, image_size],
        lambda b, y, x, w, n: b.cast("i64") * n.cast("i64") + y * w.cast("i64") + x,
        "i64",
    )
    return op.emit("gather", [image, places], kind="take", axis=0)


def pooled(op: Operation, values: Tensor, rows: Axis, columns: Axis, kind: str) -> Tensor:
    """Reduces [r, bins * steps, bins * steps, channels] to [r, channels, bins, bins], over the steps."""
    shape = op.concat([op.shape_of(values, 0, 1), rows.shape(), columns.shape(), op.shape_of(values, 3, 4)], 0)
    result = op.reduce(op.reshape(values, shape), kind, [2, 4], keep_dims=False)
    return op.transpose(result, [0, 3, 1, 2])


def pixels(op: Operation, x: Tensor) -> Tensor:
    """[batch, channels, h, w] as [batch * h * w, channels]."""
    last = op.transpose(x, [0, 2, 3, 1])
    channels = op.shape_of(x, 1, 2)
    return op.reshape(last, op.concat([op.constant(np.array([-1], np.int64)), channels], 0))


@rule("RoiAlign", since=10)
def roi_align(op: Operation) -> Tensor:
    """Bins of bilinear samples. Before opset 16 there is no half-pixel offset."""
    x, mode = op.input(0), str(op.attribute("mode"))
    if mode not in ("avg", "max"):
        raise op.unsupported(f"mode {mode!r} is not supported", "use avg or max")
    half = op.opset >= 16 and op.attribute("coordinate_transformation_mode") == "half_pixel"
    y = op.emit(
        "roi_align",
        [op.cast(x, "f32"), op.cast(op.input(1), "f32"), as_i64(op, op.input(2))],
        kind=mode,
        height=int(op.attribute("output_height")),
        width=int(op.attribute("output_width")),
        sampling_ratio=int(op.attribute("sampling_ratio")),
        spatial_scale=float(op.attribute("spatial_scale")),
        half_pixel=half,
    )
    return op.cast(y, x.dtype)


def masked_pool(op: Operation, values: Tensor, y: Tensor, x: Tensor, rows: Axis, columns: Axis) -> Tensor:
    """The maximum of the existing samples; -inf if there is none."""
    held = op.map(
        [values, op.unsqueeze(y, [2, 3]), op.unsqueeze(x, [1, 3])],
        lambda v, a, b: a.binary("and", b).binary("ne", 0).select(v, LOWEST),
    )
    return pooled(op, held, rows, columns, "max")


def no_sample(v: Expr) -> Expr:
    """An empty bin gives 0."""
    return v.binary("eq", LOWEST).select(0.0, v)


@rule("MaxRoiPool")
def max_roi_pool(op: Operation) -> Tensor:
    """The maximum over the whole pixels of each bin. Bins may overlap (Girshick, Fast R-CNN, 2015)."""
    x, rois = op.input(0), op.cast(op.input(1), "f32")
    shape, scale = op.attribute("pooled_shape"), float(op.attribute("spatial_scale"))
    dtype = x.dtype
    x = op.cast(x, "f32")

    def rounded(value: Expr) -> Expr:
        value = value * scale  # halves away from zero, as C's round
        return value.binary("lt", 0.0).select(-((-value + 0.5).floor()), (value + 0.5).floor())

    axes = []
    for axis, bins in enumerate(int(n) for n in shape):
        low, high = column(op, rois, 2 - axis), column(op, rois, 4 - axis)

        def borders(low: Expr, high: Expr, one: Expr, size: Expr) -> tuple[Expr, Expr]:
            first = rounded(low)
            width = (rounded(high) - first + 1).max(1.0) / bins  # noqa: B023
            begin = (one * width).floor() + first
            end = ((one + 1) * width).ceil() + first
            return tuple(v.max(0.0).binary("min", size) for v in (begin, end))  # type: ignore[return-value]

        size = size_of(op, x, 2 + axis)
        ones = op.constant(np.arange(bins, dtype=np.float32)[None])

        def count(low: Expr, high: Expr, one: Expr, size: Expr) -> Expr:
            begin, end = borders(low, high, one, size)
            return (end - begin).max(0.0).cast("i64")

        along = Axis(op, bins, most_steps(op, op.map([low, high, ones, size], count, "i64")))

        def place(low: Expr, high: Expr, number: Expr, each: Expr, size: Expr) -> tuple[Expr, Expr]:
            one, step = along.split(number, each)  # noqa: B023
            begin, end = borders(low, high, one.cast("f32"), size)
            at = begin + step.cast("f32")
            exists = at.binary("lt", end)
            pixel = exists.select(at, 0.0).cast("i64")
            return pixel, exists

        axes.append((along, pointwise(op, [low, high, along.numbers, along.each, size], place, ["i64", "bool"])))
    (rows, y), (columns, x_places) = axes
    batch = op.map([column(op, rois, 0)], lambda b: b.cast("i64"), "i64")
    area = op.map([size_of(op, x, 2), size_of(op, x, 3)], lambda h, w: h * w)
    values = sampled(op, pixels(op, x), size_of(op, x, 3), area, batch, y[0], x_places[0])
    return op.cast(op.map([masked_pool(op, values, y[1], x_places[1], rows, columns)], no_sample), dtype)
