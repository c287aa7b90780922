"""Losses as graphs, one value per example: take `.mean()` or `.sum()` of them. Names and meanings are those of PyTorch.
Labels are checked while running: one that is no class is an error that names it."""

from __future__ import annotations

from linnet import ops
from linnet.autodiff._tools import elementwise
from linnet.graph import Tensor


def softmax_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log(softmax(logits)[label]) per example (Bridle 1990).

    logits: float [..., classes]; labels: i32 or i64 [...]. Returns [...], of the dtype of the logits.
    """
    column = ops.copy([labels], kind="unsqueeze", axes=[-1])[0]
    found = ops.gather(ops.softmax(logits, log=True), column, kind="elements", axis=-1)
    return -ops.copy([found], kind="squeeze", axes=[-1])[0]


def mse(prediction: Tensor, target: Tensor) -> Tensor:
    """(prediction - target) ** 2, elementwise and broadcast."""

    return elementwise([prediction, target], lambda y, t: (y - t) * (y - t))
