"""The server that `linnet.fit` runs until the workers have left. It is a thread of worker 0, or a process of its
own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from linnet.session.model import Model, Store
from linnet.sync.link import Link
from linnet.sync.server import Server
from linnet.sync.strategy import Strategy


class Place(Protocol):
    """The part of linnet.sync.Cluster that this package uses: the place of this process in its job."""

    @property
    def role(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def servers(self) -> tuple[str, ...]: ...
    @property
    def key_file(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def is_chief(self) -> bool: ...
    @property
    def address(self) -> str | None: ...


_GRACE = 10.0  # seconds that workers have to connect (again) when none is connected
_RECORD = 1.0  # seconds between two records of the history


class Serving:
    """The server of this process. It listens as soon as it is created. members: number of workers in each group.
    folder: for snapshots and journal, or None. batch: examples of all workers in a step, divided among them by speed;
    0: not divided."""

    def __init__(
        self, model: Model, cluster: Place, strategy: Strategy, members: int, folder: Path | None, link: Link, batch: int
    ) -> None:  # fmt: skip
        assert cluster.address is not None
        self._workers = cluster.world_size
        self._server = Server(
            model, listen=cluster.address, mode="asynchronous" if strategy.mode == "asynchronous" else "synchronous",
            workers=members, quorum=members - strategy.backup if strategy.backup else 0, elastic=strategy.elastic,
            staleness=strategy.staleness, folder=folder, durability=strategy.durability,
            save_every=strategy.save_every if folder is not None else 0, max_bytes=strategy.max_bytes, link=link,
            batch=batch,
        )  # fmt: skip
        self._over, self._patience = True, strategy.lost
        self._records: list[dict[str, float]] = []
        self._recorded = (0.0, 0.0, time.monotonic())  # sums of losses and of weights, and when
        self._before = {w["worker"]: w["step"] for w in self._server.status()["workers"]}  # from an earlier start

    @property
    def model(self) -> Model:
        """The model that the server serves."""
        return self._server.model

    @property
    def addresses(self) -> list[str]:
        """The addresses at which the server listens."""
        return self._server.addresses

    @property
    def records(self) -> list[dict[str, float]]:
        """The records, at most one per second. A record has the step, and the mean loss of the steps since the previous
        record."""
        return self._records

    @property
    def store(self) -> Store:
        """The server's variables."""
        return self._server.store

    @contextlib.contextmanager
    def running(self) -> Iterator[Serving]:
        """A context in which the server runs in a thread. At the end it tells workers that the job is over, unless it
        ended with an error or was told to end. An error that ended the server is raised at the end of the context."""
        with self._server:
            yield self
            self._server.stop(over=self._over)

    def wait_for_the_workers(self, wanted: Callable[[], bool] | None = None) -> None:
        """Waits until all workers have connected and left. If some never connect, the wait ends some time after the
        last one has left. The wait also ends if `wanted` returns False. It also ends if worker 0 has left and nothing
        has happened for a long time, because then worker 0 has stopped early and the other workers wait for it. If
        `wanted` is given, the wait for the first worker has no time limit. Raises the error that ended the server."""
        came: set[int] = set()
        left = moved = time.monotonic()
        version = -1
        while (wanted is None or wanted()) and not self._server.wait(0.02):
            status = self._server.status()
            self._record(status)
            came |= {
                w["worker"] for w in status["workers"] if w["member"] or w["step"] > self._before.get(w["worker"], 0)
            }
            led = any(w["worker"] == 0 and (w["member"] or w["connected"]) for w in status["workers"])
            if led or 0 not in came or status["version"] != version:
                version, moved = status["version"], time.monotonic()
            elif time.monotonic() - moved > self._patience:
                return
            if status["members"] or (wanted is not None and not came):
                left = time.monotonic()
            elif len(came) >= self._workers or time.monotonic() - left > _GRACE:
                self._record(status, last=True)
                return
        self._over = wanted is None or wanted()

    def _record(self, status: dict[str, Any], last: bool = False) -> None:
        """Adds a record if workers have reported losses since the last one. While the server runs, at most one per
        second."""
        losses, weights, then = self._recorded
        now = time.monotonic()
        if not last and now - then < _RECORD:
            return
        sums = [sum(group[name] for group in status["groups"]) for name in ("losses", "loss_weights")]
        if sums[1] > weights:
            loss = (sums[0] - losses) / (sums[1] - weights)
            self._records.append({"step": status["version"], "loss": loss})
        self._recorded = (sums[0], sums[1], now)
