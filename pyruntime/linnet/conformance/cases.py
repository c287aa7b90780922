"""The list of all cases, in a fixed order, with their ids OP.DTYPE.NUMBER."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator

from linnet.conformance import cases_attention as attention
from linnet.conformance import cases_lines as lines
from linnet.conformance import cases_maps as maps
from linnet.conformance import cases_moves as moves
from linnet.conformance import cases_others as others
from linnet.conformance import cases_products as products
from linnet.conformance import cases_quantized as quantized
from linnet.conformance import cases_weights as weights
from linnet.conformance.case import Case

_LISTS: tuple[Callable[[], Iterator[Case]], ...] = (
    maps.maps, maps.casts, maps.quantizations, maps.dequantizations, moves.copies, lines.reductions, products.matmuls,
    quantized.matmuls, products.convs, quantized.convs, products.transposed, quantized.transposed, others.pools,
    lines.softmaxes, lines.layer_norms, lines.other_norms, moves.gathers, moves.scatters, others.resizes,
    lines.running_sums, lines.largest, others.recurrents, others.refused, weights.weights, attention.attentions,
)  # fmt: skip


# The quick list: those cases of the usual list whose op and dtype are here, for which the function returns true.
_QUICK: dict[str, Callable[[Case], bool]] = {
    "map.f32": lambda c: c.note in ("exp", "three outputs") or (c.note == "add" and len(_shape(c)) < 3),
    "map.i8": lambda c: c.note == "quantized add",
    "map.i32": lambda c: c.note.startswith(("add sub", "div mod")),
    "cast.f32": lambda c: c.attributes["dtype"] == "i8",
    "quantize.i8": lambda c: not c.note,
    "dequantize.i8": lambda c: not c.attributes,
    "copy.f32": lambda c: c.attributes.get("pad_mode", "constant") == "constant",
    "reduce.f32": lambda c: c.attributes["kind"] in ("sum", "argmax") and not c.note,
    "reduce.i8": lambda c: c.attributes["kind"] == "sum",
    "matmul.f32": lambda c: not c.epilogue and _shape(c)[0] % 2 == 1 and len(c.operands) == 3,
    "matmul.i8": lambda c: c.attributes == {"requant": "float_rne"} and not c.epilogue and _shape(c)[0] in (8, 17, 65),
    "conv.f32": lambda c: "channel_axis" not in c.attributes and not c.epilogue and _shape(c)[1] > 3,
    "conv.i8": lambda c: c.attributes["requant"] == "float_rne" and not c.epilogue and _shape(c)[-1] in (8, 17),
    "conv_transpose.f32": lambda c: not c.epilogue and len(_shape(c)) == 4 and _shape(c)[1] == 3,
    "pool.f32": lambda c: c.attributes["kind"] != "lp",
    "softmax.f32": bool,
    "layer_norm.f32": bool,
    "batch_norm.f32": bool,
    "group_norm.f32": bool,
    "gather.f32": lambda c: c.operands[1] is not None and c.operands[1].dtype == "i32",
    "scatter.f32": lambda c: c.attributes.get("kind") != "nd",
    "resize.f32": bool,
    "cumsum.f32": bool,
    "top_k.f32": lambda c: _shape(c) == (3, 65, 2),
    "recurrent.f32": bool,
    "attention.f32": lambda c: c.attributes in ({}, {"causal": "end"}),
    **dict.fromkeys(("nms.f32", "nonzero.f32", "range.f32", "random.f32", "roi_align.f32"), bool),
}


def _shape(case: Case) -> tuple[int, ...]:
    x = case.operands[0]
    return () if x is None else x.shape


def is_quick(case: Case) -> bool:
    """Whether the quick list has the case."""
    wanted = _QUICK.get(f"{case.op}.{case.dtype}")
    return case.usual and wanted is not None and bool(wanted(case))


def all_cases() -> list[Case]:
    """Every case. A case that is added to the end of a list does not change the ids of cases of other ops or dtypes."""
    made: list[Case] = []
    numbers: Counter[tuple[str, str]] = Counter()
    for cases in _LISTS:
        for case in cases():
            number = numbers[case.op, case.dtype]
            numbers[case.op, case.dtype] += 1
            made.append(dataclasses.replace(case, id=f"{case.op}.{case.dtype}.{number}"))
    return made
