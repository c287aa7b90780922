"""Makes a classifier return its best classes. Finds the output with one number per class, runs the model to tell
probabilities from logits, and appends top_k with the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.builder import ops
from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.user_op import UserOp
from linnet.preprocess._edit import Edit
from linnet.preprocess._labels import Labels, read_labels
from linnet.preprocess._results import top_k

_FIXED_SCALE = 1.02  # the largest value of a quantized output of probabilities, with a tolerance


def classes(
    graph: Graph, labels: Labels, *, output: str | None = None, k: int = 5, signature: str = "infer"
) -> tuple[Graph, str]:
    """A graph that returns the k best classes as top_k does, and a sentence that says what the scores are.

    labels: one per class, or a file (read_labels). output: None for the only output with one number per class. Scores are
    probabilities: a softmax is appended to logits. The model is run to find out whether the output has logits: outputs
    that stay between 0 and 1 are returned as they are. Raises UsageError if no output has one number per class, or if
    the number of labels is not the number of classes."""
    names = read_labels(labels)
    edit = Edit(graph, signature)
    sizes = {name: _classes_of(edit.output(name).shape) for name in edit.signature.outputs}
    name = output or _only(sizes, len(names))
    count = sizes.get(name)
    if count is None:
        edit.output(name)
        raise UsageError(
            f"output {name!r} does not have one number per class", code=104, tensor=name, expected="[1, classes]"
        )
    if count != len(names):
        raise _wrong_number(name, count, len(names))
    kind = _kind(graph, signature, name)
    x = edit.output(name)
    if x.rank != 2:
        edit.function.source = "postprocess:classes"
        edit.replace_outputs([name], {name: ops.copy([x], kind="reshape", shape=[-1, count])[0]}, keep=False)
    best = min(k, count)
    made = top_k(
        edit.graph, name, best, labels=names, activation="softmax" if kind == "logits" else None, signature=signature
    )
    what = {
        "logits": f"a softmax of the logits {name!r}", "probabilities": f"the probabilities {name!r}",
        "scores": f"the scores {name!r}, which lie between 0 and 1 but do not sum to 1",
    }[kind]  # fmt: skip
    return made, f"the {best} best of {count} classes, by {what}"


def _classes_of(shape: Any) -> int | None:
    """The number of classes, if a tensor of this shape has one number per class for one picture or an open batch."""
    if not shape:
        return None
    large = [d for d in (shape[1:] if len(shape) > 1 else shape) if d != 1]
    batch = len(shape) == 1 or not isinstance(shape[0], int) or shape[0] == 1
    return large[0] if batch and len(large) == 1 and isinstance(large[0], int) and large[0] > 1 else None


def _only(sizes: dict[str, int | None], wanted: int) -> str:
    found = [name for name, size in sizes.items() if size is not None]
    exact = [name for name in found if sizes[name] == wanted]
    if len(exact) == 1 or (not exact and len(found) == 1):
        return (exact or found)[0]
    got = ", ".join(f"{name} with {size or 'no'} classes" for name, size in sizes.items())
    if not found:
        raise UsageError(
            "labels need a classifier: no output of the model has one number per class", code=104,
            expected="an output of shape [1, classes]", got=", ".join(sizes) or "no output",
            hint="for boxes and text, see linnet.preprocess.boxes and linnet.preprocess.ctc",
        )  # fmt: skip
    raise UsageError(
        "the labels match no output, or more than one", code=104, expected=f"one output with {wanted} classes", got=got,
        hint="call linnet.preprocess.classes(graph, labels, output=NAME)",
    )  # fmt: skip


def _wrong_number(name: str, count: int, given: int) -> UsageError:
    hint = "give the labels that the model was trained with"
    if given == count + 1:
        hint = "the labels may begin with a background class that this model does not have: remove their first line"
    elif given == count - 1:
        hint = "the model may begin with a background class: put a line `background` before the labels"
    return UsageError(
        f"the number of labels differs from the number of classes of output {name!r}", code=101, tensor=name,
        expected=f"{count} labels", got=f"{given} labels", hint=hint,
    )  # fmt: skip


def _kind(graph: Graph, signature: str, name: str) -> str:
    """Returns what an output is: "probabilities", "scores" or "logits". It finds this out by runs on noise, on black
    pictures and on bright pictures."""
    from linnet.session.model import Model
    from linnet.session.random_inputs import random_feeds
    from linnet.session.session import Session
    from linnet.session.usable_sizes import usable_shapes

    model = Model(graph, user_ops=[op for op in graph.user_ops.values() if isinstance(op, UserOp)])
    spec = next(spec for spec in model.outputs(signature) if spec.name == name)
    if spec.scale is not None:
        low, high = _limits(spec.dtype, spec.scale, spec.zero or 0)
        if low < -0.02 or high > _FIXED_SCALE:
            return "logits"
    shapes = usable_shapes(model, signature, {})
    inputs = model.inputs(signature)
    session = Session(model, signature, fetches=[name])
    rng, sums = np.random.default_rng(0), []
    for how in ("noise", "black", "bright"):
        feeds = random_feeds(inputs, shapes)
        for spec_in in inputs:
            value = feeds[spec_in.name]
            if spec_in.dtype == "u8":
                feeds[spec_in.name] = _bytes(how, rng, value)
            elif how != "noise" and value.dtype.kind == "f":
                feeds[spec_in.name] = np.full_like(value, 0 if how == "black" else 1)
        y = np.asarray(session.run(feeds)[name]).astype(np.float64)
        if spec.scale is not None:
            y = (y - (spec.zero or 0)) * spec.scale
        if not np.all((y >= -1e-5) & (y <= _FIXED_SCALE)):
            return "logits"
        sums.append(float(y.sum()))
    rough = spec.scale is not None or graph.metadata.get("dtype") in ("i8", "i16")  # small values round to 0
    return "probabilities" if rough or all(abs(total - 1) < 0.02 for total in sums) else "scores"


def _bytes(how: str, rng: np.random.Generator, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if how == "noise":
        return rng.integers(0, 255, like.shape, np.uint8, endpoint=True)
    return np.full_like(like, 0 if how == "black" else 255)


def _limits(dtype: str, scale: float, zero: int) -> tuple[float, float]:
    limits = np.iinfo(numpy_dtype(dtype))
    return (float(limits.min) - zero) * scale, (float(limits.max) - zero) * scale
