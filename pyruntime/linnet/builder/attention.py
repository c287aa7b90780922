"""Builds the op `attention` from products, a map and a softmax. Its gradient, quantization layer by layer, and the
export to ONNX use this form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from linnet.builder import generated as ops
from linnet.builder.mapping import pointwise
from linnet.builder.shaping import concat, reshape
from linnet.clib.errors import GraphError
from linnet.ir.expr import Expr
from linnet.ir.function import Tensor

ATTRIBUTES = ("scale", "causal", "window", "cap", "key_transposed")
LOWEST = {"f64": -1e300, "f32": -3e38, "bf16": -3e38, "f16": -6e4}  # finite, so that no row of scores becomes NaN


def attention_in_parts(inputs: Sequence[Tensor | None], attributes: Mapping[str, Any]) -> Tensor:
    """Returns the result of the op `attention` with these operands and attributes, computed by ops that store the
    scores. The ranks of the operands must be known."""
    query, key, value, mask, lengths, past_key, past_value = [*inputs, *[None] * 7][:7]
    assert query is not None and key is not None and value is not None
    turned, past = bool(attributes["key_transposed"]), None
    if past_key is not None and past_value is not None:
        axis = -1 if turned else -2
        start = _rank(past_key) + axis
        past = ops.shape(past_key, start=start, end=start + 1)
        key, value = _joined(past_key, key, axis), _joined(past_value, value, -2)
    scores = ops.matmul(query, key, transpose_b=not turned)
    scale = float(attributes["scale"]) or _usual_scale(query)
    return ops.matmul(attention_weights(scores, scale, attributes, mask, lengths, past), value)


def _usual_scale(query: Tensor) -> float:
    size = (query.shape or (None,))[-1]
    if not isinstance(size, int):
        raise GraphError(
            f"the last dimension of '{query.name}' is unknown", code=304, hint="give the attribute scale a value"
        )
    return 1 / math.sqrt(size) if size else 1.0


def _joined(past: Tensor, new: Tensor, axis: int) -> Tensor:
    """Concatenates both along an axis. Leading dimensions are broadcast."""
    leading = [(t.shape or ())[:-2] for t in (past, new)]
    if leading[0] != leading[1]:
        sizes = np.broadcast_shapes(*([d for d in dims if isinstance(d, int)] for dims in leading))
        if any(not isinstance(d, int) for dims in leading for d in dims):
            raise GraphError(
                f"the leading dimensions of '{past.name}' and '{new.name}' differ or are unknown", code=304,
                expected="equal dimensions, or numbers", got=f"{list(leading[0])} and {list(leading[1])}",
            )  # fmt: skip
        front = new.function.constant(np.array(sizes, np.int64))
        past, new = (
            ops.copy([t, concat([front, ops.shape(t, start=_rank(t) - 2, end=_rank(t))], 0)], kind="expand")[0]
            for t in (past, new)
        )
    return concat([past, new], axis)


def _rank(x: Tensor) -> int:
    if x.shape is None:
        raise GraphError(f"the rank of '{x.name}' is unknown", code=304, hint="give the tensor a shape")
    return len(x.shape)


def attention_weights(
    scores: Tensor,
    scale: float,
    attributes: Mapping[str, Any],
    mask: Tensor | None,
    lengths: Tensor | None = None,
    past: Tensor | None = None,
) -> Tensor:
    """The softmax of the scaled scores, with zeros for hidden keys. past: i64 [1], the keys before those of this call."""
    rank, dtype = _rank(scores), scores.dtype
    lowest = LOWEST[dtype]
    cap, window, causal = float(attributes["cap"]), float(attributes["window"]), str(attributes["causal"])
    counts = lengths if lengths is None else reshape(ops.cast(lengths, dtype="i64"), [-1, *[1] * (rank - 1)])
    if rank == 2 and counts is not None:
        counts = reshape(counts, [1, 1])
    end = ops.shape(scores, start=rank - 1, end=rank) if causal == "end" else None
    operands = {"mask": mask, "counts": counts, "past": past, "end": end}
    named = [(name, tensor) for name, tensor in operands.items() if tensor is not None]

    def body(s: Expr, *others: Expr) -> Expr:
        given = dict(zip((name for name, _ in named), others, strict=True))
        s = s * scale
        if cap:
            s = (s / cap).unary("tanh") * cap
        if mask is not None:
            s = given["mask"].select(s, lowest) if mask.dtype == "bool" else (s + given["mask"]).max(lowest)
        slot = position = s.iota(rank - 1)
        kept: list[Expr] = []
        if counts is not None and past is None:
            kept.append(slot < given["counts"])
        elif counts is not None:
            kept.append((slot < given["counts"]) | (slot >= given["past"]))
            position = (slot < given["past"]).select(slot, slot - given["past"] + given["counts"])
        if causal != "none":
            own = s.iota(rank - 2)
            if causal == "end":
                total = given["end"] if counts is None else given["counts"]
                if counts is not None and past is not None:
                    total = given["end"] - given["past"] + given["counts"]
                own = own + total - given["queries"]
            kept.append(position <= own)
            if window:
                kept.append(position > own - int(window))
        for condition in kept:
            s = condition.select(s, lowest)
        return s

    if end is not None:
        named.append(("queries", ops.shape(scores, start=rank - 2, end=rank - 1)))
    # Without a mask and a window, query i sees key 0 at least, and the softmax gives zeros for the others by itself.
    hidden = mask is not None or counts is not None or causal == "end" or (causal != "none" and window > 0)
    scores = pointwise([scores, *(tensor for _, tensor in named)], body, dtype)
    weights = ops.softmax(scores)
    if not hidden:
        return weights
    made = pointwise([weights, scores], lambda w, s: (s <= lowest).select(0.0, w), dtype)
    assert isinstance(made, Tensor)
    return made
