"""Steps after object and face detectors: decoding anchors and strides to boxes, non-maximum suppression, and mapping to
photo pixels. Each decoder returns candidates in pixels of the model's input. `_finish` selects among them and maps them
back to the photo."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import numpy.typing as npt

from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor, emit
from linnet.preprocess._edit import Edit, real
from linnet.preprocess._geometry import Fit, mapping, photo_size
from linnet.preprocess._labels import Labels
from linnet.preprocess._results import activated, set_labels

if TYPE_CHECKING:
    from typing_extensions import Unpack

Floats = npt.NDArray[np.float32]


class Options(TypedDict, total=False):
    """Options that every decoder accepts.
    score_threshold: minimum score of a candidate (0.25).
    iou_threshold: a box is dropped if its overlap (IoU) with a better box of its class is larger than this (0.45).
    limit: maximum number of boxes (100).
    multi_label: whether a box may be reported several times, once per class (False: only with its best class).
    labels: one per class, or a text file with one per line.
    names: names of the outputs: boxes, scores, classes, keypoints.
    keep: also keep the decoded outputs.
    input: the photo input, if there are several.
    size: (height, width) of the model's input, if its shape does not give them.
    signature: the signature to change ("infer").
    """

    score_threshold: float
    iou_threshold: float
    limit: int
    multi_label: bool
    labels: Labels | None
    names: Sequence[str]
    keep: bool
    input: str | None
    size: tuple[int, int] | None
    signature: str


@dataclasses.dataclass
class _Candidates:
    """boxes f32 [M,4] (x0, y0, x1, y1), scores f32 [C,M], points f32 [M,K,2], all in pixels of the model's input."""

    boxes: Tensor
    scores: Tensor
    points: Tensor | None = None


def yolo(graph: Graph, output: str, *, layout: str = "v8", **options: Unpack[Options]) -> Graph:
    """Boxes from the single output of a YOLO model, in photo pixels: "boxes" f32 [n,4] (x0, y0, x1, y1), "scores" f32
    [n], in descending order, and "classes" i64 [n].

    layout: "v8": [1, 4 + classes, M] with centre, width and height in pixels, then scores (also v9, v11, v12). "v5":
    [1, M, 5 + classes] with an objectness that multiplies the scores (also v3, v7). Defaults are those of Ultralytics'
    predict. Raises UsageError for an unknown output or option.
    """
    edit = _edit(graph, options)
    x = _matrix(edit, output)
    if layout == "v8":
        x = ops.transpose(x, [1, 0])
        box, scores = _columns(x, 0, 4), _columns(x, 4)
    elif layout == "v5":
        box = _columns(x, 0, 4)
        scores = ops.multiply(_columns(x, 5), _columns(x, 4, 5))
    else:
        raise UsageError("unknown layout", code=101, expected="'v8' or 'v5'", got=repr(layout))
    candidates = _Candidates(_corners(_columns(box, 0, 2), _columns(box, 2, 4)), ops.transpose(scores, [1, 0]))
    return _finish(edit, [output], candidates, options)


def ssd(
    graph: Graph,
    boxes: str,
    scores: str,
    anchors: npt.ArrayLike,
    *,
    coding: str = "mediapipe",
    activation: str | None = "sigmoid",
    **options: Unpack[Options],
) -> Graph:
    """Boxes from a detector with anchors: `boxes` [1,M,4 + 2K] and `scores` [1,M,C]. The outputs are those of `yolo`.
    If K > 0, "keypoints" f32 [n,K,2] is added.

    anchors: f32 [M,4]: centre x and y, width, height, as fractions of the model's input (`mediapipe_anchors`). coding:
    "mediapipe": offsets x, y, width, height, keypoints..., in pixels. "ssd": y, x, height, width in TensorFlow's box
    coder with factors 10, 10, 5, 5; class 0 is the background. activation: activation of the scores, which are first
    clipped to [-100, 100].
    """
    edit = _edit(graph, options)
    raw, confidence = _matrix(edit, boxes), _matrix(edit, scores)
    table = np.asarray(anchors, np.float32)
    if table.ndim != 2 or table.shape[1] != 4 or (isinstance(count := _rows(raw), int) and count != len(table)):
        raise UsageError(
            "the anchors have the wrong shape",
            code=104,
            tensor=boxes,
            expected=f"[{_rows(raw)}, 4]",
            got=str(list(table.shape)),
        )
    height, width = _size(edit, options)
    side = np.array([width, height], np.float32)
    centre, extent = (edit.function.constant((table[:, i : i + 2] * side).astype(np.float32)) for i in (0, 2))
    points = None
    if coding == "mediapipe":
        unit = edit.function.constant(table[:, 2:4])

        def around(part: Tensor) -> Tensor:
            made: Tensor = pointwise([part, unit, centre], lambda v, u, c: v * u + c)
            return made

        middle, span = around(_columns(raw, 0, 2)), ops.multiply(_columns(raw, 2, 4), unit)
        columns = raw.shape[1] if raw.shape else None
        if isinstance(columns, int) and columns > 4:
            parts = [around(_columns(raw, i, i + 2)) for i in range(4, columns, 2)]
            points = ops.reshape(ops.concat(parts, 1), [0, -1, 2])
    elif coding == "ssd":
        swap = edit.function.constant(np.array([1, 0], np.int64))
        shift, growth = (ops.gather(_columns(raw, i, i + 2), swap, axis=1) for i in (0, 2))
        middle = pointwise([shift, extent, centre], lambda v, e, c: v * 0.1 * e + c)
        span = pointwise([growth, extent], lambda v, e: (v * 0.2).unary("exp") * e)
        confidence = _columns(confidence, 1)
    else:
        raise UsageError("unknown coding", code=101, expected="'mediapipe' or 'ssd'", got=repr(coding))
    clipped = confidence if activation is None else ops.clip(confidence, -100.0, 100.0)
    made = _Candidates(_corners(middle, span), ops.transpose(activated(clipped, activation), [1, 0]), points)
    return _finish(edit, [boxes, scores], made, options)


def mediapipe_anchors(
    size: int,
    strides: Sequence[int],
    *,
    per_layer: int = 2,
) -> Floats:
    """The anchors of MediaPipe's detectors, f32 [M,4]: for each stride, in row order, `per_layer` anchors at each
    cell's centre, all of width and height 1 (`fixed_anchor_size`). Consecutive equal strides count as one grid with
    more anchors.

    face_detection_short_range: (128, [8, 16, 16, 16]); palm_detection: (192, [8, 16, 16, 16]).
    """
    made, at = [], 0
    while at < len(strides):
        stride, repeats = strides[at], 1
        while at + repeats < len(strides) and strides[at + repeats] == stride:
            repeats += 1
        at += repeats
        cells = -(-size // stride)
        y, x = np.mgrid[0:cells, 0:cells].reshape(2, -1)
        centres = np.stack([(x + 0.5) / cells, (y + 0.5) / cells], 1).repeat(repeats * per_layer, axis=0)
        made.append(np.concatenate([centres, np.ones_like(centres)], 1))
    return np.concatenate(made).astype(np.float32)


def scrfd(
    graph: Graph,
    outputs: Mapping[int, Sequence[str]],
    *,
    per_cell: int = 2,
    **options: Unpack[Options],
) -> Graph:
    """Faces from a SCRFD model (InsightFace). outputs: {stride: names of (scores [..,1], distances [..,4], and
    optionally keypoints [..,10])}. Distances to the four sides are in units of the stride, from the corner of each
    cell; scores are probabilities. The outputs are those of `ssd`."""
    edit = _edit(graph, options)
    size = _size(edit, options)
    boxes, scores, points = [], [], []
    for stride, names in outputs.items():
        columns = {2: (1, 4), 3: (1, 4, 10)}.get(len(names))
        if columns is None:
            raise UsageError("each stride needs 2 or 3 output names", code=101, got=f"{stride}: {list(names)}")
        parts = [ops.reshape(real(edit.output(n)), [-1, c]) for n, c in zip(names, columns, strict=True)]
        corner = edit.function.constant(_grid(size, stride, per_cell) * np.float32(stride))
        sides = ops.scale(parts[1], float(stride))
        low, high = ops.subtract(corner, _columns(sides, 0, 2)), ops.add(corner, _columns(sides, 2, 4))
        boxes.append(ops.concat([low, high], 1))
        scores.append(parts[0])
        if len(parts) == 3:
            points.append(_points(parts[2], corner, stride))
    return _finish(edit, _flat(outputs), _joined(boxes, scores, points), options)


def yunet(graph: Graph, outputs: Mapping[int, Sequence[str]], **options: Unpack[Options]) -> Graph:
    """Faces from YuNet (OpenCV's FaceDetectorYN). outputs: {stride: names of (class scores, objectness, boxes [..,4],
    keypoints [..,10])}. The score is the square root of class score times objectness, each clipped to [0, 1]. The
    outputs are those of `ssd`."""
    edit = _edit(graph, options)
    size = _size(edit, options)
    boxes, scores, points = [], [], []
    for stride, names in outputs.items():
        if len(names) != 4:
            raise UsageError("each stride needs 4 output names", code=101, got=f"{stride}: {list(names)}")
        cls, obj, box, kps = (
            ops.reshape(real(edit.output(n)), [-1, c]) for n, c in zip(names, (1, 1, 4, 10), strict=True)
        )
        corner = edit.function.constant(_grid(size, stride, 1) * np.float32(stride))
        middle = ops.add(corner, ops.scale(_columns(box, 0, 2), float(stride)))
        span = ops.scale(pointwise([_columns(box, 2, 4)], lambda d: d.unary("exp")), float(stride))
        boxes.append(_corners(middle, span))
        scores.append(pointwise([cls, obj], lambda a, b: (_unit(a) * _unit(b)).unary("sqrt")))
        points.append(_points(kps, corner, stride))
    return _finish(edit, _flat(outputs), _joined(boxes, scores, points), options)


# ---- parts of decoders


def _unit(v: Expr) -> Expr:
    return v.max(0.0).min(1.0)


def _flat(outputs: Mapping[int, Sequence[str]]) -> list[str]:
    return [name for names in outputs.values() for name in names]


def _grid(size: tuple[int, int], stride: int, per_cell: int) -> Floats:
    """(column, row) of every cell in row order, each repeated `per_cell` times."""
    y, x = np.mgrid[0 : -(-size[0] // stride), 0 : -(-size[1] // stride)].reshape(2, -1)
    return np.stack([x, y], 1).repeat(per_cell, axis=0).astype(np.float32)


def _points(raw: Tensor, corner: Tensor, stride: int) -> Tensor:
    """Converts [M,10] in strides from each cell's corner to [M,5,2] in pixels."""
    cells = ops.copy([corner], kind="unsqueeze", axis=[1])[0]
    made: Tensor = pointwise([ops.reshape(raw, [0, 5, 2]), cells], lambda d, c: c + d * stride)
    return made


def _joined(boxes: Sequence[Tensor], scores: Sequence[Tensor], points: Sequence[Tensor]) -> _Candidates:
    columns = ops.transpose(ops.concat(scores, 0), [1, 0])
    return _Candidates(ops.concat(boxes, 0), columns, ops.concat(points, 0) if points else None)


def _columns(x: Tensor, start: int, end: int = 1 << 31) -> Tensor:
    return ops.copy([x], kind="slice", starts=[start], ends=[end], axis=[1])[0]


def _rows(x: Tensor) -> object:
    return x.shape[0] if x.shape else None


def _corners(middle: Tensor, span: Tensor) -> Tensor:
    """Converts centres and sizes to [M,4] (x0, y0, x1, y1)."""
    low = pointwise([middle, span], lambda c, s: c - s * 0.5)
    high = pointwise([middle, span], lambda c, s: c + s * 0.5)
    return ops.concat([low, high], 1)


def _matrix(edit: Edit, output: str) -> Tensor:
    """An output [1,M,N] as f32 [M,N]. Raises UsageError for another batch size or rank."""
    x = real(edit.output(output))
    if x.shape is None or len(x.shape) not in (2, 3) or (len(x.shape) == 3 and x.shape[0] not in (1, None)):
        raise UsageError(
            f"output {output!r} cannot be decoded", code=104, tensor=output,
            expected="[1, M, N] for one image at a time",
            got="any shape" if x.shape is None else str(list(x.shape)),
        )  # fmt: skip
    return x if len(x.shape) == 2 else ops.copy([x], kind="squeeze", axis=[0])[0]


# ---- selection


def _edit(graph: Graph, options: Options) -> Edit:
    unknown = set(options) - set(Options.__annotations__)
    if unknown:
        raise UsageError(
            f"unknown option {sorted(unknown)[0]!r}", code=101, expected=", ".join(Options.__annotations__)
        )
    edit = Edit(graph, options.get("signature", "infer"))
    edit.function.source = "postprocess:boxes"
    return edit


def _size(edit: Edit, options: Options) -> tuple[int, int]:
    """(height, width) of the model's input. Raises UsageError if it cannot be determined."""
    if options.get("size"):
        height, width = options["size"]  # type: ignore[misc]
        return height, width
    photo = edit.photo(options.get("input"))
    fit = photo[1] if photo else None
    known = fit and (fit.canvas or (fit.resize if fit.kind == "stretch" and fit.multiple == 1 else None))
    if known and 0 not in known:
        return known
    shape = edit.function.inputs[0].shape or ()
    numbers = [d for d in shape if isinstance(d, int)]
    if photo is None and len(shape) == len(numbers) == 4:
        return (numbers[2], numbers[3]) if numbers[1] in (1, 3) else (numbers[1], numbers[2])
    raise UsageError(
        "the size of the model's input is unknown", code=304,
        hint="call linnet.preprocess.image first with resize=(height, width), or give size=(height, width)",
    )  # fmt: skip


def _finish(edit: Edit, outputs: Sequence[str], found: _Candidates, options: Options) -> Graph:
    """Applies non-maximum suppression per class, keeps the `limit` best boxes in descending order of score, maps them
    to the photo, and adds names and labels."""
    function = edit.function
    boxes, scores = found.boxes, found.scores
    classes = scores.shape[0] if scores.shape else None
    if classes != 1 and not options.get("multi_label", False):
        best = ops.reduce(scores, kind="argmax", axis=[0], keep_dims=True)
        scores = pointwise([scores, best], lambda s, b: b.eq(b.iota(0)).select(s, -1.0), "f32")
    chosen = _suppress(boxes, scores, options)
    class_box = _columns(chosen, 1)  # [n,2]
    kept = ops.gather(scores, class_box, kind="nd")
    limit = function.constant(np.array([options.get("limit", 100)], np.int64))
    count = pointwise([ops.shape(kept), limit], lambda n, k: n.min(k), "i64")
    values, order = ops.top_k(kept, count)
    selected = ops.gather(class_box, order)
    rows = ops.reshape(_columns(selected, 1, 2), [-1])
    names = [*options.get("names", ()), *("boxes", "scores", "classes", "keypoints")[len(options.get("names", ())) :]]
    photo = edit.photo(options.get("input"))
    made = {names[0]: _to_photo(ops.gather(boxes, rows), photo, 2), names[1]: values}
    if classes != 1 or options.get("labels") is not None:
        made[names[2]] = ops.reshape(_columns(selected, 0, 1), [-1])
    if found.points is not None:
        made[names[3]] = _to_photo(ops.gather(found.points, rows), photo, 1)
    edit.replace_outputs(outputs, made, options.get("keep", False))
    words = dict(zip(("scores", "classes", "keypoints"), names[1:], strict=True))
    edit.describe(names[0], "boxes", **{key: name for key, name in words.items() if name in made})
    set_labels(edit, names[2], options.get("labels"), classes)
    return edit.graph


def _suppress(boxes: Tensor, scores: Tensor, options: Options) -> Tensor:
    """Indices i64 [n,3] (0, class, box), ordered by class, then by descending score."""
    function = boxes.function
    batched = [ops.copy([t], kind="unsqueeze", axis=[0])[0] for t in (boxes, scores)]
    most = function.constant(np.int64(options.get("limit", 100)))
    thresholds = [
        function.constant(np.float32(options.get(name, default)))  # type: ignore[arg-type]
        for name, default in (("iou_threshold", 0.45), ("score_threshold", 0.25))
    ]
    return emit("nms", [*batched, most, *thresholds], {})[0]


def _to_photo(x: Tensor, photo: tuple[Tensor, Fit] | None, pairs: int) -> Tensor:
    """Maps coordinates x, y, ... in the last axis from the model's input to the photo. Boxes (two pairs) are clipped at
    its edges."""
    if photo is None:
        return x
    function, table = x.function, mapping(*photo)
    index = [0, 1] * pairs
    factor = ops.gather(table, function.constant(np.array(index, np.int64)))
    shift = ops.gather(table, function.constant(np.array(index, np.int64) + 2))
    if pairs == 1:
        made: Tensor = pointwise([x, factor, shift], lambda v, f, o: (v - o) / f)
        return made
    swapped = function.constant(np.array([1, 0] * pairs, np.int64))
    edge = ops.cast(ops.gather(photo_size(photo[0]), swapped), dtype="f32")
    made = pointwise([x, factor, shift, edge], lambda v, f, o, e: ((v - o) / f).max(0.0).min(e))
    return made
