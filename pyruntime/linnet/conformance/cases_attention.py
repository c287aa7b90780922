"""Cases of attention: each operand and attribute once, with sizes on both sides of the tiles of keys and queries.
They are few, because a program of a device is compiled for almost every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from linnet.conformance.case import Case, Operand, fed, given

FLOATS = ("f32", "f16", "bf16")


def attentions() -> Iterator[Case]:
    for dtype in FLOATS:
        yield _case(dtype, (3, 17, 8), (3, 65, 8), 5, usual=dtype != "bf16")
    yield _case("f32", (2, 3, 33, 64), (2, 1, 63, 64), 65, usual=True, causal="start")
    yield _case("f32", (5, 7), (129, 7), 3, usual=True, causal="end", window=70, scale=0.25)
    yield _case("f32", (2, 17, 16), (2, 64, 16), 16, usual=True, cap=1.5, key_transposed=True)
    yield _case("f32", (2, 9, 4), (2, 11, 4), 4, mask=Operand("bool", (9, 11)), usual=True)
    yield _case("f32", (2, 9, 4), (2, 11, 4), 4, mask=fed("f32", 2, 1, 11), usual=True)
    yield _case("f32", (3, 2, 2, 16), (3, 2, 70, 16), 16, lengths=(0, 70, 65), usual=True)
    yield _case("f32", (3, 2, 8), (3, 2, 8), 8, past=66, lengths=(0, 65, 66), causal="end", usual=True)
    yield _case("f16", (2, 1, 8), (2, 1, 8), 8, past=130, lengths=(129,), causal="end")
    yield _case("f16", (2, 33, 16), (2, 33, 16), 16, mask=fed("f16", 33, 33), causal="start", key_transposed=True)


def _case(
    dtype: str, query: tuple[int, ...], key: tuple[int, ...], size: int, mask: Operand | None = None,
    lengths: tuple[int, ...] = (), past: int = 0, usual: bool = False, **attributes: Any,
) -> Case:  # fmt: skip
    """key: [..., n, depth], also if the case has it transposed; size: the size of a value; past: number of keys in a
    cache before the keys of the case."""
    front, depth = key[:-2], key[-1]

    def turned(rows: int) -> tuple[int, ...]:
        return (*front, depth, rows) if attributes.get("key_transposed") else (*front, rows, depth)

    operands: list[Operand | None] = [
        fed(dtype, *query), fed(dtype, *turned(key[-2])), fed(dtype, *front, key[-2], size), mask,
        given(np.array(lengths, np.int64)) if lengths else None,
    ]  # fmt: skip
    if past:
        operands += [fed(dtype, *turned(past)), fed(dtype, *front, past, size)]
    while operands[-1] is None:
        operands.pop()
    return Case("attention", dtype, tuple(operands), attributes, depth=depth + key[-2] + past, usual=usual)
