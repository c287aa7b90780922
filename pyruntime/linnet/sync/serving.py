"""A server that `linnet.fit` runs: in a thread beside worker 0, or as the whole of a process, until the workers have left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from linnet.model import Model, Store
from linnet.sync.link import Link
from linnet.sync.roles import Cluster
from linnet.sync.server import Server
from linnet.sync.strategy import Strategy

_GRACE = 10.0  # seconds that workers have to come (again) when none is there


class Serving:
    """The server of this process, which listens. members: workers in each group. folder: for snapshots and journal, or None.
    batch: examples of all workers in a step, which it shares out by speed; 0: it does not."""

    def __init__(
        self, model: Model, cluster: Cluster, strategy: Strategy, members: int, folder: Path | None, link: Link, batch: int
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
        self._before = {w["worker"]: w["step"] for w in self._server.status()["workers"]}  # of an earlier start

    @property
    def model(self) -> Model:
        """What it serves."""
        return self._server.model

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return self._server.addresses

    @property
    def store(self) -> Store:
        """Its variables."""
        return self._server.store

    @contextlib.contextmanager
    def running(self) -> Iterator[Serving]:
        """Serves in a thread meanwhile, and then tells workers that the job is over, unless it ended by an error or was told to
        end. What ends the server by itself is raised at the end."""
        with self._server:
            yield self
            self._server.stop(over=self._over)

    def wait_for_the_workers(self, wanted: Callable[[], bool] | None = None) -> None:
        """Until all workers have been here and left, or a while after the last has where some never came; or until `wanted`
        says no, or worker 0 has left and nothing has moved for long: it stopped early, and the others wait for it. With `wanted`
        it waits for the first as long as it takes. Raises what has ended the server."""
        came: set[int] = set()
        left = moved = time.monotonic()
        version = -1
        while (wanted is None or wanted()) and not self._server.wait(0.02):
            status = self._server.status()
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
                return
        self._over = wanted is None or wanted()
