"""Propagates the names of open dimensions through a graph, and tracks partly known shape vectors, such as those that
`Shape`, `Gather`, `Concat` and `Reshape` compute if the batch is open. The C shape rules know only numbers, so the
effect of a name is found by evaluating the rules twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import Error
from linnet.ir.dtypes import Dim, Quantization, Spec
from linnet.ir.operands import Known, Operand

Infer = Callable[[Sequence[Operand | None]], list[Spec]]
Elements = tuple[Dim, ...]

_FIRST, _SECOND = (1009, 1021, 1031, 1049, 1061, 1087), (1013, 1019, 1033, 1039, 1063, 1091)  # primes
_STEP = 2310  # keeps numbers beyond the tables distinct
_INTEGERS = ("i64", "i32")
LONGEST = 16  # elements; longer vectors are not tracked


def named(infer: Infer, inputs: Sequence[Operand | None], specs: list[Spec]) -> list[Spec]:
    """Adds names to specs: an output dimension that always equals an input dimension gets its name. To find out, the
    shape rule is evaluated with two sets of numbers in place of the names. If an output dimension equals the number of
    the same name both times, it gets this name."""
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


class _Numbered(NamedTuple):
    """An operand with numbers in place of names."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    data: npt.NDArray[Any] | None
    quantization: Quantization | None


def _numbered(tensor: Operand | None, number: dict[str, int]) -> Operand | None:
    """The tensor with numbers in place of names. Dimensions without a name stay open."""
    if tensor is None or tensor.shape is None or all(isinstance(d, int) for d in tensor.shape):
        return tensor
    shape = tuple(number[d] if isinstance(d, str) else d for d in tensor.shape)
    return _Numbered(tensor.name, tensor.dtype, shape, tensor.data, tensor.quantization)


def elements_of(tensor: Known | None) -> Elements | None:
    """What is known about the elements of an integer scalar or vector. None if not even their number is known."""
    if tensor is None or tensor.dtype not in _INTEGERS or tensor.shape is None or len(tensor.shape) > 1:
        return None
    if tensor.data is not None:
        return tuple(int(v) for v in tensor.data.reshape(-1)) if tensor.data.size <= LONGEST else None
    return tensor.elements


def _of_shape(inputs: Sequence[Known | None], attributes: dict[str, Any]) -> Elements | None:
    x = inputs[0]
    return x.shape[attributes["start"] : attributes["end"]] if x is not None and x.shape is not None else None


def _of_gather(inputs: Sequence[Known | None], attributes: dict[str, Any]) -> Elements | None:
    x, known, places = inputs[0], elements_of(inputs[0]), elements_of(inputs[1])
    if known is None or places is None or attributes["kind"] != "take":
        return None
    if x is None or x.shape is None or len(x.shape) != 1:
        return None
    if not all(isinstance(i, int) and -len(known) <= i < len(known) for i in places):
        return None
    return tuple(known[int(i)] for i in places if i is not None)


def _of_cast(inputs: Sequence[Known | None], attributes: dict[str, Any]) -> Elements | None:
    return elements_of(inputs[0])


def _of_copy(inputs: Sequence[Known | None], attributes: dict[str, Any]) -> Elements | None:
    kind, known = attributes["kind"], elements_of(inputs[0])
    if kind in ("identity", "unsqueeze", "squeeze", "reshape"):
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
    return None


# The rules for ops that compute sizes from sizes. A rule finds the elements of the op's first output.
ELEMENTS: dict[str, Callable[[Sequence[Known | None], dict[str, Any]], Elements | None]] = {
    "shape": _of_shape,
    "gather": _of_gather,
    "cast": _of_cast,
    "copy": _of_copy,
}


def elements(op: str, inputs: Sequence[Known | None], attributes: dict[str, Any], spec: Spec) -> Elements | None:
    """What is known about the elements of an op's first output. If the output is short, at least the number of elements
    is known."""
    dtype, shape = spec
    if dtype not in _INTEGERS or shape is None or len(shape) > 1:
        return None
    if op in ELEMENTS and inputs and (found := ELEMENTS[op](inputs, attributes)) is not None:
        return found
    count = shape[0] if shape else 1
    return (None,) * count if isinstance(count, int) and count <= LONGEST else None


def constant(known: Elements | None, spec: Spec) -> np.ndarray[Any, Any] | None:
    """The value of an output if all its elements are known."""
    if known is None or not known or not all(isinstance(d, int) for d in known):
        return None
    dtype, shape = spec
    value = np.array(known, np.int64).astype(np.int64 if dtype == "i64" else np.int32)  # truncates as a cast does
    return value.reshape(() if shape == () else (-1,))


def shape(op: str, inputs: Sequence[Known | None], attributes: dict[str, Any]) -> tuple[Dim, ...] | None:
    """The shape of an op's output, if partly known operands determine it; otherwise None."""
    return SHAPES[op](inputs, attributes) if op in SHAPES else None


def _range_shape(inputs: Sequence[Known | None], attributes: dict[str, Any]) -> tuple[Dim, ...] | None:
    start, limit, step = (elements_of(t) for t in inputs)
    return limit if start == (0,) and step == (1,) else None


def _random_shape(inputs: Sequence[Known | None], attributes: dict[str, Any]) -> tuple[Dim, ...] | None:
    return elements_of(inputs[1]) if len(inputs) > 1 else None


def _copy_shape(inputs: Sequence[Known | None], attributes: dict[str, Any]) -> tuple[Dim, ...] | None:
    return _reshaped(inputs, attributes) if attributes["kind"] in ("reshape", "expand") else None


SHAPES: dict[str, Callable[[Sequence[Known | None], dict[str, Any]], tuple[Dim, ...] | None]] = {
    "range": _range_shape,
    "random": _random_shape,
    "copy": _copy_shape,
}


def _reshaped(inputs: Sequence[Known | None], attributes: dict[str, Any]) -> tuple[Dim, ...] | None:
    """The shape that a reshape or expand gives to its input, from the known elements of its second operand."""
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
    """The missing factor in a product of dimensions, if it is a single number or name."""
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
