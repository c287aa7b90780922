"""Rules for Resize and Upsample.
Known sizes or scales become attributes; otherwise they stay operands of the runtime op."""

from __future__ import annotations

from typing import Any

import numpy as np

from linnet.converters.onnx.operation import Operation
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.movement import as_i64
from linnet.ir.function import Tensor

# Exporters whose align_corners uses the pixel counts of the result, as their frameworks and ONNX Runtime do. In ONNX's
# reference the last pixels coincide only if size * scale is whole, because it does not round before it subtracts 1.
WHOLE_SIZES = {"pytorch"}


def _whole_sizes(op: Operation, scales: Tensor, axes: list[int]) -> Tensor:
    """The sizes that follow from the scales, rounded down."""
    sizes = op.shape_of(op.input(0))
    if axes:
        sizes = op.emit("gather", [sizes, op.constant(np.array(axes) % op.rank())], kind="take", axis=0)
    return op.map([op.cast(sizes, "f32"), op.cast(scales, "f32")], lambda n, s: (n * s).floor().cast("i64"), "i64")


def _resize(
    op: Operation, scales: Tensor | None, sizes: Tensor | None, roi: Tensor | None, attributes: dict[str, Any]
) -> Tensor:
    x = op.input(0)
    scales = None if scales is not None and scales.static_shape == (0,) else scales
    sizes = None if sizes is not None and sizes.static_shape == (0,) else sizes
    crop = attributes.get("coordinates") == "tf_crop_and_resize"
    if sizes is None and scales is None:
        raise op.unsupported("neither scales nor sizes are given", "export the model again")
    if (
        scales is not None
        and sizes is None
        and attributes["coordinates"] == "align_corners"
        and op.importer.model.producer_name in WHOLE_SIZES
    ):
        sizes = _whole_sizes(op, scales, attributes["axes"])
    if not crop and (sizes.data if sizes is not None else scales.data if scales is not None else None) is not None:
        if sizes is not None and sizes.data is not None:
            attributes["sizes"] = [int(v) for v in sizes.data.reshape(-1)]
        elif scales is not None and scales.data is not None:
            attributes["scales"] = [float(v) for v in scales.data.reshape(-1)]
        return op.emit("resize", [x], **attributes)
    operands = [x, None if sizes is not None else scales, as_i64(op, sizes) if sizes is not None else None]
    if crop:
        operands.append(roi)
    while operands[-1] is None:
        operands.pop()
    return op.emit("resize", operands, **attributes)


def _mode(op: Operation) -> str:
    mode = str(op.attribute("mode"))
    if mode not in ("nearest", "linear", "cubic"):
        raise op.unsupported(f"mode {mode!r} is not supported", "use nearest, linear or cubic")
    return mode


@rule("Upsample")
def upsample_by_attribute(op: Operation) -> Tensor:
    attributes = {
        "mode": _mode(op),
        "coordinates": "asymmetric",
        "nearest": "floor",
        "scales": list(op.attribute("scales")),
    }
    return op.emit("resize", [op.input(0)], **attributes)


@rule("Upsample", since=9)
def upsample(op: Operation) -> Tensor:
    return _resize(op, op.input(1), None, None, {"mode": _mode(op), "coordinates": "asymmetric", "nearest": "floor"})


@rule("Resize", since=10)
def resize_10(op: Operation) -> Tensor:
    """The mode "nearest" takes the left pixel along an axis that grows and the right pixel along one that shrinks."""
    attributes: dict[str, Any] = {"mode": _mode(op), "coordinates": "asymmetric", "nearest": "floor"}
    scales = op.value(1)
    if attributes["mode"] != "nearest" or scales is None or not (scales < 1).any():
        return _resize(op, op.input(1), None, None, attributes)
    down, up = ([float(v) for v in part] for part in (scales.clip(max=1), scales.clip(min=1)))
    y = op.emit("resize", [op.input(0)], **{**attributes, "nearest": "ceil"}, scales=down)
    return op.emit("resize", [y], **attributes, scales=up) if max(up) > 1 else y


@rule("Resize", since=11)
def resize(op: Operation) -> Tensor:
    attributes: dict[str, Any] = {
        "mode": _mode(op),
        "coordinates": str(op.attribute("coordinate_transformation_mode")),
        "nearest": str(op.attribute("nearest_mode")),
        "cubic_coefficient": float(op.attribute("cubic_coeff_a")),
        "exclude_outside": bool(op.attribute("exclude_outside")),
        "extrapolation_value": float(op.attribute("extrapolation_value")),
        "antialias": bool(op.attribute("antialias", 0)),
        "axes": list(op.attribute("axes") or []),
        "aspect": str(op.attribute("keep_aspect_ratio_policy", "stretch")),
    }
    if attributes["coordinates"] == "tf_half_pixel_for_nn":
        raise op.unsupported("coordinate_transformation_mode 'tf_half_pixel_for_nn' is not supported", "use half_pixel")
    return _resize(op, op.optional(2), op.optional(3), op.optional(1), attributes)
