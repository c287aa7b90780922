"""Values of an ONNX graph that are not tensors: sequences and optionals, which are made of tensors. Runtime ops see only
tensors. Branches and loops carry a value as its tensors, in a form that suits both branches, or every iteration."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from linnet.converters.onnx.problems import Unknown, Unsupported
from linnet.ir.function import Tensor

if TYPE_CHECKING:
    import onnx

    from linnet.converters.onnx.narrow import Kind
    from linnet.converters.onnx.operation import Operation
    from linnet.ir.dtypes import Dim

MAX_RANK = 8


@dataclasses.dataclass(frozen=True, eq=False)
class Listed:
    """A sequence of known length: its tensors. dtype, kind: type of the elements, known even without elements."""

    items: tuple[Tensor, ...]
    dtype: str
    kind: Kind | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Packed:
    """A sequence of any length.

    values [total]: the numbers of all elements, one after the other. shapes [n, rank] i64: the dimensions of each element.
    If rank is None, the elements may differ in rank, and each row is [rank, 8 dimensions], padded with ones."""

    values: Tensor
    shapes: Tensor
    rank: int | None


@dataclasses.dataclass(frozen=True, eq=False)
class Maybe:
    """An optional whose presence is known only at run time. present: a bool; `value` is empty if it is false."""

    present: Tensor
    value: Tensor | Listed | Packed


Value = Tensor | Listed | Packed | Maybe | None
COMPOSITE = (Listed, Packed, Maybe)


def leaves(value: Value) -> list[Tensor]:
    """The tensors of a value, in a fixed order."""
    if value is None:
        return []
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Listed):
        return list(value.items)
    if isinstance(value, Packed):
        return [value.values, value.shapes]
    return [value.present, *leaves(value.value)]


def rebuilt(value: Value, tensors: Iterator[Tensor]) -> Value:
    """The same value with other tensors, taken in the order of `leaves`."""
    if value is None:
        return None
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Listed):
        return dataclasses.replace(value, items=tuple(next(tensors) for _ in value.items))
    if isinstance(value, Packed):
        return Packed(next(tensors), next(tensors), value.rank)
    present, inner = next(tensors), rebuilt(value.value, tensors)
    assert inner is not None and not isinstance(inner, Maybe)
    return Maybe(present, inner)


class Form(NamedTuple):
    """The structure of a value. kind: tensor, list or packed. An absent optional has None instead of a form."""

    kind: str
    dtype: str
    ranks: tuple[
        int | None, ...
    ]  # one for the tensor, for every element of a list, or for all elements of a packed sequence
    maybe: bool = False
    narrow: Kind | None = None


def form_of(value: Value) -> Form | None:
    if value is None:
        return None
    if isinstance(value, Tensor):
        return Form("tensor", value.dtype, (value.rank,))
    if isinstance(value, Listed):
        return Form("list", value.dtype, tuple(t.rank for t in value.items), narrow=value.kind)
    if isinstance(value, Packed):
        return Form("packed", value.values.dtype, (value.rank,))
    inner = form_of(value.value)
    assert inner is not None
    return inner._replace(maybe=True)


class Carried(NamedTuple):
    """The forms and shapes of the values that a loop carries. It also holds the loop's body, which must live as long as
    the body's id is used."""

    body: onnx.GraphProto
    forms: list[Form | None]
    shapes: list[tuple[Dim, ...] | None]


def joined(a: Form | None, b: Form | None) -> Form | None:
    """The form that can hold values of both forms. Raises Unsupported if there is none."""
    if a is None or b is None:
        some = a or b
        return None if some is None else some._replace(maybe=True)
    maybe = a.maybe or b.maybe
    if (a.kind == "tensor") != (b.kind == "tensor"):
        raise Unsupported("a value is a sequence in one place and a tensor in another", "use one type in both places")
    if a.kind == "tensor" or (a.kind == b.kind == "list" and len(a.ranks) == len(b.ranks)):
        ranks = tuple(m if m == n else None for m, n in zip(a.ranks, b.ranks, strict=True))
        return a._replace(ranks=ranks, maybe=maybe)
    every = {r for form in (a, b) for r in form.ranks}  # an empty list has no ranks
    rank = every.pop() if len(every) == 1 else None
    full = b if a.kind == "list" and not a.ranks else a
    return Form("packed", full.dtype, (rank,), maybe)


def shaped(op: Operation, value: Value, form: Form | None) -> Value:
    """Converts a value to a form that `joined` returned for it."""
    if form is None:
        return None
    inner = form._replace(maybe=False)
    if form.maybe:
        if isinstance(value, Maybe):
            present, value = value.present, value.value
        else:
            present = op.constant(np.array(value is not None))
        held = nothing(op, inner) if value is None else shaped(op, value, inner)
        assert held is not None and not isinstance(held, Maybe)
        return Maybe(present, held)
    if form.kind == "packed":
        assert isinstance(value, (Listed, Packed))
        return packed(op, value, form.ranks[0], form.dtype)
    return value


def nothing(op: Operation, form: Form) -> Value:
    """An empty value in place of an absent one."""

    def empty(rank: int | None) -> Tensor:
        return op.constant(np.zeros([0] * (1 if rank is None else rank), np.int8), form.dtype)

    if form.kind == "tensor":
        return empty(form.ranks[0])
    if form.kind == "list":
        return Listed(tuple(empty(r) for r in form.ranks), form.dtype, form.narrow)
    return packed(op, Listed((), form.dtype, form.narrow), form.ranks[0])


def packed(op: Operation, value: Listed | Packed, rank: int | None, dtype: str = "") -> Packed:
    """Converts a sequence to a packed sequence whose elements have the given rank (None: any rank)."""
    if isinstance(value, Packed):
        if value.rank == rank:
            return value
        count = op.shape_of(value.shapes, 0, 1)

        def column(number: int, width: int) -> Tensor:
            shape = op.concat([count, op.constant(np.array([width], np.int64))], 0)
            return op.expand(op.constant(np.full((1, 1), number, np.int64)), shape)

        known = value.rank or 0
        parts = [column(known, 1), value.shapes, column(1, MAX_RANK - known)]
        return Packed(value.values, op.concat(parts, 1), None)
    if not value.items:
        values = op.of_kind(op.constant(np.zeros(0, np.int8), dtype or value.dtype), value.kind)
        return Packed(values, op.constant(np.zeros((0, 1 + MAX_RANK if rank is None else rank), np.int64)), rank)
    values = op.concat([flat(op, t) for t in value.items], 0)
    shapes = op.concat([op.unsqueeze(row_of(op, t, rank), [0]) for t in value.items], 0)
    return Packed(op.of_kind(values, value.kind), shapes, rank)


def flat(op: Operation, tensor: Tensor) -> Tensor:
    return op.reshape(tensor, [-1])


def row_of(op: Operation, tensor: Tensor, rank: int | None) -> Tensor:
    """The row of `Packed.shapes` for an element."""
    dims = op.shape_of(tensor)
    if rank is not None:
        return op.reshape(dims, [rank]) if rank else op.constant(np.zeros(0, np.int64))
    rows = [op.shape_of(dims), dims, op.constant(np.ones(MAX_RANK, np.int64))]
    return op.slice(op.concat(rows, 0), 0, 0, 1 + MAX_RANK)


def as_sequence(value: Value, what: str) -> Listed | Packed:
    """Returns the value, which must be a sequence. Raises Unsupported otherwise."""
    if isinstance(value, (Listed, Packed)):
        return value
    if value is None or isinstance(value, Maybe):
        raise Unsupported(f"{what} is an optional that may be empty", "get its element with OptionalGetElement")
    raise Unknown(f"{what} is a tensor, not a sequence", "pass a sequence")


def merged_kinds(op: Operation, results: Sequence[Tensor], *sources: Sequence[Tensor]) -> None:
    """Records the narrow types of results. Each result corresponds to the tensors at the same position in the
    sources."""
    for index, result in enumerate(results):
        for source in sources:
            kind = op.importer.kinds.get(source[index])
            op.of_kind(result, kind)
