"""What several servers trained, as one model again: the inverse of `partition`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.errors import UsageError
from linnet.graph import Graph
from linnet.model import Model, Store
from linnet.sync import contract

Values = Mapping[str, npt.NDArray[Any]] | Store


def join(model: Graph | str | Path, servers: Sequence[tuple[Graph | str | Path, Values | str | Path]]) -> Graph:
    """The whole model with the values that its servers have.

    model: the file or graph that was given to `partition`; it stays as it is. servers: for each of its parts the graph or
    file, and its variables: a checkpoint (a server's snapshot is one), or arrays by name (as a Store has them).
    Counters of steps that every server has are those of the first. Raises UsageError for a part of another model, for rows
    that are missing or there twice, and FileError.
    """
    from linnet.checkpoint import load_checkpoint

    whole = Graph.load(model) if not isinstance(model, Graph) else model.copy()
    job = whole.metadata.get(contract.JOB) or str(Model(model).metadata("digest"))
    found: dict[str, list[tuple[int, npt.NDArray[Any]]]] = {}
    for k, (file, values) in enumerate(servers):
        part = file if isinstance(file, Graph) else Graph.load(file)
        if part.metadata.get(contract.JOB) != job:
            raise UsageError(
                "a server's file is a part of another model", code=101, tensor=f"servers[{k}]", expected=f"a part of {job}",
                got=f"one of {part.metadata.get(contract.JOB) or 'nothing'}", hint="take the parts of this very model",
            )  # fmt: skip
        held = load_checkpoint(values).variables if isinstance(values, str | Path) else values
        for name, variable in part.variables.items():
            first = int(part.metadata.get(contract.FIRST_ROW + name, -1))
            found.setdefault(name, []).append((first, np.asarray(held[name]) if name in held else variable.value))
    for name, pieces in found.items():
        whole.variables[name].value = _joined(name, pieces, whole.variables[name].value.shape)
    return whole


def _joined(name: str, pieces: list[tuple[int, npt.NDArray[Any]]], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The value of a variable from its parts: (first row, rows); -1 for one that is whole."""
    pieces = sorted(pieces, key=lambda piece: piece[0])
    if pieces[0][0] < 0:
        return pieces[0][1]
    ends = [0, *np.cumsum([len(rows) for _, rows in pieces]).tolist()]
    if [first for first, _ in pieces] != ends[:-1] or ends[-1] != shape[0]:
        raise UsageError(
            "the parts of this variable are not all of it, once", code=104, tensor=name, expected=f"{shape[0]} rows from 0 on",
            got=", ".join(f"{first} to {first + len(rows) - 1}" for first, rows in pieces),
            hint="give every server's part once",
        )  # fmt: skip
    return np.concatenate([rows for _, rows in pieces])
