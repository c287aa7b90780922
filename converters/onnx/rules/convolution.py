"""Rules of convolutions: attributes are checked against the weight and passed on.
ONNX has channels at axis 1; weights are [out, in/group, k...] (transposed: [in, out/group, k...])."""

from __future__ import annotations

from typing import Any

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.registry import rule
from linnet.graph import Tensor

AUTO_PAD = {"NOTSET": "explicit", "SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower", "VALID": "valid"}


def auto_pad(op: Operation) -> str:
    name = str(op.attribute("auto_pad", "NOTSET"))
    if name not in AUTO_PAD:
        raise op.unsupported(f"auto_pad {name!r}", "use NOTSET, SAME_UPPER, SAME_LOWER or VALID")
    return AUTO_PAD[name]


def conv_attributes(op: Operation, x: Tensor, w: Tensor) -> dict[str, Any]:
    """Attributes of the runtime op, and a check that 1 to 3 spatial dimensions and the kernel's shape agree."""
    rank = rank_of(w, "the weight")
    if not 3 <= rank <= 5:
        raise op.unsupported(f"{rank - 2} spatial dimensions", "linnet convolves over 1 to 3")
    if x.rank is not None and x.rank != rank:
        raise op.unsupported(
            f"the input has rank {x.rank} and the weight {rank}", "both need the same number of dimensions"
        )
    kernel = op.attribute("kernel_shape")
    if kernel and w.static_shape is not None and tuple(kernel) != w.static_shape[2:]:
        raise op.unsupported(
            f"kernel_shape {list(kernel)} is not the weight's, {list(w.static_shape[2:])}",
            "export the model again",
        )
    result: dict[str, Any] = {"group": op.attribute("group")}
    for name in ("strides", "dilations", "pads"):
        value = op.attribute(name)
        expected = (rank - 2) * (2 if name == "pads" else 1)
        if value:
            if len(value) != expected:
                raise op.unsupported(f"{name} has {len(value)} entries, not {expected}", "export the model again")
            result[name] = list(value)
    mode = auto_pad(op)
    if mode != "explicit":
        result["auto_pad"] = mode
        result.pop("pads", None)
    return result


@rule("Conv")
def conv(op: Operation) -> Tensor:
    x, w = op.input(0), op.input(1)
    return op.emit("conv", [x, w, *([op.input(2)] if op.optional(2) is not None else [])], **conv_attributes(op, x, w))


@rule("ConvTranspose")
def conv_transpose(op: Operation) -> Tensor:
    x, w = op.input(0), op.input(1)
    attributes = conv_attributes(op, x, w)
    for name in ("output_padding", "output_shape"):
        value = op.attribute(name)
        if value:
            attributes[name] = list(value)
    return op.emit("conv_transpose", [x, w, *([op.input(2)] if op.optional(2) is not None else [])], **attributes)
