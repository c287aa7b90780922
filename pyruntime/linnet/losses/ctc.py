"""Connectionist temporal classification: the probability of a label sequence, summed over all ways to align it with the
time steps. It is a scan over time in log space; its gradient is the gradient of the scan."""

from __future__ import annotations

import numpy as np

from linnet.autodiff._tools import elementwise
from linnet.builder import ops
from linnet.builder.control import scan
from linnet.clib.errors import UsageError
from linnet.ir.expr import Expr
from linnet.ir.function import Operators, Tensor

_NEVER = -1e30  # log of probability 0; -infinity would make the gradient NaN


def ctc(
    logits: Operators,
    labels: Operators,
    times: Operators,
    lengths: Operators,
    *,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """-log(probability of the labels) per example (Graves et al. 2006), as torch.nn.functional.ctc_loss of
    log_softmax(logits).

    logits: float [time, batch, classes]; log-probabilities work as well. labels: i32 or i64 [batch, most]. lengths:
    [batch], how many labels at the start of each row count; the others may be any valid class. times: i32 or i64 [batch], the
    number of time steps of each example. Returns [batch]. If the labels do not fit into the time steps, the value is
    infinity (or 0 with zero_infinity=True), and there is no gradient.
    """
    if logits.shape is None or labels.shape is None or len(logits.shape) != 3 or len(labels.shape) != 2:
        raise UsageError(
            "ctc needs logits [time, batch, classes] and labels [batch, most]", code=104, tensor=logits.name,
            got=f"{logits.shape} and {labels.shape}",
        )  # fmt: skip
    most = labels.shape[1]
    if not isinstance(most, int):
        raise UsageError(
            "ctc needs labels with a fixed number of columns",
            code=104,
            tensor=labels.name,
            hint="pad the labels to a fixed width",
        )
    log_p = ops.softmax(logits, log=True)
    path, jumps = _path(labels, most, blank)
    begin = elementwise([path], lambda v: (v.iota(1) < 2).select(0.0, _NEVER), log_p.dtype)
    first = ops.expand_dims(elementwise([times], lambda n: n.cast("i64") * 0), 1)
    start = elementwise([begin, first], lambda v, z: v + z.cast(v.kind), log_p.dtype)

    def step(state: tuple[Tensor, Tensor], now: Tensor) -> tuple[tuple[Tensor, Tensor], None]:
        alpha, n = state
        seen = ops.gather(now, path, kind="elements", axis=1, from_end=False, name=f"{labels.name}/class")
        one, two = (ops.copy([alpha], kind="pad", pads=[0, k, 0, -k], value=_NEVER)[0] for k in (1, 2))
        limit = ops.expand_dims(times, 1)

        def advance(stay: Expr, one: Expr, two: Expr, jump: Expr, seen: Expr, n: Expr, limit: Expr) -> Expr:
            two = jump.select(two, _NEVER)
            began = (n < 1).select(stay, _lse(stay, one, two))
            return (n < limit).select((began + seen).max(_NEVER), stay)

        made = elementwise([alpha, one, two, jumps, seen, n, limit], advance, log_p.dtype)
        return (made, n + 1), None

    (alpha, _), _ = scan(step, (start, log_p.function.constant(np.int64(0))), log_p)
    last = ops.expand_dims(elementwise([lengths], lambda n: n.cast("i64") * 2), 1)
    before = elementwise([last], lambda n: (n - 1).max(0))
    ends = [
        ops.gather(alpha, at, kind="elements", axis=1, from_end=False, name=f"{lengths.name}/end")
        for at in (last, before)
    ]

    def total(a: Expr, b: Expr, n: Expr) -> Expr:
        both = _lse(a, (n > 0).select(b, _NEVER))
        return (both > 0.5 * _NEVER).select(-both, 0.0 if zero_infinity else float("inf"))

    return ops.squeeze(elementwise([*ends, last], total, log_p.dtype), 1)


def _path(labels: Operators, most: int, blank: int) -> tuple[Tensor, Tensor]:
    """The labels with blanks around and between them, [batch, 2 * most + 1], and the places at which a step may skip a
    blank: the labels that differ from the label before them."""
    wide = ops.expand_dims(labels.cast("i64"), 2)
    pairs = ops.concat([elementwise([wide], lambda v: v * 0 + blank), wide], 2)
    inner = ops.copy([pairs], kind="reshape", shape=[0, 2 * most])[0]
    path = ops.copy([inner], kind="pad", pads=[0, 0, 0, 1], value=float(blank))[0]
    shifted = ops.copy([path], kind="pad", pads=[0, 2, 0, -2], value=float(blank))[0]
    jumps = elementwise([path, shifted], lambda a, b: a.ne(blank) & a.ne(b) & (a.iota(1) > 2).cast("i32"), "bool")
    return path, jumps


def _lse(*terms: Expr) -> Expr:
    """log(sum(exp(terms)))."""
    top = terms[0]
    for term in terms[1:]:
        top = top.max(term)
    total = (terms[0] - top).exp()
    for term in terms[1:]:
        total = total + (term - top).exp()
    return top + total.log()
