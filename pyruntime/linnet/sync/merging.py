"""Merges the values that several servers trained into one model: the inverse of `shard`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.facade import Graph
from linnet.ir.user_op import named_in
from linnet.session.model import Model, Store
from linnet.sync import contract

Values = Mapping[str, npt.NDArray[Any]] | Store


def merge(model: Graph | str | Path, servers: Sequence[tuple[Graph | str | Path, Values | str | Path]]) -> Graph:
    """Returns the whole model with the values of its servers.

    model: the file or graph that was given to `shard`; it is not changed. servers: a pair for each part. Its first
    item is the graph or file. Its second item has the variables, as a checkpoint (for example a server's snapshot) or
    as arrays by name (for example a Store). If every server has a step counter, the value of the first server is taken.
    Raises UsageError if a part belongs to another model, or if rows are missing or present twice. Raises FileError.
    """
    from linnet.session.checkpoint import load_checkpoint

    whole = Graph.load(model) if not isinstance(model, Graph) else model.copy()
    job = whole.metadata.get(contract.JOB) or str(Model(model, user_ops=named_in(whole)).metadata("digest"))
    found: dict[str, list[tuple[int, npt.NDArray[Any]]]] = {}
    for k, (file, values) in enumerate(servers):
        part = file if isinstance(file, Graph) else Graph.load(file)
        if part.metadata.get(contract.JOB) != job:
            raise UsageError(
                "a server's file belongs to a different model",
                code=101,
                tensor=f"servers[{k}]",
                expected=f"a part of {job}",
                got=f"a part of {part.metadata.get(contract.JOB) or 'nothing'}",
                hint="use the parts of this model",
            )
        held = load_checkpoint(values).variables if isinstance(values, str | Path) else values
        for name, variable in part.variables.items():
            first = int(part.metadata.get(contract.FIRST_ROW + name, -1))
            found.setdefault(name, []).append((first, np.asarray(held[name]) if name in held else variable.value))
    for name, pieces in found.items():
        whole.variables[name].value = _joined(name, pieces, whole.variables[name].value.shape)
    return whole


def _joined(name: str, pieces: list[tuple[int, npt.NDArray[Any]]], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The value of a variable from its parts (first row, rows). The first row is -1 if the part is the whole
    variable."""
    pieces = sorted(pieces, key=lambda piece: piece[0])
    if pieces[0][0] < 0:
        return pieces[0][1]
    ends = [0, *np.cumsum([len(rows) for _, rows in pieces]).tolist()]
    if [first for first, _ in pieces] != ends[:-1] or ends[-1] != shape[0]:
        raise UsageError(
            "the parts of this variable have missing or repeated rows", code=104, tensor=name, expected=f"{shape[0]} "
                                                                                                  "rows, starting "
                                                                                                  "at 0",
            got=", ".join(f"{first} to {first + len(rows) - 1}" for first, rows in pieces),
            hint="give the part of every server exactly once",
        )  # fmt: skip
    return np.concatenate([rows for _, rows in pieces])
