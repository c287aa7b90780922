"""Checkpoints: the variables of a store in a file of their own, with the digest of their model (docs/format.md).
The C library writes and takes them (Store.save, Store.load); `load_checkpoint` looks into one without its model."""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet._generated.ffi import ffi
from linnet._library import exception, library
from linnet.errors import FileError, UsageError

MODEL_KEY = "checkpoint_of"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds. variables: name to value (bf16 as uint16); metadata: what it was saved with, e.g. the step;
    model: the digest of the model it belongs to, which is that model's metadata("digest")."""

    variables: dict[str, npt.NDArray[Any]]
    metadata: dict[str, str]
    model: str


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Reads and verifies a checkpoint, without its model. Raises FileError: missing, cut short, damaged, no checkpoint."""
    from linnet.file import from_bytes, read_bytes
    from linnet.model import Model

    content = read_bytes(Path(path))
    graph = from_bytes(content, str(path), verify=False)
    Model(content, verify=True)
    metadata = dict(graph.metadata)
    if MODEL_KEY not in metadata:
        raise FileError(
            f"'{path}' is a model, not a checkpoint of one",
            code=208,
            tensor=str(path),
            hint="open it with linnet.Model",
        )
    variables = {name: np.array(variable.value) for name, variable in graph.variables.items()}
    return Checkpoint(variables, metadata, metadata.pop(MODEL_KEY))


def save(store: Any, path: str | Path, variables: Sequence[str] | None, metadata: Mapping[str, object] | None) -> None:
    """Store.save, for a C store."""
    config, error = ffi.new("linnet_checkpoint_config *"), ffi.new("linnet_error *")
    library().linnet_checkpoint_config_init(config)
    if isinstance(variables, str):
        raise UsageError(
            "the variables are one string", code=101, expected="a list of names", got=variables,
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
    """Store.load, for a C store."""
    error = ffi.new("linnet_error *")
    while True:
        before = _metadata(path)
        if library().linnet_store_load(store, os.fsencode(path), error):
            raise exception(error)
        if before == _metadata(path):  # else it was replaced meanwhile
            return before


def _metadata(path: str | Path) -> dict[str, str]:
    """What a checkpoint was saved with; nothing of a file that is none, which the C library will say."""
    from linnet._generated.fb import Model
    from linnet.file import HEADER

    try:
        # without O_NONBLOCK a pipe would be waited for until somebody writes into it
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            start, size = HEADER.unpack(file.read(HEADER.size))[3:5]
            content = file.read(min(start + size, os.fstat(file.fileno()).st_size) - HEADER.size)
        model = Model.Model.GetRootAs(content)  # the structure follows the header
        pairs = [model.Metadata(i) for i in range(model.MetadataLength())]
        return {p.Key().decode(): p.Value().decode() for p in pairs if p.Key().decode() != MODEL_KEY}
    except (OSError, struct.error, IndexError, ValueError, TypeError, AttributeError):
        return {}
