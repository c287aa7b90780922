"""Metrics as graphs: for one batch, or as means or sums over many batches. The means and sums are kept in variables.
All metrics are ordinary outputs of a signature."""

from __future__ import annotations

import dataclasses

import numpy as np

from linnet.autodiff._tools import elementwise, filled
from linnet.builder import ops
from linnet.clib.arguments import check_all
from linnet.clib.errors import UsageError
from linnet.ir.dtypes import numpy_dtype
from linnet.ir.function import Operators, Tensor, Variable, checked
from linnet.ir.graph import graph_of
from linnet.optimizers._step import number, state

__all__ = [
    "Running",
    "accuracy",
    "confusion_matrix",
    "correct",
    "f1",
    "precision",
    "recall",
    "running_mean",
    "running_sum",
    "top_k_accuracy",
]


def accuracy(logits: Operators, labels: Operators) -> Tensor:
    """The fraction of examples in which the label has the largest logit, an f32 scalar. logits [..., classes], labels
    integers [...]."""
    return correct(logits, labels).mean()


def correct(logits: Operators, labels: Operators) -> Tensor:
    """For each example, 1.0 if the label has the largest logit (the first one of equal logits), else 0.0; f32 [...]."""
    _check(logits, labels)
    return elementwise([ops.argmax(logits, -1), labels], lambda a, b: a.eq(b.cast("i64")).cast("f32"), "f32")


def top_k_accuracy(logits: Operators, labels: Operators, k: int) -> Tensor:
    """The fraction of examples whose label is among the k largest logits (the first of equal ones), an f32 scalar."""
    _check(logits, labels)
    count = int(number("k", k, least=1))
    classes = (logits.shape or (None,))[-1]
    if isinstance(classes, int) and count > classes:
        raise UsageError(
            "k exceeds the number of classes", code=104, tensor=logits.name, expected=f"at most {classes}", got=str(k)
        )
    _, best = ops.top_k(logits, logits.function.constant(np.array([count], np.int64)))
    hits = elementwise([best, ops.expand_dims(labels, -1)], lambda a, b: a.eq(b.cast("i64")).cast("f32"), "f32")
    return hits.sum(-1).mean()


def confusion_matrix(predictions: Operators, labels: Operators, classes: int) -> Tensor:
    """Entry [i, j] says how often label i was predicted as j: f32 [classes, classes], rows are labels. predictions,
    labels: i32 or i64 of the same shape. A class out of range is an error at run time."""
    n = int(number("classes", classes, least=1))
    if any(t.dtype not in ("i32", "i64") for t in (predictions, labels)):
        raise UsageError(
            "a confusion matrix needs integer classes", code=103, tensor=predictions.name, expected="i32 or i64",
            got=f"{predictions.dtype}, {labels.dtype}", hint="use ops.argmax(logits, -1)",
        )  # fmt: skip
    ones = labels.function.constant(np.ones(n, np.float32))
    # The lookup serves as a range check, in which negative classes do not count from the end.
    known = [
        ops.gather(ones, t, from_end=False, name=f"{name}/class")
        for name, t in (("predictions", predictions), (labels.name, labels))
    ]
    pairs = ops.stack([t.reshape(-1).cast("i64") for t in (labels, predictions)], 1)
    count = (known[0] * known[1]).reshape(-1)
    zeros = labels.function.constant(np.zeros((n, n), np.float32))
    return ops.scatter(zeros, pairs, count, kind="nd", reduction="add")


def precision(confusion: Operators) -> Tensor:
    """For each class, the fraction of its predictions that are right: [classes]; 0 for a class that was never
    predicted."""
    return _share(_diagonal(confusion), confusion.sum(0))


def recall(confusion: Operators) -> Tensor:
    """For each class, the fraction of its examples that were predicted as this class: [classes]; 0 for a class without
    examples."""
    return _share(_diagonal(confusion), confusion.sum(1))


def f1(confusion: Operators) -> Tensor:
    """The harmonic mean of precision and recall, [classes]; 0 where both are 0."""
    return elementwise(
        [_diagonal(confusion), confusion.sum(0), confusion.sum(1)],
        lambda d, a, b: (a + b > 0.0).select(2.0 * d / (a + b).max(1.0), 0.0),
        confusion.dtype,
    )


@dataclasses.dataclass(frozen=True)
class Running:
    """A metric over several batches. value: its value including the current batch. updates: updates for the signature
    that computes this batch. reset: updates that start the metric again. They can have a signature of their own or be
    combined with other updates."""

    value: Tensor
    updates: dict[Variable, Tensor]
    reset: dict[Variable, Tensor]


def running_sum(name: str, value: Operators) -> Running:
    """The sum over batches of a tensor with fixed shape (for example a confusion matrix), kept in the variable
    `name`."""
    shape = value.static_shape
    if shape is None:
        raise UsageError("a sum over batches needs a fixed shape", code=104, tensor=value.name, got=str(value.shape))
    total = state(graph_of(value), graph_of(value).prefix + name, np.zeros(shape, numpy_dtype(value.dtype)))
    old = total.tensor(value)
    new = old + value
    return Running(new, {total: new}, {total: filled(old, 0.0)})


def running_mean(name: str, value: Operators, count: Operators | float = 1.0) -> Running:
    """The weighted mean of a scalar over batches, kept in the variables `name`/total and `name`/count. count: weight of
    the batch, for example its number of examples if that varies."""
    weight = count.cast("f64") if isinstance(count, Operators) else value.function.constant(np.float64(count))
    total = running_sum(f"{name}/total", elementwise([value, weight], lambda v, n: v.cast("f64") * n, "f64"))
    counted = running_sum(f"{name}/count", weight)
    mean = elementwise([total.value, counted.value], lambda s, n: s / n, value.dtype)
    return Running(mean, {**total.updates, **counted.updates}, {**total.reset, **counted.reset})


def _check(logits: Operators, labels: Operators) -> None:
    """Raises UsageError unless there is one integer label for each vector of logits."""
    checked(logits), checked(labels)
    fits = logits.shape is None or labels.shape is None or len(labels.shape) == len(logits.shape) - 1
    if not fits or labels.dtype[0] not in "iu":
        raise UsageError(
            "the labels do not match the logits", code=104 if not fits else 103, tensor=labels.name,
            expected=f"integers of rank {len(logits.shape or ()) - 1}" if logits.shape is not None else "integers",
            got=f"{labels.dtype} {list(labels.shape or ())}",
        )  # fmt: skip


def _diagonal(matrix: Operators) -> Tensor:
    return elementwise([matrix], lambda v: v.iota(0).eq(v.iota(1)).select(v, 0.0), matrix.dtype).sum(0)


def _share(part: Operators, whole: Operators) -> Tensor:
    return elementwise([part, whole], lambda a, b: (b > 0.0).select(a / b.max(1.0), 0.0), part.dtype)


check_all(globals(), __all__)
