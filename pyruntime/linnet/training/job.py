"""Interfaces (typing.Protocol) of a job with several processes, as `fit` uses it. The jobs themselves are in linnet.sync, which
this package must not import."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from linnet.facade import Graph
from linnet.session.model import Model, Store
from linnet.training.feeding import Feed
from linnet.training.run import RunParts, TrainingRun


class Serving(Protocol):
    """A server of variables in this process (linnet.sync.serving)."""

    @property
    def model(self) -> Model: ...
    @property
    def store(self) -> Store: ...
    @property
    def records(self) -> list[dict[str, float]]: ...
    def running(self) -> contextlib.AbstractContextManager[Any]: ...
    def wait_for_the_workers(self, wanted: Callable[[], bool] | None = None) -> None: ...


class Company(Protocol):
    """This process's part in a job: what `fit` does differently from training in one process (linnet.sync.fitting)."""

    model: Model
    signature: str

    @property
    def serves_only(self) -> bool: ...
    @property
    def again(self) -> bool: ...
    def begun(self) -> None: ...
    def directory(self, place: Path | None) -> Path | None: ...
    def share(self, feed: Feed) -> Feed: ...
    def serving(self, directory: Path | None, resumed: bool) -> Serving: ...
    def run(self, parts: RunParts) -> TrainingRun: ...


class Cluster(Protocol):
    """The place of this process in its job (linnet.sync.Cluster). strategy: a linnet.sync.Strategy, or None."""

    @property
    def local_device(self) -> str: ...
    @property
    def alone(self) -> bool: ...
    @property
    def is_chief(self) -> bool: ...
    def company(
        self, strategy: Any, model: Model, graph: Graph | None, accumulate: int, train: str, batch_size: int
    ) -> Company: ...
