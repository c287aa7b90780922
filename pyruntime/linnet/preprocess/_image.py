"""Image preprocessing from u8 [height, width, 3] to a model's input: resize, crop or pad, colour order, normalization, layout,
dtype. Antialiased resizing works along the rows first and rounds to u8 after each axis, as Pillow's Image.resize does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from linnet.builder import ops
from linnet.builder.mapping import look_up, pointwise
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor, emit
from linnet.preprocess._edit import Edit
from linnet.preprocess._geometry import FITS, Fit, new_size, offset, photo_size

_FILTERS = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}
COLOURS = {"RGB": 3, "BGR": 3, "grey": 1}
INTEGERS = {"i8": "i1", "u8": "u1", "i16": "i2", "u16": "u2", "i32": "i4", "i64": "i8"}
SOURCES = ("RGB", "BGR", "RGBA", "BGRA")


def image(
    graph: Graph,
    input: str,
    *,
    fit: str = "stretch",
    resize: int | tuple[int | None, int | None] | None = None,
    crop: int | tuple[int, int] | None = None,
    multiple: int = 1,
    pad: float = 0,
    align: str = "centre",
    filter: str = "bilinear",
    antialias: bool = True,
    colour: str = "RGB",
    scale: float | None = None,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    layout: str | None = None,
    source: str = "RGB",
    signature: str = "infer",
) -> Graph:
    """A graph whose `input` is a photo instead of the model's own input: u8 [H, W, 3], RGB, of any height and width.

    The order of steps is: grey (Pillow's "L"), resize, crop or pad, colour order, (pixel * scale - mean) / std, layout,
    and the model's dtype. The dtype is f32, f16, or an integer type through the input's quantization (rounded half to
    even, from a table computed in f64, so the result is exact).

    fit: "stretch": resize to `resize` (height, width), by default the model's own size; one of the two may be None to
        keep the aspect ratio. "shortest", "longest": resize so that this side has the length `resize`, then cut `crop`
        from the middle (padded with `pad` if the photo is smaller); default crop: the model's size. "letterbox": fit
        the whole photo into `resize` (default: the model's size) and fill the rest with `pad` (0 to 255). The rest is
        on both sides or, with align="corner", below and on the right.
    multiple: the resized sides are rounded to multiples of this number (for models with open sizes, such as text
        detectors).
    filter: "bilinear", "bicubic" (a = -0.5) or "nearest".
    antialias: widen the filter when the photo shrinks, as Pillow does. False: sample as OpenCV's INTER_LINEAR does
        (bicubic then has a = -0.75).
    colour: the channels that the model takes: "RGB", "BGR", "grey".
    mean, std: numbers, or one per channel in the model's order.
    scale: default 1/255, or 1 for integer inputs without quantization.
    layout: "NCHW", "NHWC", "CHW" or "HWC"; default: derived from the model's input.
    source: the channels of the photo: "RGB", "BGR" (OpenCV), "RGBA" or "BGRA" (camera and screen buffers, u8 [H, W, 4];
        alpha is ignored).
    Raises UsageError for an unknown name or value, or if the result does not match the model.
    """
    edit = Edit(graph, signature)
    old = edit.input(input)
    _one_of("fit", fit, FITS)
    _one_of("filter", filter, tuple(_FILTERS))
    _one_of("colour", colour, tuple(COLOURS))
    _one_of("align", align, ("centre", "corner"))
    _one_of("source", source, SOURCES)
    order = _layout(old, layout, COLOURS[colour], input)
    height, width = (old.shape[order.index(axis)] if old.shape else None for axis in "HW")
    own = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    how = _fit(fit, resize, crop, multiple, align, own)

    def build(photo: Tensor) -> Tensor:
        x = _grey(photo, source) if colour == "grey" else photo
        resized = new_size(photo_size(photo), how)
        if how.resize is not None or how.multiple != 1:
            x = _resize(x, resized, filter, antialias)
        if how.canvas is not None:
            x = _place(x, resized, how, pad)
        picked = [] if colour == "grey" else [source.index(c) for c in colour]
        return _values(x, old, order, picked, affine(old, scale, mean, std, COLOURS[colour]))

    edit.prepend(input, "u8", (f"{input} height", f"{input} width", len(source)), "image", build)
    edit.describe(input, "image", colour=source, **how.words())
    return edit.graph


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UsageError(f"unknown {name}", code=101, expected=" or ".join(allowed), got=repr(value))


def _layout(old: Tensor, layout: str | None, channels: int, name: str) -> str:
    """The axis order of the model's input, "NCHW" and so on."""
    if layout is not None:
        _one_of("layout", layout, ("NCHW", "NHWC", "CHW", "HWC"))
        if old.rank not in (None, len(layout)):
            raise UsageError(
                f"input {name!r} cannot have layout {layout}",
                code=104,
                tensor=name,
                expected=f"{len(layout)} dimensions",
                got=str(old.rank),
                hint="choose another layout",
            )
        return layout
    if old.shape is not None and old.rank in (3, 4):
        found = [o for o in ("CHW", "HWC") if old.shape[o.index("C") - 3] == channels]
        if len(found) == 1:
            return ("N" if old.rank == 4 else "") + found[0]
    raise UsageError(
        f"cannot tell which axis of input {name!r} holds the channels", code=104, tensor=name,
        expected=f"a shape such as [1, {channels}, H, W] or [1, H, W, {channels}]",
        got="any shape" if old.shape is None else str(list(old.shape)), hint="give layout='NCHW' or another layout",
    )  # fmt: skip


def _pair(name: str, value: int | tuple[int | None, int | None], proportion: bool = False) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    numbers = tuple(0 if v is None and proportion else v for v in pair)
    good = len(numbers) == 2 and all(isinstance(v, int) and v >= 0 for v in numbers)
    if not good or not any(numbers) or (0 in numbers and None not in pair):
        raise UsageError(
            f"{name} is not a valid size", code=101, expected="a number of pixels, or (height, width)", got=repr(value)
        )
    return numbers[0], numbers[1]  # type: ignore[return-value]


def _fit(
    kind: str,
    resize: int | tuple[int | None, int | None] | None,
    crop: int | tuple[int, int] | None,
    multiple: int,
    align: str,
    own: tuple[int, int] | None,
) -> Fit:
    if multiple < 1:
        raise UsageError("multiple must be at least 1", code=101, expected="1 or more", got=str(multiple))
    canvas = None if crop is None else _pair("crop", crop)
    if kind in ("shortest", "longest"):
        side = resize if resize is not None else (max if kind == "shortest" else min)(own) if own else None
        if not isinstance(side, int):
            raise UsageError(
                f"fit={kind!r} needs the length of one side",
                code=101,
                expected="for example resize=256",
                got=repr(resize),
            )
        return Fit(kind, _pair("resize", side), multiple, canvas or own, align)
    size = own if resize is None else _pair("resize", resize, proportion=kind == "stretch")
    if kind == "letterbox":
        if size is None:
            raise UsageError(
                "fit='letterbox' needs a size because the model's input has no fixed size", code=101,
                expected="resize=640 or resize=(height, width)",
            )  # fmt: skip
        return Fit(kind, size, multiple, canvas or size, align)
    return Fit(kind, size, multiple, canvas, align)


def _grey(x: Tensor, source: str) -> Tensor:
    """ITU-R BT.601 luma in 16-bit fixed point, as Pillow's convert("L") computes it."""
    planes = ops.copy([x], kind="split", axis=2, shape=[1] * len(source), outputs=len(source))
    r, g, b = (planes[source.index(c)] for c in "RGB")

    def body(r: Expr, g: Expr, b: Expr) -> Expr:
        return (r * 19595 + g * 38470 + b * 7471 + 32768).binary("shift_right", 16)

    made: Tensor = pointwise([r, g, b], body, "u8")
    return made


def _resize(x: Tensor, size: Tensor, filter: str, antialias: bool) -> Tensor:
    """Resizes u8 [H,W,C] to (height, width) `size`: first along rows, then along columns, rounded to u8 each time.
    Without antialiasing, it resizes in one step with one rounding."""
    mode = _FILTERS[filter]
    smooth = antialias and mode != "nearest"
    how = {
        "mode": mode, "coordinates": "half_pixel", "nearest": "round_prefer_ceil", "antialias": smooth,
        "exclude_outside": smooth, "cubic_coefficient": -0.5 if smooth else -0.75,
    }  # fmt: skip
    if not smooth:
        return emit("resize", [x, None, size], {**how, "axes": [0, 1]})[0]
    known = None if size.data is None else [int(n) for n in size.data]
    height, width = (
        ops.copy([size], kind="slice", starts=[i], ends=[i + 1], axis=[0])[0] for i in (0, 1)
    )  # if the size is constant, it is folded into these
    channels = _channels(x)
    rows = emit("resize", [x, None, width], {**how, "axes": [1]})[0]
    if known is None:
        flat_shape, shape = [0, -1], [0, -1, channels]
    else:
        flat_shape, shape = [0, known[1] * channels], [known[0], known[1], channels]
    flat = ops.reshape(rows, flat_shape)  # vectors run along a whole row
    columns = emit("resize", [flat, None, height], {**how, "axes": [0]})[0]
    return ops.reshape(columns, shape)


def _channels(x: Tensor) -> int:
    channels = x.shape[2] if x.shape else None
    assert isinstance(channels, int)  # the photo's channels, or the single grey channel
    return channels


def _place(x: Tensor, resized: Tensor, fit: Fit, pad: float) -> Tensor:
    """Places the resized photo on the canvas: cropped if it is larger, padded with `pad` if it is smaller."""
    assert fit.canvas is not None
    canvas = x.function.constant(np.array(fit.canvas, np.int64))
    begin = offset(resized, fit)
    end = pointwise([canvas, resized, begin], lambda c, v, o: c - v - o, "i64")
    pads = ops.concat([begin, end], 0)
    placed = ops.copy([x, pads], kind="pad", axis=[0, 1], value=float(pad))[0]
    return ops.reshape(placed, [*fit.canvas, _channels(x)])  # the size is known, whatever the photo's size


def affine(
    old: Tensor, scale: float | None, mean: float | Sequence[float], std: float | Sequence[float], channels: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(factor, offset) per channel in f64, for (pixel * scale - mean) / std."""
    plain = not old.dtype.startswith(("f", "bf")) and old.quantization is None
    factor = (1.0 if plain else 1 / 255) if scale is None else float(scale)
    values = []
    for name, value in (("mean", mean), ("std", std)):
        array = np.asarray(value, np.float64).reshape(-1)
        if array.size not in (1, channels) or not np.isfinite(array).all() or (name == "std" and not array.all()):
            raise UsageError(
                f"{name} is invalid",
                code=101,
                expected=f"1 or {channels} numbers" + (", not 0" if name == "std" else ""),
                got=repr(value),
            )
        values.append(array)
    shape = np.broadcast_shapes(values[0].shape, values[1].shape)
    return np.broadcast_to(factor / values[1], shape), np.broadcast_to(-values[0] / values[1], shape)


def _values(
    x: Tensor,
    old: Tensor,
    order: str,
    picked: list[int],
    affine: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
) -> Tensor:
    """Converts u8 [H,W,C] to the model's layout, value range and dtype. picked: which channels of x the model uses,
    empty for all. affine: in the model's channel order."""
    first = "CHW" in order
    if first:
        x = ops.transpose(x, [2, 0, 1])
    axis = 0 if first else 2
    if picked and (picked != [0, 1, 2] or x.shape is None or x.shape[axis] != 3):
        x = _pick(x, picked, axis)
    if order[0] == "N":
        x = ops.copy([x], kind="unsqueeze", axis=[0])[0]
        axis += 1
    factor, shift = affine
    if old.dtype in ("f32", "f16", "bf16", "f64"):
        return _scaled(x, factor, shift, axis, old.dtype)
    return _looked_up(x, factor, shift, axis, old)


def _pick(x: Tensor, channels: list[int], axis: int) -> Tensor:
    """Selects three consecutive channels, in ascending or descending order."""
    step = channels[1] - channels[0]
    end = channels[-1] + step if channels[-1] + step >= 0 else -1 << 31
    return ops.copy([x], kind="slice", starts=[channels[0]], ends=[end], axis=[axis], steps=[step])[0]


def _scaled(
    x: Tensor, factor: npt.NDArray[np.float64], shift: npt.NDArray[np.float64], axis: int, dtype: str
) -> Tensor:
    made: Tensor
    if factor.size == 1:
        a, b = float(factor[0]), float(shift[0])
        made = pointwise([x], lambda v: v.cast("f32") * a + b if b else v.cast("f32") * a, dtype)
        return made
    shape = [-1 if i == axis else 1 for i in range(x.rank or 0)]
    numbers = [x.function.constant(v.astype(np.float32).reshape(shape)) for v in (factor, shift)]
    made = pointwise([x, *numbers], lambda v, a, b: v.cast("f32") * a + b, dtype)
    return made


def _looked_up(
    x: Tensor, factor: npt.NDArray[np.float64], shift: npt.NDArray[np.float64], axis: int, old: Tensor
) -> Tensor:
    """Converts to integers with a table of all 256 pixel values (per channel if the channels differ)."""
    numbers = np.arange(256) * factor[:, None] + shift[:, None]
    if old.quantization is not None:
        numbers = numbers / np.float64(old.quantization.scale[0]) + int(old.quantization.zero[0])
    dtype = np.dtype(INTEGERS[old.dtype])
    limits = np.iinfo(dtype)
    table = np.clip(np.rint(numbers), limits.min, limits.max).astype(dtype)
    if old.dtype == "u8" and np.array_equal(table, np.tile(np.arange(256), (len(table), 1))):
        made = ops.copy([x], kind="identity")[0]
    else:
        values = x.function.constant(table.reshape(-1))
        made = look_up(x, values, lambda v: v if len(table) == 1 else v + v.iota(axis, "i32") * 256)
    made.quantization = old.quantization
    return made
