"""Rules for convolutions: attributes are checked against the weight and passed on.
ONNX has channels at axis 1; weights are [out, in/group, k...] (transposed: [in, out/group, k...])."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from linnet.converters.onnx.operation import Operation, rank_of
from linnet.converters.onnx.program import Expr, pointwise
from linnet.converters.onnx.registry import rule
from linnet.converters.onnx.rules.movement import as_i64
from linnet.ir.function import Tensor

AUTO_PAD = {"NOTSET": "explicit", "SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower", "VALID": "valid"}


def auto_pad(op: Operation) -> str:
    name = str(op.attribute("auto_pad", "NOTSET"))
    if name not in AUTO_PAD:
        raise op.unsupported(f"auto_pad {name!r} is not supported", "use NOTSET, SAME_UPPER, SAME_LOWER or VALID")
    return AUTO_PAD[name]


def conv_attributes(op: Operation, x: Tensor, w: Tensor) -> dict[str, Any]:
    """Attributes of the runtime op. Checks that there are 1 to 3 spatial dimensions and that the kernel shapes agree."""
    rank = rank_of(w, "the weight")
    if not 3 <= rank <= 5:
        raise op.unsupported(f"the weight has {rank - 2} spatial dimensions; expected 1 to 3", "export the model again")
    if x.rank is not None and x.rank != rank:
        raise op.unsupported(f"the input has rank {x.rank}, but the weight has rank {rank}", "give both the same rank")
    kernel = op.attribute("kernel_shape")
    if kernel and w.static_shape is not None and tuple(kernel) != w.static_shape[2:]:
        raise op.unsupported(
            f"kernel_shape is {list(kernel)}, but the weight has {list(w.static_shape[2:])}",
            "export the model again",
        )
    result: dict[str, Any] = {"group": op.attribute("group")}
    for name in ("strides", "dilations", "pads"):
        value = op.attribute(name)
        expected = (rank - 2) * (2 if name == "pads" else 1)
        if value:
            if len(value) != expected:
                raise op.unsupported(f"{name} has {len(value)} entries; expected {expected}", "export the model again")
            result[name] = list(value)
    mode = auto_pad(op)
    if mode != "explicit":
        result["auto_pad"] = mode
        result.pop("pads", None)
    return result


@rule("Conv")
def conv(op: Operation) -> Tensor:
    """Constants are cast to the type of x, because PyTorch's exporter writes f32 weights when it folds the batch norm
    of a bf16 model."""
    x = op.input(0)
    w, *bias = (
        op.cast(t, x.dtype) if x.dtype == "bf16" and t.dtype == "f32" and t.data is not None else t
        for t in (op.input(1), *([op.input(2)] if op.optional(2) is not None else []))
    )
    return op.emit("conv", [x, w, *bias], **conv_attributes(op, x, w))


@rule("ConvTranspose")
def conv_transpose(op: Operation) -> Tensor:
    x, w = op.input(0), op.input(1)
    attributes = conv_attributes(op, x, w)
    for name in ("output_padding", "output_shape"):
        value = op.attribute(name)
        if value:
            attributes[name] = list(value)
    return op.emit("conv_transpose", [x, w, *([op.input(2)] if op.optional(2) is not None else [])], **attributes)


def _numbers(op: Operation, end: Tensor) -> Tensor:
    """0, 1, ... end - 1."""
    return op.emit("range", [op.constant(np.int64(0)), end, op.constant(np.int64(1))])


@rule("Col2Im")
def col2im(op: Operation) -> Tensor:
    """Adds every element of every block [n, channels * block, places] at its position in the image. Elements outside
    the image are added at an extra position after the end of the image, which is cut off."""
    x, image_shape, block_shape = op.input(0), as_i64(op, op.input(1)), as_i64(op, op.input(2))
    dims = image_shape.shape[0] if image_shape.shape else None
    if not isinstance(dims, int):
        raise op.unknown("the number of dimensions of the image is unknown")
    strides = list(op.attribute("strides") or [1] * dims)
    dilations = list(op.attribute("dilations") or [1] * dims)
    pads = list(op.attribute("pads") or [0] * (2 * dims))
    sizes = [op.reshape(op.slice(t, 0, i, i + 1), []) for t in (image_shape, block_shape) for i in range(dims)]

    def places(image: Sequence[Expr], block: Sequence[Expr]) -> list[Expr]:
        """The number of block positions along each axis."""
        return [
            (image[i] + (pads[i] + pads[dims + i] - 1) - (block[i] - 1) * dilations[i]).binary("div", strides[i]) + 1
            for i in range(dims)
        ]

    def product(values: Sequence[Expr]) -> Expr:
        return functools.reduce(lambda a, b: a * b, values)

    count = op.map(sizes, lambda *s: product(s[dims:]) * product(places(s[:dims], s[dims:])))
    area = op.reduce(image_shape, "prod", [0], keep_dims=True)

    def target(number: Expr, *s: Expr) -> Expr:
        image, block = s[:dims], s[dims:]
        rest = number
        at: list[Expr] = []
        inside: list[Expr] = []
        for extent in (*reversed(places(image, block)), *reversed(block)):  # positions vary fastest
            whole = rest.binary("div", extent)
            at.append(rest - whole * extent)
            rest = whole
        flat = None
        for i in range(dims):
            place, tap = at[dims - 1 - i], at[2 * dims - 1 - i]
            y = place * strides[i] + tap * dilations[i] - pads[i]
            inside.append((y >= 0) & (y < image[i]))
            flat = y if flat is None else flat * image[i] + y
        assert flat is not None
        return functools.reduce(lambda a, b: a & b, inside).select(flat, product(image))

    targets = op.unsqueeze(op.map([_numbers(op, count), *sizes], target), [1])
    ones = op.constant(np.array([-1], np.int64))
    batch = op.shape_of(x, 0, 1)
    blocks = op.transpose(op.reshape(x, op.concat([batch, ones, op.reshape(count, [1])], 0)), [2, 0, 1])
    room = op.map([area], lambda n: n + 1)
    zeros = op.expand(op.constant(np.zeros(()), x.dtype), op.concat([room, op.shape_of(blocks, 1, 3)], 0))
    summed = op.emit("scatter", [zeros, targets, blocks], kind="nd", reduction="add")
    image = op.transpose(op.slice(summed, 0, 0, -1), [1, 2, 0])
    return op.reshape(image, op.concat([op.shape_of(image, 0, 2), image_shape], 0), allow_zero=True)


@rule("DeformConv", since=19)
def deform_conv(op: Operation) -> Tensor:
    """Gathers the input of each tap at its offset position, with bilinear interpolation and zeros outside, then
    multiplies by one matrix (Zhu et al., 2019)."""
    x, w, offset, bias, mask = op.input(0), op.input(1), op.input(2), op.optional(3), op.optional(4)
    shape, kernel = x.shape, w.static_shape
    if kernel is None or shape is None or not all(isinstance(d, int) for d in shape[1:]):
        raise op.unknown("the shape of the input or of the weight is unknown")
    if len(kernel) != 4:
        raise op.unsupported(f"DeformConv has {len(kernel) - 2} spatial dimensions; expected 2", "use 2-D data")
    channels, height, width = (int(d) for d in shape[1:] if isinstance(d, int))
    out = (offset.shape or ())[2:]
    if len(out) != 2 or not all(isinstance(d, int) for d in out):
        raise op.unknown("the shape of the offsets is unknown")
    rows, columns = (int(d) for d in out if isinstance(d, int))
    group, offset_group = int(op.attribute("group")), int(op.attribute("offset_group"))
    strides, dilations = op.attribute("strides") or [1, 1], op.attribute("dilations") or [1, 1]
    pads = op.attribute("pads") or [0] * 4
    op.ignore("kernel_shape")
    taps, places = kernel[2] * kernel[3], rows * columns
    if channels % offset_group or channels % group or kernel[1] * group != channels:
        raise op.unsupported("group or offset_group does not divide the number of channels", "export the model again")
    op.limit(2 * taps * places, "its sampling grid")
    image = op.transpose(op.reshape(x, [-1, channels // offset_group, height * width]), [0, 2, 1])
    ky, kx, oy, ox = np.meshgrid(*(np.arange(n) for n in (kernel[2], kernel[3], rows, columns)), indexing="ij")
    base = [
        op.constant((k * dilations[i] + o * strides[i] - pads[i]).reshape(1, -1), "f32")
        for i, (k, o) in enumerate(((ky, oy), (kx, ox)))
    ]
    moved = op.reshape(op.cast(offset, "f32"), [-1, taps, 2, places])
    shifts = [op.reshape(op.slice(moved, 2, i, i + 1), [-1, taps * places]) for i in range(2)]
    operands = [*base, *shifts]
    if mask is not None:
        operands.append(op.reshape(op.cast(mask, "f32"), [-1, taps * places]))
    total: Tensor | None = None
    for corner in itertools.product((0, 1), repeat=2):

        def place(*given: Expr) -> tuple[Expr, Expr]:
            """(pixel, weight) of this corner."""
            first = given[0]
            pixel, weight = first.other(0, "i64"), given[4] if mask is not None else first.other(1, "f32")
            for i, extent in enumerate((height, width)):
                at = given[i] + given[2 + i]
                whole = at.floor() + corner[i]  # noqa: B023
                part = at - at.floor()
                inside = (whole >= 0) & (whole <= extent - 1)
                weight = inside.select(weight * (part if corner[i] else 1 - part), 0.0)  # noqa: B023
                pixel = pixel * extent + whole.max(0.0).min(extent - 1.0).cast("i64")
            return pixel, weight

        pixels, weights = pointwise(op, operands, place, ["i64", "f32"])
        values = op.emit("gather", [image, op.unsqueeze(pixels, [2])], kind="nd", batch_dims=1)
        given = [values, op.unsqueeze(weights, [2]), *([total] if total is not None else [])]
        total = op.map(given, lambda v, w, *sum_: v * w + sum_[0] if sum_ else v * w, x.dtype)
    assert total is not None
    patches = op.transpose(
        op.reshape(total, [-1, offset_group, taps, places, channels // offset_group]), [0, 1, 4, 2, 3]
    )
    patches = op.reshape(patches, [-1, group, channels // group * taps, places])
    weight = op.reshape(w, [group, kernel[0] // group, kernel[1] * taps])
    y = op.reshape(op.emit("matmul", [weight, patches]), [-1, kernel[0], rows, columns])
    if bias is not None:
        y = op.map([y, op.reshape(bias, [1, -1, 1, 1])], lambda y, b: y + b)
    return y
