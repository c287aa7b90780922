"""The beginning of a run of `fit`: gets the model and the data from its arguments, and prepares a new directory or
resumes from an existing one."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from linnet.clib.errors import Error, FileError, UsageError
from linnet.data.source import Arrays, Source, SourceLike, as_source
from linnet.facade import Graph
from linnet.session.model import Model
from linnet.training import directory_lock, manifest
from linnet.training.run import TrainingRun


def model_of(model: Any) -> tuple[Model, Graph | None]:
    """The model, and the graph from which it was made, if any."""
    if callable(model) and not isinstance(model, Graph | Model):
        model = model()
        if not isinstance(model, Graph):
            raise UsageError(
                "the function must return a graph", code=101, expected="a linnet.Graph", got=type(model).__name__
            )
    if isinstance(model, Model):
        return model, None
    if not isinstance(model, Graph):
        return Model(model), None
    return Model(model), model


def source_of(data: Any, inputs: Sequence[Any]) -> Source:
    """The data as a source, from which a fraction can be taken."""
    if isinstance(data, Mapping):
        return Arrays(data)
    if isinstance(data, SourceLike) and not isinstance(data, type):
        return as_source(data)
    if isinstance(data, Sequence) and len(data) == len(inputs):
        return Arrays({spec.name: value for spec, value in zip(inputs, data, strict=True)})
    raise UsageError(
        "validation cannot be a fraction of this kind of data", code=101, expected="arrays or a source",
        got=type(data).__name__, hint="pass the validation data itself",
    )  # fmt: skip


def total_of(epochs: int | None, steps: int | None, length: int | None, accumulate: int) -> int | None:
    """Number of steps of the whole run, or None if only the data determines it."""
    found = [steps] if steps is not None else []
    if epochs is not None and length is not None:
        found.append(epochs * -(-length // accumulate))
    return min(found, default=None)


def begin(run: TrainingRun, resume: bool | str | Path, description: dict[str, Any], held: contextlib.ExitStack) -> None:
    """Prepares the run's directory and starting point. The directory stays locked until `held` is closed. Raises
    UsageError if another process trains there, or if the directory holds another run. If no step of a new run succeeds,
    `run.forget` removes the files that this function wrote, so that a corrected run can use the directory."""
    directory = run.directory
    if directory is None:
        if resume is True:
            raise UsageError("resume needs a directory", code=101, hint="pass directory=")
        if resume:
            run.load(Path(resume))
        return
    existed = directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        held.enter_context(directory_lock.locked(directory))
        latest, old = run.checkpoint(), (directory / manifest.NAME).exists()
        if resume is True and (latest is not None or old):
            if latest is not None:
                run.load(latest)
                content = manifest.resume(directory, description, run.step, run.options)
            else:  # the run ended before its first checkpoint
                content = manifest.describe(description, run.options)
            run.metrics.go_on(run.step)
        elif latest is not None or old:
            raise UsageError(
                f"'{directory}' already holds a run", code=101, tensor=str(directory),
                got=f"its checkpoint {latest.name}" if latest is not None else "its manifest",
                hint="continue it with resume=True, or give another directory",
            )  # fmt: skip
        else:
            content = manifest.describe(description, run.options)
            if resume is not True and resume:
                run.load(Path(resume))
                content["from"] = str(resume)
            run.begun, run.forget = run.step, partial(_forget, run.metrics.path, directory, existed)
        manifest.write(directory, content)
    except OSError as error:
        if isinstance(error, Error):
            raise
        raise FileError(
            f"cannot write to '{directory}': {error.strerror or error}", code=207, tensor=str(directory),
            hint="give a folder that you can write to",
        ) from None  # fmt: skip


def _forget(metrics: Path | None, directory: Path, existed: bool) -> None:
    """Removes the files of a run that made no step. Also removes the directory if the run created it and it holds
    nothing else."""
    for path in (directory / manifest.NAME, directory / directory_lock.NAME, metrics):
        if path is not None:
            path.unlink(missing_ok=True)
    if not existed:
        with contextlib.suppress(OSError):  # a callback has written something
            directory.rmdir()
