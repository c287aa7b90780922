"""Computes where a photo's pixels go in a model's input. The graph computes the new size and offset from shapes. The
steps before the model and the mapping of boxes back to the photo (undoing a letterbox) use the same `Fit`."""

from __future__ import annotations

import dataclasses

import numpy as np

from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor

FITS = ("stretch", "shortest", "longest", "letterbox")


@dataclasses.dataclass(frozen=True)
class Fit:
    """How a photo is brought to the model's size. resize: (height, width); 0 for one of them keeps the aspect ratio;
    None: not resized. For "shortest" and "longest", both numbers are the length of the shortest or longest side.
    canvas: the size to which the photo is cropped or padded at the end."""

    kind: str = "stretch"
    resize: tuple[int, int] | None = None
    multiple: int = 1
    canvas: tuple[int, int] | None = None
    align: str = "centre"

    def words(self) -> dict[str, str]:
        """The fields as words for the metadata."""
        texts = {"fit": self.kind, "align": self.align, "multiple": str(self.multiple)}
        for name in ("resize", "canvas"):
            value = getattr(self, name)
            texts[name] = "none" if value is None else f"{value[0]}x{value[1]}"
        return texts

    @staticmethod
    def of_words(words: dict[str, str]) -> Fit:
        """The inverse of `words`."""

        def pair(name: str) -> tuple[int, int] | None:
            numbers = [int(n) for n in words[name].split("x")] if words.get(name, "none") != "none" else []
            return (numbers[0], numbers[1]) if numbers else None

        return Fit(
            words.get("fit", "stretch"), pair("resize"), int(words.get("multiple", "1")), pair("canvas"),
            words.get("align", "centre"),
        )  # fmt: skip


def photo_size(photo: Tensor) -> Tensor:
    """(height, width) of a photo u8 [H,W,C], as i64 [2]."""
    return ops.shape(photo, start=0, end=2)


def new_size(size: Tensor, fit: Fit) -> Tensor:
    """(height, width) after resizing, as i64 [2], each at least 1.

    shortest, longest: the named side gets the requested length, and the length of the other side is rounded down
    (torchvision.transforms.Resize). letterbox: both sides use the smaller factor, and their lengths are rounded half to
    even. Then each length is rounded to the nearest multiple.
    """
    if fit.resize is None:
        return _to_multiple(size, fit.multiple)
    function, (height, width) = size.function, fit.resize
    if fit.kind in ("shortest", "longest"):
        side = ops.reduce(size, kind="min" if fit.kind == "shortest" else "max", axis=[0])
        made = pointwise([size, side], lambda v, s: (v * height / s).max(1), "i64")
    elif fit.kind == "letterbox":
        wanted = function.constant(np.array(fit.resize, np.int64))
        factors = pointwise([wanted, size], lambda w, v: w.cast("f64") / v.cast("f64"), "f64")
        factor = ops.reduce(factors, kind="min", axis=[0])
        made = pointwise([size, factor], lambda v, f: (v.cast("f64") * f).unary("round").max(1.0), "i64")
    elif height and width:
        return function.constant(np.array(fit.resize, np.int64))
    else:  # one side is given; the other keeps the aspect ratio
        known = 0 if height else 1
        side = ops.copy([size], kind="slice", starts=[known], ends=[known + 1], axis=[0])[0]
        made = pointwise([size, side], lambda v, s: (v * max(height, width) / s).max(1), "i64")
    return _to_multiple(made, fit.multiple)


def _to_multiple(size: Tensor, multiple: int) -> Tensor:
    if multiple == 1:
        return size

    def body(v: Expr) -> Expr:
        return ((v.cast("f64") / multiple).unary("round") * multiple).max(float(multiple))

    made: Tensor = pointwise([size], body, "i64")
    return made


def offset(resized: Tensor, fit: Fit) -> Tensor:
    """(top, left) of the resized photo on the canvas, as i64 [2]; negative if it is cropped.

    Cropping begins at half the excess, rounded half to even (torchvision.transforms.CenterCrop). Padding puts the
    smaller half first.
    """
    function = resized.function
    if fit.canvas is None or fit.align == "corner":
        return function.constant(np.zeros(2, np.int64))
    canvas = function.constant(np.array(fit.canvas, np.int64))

    def body(v: Expr, c: Expr) -> Expr:
        excess = v - c
        return -((excess >= 0).select((excess.cast("f64") * 0.5).unary("round").cast("i64"), excess / 2))

    made: Tensor = pointwise([resized, canvas], body, "i64")
    return made


def mapping(photo: Tensor, fit: Fit) -> Tensor:
    """f32 [4]: (x factor, y factor, x offset, y offset) that map photo pixels to pixels of the model's input."""
    size = photo_size(photo)
    resized = new_size(size, fit)
    factors = pointwise([resized, size], lambda a, b: a.cast("f64") / b.cast("f64"), "f32")
    both = ops.concat([factors, ops.cast(offset(resized, fit), dtype="f32")], 0)
    return ops.gather(both, photo.function.constant(np.array([1, 0, 3, 2], np.int64)))
