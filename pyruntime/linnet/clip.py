"""Gradient clipping: functions for an optimizer's argument `clip`. Each takes all gradients and returns the gradients
to apply. A function of your own with the same signature works as well."""

from __future__ import annotations

from collections.abc import Callable

from linnet.autodiff import SparseRows
from linnet.autodiff._tools import elementwise
from linnet.autodiff.sparse import add_up
from linnet.clib.arguments import check_all
from linnet.clib.errors import UsageError
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor, Variable
from linnet.ir.program import REGISTER
from linnet.optimizers import Gradient
from linnet.optimizers._step import number

__all__ = ["by_global_norm", "by_norm", "by_value", "global_norm"]

Gradients = dict[Variable, Gradient]


def by_value(limit: float) -> Callable[[Gradients], Gradients]:
    """Clips each element to [-limit, limit], as torch.nn.utils.clip_grad_value_ does."""
    top = number("limit", limit, least=0.0)

    def clip(given: Gradients) -> Gradients:
        def one(g: Tensor) -> Tensor:
            return elementwise([g], lambda v: v.max(-top).min(top), g.dtype)

        return {v: g.apply(one) if isinstance(g, SparseRows) else one(g) for v, g in given.items()}

    return clip


def by_norm(limit: float) -> Callable[[Gradients], Gradients]:
    """Scales each variable's gradient to a Euclidean norm of at most `limit`."""
    top = number("limit", limit, least=0.0)
    return lambda given: {v: _shrunk({v: g}, top)[v] for v, g in given.items()}


def by_global_norm(limit: float) -> Callable[[Gradients], Gradients]:
    """Scales all gradients by one factor so that their norm as one vector is at most `limit` (Pascanu, Mikolov and
    Bengio 2013), as torch.nn.utils.clip_grad_norm_ does."""
    top = number("limit", limit, least=0.0)
    return lambda given: _shrunk(given, top)


def global_norm(given: Gradients) -> Tensor:
    """The Euclidean norm of all gradients taken as one vector: a scalar, f64 if any gradient is f64, else f32."""
    if not given:
        raise UsageError("the list of gradients is empty", code=101, expected="one or more gradients", got="none")
    squares = [
        g.square_sum() if isinstance(g, SparseRows) else elementwise([g], lambda v: v * v, REGISTER[g.dtype]).sum()
        for g in given.values()
    ]
    kind = "f64" if any(s.dtype == "f64" for s in squares) else "f32"
    return elementwise([add_up([s if s.dtype == kind else s.cast(kind) for s in squares])], lambda v: v.sqrt(), kind)


def _shrunk(given: Gradients, limit: float) -> Gradients:
    def factor(norm: Expr) -> Expr:
        return (limit / (norm + 1e-6)).min(1.0)  # the same epsilon as PyTorch

    norm = global_norm(given)
    share = elementwise([norm], factor, norm.dtype)

    def one(g: Tensor) -> Tensor:
        own = share if share.dtype == REGISTER[g.dtype] else share.cast(REGISTER[g.dtype])
        return elementwise([g, own], lambda v, s: v * s, g.dtype)

    return {v: g.apply(one) if isinstance(g, SparseRows) else one(g) for v, g in given.items()}


check_all(globals(), __all__, strict=True)
