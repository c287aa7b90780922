"""Says how a case that a device refuses differs from the cases of the same op that it takes. A device itself gives no
reason: it only returns a negative `cost`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from linnet._generated.op_table import OPS
from linnet.conformance.case import Case, Operand
from linnet.conformance.report import Result

_MOST = 2  # differences that are named


def explain(cases: Sequence[Case], results: Sequence[Result]) -> None:
    """Adds the differences to `why` of each refused case. Cases and results are in the same order."""
    taken: dict[str, dict[str, list[frozenset[str]]]] = {}
    for case, result in zip(cases, results, strict=True):
        if result.status in ("agrees", "differs"):
            taken.setdefault(case.op, {}).setdefault(case.dtype, []).append(frozenset(_features(case)))
    for case, result in zip(cases, results, strict=True):
        if result.status == "refused" and not result.why.startswith("its sizes"):
            result.why += "; " + _unlike(case, taken.get(case.op, {}))


def _unlike(case: Case, taken: dict[str, list[frozenset[str]]]) -> str:
    if not taken:
        return "it takes no case of this op"
    if case.dtype not in taken:
        return f"it takes {', '.join(taken)}"
    mine, others = dict.fromkeys(_features(case)), taken[case.dtype]
    known = frozenset[str]().union(*others)
    if unknown := [text for text in mine if text not in known]:
        return "it takes no case with " + _listed(unknown)
    nearest = min(others, key=lambda other: len(other ^ mine.keys()))
    if more := [text for text in mine if text not in nearest]:
        return "it takes such a case without " + _listed(more)
    return "it takes such a case with " + _listed(sorted(nearest - mine.keys()) or ["another shape"])


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
    return ", ".join(texts[:_MOST]) + more


def _features(case: Case) -> Iterator[str]:
    """The features of a case on which a device's decision may depend, except lengths. The most informative ones come
    first."""
    operands = [(i, x) for i, x in enumerate(case.operands) if x is not None]
    yield from (f"{x.dtype} as operand {i}" for i, x in operands if x.dtype != case.dtype)
    if case.dtypes:
        yield f"results of {'/'.join(case.dtypes)}"
    defaults = {name: default for name, (_, _, default, *_) in OPS[case.op]["attributes"].items()}
    for name, value in case.attributes.items():
        if isinstance(value, list | tuple):
            yield f"{len(value)} {name}"
        elif value != defaults.get(name):
            yield f"{name}={value}"
    if case.epilogue:
        yield f"the epilogue {case.epilogue}"
    yield from (f"operand {i} of rank {len(x.shape)}" for i, x in operands)
    yield from (_scheme(x, i) for i, x in operands if x.quantization is not None)
    if case.note:
        yield f"'{case.note}'"


def _scheme(x: Operand, number: int) -> str:
    q = x.quantization
    how = "per tensor" if q is None or q.axis is None else f"per {'block' if q.block else 'slice'} along axis {q.axis}"
    return f"scales of operand {number} {how}"
