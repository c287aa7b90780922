"""Loss scaling: the loss is multiplied by a factor before it is differentiated, so that small gradients do not become 0
in 16 bits. A step whose gradients overflowed is skipped (Micikevicius et al. 2018)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from linnet.autodiff import SparseRows
from linnet.autodiff._tools import elementwise
from linnet.autodiff.sparse import add_up
from linnet.builder.mapping import pointwise
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor, Variable
from linnet.ir.graph import graph_of
from linnet.ir.program import REGISTER
from linnet.optimizers._step import number, state


class DynamicLossScale:
    """A scale that grows while gradients stay finite and falls when they do not, as in torch.amp.GradScaler.

    initial: the first scale. growth: the factor after `interval` steps without overflow. backoff: the factor after a
    step with overflow, which changes no variable. The variable "loss_scale/scale" holds the scale.
    """

    def __init__(
        self, initial: float = 65536.0, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000
    ) -> None:
        self.initial = number("initial", initial, least=1e-30)
        self.growth, self.backoff = (
            number("growth", growth, least=1.0),
            number("backoff", backoff, least=0.0, below=1.0),
        )
        self.interval = int(number("interval", interval, least=1))

    def scale(self, like: Tensor) -> Tensor:
        """The current scale, an f32 scalar."""
        return state(graph_of(like), "loss_scale/scale", np.float32(self.initial)).tensor(like)

    def updates(self, finite: Tensor) -> dict[Variable, Tensor]:
        """Updates of the scale after a step. finite: whether its gradients were finite."""
        graph = graph_of(finite)
        scale = state(graph, "loss_scale/scale", np.float32(self.initial))
        steps = state(graph, "loss_scale/finite_steps", np.int64(0))

        def body(fine: Expr, scale: Expr, steps: Expr) -> Sequence[Expr]:
            count = steps + 1
            full = count >= self.interval
            grown = full.select(scale * self.growth, scale)
            return fine.select(grown, scale * self.backoff), (fine & (count < self.interval)).select(
                count, count.lift(0)
            )

        made = pointwise([finite, scale.tensor(finite), steps.tensor(finite)], body, ["f32", "i64"])
        return dict(zip([scale, steps], made, strict=True))


def unscaled(g: Tensor | SparseRows, scale: float | Tensor) -> Tensor | SparseRows:
    """g / scale, in at least 32 bits."""
    if isinstance(g, SparseRows):
        rows = unscaled(g.rows, scale)
        assert isinstance(rows, Tensor)
        return dataclasses.replace(g, rows=rows)
    dtype = REGISTER[g.dtype]
    if isinstance(scale, Tensor):
        return elementwise([g, scale], lambda v, s: v / s, dtype)
    return elementwise([g], lambda v: v / scale, dtype)


def all_finite(given: Sequence[Tensor | SparseRows]) -> Tensor:
    """Whether every element is finite, as a bool scalar."""
    # 0 * x is 0 if x is finite, else NaN. A sum keeps the NaN.
    sums = [((g.rows if isinstance(g, SparseRows) else g) * 0.0).sum() for g in given]
    return elementwise([add_up([s.cast("f32") for s in sums])], lambda v: v.eq(0.0), "bool")
