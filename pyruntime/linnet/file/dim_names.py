"""Names of open dimensions in a .lnt file. Dimensions with the same name should have the same size, but some exporters
give every image axis the same name. So Python reads the names when it plans for open shapes, to report which inputs
disagree."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from linnet._generated.op_table import OPS
from linnet.clib.errors import UsageError
from linnet.file import tables
from linnet.file.layout import HEADER
from linnet.file.tables import Table

if TYPE_CHECKING:
    from pathlib import Path

Names = dict[str, tuple[str, ...]]


def model_of(source: bytes | str | Path) -> Table | None:
    """The table of the model, from a verified file. None if the file is no longer there."""
    if isinstance(source, bytes):
        start, size = HEADER.unpack_from(source)[3:5]
        structure = source[start : start + size]
    else:
        try:
            with open(source, "rb") as file:
                start, size = HEADER.unpack(file.read(HEADER.size))[3:5]
                file.seek(start)
                structure = file.read(size)
        except (OSError, struct.error):  # the file has been removed since it was loaded; it is not needed for a run
            return None
    return tables.root(structure)


def entry_of(source: bytes | str | Path, signature: str) -> tuple[Table, Table] | None:
    """The tables of a signature and its function, from a verified file. None if the signature is no longer there."""
    if (model := model_of(source)) is None:
        return None
    entries = model.tables(tables.MODEL_SIGNATURES)
    entry = next((e for e in entries if e.text(tables.SIGNATURE_NAME) == signature), None)
    if entry is None:
        return None
    return entry, list(model.tables(tables.MODEL_FUNCTIONS))[entry.number(tables.SIGNATURE_FUNCTION)]


def read(source: bytes | str | Path, signature: str) -> Names:
    """The names of each input's dimensions, "" for a dimension without a name. Inputs without any names are left
    out."""
    found: Names = {}
    if (both := entry_of(source, signature)) is not None:
        entry, function = both
        tensors = list(function.tables(tables.FUNCTION_TENSORS))
        inputs = function.numbers(tables.FUNCTION_INPUTS)
        for name, index in zip(entry.texts(tables.SIGNATURE_INPUTS), inputs, strict=True):
            names = tuple(tensors[index].texts(tables.TENSOR_DIM_NAMES))
            if any(names):
                found[name] = names
    return found


def assigns(source: bytes | str | Path, signature: str) -> bool:
    """Whether the signature updates variables. If it does, its gradients rely on equal sizes for equal names."""
    both = entry_of(source, signature)
    nodes = both[1].tables(tables.FUNCTION_NODES) if both is not None else ()
    return any(node.short(tables.NODE_OP) == OPS["assign"]["id"] for node in nodes)


def mismatches(names: Mapping[str, Sequence[str]], shapes: Mapping[str, Sequence[int]]) -> list[Mismatch]:
    """Every name that has more than one size, each reported once."""
    seen: dict[str, tuple[str, int, int]] = {}
    found: dict[str, Mismatch] = {}
    for name, shape in shapes.items():
        for axis, (dim, size) in enumerate(zip(names.get(name, ()), shape, strict=False)):
            if not dim:
                continue
            first = seen.setdefault(dim, (name, axis, size))
            if first[2] != size:
                found.setdefault(dim, Mismatch(dim, first, (name, axis, size)))
    return list(found.values())


class Mismatch(NamedTuple):
    """Two dimensions with the same name, each with its input, axis and size."""

    dim: str
    first: tuple[str, int, int]
    other: tuple[str, int, int]

    def __str__(self) -> str:
        (name, axis, size), (other, other_axis, other_size) = self.first, self.other
        return f"{self.dim!r} is {size} as axis {axis} of input {name!r} and {other_size} as axis {other_axis} of input {other!r}"

    def error(self, hint: str) -> UsageError:
        """The error of a session that requires equal names to have equal sizes."""
        (name, axis, size), (other, other_axis, other_size) = self.first, self.other
        return UsageError(
            f"dimension {self.dim!r} has two different sizes",
            code=104,
            tensor=other,
            expected=f"{size}, the size of axis {axis} of input {name!r}",
            got=f"{other_size} at axis {other_axis} of input {other!r}",
            hint=hint,
        )


def text_of(found: Sequence[Mismatch]) -> str:
    """The text of the warning."""
    return (
        f"open dimensions with the same name have different sizes: {'; '.join(map(str, found))}. The run continues "
        "with these sizes; give strict_dims=True to get an error instead"
    )
