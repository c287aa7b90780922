"""Gradient clipping: what an optimizer's `clip` may be. Each takes all gradients and gives those that are applied; a function
of your own may do the same."""

from __future__ import annotations

from collections.abc import Callable

from linnet.autodiff import SparseRows
from linnet.autodiff._tools import add_up, elementwise
from linnet.graph import Tensor, Variable
from linnet.mapping import REGISTER, Expr
from linnet.optimizers import Gradient
from linnet.optimizers._step import number

__all__ = ["by_global_norm", "by_norm", "by_value", "global_norm"]

Gradients = dict[Variable, Gradient]


def by_value(limit: float) -> Callable[[Gradients], Gradients]:
    """Every element into [-limit, limit], torch.nn.utils.clip_grad_value_."""
    top = number("limit", limit, least=0.0)

    def clip(given: Gradients) -> Gradients:
        def one(g: Tensor) -> Tensor:
            return elementwise([g], lambda v: v.max(-top).min(top), g.dtype)

        return {v: g.apply(one) if isinstance(g, SparseRows) else one(g) for v, g in given.items()}

    return clip


def by_norm(limit: float) -> Callable[[Gradients], Gradients]:
    """Every variable's gradient to a Euclidean norm of at most `limit`."""
    top = number("limit", limit, least=0.0)
    return lambda given: {v: _shrunk({v: g}, top)[v] for v, g in given.items()}


def by_global_norm(limit: float) -> Callable[[Gradients], Gradients]:
    """All gradients by one factor, so that their norm as one vector is at most `limit` (Pascanu, Mikolov and Bengio 2013):
    torch.nn.utils.clip_grad_norm_."""
    top = number("limit", limit, least=0.0)
    return lambda given: _shrunk(given, top)


def global_norm(given: Gradients) -> Tensor:
    """The Euclidean norm of all gradients as one vector: a scalar, f64 where a gradient is, else f32."""
    squares = [
        g.square_sum() if isinstance(g, SparseRows) else elementwise([g], lambda v: v * v, REGISTER[g.dtype]).sum()
        for g in given.values()
    ]
    kind = "f64" if any(s.dtype == "f64" for s in squares) else "f32"
    return elementwise([add_up([s if s.dtype == kind else s.cast(kind) for s in squares])], lambda v: v.sqrt(), kind)


def _shrunk(given: Gradients, limit: float) -> Gradients:
    def factor(norm: Expr) -> Expr:
        return (limit / (norm + 1e-6)).min(1.0)  # as PyTorch has it

    norm = global_norm(given)
    share = elementwise([norm], factor, norm.dtype)

    def one(g: Tensor) -> Tensor:
        own = share if share.dtype == REGISTER[g.dtype] else share.cast(REGISTER[g.dtype])
        return elementwise([g, own], lambda v, s: v * s, g.dtype)

    return {v: g.apply(one) if isinstance(g, SparseRows) else one(g) for v, g in given.items()}
