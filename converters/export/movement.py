"""Export rules for ops that move or select elements: copy by kind, gather, scatter, resize, top_k, reduce, shapes.
Attributes become constant operands where ONNX expects operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from linnet.converters.export.writer import Writer, export
from linnet.converters.problems import Unsupported
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Node

_LAST = (1 << 63) - 1


def _numbers(w: Writer, node: Node, index: int, attribute: str) -> str:
    """An operand of integers, or else the attribute as a constant; "" if both are missing."""
    given = w.operand(node, index)
    values = list(node.attribute(attribute))
    return given or (w.integers(values) if values else "")


def _reshape(w: Writer, node: Node, x: str) -> str:
    shape = w.operand(node, 1) or w.integers(list(node.attribute("shape")))
    return str(w.emit("Reshape", [x, shape], allowzero=1 if node.attribute("allow_zero") else None))


def _pad(w: Writer, node: Node, x: str) -> str:
    tensor, mode = node.inputs[0], str(node.attribute("pad_mode"))
    assert tensor is not None
    value = w.operand(node, 2)
    if not value and mode == "constant":
        value = w.constant(np.asarray(node.attribute("value"), numpy_dtype(tensor.dtype)), "value")
    axes = w.operand(node, 3) or (w.integers(list(node.attribute("axes"))) if node.attribute("axes") else "")
    return str(w.emit("Pad", [x, _numbers(w, node, 1, "pads"), value, axes], mode=mode))


def _slice(w: Writer, node: Node, x: str) -> str:
    names = [_numbers(w, node, i + 1, n) for i, n in enumerate(("starts", "ends", "axes", "steps"))]
    return str(w.emit("Slice", [x, *names]))


def _blocks(w: Writer, node: Node, x: str) -> str:
    """depth_to_space and space_to_depth. If the channels are last, transposes move them to axis 1 and back."""
    tensor, kind = node.inputs[0], str(node.attribute("kind"))
    assert tensor is not None
    axis, rank = int(node.attribute("axis")), 4
    last = axis % rank == rank - 1
    mode = str(node.attribute("depth_mode"))
    if kind == "space_to_depth" and mode != "dcr":
        raise Unsupported("ONNX's SpaceToDepth has no crd order", "use depth_mode dcr")
    x = w.transposed(x, [0, 3, 1, 2]) if last else x
    settings: dict[str, Any] = {"blocksize": int(node.attribute("block"))}
    if kind == "depth_to_space":
        settings["mode"] = mode.upper()
    y = str(w.emit("DepthToSpace" if kind == "depth_to_space" else "SpaceToDepth", [x], **settings))
    return w.transposed(y, [0, 2, 3, 1]) if last else y


def _bitcast(w: Writer, node: Node, x: str) -> str:
    raise Unsupported(
        "to_onnx cannot write a bitcast: ONNX has BitCast only from opset 26", "leave it out of the export"
    )


_COPIES: dict[str, Callable[[Writer, Node, str], str]] = {
    "identity": lambda w, n, x: w.emit("Identity", [x]),
    "reshape": _reshape,
    "transpose": lambda w, n, x: w.emit("Transpose", [x], perm=list(n.attribute("perm")) or None),
    "concat": lambda w, n, x: w.emit("Concat", [w.of(t) for t in n.inputs], axis=int(n.attribute("axis"))),
    "slice": _slice,
    "pad": _pad,
    "expand": lambda w, n, x: w.emit("Expand", [x, w.operand(n, 1) or w.integers(list(n.attribute("shape")))]),
    "tile": lambda w, n, x: w.emit("Tile", [x, w.operand(n, 1) or w.integers(list(n.attribute("shape")))]),
    "squeeze": lambda w, n, x: w.emit("Squeeze", [x, _numbers(w, n, 1, "axes")]),
    "unsqueeze": lambda w, n, x: w.emit("Unsqueeze", [x, _numbers(w, n, 1, "axes")]),
    "depth_to_space": _blocks,
    "space_to_depth": _blocks,
    "bitcast": _bitcast,
}


@export("copy")
def copy(w: Writer, node: Node) -> list[str]:
    kind, x = str(node.attribute("kind")), w.operand(node, 0)
    if kind != "split":
        return [_COPIES[kind](w, node, x)]
    sizes = _numbers(w, node, 1, "shape")
    count = len(node.outputs)
    made = w.emit("Split", [x, sizes], count, axis=int(node.attribute("axis")), num_outputs=None if sizes else count)
    return [made] if isinstance(made, str) else list(made)


@export("gather")
def gather(w: Writer, node: Node) -> str:
    x = node.inputs[0]
    widened = x is not None and x.quantization is not None and x.dtype != node.outputs[0].dtype
    names = [w.real(x) if widened else w.operand(node, 0), w.operand(node, 1)]
    kind, batch = str(node.attribute("kind")), int(node.attribute("batch_dims"))
    if kind == "nd":
        indices = node.inputs[1]
        if indices is not None and indices.dtype != "i64":
            names[1] = w.emit("Cast", [names[1]], to=7)
        return str(w.emit("GatherND", names, batch_dims=batch))
    if batch:
        raise Unsupported(f"ONNX has no gather of kind {kind} with batch dimensions", "use kind nd")
    return str(w.emit("Gather" if kind == "take" else "GatherElements", names, axis=int(node.attribute("axis"))))


@export("scatter")
def scatter(w: Writer, node: Node) -> str:
    names = [w.operand(node, i) for i in range(3)]
    how = str(node.attribute("reduction"))
    if node.attribute("kind") == "elements":
        return str(w.emit("ScatterElements", names, axis=int(node.attribute("axis")), reduction=how))
    indices = node.inputs[1]
    if indices is not None and indices.dtype != "i64":
        names[1] = w.emit("Cast", [names[1]], to=7)
    return str(w.emit("ScatterND", names, reduction=how))


_REDUCTIONS = {
    "sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd", "l1": "ReduceL1",
    "l2": "ReduceL2", "sum_square": "ReduceSumSquare", "log_sum": "ReduceLogSum", "log_sum_exp": "ReduceLogSumExp",
}  # fmt: skip


@export("reduce")
def reduce(w: Writer, node: Node) -> str:
    x, y, kind = node.inputs[0], node.outputs[0], str(node.attribute("kind"))
    assert x is not None
    keep = int(node.attribute("keep_dims"))
    name = w.real(x) if x.quantization is not None and y.dtype == "f32" else w.of(x)
    axes = list(node.attribute("axes"))
    if kind in ("argmax", "argmin"):
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            data = node.inputs[1].data
            if data is None:
                raise Unsupported(f"the axis of {kind} is not a constant", "make the axis a constant")
            axes = [int(v) for v in data.reshape(-1)]
        op = "ArgMax" if kind == "argmax" else "ArgMin"
        return str(
            w.emit(op, [name], axis=axes[0], keepdims=keep, select_last_index=int(node.attribute("select_last_index")))
        )
    noop = int(node.attribute("noop_with_empty_axes"))
    return str(
        w.emit(_REDUCTIONS[kind], [name, _numbers(w, node, 1, "axes")], keepdims=keep, noop_with_empty_axes=noop)
    )


@export("resize")
def resize(w: Writer, node: Node) -> str:
    x = node.inputs[0]
    assert x is not None
    given = [t if t is None or t.static_shape != (0,) else None for t in (*node.inputs[1:], None, None, None)]
    scales, sizes, roi = (w.of(t) for t in given[:3])
    axes, wanted = list(node.attribute("axes")), [int(v) for v in node.attribute("sizes")]
    factors = [float(v) for v in node.attribute("scales")]
    if axes and x.rank is not None and not (scales or sizes) and node.attribute("aspect") == "stretch":
        # List all axes if possible: ONNX Runtime's optimizer confuses sizes of only some axes with transposes.
        shape, places = list(x.shape or ()), [a % x.rank for a in axes]
        others = [d for i, d in enumerate(shape) if i not in places]
        if factors or all(isinstance(d, int) for d in others):
            if factors:
                factors = [factors[places.index(i)] if i in places else 1.0 for i in range(x.rank)]
            else:
                wanted = [wanted[places.index(i)] if i in places else int(d or 0) for i, d in enumerate(shape)]
            axes = []
    if not sizes and wanted:
        sizes = w.integers(wanted)
    if not scales and not sizes and factors:
        scales = w.constant(np.asarray(factors, np.float32), "scales")
    if sizes:
        scales = ""
    coordinates = str(node.attribute("coordinates"))
    if coordinates == "half_pixel_symmetric" and w.opset < 19:
        raise Unsupported("resizing with half_pixel_symmetric needs opset 19 or newer", "call to_onnx with opset=21")
    return str(
        w.emit(
            "Resize", [w.of(x), roi, scales, sizes], mode=str(node.attribute("mode")),
            coordinate_transformation_mode=coordinates, nearest_mode=str(node.attribute("nearest")),
            cubic_coeff_a=float(node.attribute("cubic_coefficient")),
            exclude_outside=int(node.attribute("exclude_outside")), antialias=int(node.attribute("antialias")),
            extrapolation_value=float(node.attribute("extrapolation_value")), axes=axes or None,
            keep_aspect_ratio_policy=str(node.attribute("aspect")) if sizes else None,
        )
    )  # fmt: skip


@export("top_k")
def top_k(w: Writer, node: Node) -> list[str]:
    settings: dict[str, Any] = {n: int(node.attribute(n)) for n in ("axis", "largest", "sorted")}
    return list(w.emit("TopK", [w.operand(node, 0), w.operand(node, 1)], 2, **settings))


@export("shape")
def shape(w: Writer, node: Node) -> str:
    start, end = int(node.attribute("start")), int(node.attribute("end"))
    return str(w.emit("Shape", [w.operand(node, 0)], start=start or None, end=None if end == _LAST else end))


@export("range")
def range_(w: Writer, node: Node) -> str:
    return str(w.emit("Range", [w.operand(node, i) for i in range(3)]))


@export("nonzero")
def nonzero(w: Writer, node: Node) -> str:
    return str(w.emit("NonZero", [w.operand(node, 0)]))


@export("cumsum")
def cumsum(w: Writer, node: Node) -> str:
    if node.attribute("product"):
        raise Unsupported(
            "to_onnx cannot write a running product: ONNX has CumProd only from opset 26", "compute it with other ops"
        )
    settings: dict[str, Any] = {n: int(node.attribute(n)) for n in ("exclusive", "reverse")}
    return str(w.emit("CumSum", [w.operand(node, 0), w.operand(node, 1)], **settings))
