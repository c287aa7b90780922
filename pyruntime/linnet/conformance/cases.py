"""The list of all cases, in a fixed order, with their ids OP.DTYPE.NUMBER."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator

from linnet.conformance import cases_lines as lines
from linnet.conformance import cases_maps as maps
from linnet.conformance import cases_moves as moves
from linnet.conformance import cases_others as others
from linnet.conformance import cases_products as products
from linnet.conformance import cases_quantized as quantized
from linnet.conformance.case import Case

_LISTS: tuple[Callable[[], Iterator[Case]], ...] = (
    maps.maps, maps.casts, maps.quantizations, maps.dequantizations, moves.copies, lines.reductions, products.matmuls,
    quantized.matmuls, products.convs, quantized.convs, products.transposed, quantized.transposed, others.pools,
    lines.softmaxes, lines.layer_norms, lines.other_norms, moves.gathers, moves.scatters, others.resizes,
    lines.running_sums, lines.largest, others.recurrents, others.refused,
)  # fmt: skip


def all_cases() -> list[Case]:
    """Every case. A case that is added to the end of a list changes no other id of another op or dtype."""
    made: list[Case] = []
    numbers: Counter[tuple[str, str]] = Counter()
    for cases in _LISTS:
        for case in cases():
            number = numbers[case.op, case.dtype]
            numbers[case.op, case.dtype] += 1
            made.append(dataclasses.replace(case, id=f"{case.op}.{case.dtype}.{number}"))
    return made
