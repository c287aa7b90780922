"""Checkpoints: the variables of a store in a file of their own, with the digest of their model (docs/format.md).
The C library writes and loads them (Store.save, Store.load)."""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, library, new_struct
from linnet.file import tables
from linnet.file.layout import CHECKPOINT_KEY, HEADER


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint. variables: values by name (bf16 as ml_dtypes.bfloat16). metadata: text saved with them, for
    example the step. model: the digest of the model to which the checkpoint belongs; the model's metadata("digest") is
    the same."""

    variables: dict[str, npt.NDArray[Any]]
    metadata: dict[str, str]
    model: str


def save(store: Any, path: str | Path, variables: Sequence[str] | None, metadata: Mapping[str, object] | None) -> None:
    """Implements Store.save for a C store."""
    config, error = new_struct("linnet_checkpoint_config"), ffi.new("linnet_error *")
    if isinstance(variables, str):
        raise UsageError(
            "variables is a string", code=101, expected="a list of names", got=variables,
            hint=f"[{variables!r}]",
        )  # fmt: skip
    names = [ffi.new("char[]", name.encode()) for name in variables or ()]
    words = [ffi.new("char[]", str(word).encode()) for pair in (metadata or {}).items() for word in pair]
    name_list, word_list = ffi.new("char *[]", [*names, ffi.NULL]), ffi.new("char *[]", [*words, ffi.NULL])
    if variables is not None:
        config.variables, config.variable_count = name_list, len(names)
    config.metadata, config.metadata_count = word_list, len(words) // 2
    if library().linnet_store_save(store, os.fsencode(path), config, error):
        raise exception(error)


def load(store: Any, path: str | Path) -> dict[str, str]:
    """Implements Store.load for a C store."""
    error = ffi.new("linnet_error *")
    while True:
        before = _metadata(path)
        if library().linnet_store_load(store, os.fsencode(path), error):
            raise exception(error)
        if before == _metadata(path):  # otherwise the file was replaced in the meantime
            return before


def _metadata(path: str | Path) -> dict[str, str]:
    """The metadata saved with a checkpoint. Empty for a file that is not a checkpoint; the C library reports that
    error."""
    try:
        # without O_NONBLOCK, opening a named pipe would wait until another process writes to it
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            start, size = HEADER.unpack(file.read(HEADER.size))[3:5]
            content = file.read(min(start + size, os.fstat(file.fileno()).st_size) - HEADER.size)
        pairs = tables.root(content).tables(tables.MODEL_METADATA)  # the structure follows the header
        found = {pair.text(tables.PAIR_KEY): pair.text(tables.PAIR_VALUE) for pair in pairs}
        return {key: value for key, value in found.items() if key != CHECKPOINT_KEY}
    except (OSError, struct.error, IndexError, ValueError):
        return {}
