"""`load_checkpoint`: reads a checkpoint without its model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from linnet.clib.errors import FileError
from linnet.file.checkpoint import Checkpoint
from linnet.file.layout import CHECKPOINT_KEY
from linnet.file.reader import from_bytes, read_linnet
from linnet.session.model import Model


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Reads and verifies a checkpoint without its model. Raises FileError if the file is missing, truncated, damaged or
    not a checkpoint."""
    content = read_linnet(Path(path))
    graph = from_bytes(content, str(path), verify=False)
    Model(content, verify=True)
    metadata = dict(graph.metadata)
    if CHECKPOINT_KEY not in metadata:
        raise FileError(
            f"'{path}' is a model, not a checkpoint",
            code=208,
            tensor=str(path),
            hint="open it with linnet.Model",
        )
    variables = {name: np.array(variable.value) for name, variable in graph.variables.items()}
    return Checkpoint(variables, metadata, metadata.pop(CHECKPOINT_KEY))
