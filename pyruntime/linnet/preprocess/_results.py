"""Steps after a model that make its outputs readable: activations, the k best classes with labels, CTC text, masks. Labels
are stored in the file's metadata, where linnet-run, `linnet run` and any host program find them (docs/preprocess.md)."""

from __future__ import annotations

import numpy as np

from linnet.builder import ops
from linnet.builder.mapping import pointwise
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.function import Tensor, emit
from linnet.preprocess._edit import Edit, labels_key, real
from linnet.preprocess._geometry import new_size, offset, photo_size
from linnet.preprocess._labels import Labels, read_labels


def activated(x: Tensor, activation: str | None, axis: int = -1) -> Tensor:
    """Dequantizes x to f32, then applies softmax along an axis, sigmoid, or nothing. Raises UsageError for another
    activation."""
    x = real(x)
    if activation is None:
        return x
    if activation == "softmax":
        return ops.softmax(x, axis=axis)
    if activation == "sigmoid":
        return ops.sigmoid(x)
    raise UsageError("unknown activation", code=101, expected="None, 'softmax' or 'sigmoid'", got=repr(activation))


def set_labels(edit: Edit, output: str, labels: Labels | None, classes: object) -> None:
    """Stores the labels of an output in the metadata. Raises UsageError if there is not exactly one label per class."""
    if labels is None:
        return
    names = read_labels(labels)
    if isinstance(classes, int) and len(names) != classes:
        raise UsageError(
            "the number of labels does not match the number of classes",
            code=101,
            tensor=output,
            expected=f"{classes} labels",
            got=str(len(names)),
        )
    edit.graph.metadata[labels_key(edit.name, output)] = "\n".join(names)


def softmax(graph: Graph, output: str, *, axis: int = -1, signature: str = "infer") -> Graph:
    """A graph whose `output` is f32 probabilities: it is dequantized, and softmax is applied along an axis."""
    return _apply(graph, output, "softmax", axis, signature)


def sigmoid(graph: Graph, output: str, *, signature: str = "infer") -> Graph:
    """A graph whose `output` is dequantized to f32 and passed through the logistic function."""
    return _apply(graph, output, "sigmoid", -1, signature)


def _apply(graph: Graph, output: str, activation: str, axis: int, signature: str) -> Graph:
    edit = Edit(graph, signature)
    x = edit.output(output)
    edit.function.source = f"postprocess:{activation}"
    edit.replace_outputs([output], {output: activated(x, activation, axis)}, keep=False)
    return edit.graph


def top_k(
    graph: Graph,
    output: str,
    k: int = 5,
    *,
    labels: Labels | None = None,
    activation: str | None = None,
    names: tuple[str, str] = ("scores", "classes"),
    keep: bool = False,
    signature: str = "infer",
) -> Graph:
    """A graph that returns the k best classes of `output` along its last axis: scores f32 [..., k], in descending
    order, and classes i64 [..., k].

    labels: one per class, or a text file with one per line. They are stored in the file and printed by the tools.
    activation: None, "softmax" or "sigmoid", applied first. Integers are dequantized. names: names of the two outputs.
    keep: also keep `output`. Raises UsageError for an unknown output, a k larger than the number of classes, or a wrong
    number of labels.
    """
    edit = Edit(graph, signature)
    x = edit.output(output)
    classes = x.shape[-1] if x.shape else None
    if x.rank == 0 or k < 1 or (isinstance(classes, int) and k > classes):
        most = classes if isinstance(classes, int) else "the number of classes"
        raise UsageError("k is out of range", code=101, tensor=output, expected=f"1 to {most}", got=str(k))
    edit.function.source = "postprocess:top_k"
    scores = activated(x, activation)
    values, indices = ops.top_k(scores, edit.function.constant(np.array([k], np.int64)))
    edit.replace_outputs([output], {names[0]: values, names[1]: indices}, keep)
    edit.describe(names[1], "classes", scores=names[0])
    set_labels(edit, names[1], labels, classes)
    return edit.graph


def ctc(
    graph: Graph,
    output: str,
    *,
    labels: Labels,
    blank: int = 0,
    names: tuple[str, str] = ("text", "scores"),
    keep: bool = False,
    signature: str = "infer",
) -> Graph:
    """A graph that decodes text from `output` [1, T, classes] (or [T, classes]) greedily: it takes the best class of
    every step, merges repeats and removes `blank`. It returns "text" i64 [n], indices of labels, and "scores" f32 [n],
    the output at these steps.

    labels: one per class, including the blank (with any text). If the list is one label too short, the blank's label is
    taken to be missing. If it is two labels too short (PaddleOCR), a space at the end is taken to be missing too. The
    tools print the joined labels. Raises UsageError for an unknown output, more than one sequence, or a wrong number of
    labels.
    """
    edit = Edit(graph, signature)
    edit.function.source = "postprocess:ctc"
    x = real(edit.output(output))
    if x.rank == 3 and x.shape is not None and x.shape[0] in (1, None):
        x = ops.copy([x], kind="squeeze", axis=[0])[0]
    if x.rank != 2 or x.shape is None:
        raise UsageError(
            f"output {output!r} cannot be decoded as text", code=104, tensor=output, expected="[1, T, classes]",
            got="any shape" if x.shape is None else str(list(x.shape)),
        )  # fmt: skip
    classes = x.shape[1]
    alphabet = read_labels(labels)
    if isinstance(classes, int) and 1 <= classes - len(alphabet) <= 2 and 0 <= blank <= len(alphabet):
        spaced = [*alphabet, " "] if classes - len(alphabet) == 2 else alphabet
        alphabet = [*spaced[:blank], "", *spaced[blank:]]
    best = ops.reduce(x, kind="argmax", axis=[1], keep_dims=False)
    before = ops.copy([best], kind="pad", pads=[1, -1], value=-1.0)[0]
    fresh = pointwise([best, before], lambda b, p: b.ne(p) & b.ne(blank))
    steps = ops.reshape(ops.nonzero(fresh), [-1])
    made = {
        names[0]: ops.gather(best, steps),
        names[1]: ops.gather(ops.reduce(x, kind="max", axis=[1], keep_dims=False), steps),
    }
    edit.replace_outputs([output], made, keep)
    edit.describe(names[0], "text", scores=names[1])
    set_labels(edit, names[0], alphabet, classes)
    return edit.graph


def mask(
    graph: Graph,
    output: str,
    *,
    threshold: float = 0.5,
    activation: str | None = None,
    channel: int = 0,
    layout: str = "NCHW",
    input: str | None = None,
    name: str = "mask",
    keep: bool = False,
    signature: str = "infer",
) -> Graph:
    """A graph that returns "mask" u8 [H, W] at the photo's size: 255 where `output` exceeds the threshold, else 0.
    Letterbox padding is cut off, and the map is enlarged bilinearly before the comparison.

    activation: None, "softmax" (over the channels) or "sigmoid", applied first. channel: which channel to compare.
    layout: layout of the output, with or without N. input: the photo input, if there are several; without a photo
    input, the mask keeps the output's size. Raises UsageError for an unknown output or value.
    """
    edit = Edit(graph, signature)
    edit.function.source = "postprocess:mask"
    x = edit.output(output)
    if layout not in ("NCHW", "NHWC", "CHW", "HWC", "NHW", "HW") or x.rank != len(layout):
        raise UsageError(
            "the layout does not match the output", code=104, tensor=output, got=f"{layout!r} for rank {x.rank}",
            expected="NCHW, NHWC, CHW, HWC, NHW or HW",
        )  # fmt: skip
    x = activated(x, activation, layout.find("C") if "C" in layout else -1)
    for axis, index in ((layout.find("C"), channel), (layout.find("N"), 0)):
        if axis >= 0:  # channels go first, so the batch axis stays in place
            x = ops.gather(x, edit.function.constant(np.array([index], np.int64)), axis=axis)
    x = ops.copy([x], kind="squeeze", axis=[i for i, a in enumerate(layout) if a in "NC"])[0] if len(layout) > 2 else x
    x = on_photo(edit, x, input)
    made: Tensor = pointwise([x], lambda v: (v > threshold) * 255, "u8")
    edit.replace_outputs([output], {name: made}, keep)
    edit.describe(name, "mask")
    return edit.graph


def on_photo(edit: Edit, x: Tensor, input: str | None) -> Tensor:
    """Resizes a map f32 [h, w] over the model's input to the photo's height and width. Without a photo input it is
    unchanged."""
    found = edit.photo(input)
    if found is None:
        return x
    photo, fit = found
    size = photo_size(photo)
    resized = new_size(size, fit)
    if fit.canvas is not None:
        # The map is a smaller copy of the canvas. The part with the photo is cut out; parts that were cropped away get
        # the edge value.
        canvas = x.function.constant(np.array(fit.canvas, np.int64))
        x = resize_map(x, canvas)
        begin = offset(resized, fit)
        end = pointwise([canvas, resized, begin], lambda c, v, o: v - c + o, "i64")
        pads = ops.concat([pointwise([begin], lambda o: -o), end], 0)
        x = ops.copy([x, pads], kind="pad", axis=[0, 1], pad_mode="edge")[0]
    return resize_map(x, size)


def resize_map(x: Tensor, size: Tensor) -> Tensor:
    """Resizes f32 [h, w], bilinear at pixel centres, without antialiasing."""
    return emit("resize", [x, None, size], {"mode": "linear", "axes": [0, 1]})[0]
