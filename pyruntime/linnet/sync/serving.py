"""A server that `linnet.fit` runs: in a thread beside worker 0, or as the whole of a process, until the workers have left."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.errors import Error
from linnet.model import Model, Store
from linnet.sync.roles import Cluster
from linnet.sync.strategy import Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

_GRACE = 10.0  # seconds that workers have to come (again) when none is there


class Serving:
    """The server of this process. members: workers in each group. folder: for snapshots and journal, or None."""

    def __init__(self, model: Model, cluster: Cluster, strategy: Strategy, members: int, folder: Path | None) -> None:
        from linnet.sync import Server

        assert cluster.address is not None
        self._workers = cluster.world_size
        self._server = Server(
            model, listen=[cluster.address], mode="asynchronous" if strategy.mode == "asynchronous" else "synchronous",
            workers=members, quorum=members - strategy.backup if strategy.backup else 0, elastic=strategy.elastic,
            staleness=-1 if strategy.staleness is None else strategy.staleness, folder=folder,
            durability=strategy.durability, save_every=strategy.save_every, max_bytes=strategy.max_bytes,
            key_file=cluster.key_file or None,
        )  # fmt: skip
        self._failure: BaseException | None = None

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
        """Serves in a thread meanwhile. What ends the server by itself is raised at the end."""

        def work() -> None:
            try:
                self._server.run()
            except Error as error:
                self._failure = error

        thread = threading.Thread(target=work, name="linnet-server", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.stop()
            thread.join()
            self._server.close()
        if self._failure is not None:
            raise self._failure

    def wait_for_the_others(self, wanted: Callable[[], bool] = lambda: True) -> None:
        """Until all workers have been here and left; or a while after the last has, where some never came. wanted: what may
        end the wait by False."""
        alone = time.monotonic()
        while self._failure is None and wanted():
            status = self._server.status()
            if status["members"]:
                alone = time.monotonic()
            elif len(status["workers"]) >= self._workers or time.monotonic() - alone > _GRACE:
                return
            time.sleep(0.02)
