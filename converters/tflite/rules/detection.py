"""Rules for object detection: NON_MAX_SUPPRESSION_V4 and V5, and the custom op TFLite_Detection_PostProcess.
The limits of the runtime op `nms` mean "above". Where TFLite means "at least", the limit is the next smaller float."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor


def below(op: Operation, limit: Tensor) -> Tensor:
    """The next smaller float of a scalar."""
    if limit.data is not None:
        return op.constant(np.nextafter(limit.data.reshape(()).astype(np.float32), np.float32(-np.inf)))
    return op.map([limit], lambda v: v - abs(v) * 2.0**-24)


def select(
    op: Operation, boxes: Tensor, scores: Tensor, count: Tensor, overlap: Tensor, least: Tensor, sigma: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs `nms`, with at most `count` (i64 []) boxes per class.

    boxes: f32 [n, 4]; scores: f32 [classes, n]. Returns the selected boxes and classes (i64 [classes * count], ordered
    by class and then by score), their scores, and their number (i64 []). The rest of each list is 0."""
    operands = [op.copy([t], kind="unsqueeze", axes=[0]) for t in (boxes, scores)]
    rows, taken, number = op.emit_all("nms", [*operands, count, overlap, least], 3, padded=True, soft_sigma=sigma)
    return rows, taken, number


@rule("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(op: Operation) -> list[Tensor]:
    """Operands: boxes [n, 4], scores [n], the maximum number, the limits of overlap and score, and (V5) sigma."""
    soft = op.spec.op.endswith("V5")
    sigma = float(op.require(5, "sigma").reshape(-1)[0]) if soft else 0.0
    scores = op.copy([op.input(1)], kind="unsqueeze", axes=[0])
    overlap, least = below(op, op.reshape(op.input(3), [])), op.reshape(op.input(4), [])
    rows, taken, number = select(op, op.input(0), scores, op.reshape(op.indices(2), []), overlap, least, sigma)
    places = op.copy([op.slice(rows, 1, 2, 3)], kind="squeeze", axes=[1])
    return [op.cast(places, "i32"), *([taken] if soft else []), op.cast(number, "i32")]


def options(op: Operation) -> dict[str, Any]:
    """The options of a custom op that stores them in a flexbuffer."""
    try:
        found = flexbuffers.Loads(op.spec.custom)
    except Exception as error:  # the package may raise anything
        raise op.unsupported(
            f"its options are damaged ({type(error).__name__}: {error})", "export the model again"
        ) from None
    if not isinstance(found, dict):
        raise op.unsupported("the options of the op are not a map of names and values", "export the model again")
    return found


@rule("CUSTOM:TFLite_Detection_PostProcess")
def detection_postprocess(op: Operation) -> list[Tensor]:
    """Operands: encoded boxes [1, n, 4 or more], class scores [1, n, classes] (possibly with a background class first), anchors
    [n, 4]. Gives boxes (y0, x0, y1, x1), classes and scores of the detections, padded with zeros, and their number."""
    config = options(op)
    try:
        most, per_box, classes = (
            int(config[n]) for n in ("max_detections", "max_classes_per_detection", "num_classes")
        )
        least, overlap = float(config["nms_score_threshold"]), float(config["nms_iou_threshold"])
        scales = [float(config[f"{n}_scale"]) for n in "yxhw"]
    except KeyError as error:
        raise op.unsupported(f"the option {error} is missing", "export the model again") from None
    encoded, scores, anchors = (op.real(op.input(i)) for i in range(3))
    if not all(t.static_shape is not None for t in (encoded, scores)) or scores.static_shape is None or most < 1:
        raise op.unsupported("the size of an operand is unknown", "set the input shapes with input_shapes")
    _, boxes, width = scores.static_shape
    if not 0 < classes <= width or per_box < 1:
        raise op.unsupported(
            f"{classes} classes, {per_box} per box, do not fit scores of width {width}", "export the model again"
        )
    op.limit(most * per_box)
    corners = decoded(op, op.reshape(op.slice(encoded, 2, 0, 4), [boxes, 4]), anchors, scales)
    scores = op.slice(op.reshape(scores, [boxes, width]), 1, width - classes, width)
    limits = (op.constant(np.float32(overlap)), below(op, op.constant(np.float32(least))))
    if config.get("use_regular_nms", False):
        return regular(op, corners, scores, min(int(config.get("detections_per_class", 100)), most), most, limits)
    return fast(op, corners, scores, min(per_box, classes), per_box, most, limits)


def decoded(op: Operation, encoded: Tensor, anchors: Tensor, scales: list[float]) -> Tensor:
    """Corners f32 [n, 4] of boxes given as centres and sizes (y, x, h, w) relative to anchors. Computed in f64, as in the
    kernel."""
    y, x, h, w = op.emit_all("copy", [encoded], 4, kind="split", axis=1, shape=[1] * 4)
    ay, ax, ah, aw = op.emit_all("copy", [anchors], 4, kind="split", axis=1, shape=[1] * 4)

    def edge(sign: float, scale: float, other: float) -> Callable[..., Expr]:
        def body(centre: Expr, size: Expr, anchor: Expr, extent: Expr) -> Expr:
            wide = extent.cast("f64")
            middle = (centre.cast("f64") / scale * wide + anchor.cast("f64")).cast("f32")
            half = ((size.cast("f64") / other).exp() * 0.5 * wide).cast("f32")
            return middle + half * sign

        return body

    rows = [op.map([y, h, ay, ah], edge(s, scales[0], scales[2])) for s in (-1.0, 1.0)]
    columns = [op.map([x, w, ax, aw], edge(s, scales[1], scales[3])) for s in (-1.0, 1.0)]
    return op.copy([rows[0], columns[0], rows[1], columns[1]], kind="concat", axis=1)


def fast(
    op: Operation, corners: Tensor, scores: Tensor, count: int, per_box: int, most: int, limits: tuple[Tensor, Tensor]
) -> list[Tensor]:
    """The fast variant: selects boxes by the score of their best class, and lists `count` classes of each selected
    box."""
    if count == 1:
        values, classes = op.reduce(scores, "max", [1]), op.reduce(scores, "argmax", [1])
    else:
        values, classes = op.emit_all("top_k", [scores, op.constant(np.array([count], np.int64))], 2)
    best = op.transpose(op.slice(values, 1, 0, 1), [1, 0])
    rows, _, number = select(op, corners, best, op.constant(np.array(most, np.int64)), *limits)
    places = op.copy([op.slice(rows, 1, 2, 3)], kind="squeeze", axes=[1])

    def listed(table: Tensor) -> Tensor:
        """Rows of the selected boxes, padded with zeros."""
        found = op.emit("gather", [table, places], axis=0)
        return op.map([found, number], lambda v, n: (v.iota(0) < n).select(v, v.lift(0.0)))

    boxes = listed(corners)
    if per_box > 1:
        column = op.copy([boxes], kind="unsqueeze", axes=[1])
        boxes = op.copy([column, op.constant(np.array([most, count, 4], np.int64))], kind="expand")
        boxes = op.pad(boxes, [0, 0, 0, 0, per_box - count, 0])
    lists = [op.pad(listed(t), [0, 0, 0, per_box - count]) for t in (op.cast(classes, "f32"), values)]
    shaped = [op.reshape(boxes, [1, most * per_box, 4]), *(op.reshape(t, [1, most * per_box]) for t in lists)]
    return [*shaped, op.reshape(op.cast(number, "f32"), [1])]


def regular(
    op: Operation, corners: Tensor, scores: Tensor, per_class: int, most: int, limits: tuple[Tensor, Tensor]
) -> list[Tensor]:
    """The regular variant: selects boxes per class, then the best boxes of all classes."""
    total = (scores.static_shape or (0, 1))[1] * per_class
    by_class = op.transpose(scores, [1, 0])
    rows, taken, number = select(op, corners, by_class, op.constant(np.array(per_class, np.int64)), *limits)
    ranked = op.map([taken, number], lambda v, n: (v.iota(0) < n).select(v, v.lift(-np.inf)))
    count = min(most, total)
    top, at = op.emit_all("top_k", [ranked, op.constant(np.array([count], np.int64))], 2)
    found = op.emit("gather", [rows, at], axis=0)
    _, classes, places = (
        op.copy([t], kind="squeeze", axes=[1])
        for t in op.emit_all("copy", [found], 3, kind="split", axis=1, shape=[1, 1, 1])
    )

    def kept(v: Expr, n: Expr) -> Expr:
        return (v.iota(0) < n).select(v, v.lift(0.0))

    boxes = op.map([op.emit("gather", [corners, places], axis=0), number], kept)
    lists = [op.map([t, number], kept) for t in (op.cast(classes, "f32"), top)]
    lists = [op.reshape(op.pad(t, [0, most - count]), [1, most]) for t in lists]
    boxes = op.reshape(op.pad(boxes, [0, 0, most - count, 0]), [1, most, 4])
    return [boxes, *lists, op.reshape(op.map([number], lambda n: n.min(most).cast("f32"), "f32"), [1])]
