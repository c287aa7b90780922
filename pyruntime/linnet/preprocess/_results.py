"""Steps behind a model that make its outputs readable: activations, the k best classes with labels, text from CTC, masks.
Labels stand in the file's metadata, where linnet-run, `linnet run` and any host find them (docs/preprocess.md)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from linnet import ops
from linnet.errors import UsageError
from linnet.graph import Graph, Tensor
from linnet.preprocess._edit import Edit, labels_key, real

Labels = Sequence[str] | str | Path


def read_labels(labels: Labels) -> list[str]:
    """The labels themselves, or the lines of a text file. UsageError when it cannot be read or a label has a line break."""
    if isinstance(labels, str | Path):
        try:
            made = Path(labels).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"cannot read the labels in '{labels}'", code=101, tensor=str(labels), expected="a text file, one label a line",
                got=str(getattr(error, "strerror", None) or error),
            ) from None  # fmt: skip
    else:
        made = [str(label) for label in labels]
    for i, label in enumerate(made):
        if "\n" in label or "\0" in label:
            raise UsageError(f"label {i} has a line break", code=101, expected="one line", got=repr(label))
    return made


def activated(x: Tensor, activation: str | None, axis: int = -1) -> Tensor:
    """f32, dequantized, with softmax along an axis, sigmoid, or nothing more. UsageError for another activation."""
    x = real(x)
    if activation is None:
        return x
    if activation == "softmax":
        return ops.softmax(x, axis=axis)
    if activation == "sigmoid":
        return ops.sigmoid(x)
    raise UsageError("unknown activation", code=101, expected="None, 'softmax' or 'sigmoid'", got=repr(activation))


def set_labels(edit: Edit, output: str, labels: Labels | None, classes: object) -> None:
    """Puts the labels of an output into the metadata. UsageError when there is not one per class."""
    if labels is None:
        return
    names = read_labels(labels)
    if isinstance(classes, int) and len(names) != classes:
        raise UsageError(
            "there is not one label per class",
            code=101,
            tensor=output,
            expected=f"{classes} labels",
            got=str(len(names)),
        )
    edit.graph.metadata[labels_key(edit.name, output)] = "\n".join(names)


def softmax(graph: Graph, output: str, *, axis: int = -1, signature: str = "infer") -> Graph:
    """A graph whose `output` is f32 probabilities: dequantized, then softmax along an axis."""
    return _apply(graph, output, "softmax", axis, signature)


def sigmoid(graph: Graph, output: str, *, signature: str = "infer") -> Graph:
    """A graph whose `output` is f32, dequantized, through the logistic function."""
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
    """A graph that gives the k best of `output` along its last axis: scores f32 [..., k], falling, and classes i64 [..., k].

    labels: one per class, or a text file with one per line; stored in the file, and printed by the tools. activation: None,
    "softmax" or "sigmoid" first. Integers are dequantized. names: of the two outputs. keep: `output` stays too.
    Raises UsageError for an unknown output, a k larger than the number of classes, or another number of labels.
    """
    edit = Edit(graph, signature)
    x = edit.output(output)
    classes = x.shape[-1] if x.shape else None
    if x.rank == 0 or k < 1 or (isinstance(classes, int) and k > classes):
        most = classes if isinstance(classes, int) else "the number of classes"
        raise UsageError("k is wrong", code=101, tensor=output, expected=f"1 to {most}", got=str(k))
    edit.function.source = "postprocess:top_k"
    scores = activated(x, activation)
    values, indices = ops.top_k(scores, edit.function.constant(np.array([k], np.int64)))
    edit.replace_outputs([output], {names[0]: values, names[1]: indices}, keep)
    edit.describe(names[1], "classes", scores=names[0])
    set_labels(edit, names[1], labels, classes)
    return edit.graph
