"""Recipes for turning pixels into the input of a model, by the names that `--image` and `--pixels` take. A recipe is
one word for the scaling, with details such as `fit=stretch` for models that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.dtypes import Dim, Quantization
from linnet.ir.function import Tensor, emit
from linnet.preprocess._edit import copy_signature
from linnet.preprocess._image import COLOURS, INTEGERS, affine, image

PRESETS: dict[str, dict[str, Any]] = {
    "imagenet": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},  # torchvision, timm
    "unit": {},  # [0, 1]
    "symmetric": {"mean": 0.5, "std": 0.5},  # [-1, 1]: TensorFlow's, MobileNet's, Inception's
    "raw": {"scale": 1.0},  # [0, 255]
}
RANGES = {"0..1": "unit", "-1..1": "symmetric", "0..255": "raw"}  # other names of presets
_VALUES = {"0..1": (0, 1), "-1..1": (-1, 1), "0..255": (0, 255), "imagenet": (-2.12, 2.64)}  # after a recipe
_MOST_CLIPPED = 0.4  # of the 256 values of a pixel; a calibrated range cuts off fewer
_LEAST_LEVELS = 16  # different values of the input
RECIPES = (
    "imagenet (torchvision's and timm's: the middle 224 of 256 pixels, minus mean, by std), unit or 0..1, symmetric or "
    "-1..1, raw or 0..255, or details such as mean=0.5:0.4:0.3,std=0.2,layout=NHWC"
)
_SHRINK = 256 / 224  # torchvision resizes to 256 for a crop of 224


def _number(text: str) -> float:
    above, _, below = text.partition("/")
    return float(above) / float(below or 1)


def _numbers(text: str) -> float | tuple[float, ...]:
    found = tuple(_number(part) for part in text.split(":"))
    return found[0] if len(found) == 1 else found


def _pixels(text: str) -> int | tuple[int, ...]:
    found = tuple(int(part) for part in text.split(":"))
    return found[0] if len(found) == 1 else found


_DETAILS: dict[str, Callable[[str], Any]] = {
    "input": str, "colour": str, "fit": str, "resize": _pixels, "crop": _pixels, "pad": _number, "filter": str,
    "layout": str, "scale": _number, "mean": _numbers, "std": _numbers,
}  # fmt: skip


def recipe(graph: Graph, spec: str, *, signature: str = "infer", keep: str | None = "raw") -> Graph:
    """Returns a graph whose image input is a photo of any size, u8 [height, width, 3] in RGB. This function calls
    `image` with the arguments that `spec` stands for.

    spec: NAME or NAME,KEY=VALUE,... NAME is "imagenet", "unit", "symmetric" or "raw". "imagenet" is for torchvision and
    timm: the shorter side becomes 256/224 of the model's size, the middle is cut out, and mean and standard deviation
    are those of ImageNet. The other three stretch the photo to the model's size: "unit" (also "0..1") gives values from
    0 to 1, "symmetric" ("-1..1") from -1 to 1, and "raw" ("0..255") from 0 to 255. Without NAME, it is "unit".
    KEY=VALUE is an argument of `image` or, if several inputs of the model may be pictures, the name of one (input=x).
    Examples: colour=BGR, fit=letterbox, resize=256, crop=224:192, pad=114, filter=bicubic, layout=NHWC, scale=1/255,
    mean=0.5:0.4:0.3, std=0.25.
    keep: name of a signature that keeps the model's own input, for runs without these steps. None: no such signature.
    Raises UsageError for a spec that does not have this form, or that does not fit the model or the quantization of its
    input.
    """
    name, steps = recipe_steps(graph, spec, signature)
    entry = graph.signatures[signature]
    _check_range(entry.function.inputs[list(entry.inputs).index(name)], steps, name)
    if keep is not None and keep not in graph.signatures:
        graph = copy_signature(graph, signature, keep)
    return image(graph, name, signature=signature, **steps)


def recipe_steps(graph: Graph, spec: str, signature: str = "infer") -> tuple[str, dict[str, Any]]:
    """The input that becomes a photo, and the arguments of `image` for it."""
    scaling, details = _parsed(spec)
    name, channels, size, batch = _picture(graph, signature, details.pop("input", None), details.get("layout"))
    if isinstance(batch, int) and batch != 1:
        raise UsageError(
            f"input {name!r} takes {batch} pictures at a time", code=104, tensor=name, expected="a batch of 1, or an open one",
            hint="convert the model with a batch of 1",
        )  # fmt: skip
    colour = details.get("colour", "grey" if channels == 1 else "RGB")
    steps = dict(PRESETS[scaling]) | {"colour": colour}
    for key in ("mean", "std"):
        values = steps.get(key)
        if isinstance(values, tuple):  # in the order RGB
            steps[key] = sum(values) / 3 if colour == "grey" else values[::-1] if colour == "BGR" else values
    fit = details.get("fit", "shortest" if scaling == "imagenet" else "stretch")
    sides = [d for d in size if isinstance(d, int)]
    if len(sides) == 2 and fit == "shortest":
        steps |= {"resize": round(max(sides) * (_SHRINK if scaling == "imagenet" else 1)), "crop": tuple(sides)}
    elif len(sides) != 2 and details.get("resize") is None:
        raise UsageError(
            f"input {name!r} leaves its height and width open", code=104, tensor=name, expected="a fixed size",
            hint=f"give input_shapes={{{name!r}: (1, 3, 224, 224)}}, or a detail such as resize=224",
        )  # fmt: skip
    return name, steps | {"fit": fit} | details


def _check_range(old: Tensor, steps: dict[str, Any], name: str) -> None:
    """Raises UsageError if the quantization of an input would clip many of the pixels, or make most of them equal: then
    the model was trained on another range of values."""
    if old.quantization is None or old.dtype not in INTEGERS:
        return
    scale, zero = float(old.quantization.scale[0]), int(old.quantization.zero[0])
    limits = np.iinfo(INTEGERS[old.dtype])
    least, most = ((int(limit) - zero) * scale for limit in (limits.min, limits.max))
    colours = COLOURS.get(steps.get("colour", "RGB"), 3)
    factor, shift = affine(old, steps.get("scale"), steps.get("mean", 0.0), steps.get("std", 1.0), colours)
    numbers = np.arange(256) * factor[:, None] + shift[:, None]
    clipped = np.mean((numbers < least - scale) | (numbers > most + scale))
    levels = len(np.unique(np.rint(np.clip(numbers, least, most) / scale)))
    if clipped <= _MOST_CLIPPED and levels >= _LEAST_LEVELS:
        return
    found = min(_VALUES, key=lambda word: sum(abs(a - b) for a, b in zip(_VALUES[word], (least, most), strict=True)))
    raise UsageError(
        f"the pixels do not fit the quantization of input {name!r}", code=101, tensor=name,
        expected=f"values from {least:.4g} to {most:.4g} in steps of {scale:.4g}",
        got=f"values from {numbers.min():.4g} to {numbers.max():.4g}",
        hint=f"of the recipes (--image, --pixels), {found} fits best; or give scale, mean and std",
    )  # fmt: skip


def _parsed(spec: str) -> tuple[str, dict[str, Any]]:
    name, *parts = spec.split(",")
    if name.partition("=")[0] in _DETAILS and "=" in name:  # details alone: pixels from 0 to 1, then mean and std
        name, parts = "unit", [name, *parts]
    name = RANGES.get(name, name)
    if name not in PRESETS:
        raise UsageError("unknown recipe for pictures", code=101, expected=RECIPES, got=repr(name))
    found: dict[str, Any] = {}
    for part in parts:
        key, _, text = part.partition("=")
        if key not in _DETAILS:
            expected = ", ".join(f"{k}=..." for k in _DETAILS)
            raise UsageError("unknown detail of a recipe for pictures", code=101, expected=expected, got=repr(part))
        try:
            found[key] = _DETAILS[key](text)
        except (ValueError, ZeroDivisionError):
            raise UsageError(
                f"the detail {key!r} of a recipe for pictures is invalid", code=101, got=repr(text),
                expected="a number, or one per channel or side, separated by colons",
            ) from None  # fmt: skip
    return name, found


def _picture(
    graph: Graph, signature: str, name: str | None, layout: str | None
) -> tuple[str, int | None, tuple[Dim, ...], Dim]:
    """The input that may be a picture: its name, channels (None if unknown), (height, width), and batch."""
    if signature not in graph.signatures:
        raise UsageError(
            f"the graph has no signature named {signature!r}", code=102, tensor=signature,
            expected=" or ".join(graph.signatures) or "a signature",
        )  # fmt: skip
    entry = graph.signatures[signature]
    inputs = dict(zip(entry.inputs, entry.function.inputs, strict=True))
    if name is not None and name not in inputs:
        raise UsageError(f"the model has no input named {name!r}", code=102, tensor=name, expected=" or ".join(inputs))
    for key in inputs:
        if (name or key) == key and graph.metadata.get(f"io:{signature}:{key}", "").startswith("image "):
            raise UsageError(
                f"input {key!r} takes pictures already", code=101, tensor=key, hint="leave out the recipe for pictures"
            )
    found = {}
    for key in inputs if name is None else [name]:
        shape = inputs[key].shape or ()
        order = layout or ("NCHW"[-len(shape) :] if shape[-3:-2] in ((1,), (3,)) else "NHWC"[-len(shape) :])
        channels = shape[order.index("C")] if len(shape) == len(order) and len(shape) in (3, 4) else None
        if channels in (1, 3):
            batch = shape[0] if order[0] == "N" else 1
            found[key] = (key, channels, tuple(shape[order.index(axis)] for axis in "HW"), batch)
    if len(found) == 1:
        return next(iter(found.values()))
    shapes = "; ".join(f"{k}: {'any shape' if t.shape is None else list(t.shape)}" for k, t in inputs.items())
    raise UsageError(
        "several inputs may be pictures" if found else "no input can be a picture", code=104, got=shapes,
        expected="an input with a shape such as [1, 3, H, W] or [1, H, W, 3]",
        hint=f"add input={next(iter(found))} to the recipe" if found else "give the samples as arrays",
    )  # fmt: skip


def pixels_graph(
    name: str, shape: Sequence[Dim], dtype: str, quantization: Quantization | None, steps: dict[str, Any]
) -> Graph:
    """A graph of only the steps, without the model. It turns a photo into "y", which has the shape and dtype of the
    model's input `name`. The photo is the input of the same name."""
    plain = Graph()
    x = plain.placeholder(name, shape, dtype)
    x.quantization = quantization
    _check_range(x, steps, name)
    y = emit("copy", [x], {"kind": "identity"}, quantization=[quantization])[0]
    plain.signature("infer", {name: x}, {"y": y})
    return image(plain, name, **steps)
