"""Names of open dimensions through a graph, and shape vectors of which only some elements are known: `Shape`, `Gather`,
`Concat`, `Reshape` over an open batch. The C shape rules know numbers only; what a name does is found by asking them twice."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from linnet.errors import Error
from linnet.graph import Dim, Tensor

Spec = tuple[str, tuple[Dim, ...] | None]
Infer = Callable[[Sequence[Tensor | None]], list[Spec]]
Elements = tuple[Dim, ...]

_FIRST, _SECOND = (1009, 1021, 1031, 1049, 1061, 1087), (1013, 1019, 1033, 1039, 1063, 1091)  # primes
_STEP = 2310  # keeps numbers beyond the tables apart
_INTEGERS = ("i64", "i32")
LONGEST = 16  # elements of a vector worth following


def named(infer: Infer, inputs: Sequence[Tensor | None], specs: list[Spec]) -> list[Spec]:
    """The specs, with names where an output's dimension is that of an input for any size: the shape rule is asked with the
    names standing for two sets of numbers, and an output that has a name's number both times has its size."""
    if not any(shape is not None and None in shape for _, shape in specs):
        return specs
    names = list(dict.fromkeys(d for t in inputs if t is not None and t.shape for d in t.shape if isinstance(d, str)))
    if not names:
        return specs
    answers = []
    for primes in (_FIRST, _SECOND):
        number = {name: primes[i % len(primes)] + _STEP * (i // len(primes)) for i, name in enumerate(names)}
        try:
            answers.append((number, infer([_numbered(t, number) for t in inputs])))
        except Error:  # two names that must be equal, or a size that does not fit
            return specs
    (first, one), (second, two) = answers
    by_number: dict[tuple[Dim, Dim], str] = {(first[name], second[name]): name for name in names}
    made: list[Spec] = []
    for (dtype, shape), (_, a), (_, b) in zip(specs, one, two, strict=True):
        if shape is not None and a is not None and b is not None and len(a) == len(b) == len(shape):
            shape = tuple(by_number.get((x, y)) if d is None else d for d, x, y in zip(shape, a, b, strict=True))
        made.append((dtype, shape))
    return made


def _numbered(tensor: Tensor | None, number: dict[str, int]) -> Tensor | None:
    """The tensor with numbers for names; what has no name stays open."""
    if tensor is None or tensor.shape is None or tensor.static_shape is not None:
        return tensor
    shape = tuple(number[d] if isinstance(d, str) else d for d in tensor.shape)
    return dataclasses.replace(tensor, shape=shape)


def elements_of(tensor: Tensor | None) -> Elements | None:
    """What is known of the elements of an integer scalar or vector; None when not even their number is."""
    if tensor is None or tensor.dtype not in _INTEGERS or tensor.rank not in (0, 1):
        return None
    if tensor.data is not None:
        return tuple(int(v) for v in tensor.data.reshape(-1)) if tensor.data.size <= LONGEST else None
    return tensor.elements


def elements(op: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any], spec: Spec) -> Elements | None:
    """What is known of the elements of an op's first output."""
    dtype, shape = spec
    if dtype not in _INTEGERS or shape is None or len(shape) > 1:
        return None
    x = inputs[0] if inputs else None
    if op == "shape" and x is not None and x.shape is not None:
        return x.shape[attributes["start"] : attributes["end"]]
    known = elements_of(x)
    if op == "gather" and known is not None and attributes["kind"] == "take" and x is not None and x.rank == 1:
        places = elements_of(inputs[1])
        if places is not None and all(isinstance(i, int) and -len(known) <= i < len(known) for i in places):
            return tuple(known[int(i)] for i in places if i is not None)
    if op == "cast" and known is not None:
        return known
    if op == "copy":
        kind = attributes["kind"]
        if kind in ("identity", "unsqueeze", "squeeze", "reshape") and known is not None:
            return known
        if kind == "concat":
            parts = [elements_of(t) for t in inputs]
            if all(part is not None for part in parts):
                joined = tuple(d for part in parts if part is not None for d in part)
                return joined if len(joined) <= LONGEST else None
        if kind == "slice" and known is not None and len(inputs) == 1 and len(attributes["starts"]) == 1:
            step = attributes["steps"][0] if attributes["steps"] else 1
            if step > 0:
                return known[attributes["starts"][0] : attributes["ends"][0] : step]
    count = shape[0] if shape else 1
    return (None,) * count if isinstance(count, int) and count <= LONGEST else None


def constant(known: Elements | None, spec: Spec) -> np.ndarray[Any, Any] | None:
    """The value of an output all of whose elements are known."""
    if known is None or not known or not all(isinstance(d, int) for d in known):
        return None
    dtype, shape = spec
    value = np.array(known, np.int64).astype(np.int64 if dtype == "i64" else np.int32)  # cut off, as a cast does
    return value.reshape(() if shape == () else (-1,))


def shape(op: str, inputs: Sequence[Tensor | None], attributes: dict[str, Any]) -> tuple[Dim, ...] | None:
    """The shape of an op's output where operands say it that are known in part; None where they say nothing."""
    if op == "range":
        start, limit, step = (elements_of(t) for t in inputs)
        return limit if start == (0,) and step == (1,) else None
    if op == "random" and len(inputs) > 1:
        return elements_of(inputs[1])
    if op == "copy" and attributes["kind"] in ("reshape", "expand"):
        return _reshaped(inputs, attributes)
    return None


def _reshaped(inputs: Sequence[Tensor | None], attributes: dict[str, Any]) -> tuple[Dim, ...] | None:
    """The shape that a reshape or expand gives to its input, as far as its second operand is known."""
    x, wanted = inputs[0], elements_of(inputs[1] if len(inputs) > 1 else None)
    if x is None or wanted is None or (inputs[1] is not None and inputs[1].data is not None):
        return None
    if attributes["kind"] == "expand":
        return _expanded(x.shape, wanted)
    dims: list[Dim] = []
    for i, d in enumerate(wanted):
        if d == 0 and not attributes["allow_zero"]:
            dims.append(x.shape[i] if x.shape is not None and i < len(x.shape) else None)
        else:
            dims.append(d)
    if dims.count(-1) == 1:
        at = dims.index(-1)
        dims[at] = _rest(x.shape, [d for i, d in enumerate(dims) if i != at])
    return tuple(None if isinstance(d, int) and d < 0 else d for d in dims)


def _rest(whole: tuple[Dim, ...] | None, parts: Sequence[Dim]) -> Dim:
    """The one factor that is missing from a product of dimensions, when it is one number or one name."""
    if whole is None or None in whole or None in parts:
        return None
    names = [d for d in whole if isinstance(d, str)]
    for d in parts:
        if isinstance(d, str):
            if d not in names:
                return None
            names.remove(d)
    numbers = math.prod(d for d in whole if isinstance(d, int))
    divisor = math.prod(d for d in parts if isinstance(d, int))
    if divisor <= 0 or numbers % divisor:
        return None
    factor = numbers // divisor
    return factor if not names else names[0] if len(names) == 1 and factor == 1 else None


def _expanded(shape: tuple[Dim, ...] | None, wanted: Elements) -> tuple[Dim, ...] | None:
    if shape is None:
        return None
    rank = max(len(shape), len(wanted))
    mine = (1,) * (rank - len(shape)) + shape
    theirs = (1,) * (rank - len(wanted)) + wanted
    return tuple(
        b if a == 1 else a if b in (1, a) or (isinstance(a, int) and b is not None) else None
        for a, b in zip(mine, theirs, strict=True)
    )
