"""Losses for classes. Logits are a model's output before softmax or sigmoid. The loss includes that function in a form
that cannot overflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from linnet.autodiff._tools import FLOAT_DTYPES, elementwise
from linnet.builder import ops
from linnet.clib.errors import UsageError
from linnet.ir.exact import numbers_of
from linnet.ir.function import Operators, Tensor
from linnet.losses._operands import as_labels, operands
from linnet.optimizers._step import number

Weights = Operators | Sequence[float] | np.ndarray[Any, Any]


def softmax_cross_entropy(
    logits: Operators,
    labels: Any,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    weights: Weights | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """-log(softmax(logits)[label]) per example (Bridle 1990), as torch.nn.functional.cross_entropy with
    reduction="none".

    logits: float, with the classes along `axis`. labels: integers in the shape of the logits without `axis`, or class
    probabilities as floats in the shape of the logits. label_smoothing: this fraction of the label's probability is
    spread over all classes (Szegedy et al. 2016). weights: weight of each class, [classes]. ignore_index: examples with
    this label have loss 0; `average` computes a mean that does not count them. Returns one value per example, in the
    dtype of the logits.
    """
    smoothing = number("label_smoothing", label_smoothing, least=0.0, below=1.0 + 1e-12)
    x, labels = operands(logits, labels)
    labels = as_labels(labels)
    log_p = ops.softmax(x, axis=axis, log=True)
    if labels.dtype not in ("i32", "i64"):
        if ignore_index is not None:
            raise UsageError(
                "ignore_index cannot be used with probabilities as labels",
                code=101,
                tensor=labels.name,
                hint="remove ignore_index",
            )
        return _dense(log_p, labels, axis, smoothing, weights)
    picked = nll(log_p, labels, axis=axis, weights=weights, ignore_index=ignore_index)
    if not smoothing:
        return picked
    spread = log_p if weights is None else log_p * _along(_vector(weights, log_p), log_p, axis)
    share = _keep(spread.mean(axis), labels, ignore_index)
    return elementwise([picked, share], lambda v, s: (1.0 - smoothing) * v - smoothing * s, log_p.dtype)


def nll(
    log_p: Operators,
    labels: Any,
    *,
    axis: int = -1,
    weights: Weights | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """-log_p[label] per example: the cross-entropy of log-probabilities, with the arguments of
    softmax_cross_entropy."""
    log_p, labels = operands(log_p, labels)
    labels = as_labels(labels)
    rank = len(log_p.shape or ())
    if labels.dtype not in ("i32", "i64") or (labels.shape is not None and len(labels.shape) != rank - 1):
        raise UsageError(
            "the labels do not match the logits", code=104, tensor=labels.name,
            expected=f"integers of rank {rank - 1}", got=f"{labels.dtype} {list(labels.shape or ())}",
        )  # fmt: skip
    known = _known(labels, ignore_index)
    column = ops.expand_dims(known, axis % rank)
    name = f"{labels.name}/class"  # an error about a label shows this name
    found = ops.gather(log_p, column, kind="elements", axis=axis, from_end=False, name=name)
    loss = -ops.squeeze(found, axis % rank)
    if weights is not None:
        loss = loss * ops.gather(_vector(weights, log_p), known)
    return _keep(loss, labels, ignore_index)


def average(loss: Operators, labels: Any, *, weights: Weights | None = None, ignore_index: int | None = None) -> Tensor:
    """The mean of the values that softmax_cross_entropy returned for the same weights and ignore_index: their sum
    divided by the total weight of the labels that count. This is PyTorch's reduction="mean"."""
    counts = (
        ops.gather(_vector(weights, loss), _known(labels, ignore_index)) if weights is not None else (loss * 0.0 + 1.0)
    )
    return loss.sum() / _keep(counts, labels, ignore_index).sum()


def sigmoid_cross_entropy(logits: Operators, targets: Any, *, positive_weight: Weights | None = None) -> Tensor:
    """-t * log(p) - (1 - t) * log(1 - p) with p = sigmoid(logits), elementwise, as PyTorch's
    binary_cross_entropy_with_logits.

    targets: floats in [0, 1]. positive_weight: factor of the first term, broadcast.
    """
    x, t = operands(logits, targets)
    # softplus(x) as (|x| + x) / 2 + log1p(exp(-|x|)). Its derivative is also right at 0, where sign(0) is 0.
    if positive_weight is None:
        return elementwise([x, t], lambda x, t: 0.5 * (abs(x) + x) + (-abs(x)).exp().log1p() - t * x, x.dtype)
    return elementwise(
        [x, t, _vector(positive_weight, x)],
        lambda x, t, w: (1.0 - t) * x + (1.0 + (w - 1.0) * t) * (0.5 * (abs(x) - x) + (-abs(x)).exp().log1p()),
        x.dtype,
    )


def kl_divergence(log_p: Operators, target: Any, *, log_target: bool = False) -> Tensor:
    """target * (log(target) - log_p), elementwise, and 0 where the target is 0. log_target: the target is given as
    logarithms."""
    q, t = operands(log_p, target)
    if log_target:
        return elementwise([q, t], lambda q, t: t.exp() * (t - q), q.dtype)
    return elementwise([q, t], lambda q, t: (t > 0.0).select(t * ((t > 0.0).select(t, 1.0).log() - q), 0.0), q.dtype)


def hinge(prediction: Operators, target: Any, margin: float = 1.0, *, squared: bool = False) -> Tensor:
    """max(0, margin - target * prediction) for targets of -1 and 1, elementwise. squared: return the square of this."""
    y, t = operands(prediction, target)
    made = elementwise([y, t], lambda y, t: (margin - t.cast(y.kind) * y).max(0.0), y.dtype)
    return made * made if squared else made


def multi_margin(logits: Operators, labels: Any, margin: float = 1.0, *, squared: bool = False) -> Tensor:
    """For each example, the mean over classes of max(0, margin - logits[label] + logits[class]), leaving out the
    label's own class (Crammer and Singer 2001), as PyTorch's multi_margin_loss. logits [batch, classes], labels
    [batch]."""
    logits, labels = operands(logits, labels)
    own = -nll(logits, labels)
    classes = (logits.shape or (None,))[-1]
    if not isinstance(classes, int):
        raise UsageError(
            "multi_margin needs a fixed number of classes", code=104, tensor=logits.name, got=str(logits.shape)
        )
    slack = elementwise([logits, ops.expand_dims(own, 1)], lambda x, y: (margin - y + x).max(0.0), logits.dtype)
    slack = slack * slack if squared else slack
    return (slack.sum(-1) - abs(margin) ** (2 if squared else 1)) * (1.0 / classes) if margin > 0 else slack.mean(-1)


def _dense(log_p: Operators, target: Operators, axis: int, smoothing: float, weights: Weights | None) -> Tensor:
    rank = len(log_p.shape or ())
    if target.dtype not in FLOAT_DTYPES or (target.shape is not None and len(target.shape) != rank):
        raise UsageError(
            "the labels do not match the logits", code=104, tensor=target.name,
            expected=f"integers of rank {rank - 1}, or probabilities in the shape of the logits",
            got=f"{target.dtype} {list(target.shape or ())}",
        )  # fmt: skip
    classes = (log_p.shape or (None,) * 8)[axis]
    if smoothing:
        if not isinstance(classes, int):
            raise UsageError(
                "label smoothing needs a fixed number of classes", code=104, tensor=target.name, got=str(log_p.shape)
            )
        target = target * (1.0 - smoothing) + smoothing / classes
    scaled = log_p if weights is None else log_p * _along(_vector(weights, log_p), log_p, axis)
    return -(scaled * target).sum(axis)


def _vector(weights: Weights, like: Operators) -> Tensor:
    if isinstance(weights, Operators):
        return weights.tensor()
    return like.function.constant(numbers_of(weights, like.dtype), "weights")


def _along(vector: Operators, x: Operators, axis: int) -> Tensor:
    """Reshapes a vector so that it broadcasts along one axis of x."""
    rank = len(x.shape or ())
    return ops.reshape(vector, [-1 if i == axis % rank else 1 for i in range(rank)])


def _known(labels: Tensor, ignore_index: int | None) -> Tensor:
    """Labels that are safe to look up: ignored labels are replaced by 0."""
    if ignore_index is None:
        return labels
    return elementwise([labels], lambda v: v.eq(ignore_index).select(v.lift(0), v), labels.dtype)


def _keep(values: Tensor, labels: Tensor, ignore_index: int | None) -> Tensor:
    if ignore_index is None:
        return values
    return elementwise([values, labels], lambda v, n: n.eq(ignore_index).select(v.lift(0.0), v), values.dtype)
