"""Connectionist temporal classification: the probability of a sequence of labels, over all ways to spread it over time. A scan
over time, in logarithms; its gradient is that of the scan."""

from __future__ import annotations

import numpy as np

from linnet import ops
from linnet.autodiff._tools import elementwise
from linnet.control import scan
from linnet.errors import UsageError
from linnet.graph import Tensor
from linnet.mapping import Expr
from linnet.operators import Operators

_NEVER = -1e30  # the logarithm of no probability; infinity would make the gradient NaN


def ctc(
    logits: Operators,
    labels: Operators,
    times: Operators,
    lengths: Operators,
    *,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """-log(probability of the labels) per example (Graves et al. 2006), torch.nn.functional.ctc_loss of log_softmax(logits).

    logits: float [time, batch, classes]; log-probabilities do as well. labels: i32 or i64 [batch, most], of which `lengths`
    [batch] count; anything within the classes behind them. times: i32 or i64 [batch], how many steps of each example count.
    Returns [batch]; infinity where the labels do not fit into the time, or 0 with zero_infinity, and no gradient then.
    """
    if logits.shape is None or labels.shape is None or len(logits.shape) != 3 or len(labels.shape) != 2:
        raise UsageError(
            "ctc needs logits [time, batch, classes] and labels [batch, most]", code=104, tensor=logits.name,
            got=f"{logits.shape} and {labels.shape}",
        )  # fmt: skip
    most = labels.shape[1]
    if not isinstance(most, int):
        raise UsageError("ctc needs a fixed width of the labels", code=104, tensor=labels.name, hint="pad them")
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
    """Blanks around and between the labels, [batch, 2 * most + 1], and where two may be skipped at once: at labels that differ
    from the one before."""
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
