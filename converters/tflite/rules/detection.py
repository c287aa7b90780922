"""Rules of object detection: NON_MAX_SUPPRESSION_V4 and V5, and the custom op TFLite_Detection_PostProcess.
Selection is a loop that takes the best box and lowers the scores of those that overlap it (Bodla et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from flatbuffers import flexbuffers

from linnet.converters.tflite.importer import own_output
from linnet.converters.tflite.operation import Operation
from linnet.converters.tflite.registry import rule
from linnet.graph import Tensor, emit
from linnet.mapping import Expr

OUT = -np.inf  # the score of a box that can no longer be taken


class Limits(NamedTuple):
    """What a box must keep to. inclusive: the op's way to treat equality, (score reaches its limit, overlap reaches its)."""

    score: Tensor
    overlap: Tensor
    sigma: Tensor | None  # of the Gaussian that lowers the scores of overlapping boxes; None: they stay as they are
    taken: Callable[[Expr, Expr], Expr]  # (score, limit): whether a box may be taken
    crossed: Callable[[Expr, Expr], Expr]  # (overlap, limit): whether a box falls


def select(op: Operation, boxes: Tensor, scores: Tensor, count: Tensor, limits: Limits) -> tuple[Tensor, Tensor]:
    """boxes f32 [n, 4] (two opposite corners), scores f32 [classes, n], count i64 []: the best boxes of each class, one per
    step: indices i64 and scores f32 [count, classes]; where nothing is left, 0 and minus infinity."""
    corners = [op.copy([c], kind="squeeze", axes=[1])
               for c in op.emit_all("copy", [boxes], 4, kind="split", axis=1, shape=[1] * 4)]  # fmt: skip
    low = [op.map([corners[i], corners[i + 2]], lambda a, b: a.min(b)) for i in (0, 1)]
    high = [op.map([corners[i], corners[i + 2]], lambda a, b: a.max(b)) for i in (0, 1)]
    sides = [*low, *high]
    outer = [scores, *sides, limits.score, limits.overlap, *([] if limits.sigma is None else [limits.sigma])]
    body = op.function.graph.function(f"select_{op.outputs[0].name}")
    inner = op.within(body)
    body.placeholder("iteration", "i64", ())
    condition = body.placeholder("condition", "bool", ())
    given = [body.placeholder(t.name, t.dtype, t.shape) for t in outer]
    left, places, least, most = given[0], given[1:5], given[5], given[6]
    best = inner.reduce(left, "argmax", [1], keep_dims=True)
    score = inner.emit("gather", [left, best], kind="elements", axis=1)
    chosen = [inner.emit("gather", [p, best], axis=0) for p in places]

    def after(s: Expr, at: Expr, limit: Expr, *rest: Expr) -> Expr:
        y0, x0, y1, x1, v0, u0, v1, u1 = rest[:8]
        area, other = (y1 - y0) * (x1 - x0), (v1 - v0) * (u1 - u0)
        common = (y1.min(v1) - y0.max(v0)).max(0.0) * (x1.min(u1) - x0.max(u0)).max(0.0)
        overlap = ((area <= 0.0) | (other <= 0.0)).select(0.0, common / (area + other - common))
        lowered = s
        if limits.sigma is not None:
            factor = (overlap * overlap * (s.lift(-0.5) / rest[8])).exp()
            lowered = (rest[8] > 0.0).select(s * factor, s)
        gone = at.eq(at.iota(1)) | limits.crossed(overlap, limit)
        return gone.select(s.lift(OUT), lowered)

    remaining = inner.map([left, best, most, *places, *chosen, *given[7:]], after)
    index = inner.map([best, score, least], lambda i, s, limit: limits.taken(s, limit).select(i, i.lift(0)), "i64")
    value = inner.map([score, least], lambda s, limit: limits.taken(s, limit).select(s, s.lift(OUT)))
    results = [remaining, *(inner.copy([t], kind="squeeze", axes=[1]) for t in (index, value))]
    for tensor in (condition, *results):
        body.outputs.append(own_output(body, tensor, body.outputs))
    attributes = {"body_function": body, "carried": 1}
    made = emit("while", [count, None, *outer], attributes, 3, function=op.function)
    return made[1], made[2]


@rule("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(op: Operation) -> list[Tensor]:
    """Operands: boxes [n, 4], scores [n], how many at most, limits of overlap and score, and (V5) sigma."""
    soft = op.spec.op.endswith("V5")
    scores = op.copy([op.input(1)], kind="unsqueeze", axes=[0])
    limits = Limits(
        op.reshape(op.input(4), []), op.reshape(op.input(3), []), op.reshape(op.input(5), []) if soft else None,
        lambda s, limit: s > limit, lambda o, limit: o >= limit,
    )  # fmt: skip
    indices, values = select(op, op.input(0), scores, op.reshape(op.indices(2), []), limits)
    indices, values = (op.copy([t], kind="squeeze", axes=[1]) for t in (indices, values))
    found = op.map([values], lambda v: (v > OUT).cast("i32"), "i32")
    number = op.reduce(found, "sum", [0], keep_dims=False)
    places = op.cast(indices, "i32")
    if not soft:
        return [places, number]
    return [places, op.map([values, found], lambda v, f: f.select(v, v.lift(0.0))), number]


def options(op: Operation) -> dict[str, Any]:
    """The options of a custom op that keeps them in a flexbuffer."""
    try:
        found = flexbuffers.Loads(op.spec.custom)
    except Exception as error:  # the package raises whatever it stumbles over
        raise op.unsupported(f"its options are damaged ({type(error).__name__}: {error})", "export it again") from None
    if not isinstance(found, dict):
        raise op.unsupported("its options are no map", "export it again")
    return found


@rule("CUSTOM:TFLite_Detection_PostProcess")
def detection_postprocess(op: Operation) -> list[Tensor]:
    """Operands: encoded boxes [1, n, 4 or more], class scores [1, n, classes, perhaps with a background first], anchors [n, 4].
    Gives boxes (y0, x0, y1, x1), classes and scores of the detections, zeros behind them, and their number."""
    config = options(op)
    try:
        most, per_box, classes = (
            int(config[n]) for n in ("max_detections", "max_classes_per_detection", "num_classes")
        )
        least, overlap = float(config["nms_score_threshold"]), float(config["nms_iou_threshold"])
        scales = [float(config[f"{n}_scale"]) for n in "yxhw"]
    except KeyError as error:
        raise op.unsupported(f"the option {error} is missing", "export it again") from None
    encoded, scores, anchors = (op.real(op.input(i)) for i in range(3))
    if not all(t.static_shape is not None for t in (encoded, scores)) or scores.static_shape is None or most < 1:
        raise op.unsupported("operands of unknown size", "fix the input shapes (input_shapes)")
    _, boxes, width = scores.static_shape
    if not 0 < classes <= width or per_box < 1:
        raise op.unsupported(f"{classes} classes of {width}, {per_box} per box", "export it again")
    op.limit(most * per_box)
    corners = decoded(op, op.reshape(op.slice(encoded, 2, 0, 4), [boxes, 4]), anchors, scales)
    scores = op.slice(op.reshape(scores, [boxes, width]), 1, width - classes, width)
    limits = Limits(
        op.constant(np.float32(least)), op.constant(np.float32(overlap)), None,
        lambda s, limit: s >= limit, lambda o, limit: o > limit,
    )  # fmt: skip
    if config.get("use_regular_nms", False):
        return regular(op, corners, scores, min(int(config.get("detections_per_class", 100)), most), most, limits)
    return fast(op, corners, scores, min(per_box, classes), per_box, most, limits)


def decoded(op: Operation, encoded: Tensor, anchors: Tensor, scales: list[float]) -> Tensor:
    """Corners f32 [n, 4] of boxes that are centres and sizes (y, x, h, w) relative to anchors; in f64, as the kernel does."""
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
    op: Operation, corners: Tensor, scores: Tensor, count: int, per_box: int, most: int, limits: Limits
) -> list[Tensor]:
    """Each box competes with the score of its best class; `count` classes of each box taken are listed."""
    k = op.constant(np.array([count], np.int64))
    values, classes = op.emit_all("top_k", [scores, k], 2)
    best = op.transpose(op.slice(values, 1, 0, 1), [1, 0])
    indices, found = select(op, corners, best, op.constant(np.array(most, np.int64)), limits)
    places = op.reshape(indices, [most])
    there = op.map([found], lambda v: (v > OUT).cast("f32"), "f32")  # [most, 1]

    def listed(rows: Tensor) -> Tensor:
        return op.map([op.emit("gather", [rows, places], axis=0), there], lambda v, t: t.ne(0.0).select(v, v.lift(0.0)))

    boxes = listed(corners)
    if per_box > 1:
        column = op.copy([boxes], kind="unsqueeze", axes=[1])
        boxes = op.copy([column, op.constant(np.array([most, count, 4], np.int64))], kind="expand")
        boxes = op.pad(boxes, [0, 0, 0, 0, per_box - count, 0])
    lists = [op.pad(listed(t), [0, 0, 0, per_box - count]) for t in (op.cast(classes, "f32"), values)]
    number = op.reshape(op.reduce(there, "sum", [0, 1], keep_dims=False), [1])
    return [op.reshape(boxes, [1, most * per_box, 4]), *(op.reshape(t, [1, most * per_box]) for t in lists), number]


def regular(op: Operation, corners: Tensor, scores: Tensor, per_class: int, most: int, limits: Limits) -> list[Tensor]:
    """Each class by itself, then the best of all classes."""
    by_class = op.transpose(scores, [1, 0])
    indices, values = select(op, corners, by_class, op.constant(np.array(per_class, np.int64)), limits)
    count = (scores.static_shape or (0, 1))[1]
    total = count * per_class
    flat, places = (op.reshape(op.transpose(t, [1, 0]), [total]) for t in (values, indices))
    taken = min(most, total)
    top, at = op.emit_all("top_k", [flat, op.constant(np.array([taken], np.int64))], 2)
    there = op.map([top], lambda v: (v > OUT).cast("f32"), "f32")
    boxes = op.emit("gather", [corners, op.emit("gather", [places, at], axis=0)], axis=0)
    column = op.reshape(there, [taken, 1])
    boxes = op.pad(op.map([boxes, column], lambda v, t: v * t), [0, 0, most - taken, 0])
    classes = op.map([at, there], lambda i, t: (i / per_class).cast("f32") * t, "f32")
    found = op.map([top, there], lambda v, t: t.ne(0.0).select(v, v.lift(0.0)))
    lists = [op.reshape(op.pad(t, [0, most - taken]), [1, most]) for t in (classes, found)]
    return [op.reshape(boxes, [1, most, 4]), *lists, op.reshape(op.reduce(there, "sum", [0], keep_dims=False), [1])]
