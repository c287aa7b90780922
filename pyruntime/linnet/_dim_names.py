"""Names of open dimensions in a .lnt file: equal names are equal sizes. The C library does not need them; Python reads them
when a plan is made for shapes that were left open, to say which inputs disagree."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from linnet.errors import UsageError

Names = dict[str, tuple[str, ...]]


def read(source: bytes | str | Path, signature: str) -> Names:
    """Input: the names of its dimensions, "" where one has none; only inputs with names. source: a file that was verified."""
    from linnet._generated.fb import Model
    from linnet.file import HEADER

    if isinstance(source, bytes):
        start, size = HEADER.unpack_from(source)[3:5]
        structure = source[start : start + size]
    else:
        try:
            with open(source, "rb") as file:
                start, size = HEADER.unpack(file.read(HEADER.size))[3:5]
                file.seek(start)
                structure = file.read(size)
        except (OSError, struct.error):  # it was there when it was loaded, and is not needed to run
            return {}
    model = Model.Model.GetRootAs(structure)
    found: Names = {}
    for i in range(model.SignaturesLength()):
        entry = model.Signatures(i)
        if entry.Name().decode() != signature:
            continue
        function = model.Functions(entry.Function())
        for j in range(entry.InputsLength()):
            tensor = function.Tensors(function.Inputs(j))
            names = tuple(tensor.DimNames(k).decode() for k in range(tensor.DimNamesLength()))
            if any(names):
                found[entry.Inputs(j).decode()] = names
    return found


def check(names: Mapping[str, Sequence[str]], shapes: Mapping[str, Sequence[int]]) -> None:
    """Raises UsageError when dimensions of one name have several sizes."""
    seen: dict[str, tuple[str, int, int]] = {}
    for name, shape in shapes.items():
        for axis, (dim, size) in enumerate(zip(names.get(name, ()), shape, strict=False)):
            if not dim:
                continue
            other, place, first = seen.setdefault(dim, (name, axis, size))
            if first != size:
                raise UsageError(
                    f"dimension {dim!r} has two sizes", code=104, tensor=name,
                    expected=f"{first}, as axis {place} of input {other!r}", got=f"{size} as axis {axis} of input {name!r}",
                    hint="dimensions of one name have one size in a run",
                )  # fmt: skip
