"""A server of a training job. It holds parameters and their optimizer state, and applies the gradients that workers
push."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from linnet.clib.arguments import at_least
from linnet.clib.errors import Error, UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, new_struct
from linnet.facade import Graph
from linnet.session.model import Model, Store, string_of
from linnet.sync._library import sync_library
from linnet.sync.link import Link, c_text, c_texts

MODES: Final = ("synchronous", "asynchronous")
DURABILITIES: Final = ("journal", "fsync", "volatile")


class Server:
    """Serves the variables that the model's `update/...` signatures change. It listens as soon as it is created. `with`
    or `start` runs it in a thread of its own, `run` in the calling thread.

    model: a file from linnet.sync.signatures, or one of the server files from linnet.sync.shard.
    listen: one or several addresses ("host:port", ":0" for loopback and a free port, "unix:PATH", "shm:PATH").
    mode: "synchronous": each update uses the mean of one push from each member of a group. "asynchronous": every push
        is an update, and a worker may be `staleness` steps ahead of the slowest (None: no limit).
    workers: number of workers that must join before a step begins.
    quorum: number of pushes that complete a step; later pushes are dropped. 0: the number of members.
    elastic: stop waiting for a worker that is lost.
    folder: for snapshots and the journal, from which another server can resume; None: nothing is stored.
    durability: "journal": an update is written to the journal before it is acknowledged. "fsync": the journal is also
        flushed to disk. "volatile": there are only snapshots.
    save_every: updates between two snapshots; 0: only on request and at the end.
    batch: number of examples in a global batch, which is divided among workers by speed.
    max_bytes: limit for gradients in transit.
    max_workers: maximum number of connections; 0: 4096.
    plain: whether gradients must not be compressed.
    metrics: an address from which Prometheus fetches metrics.
    threads: number of threads that apply updates.
    repair: resume from the intact part of a damaged journal. The damaged file is kept in the same folder, under another
        name. Workers that know later steps are rejected. `status()["left_out"]` is the number of lost journal bytes.
        Without repair, a damaged journal is an error.
    Raises SyncError, FileError, UsageError.
    """

    def __init__(
        self,
        model: str | Path | bytes | Graph | Model,
        *,
        listen: str | Sequence[str] = ":0",
        mode: str = "synchronous",
        workers: int = 1,
        quorum: int = 0,
        elastic: bool = False,
        staleness: int | None = None,
        folder: str | Path | None = None,
        durability: str = "journal",
        save_every: int = 0,
        batch: int = 0,
        max_bytes: int = 1 << 30,
        max_workers: int = 0,
        plain: bool = False,
        metrics: str | None = None,
        threads: int | None = None,
        store: Store | None = None,
        link: Link | None = None,
        repair: bool = False,
    ) -> None:
        self._pointer: Any = None
        self._thread: threading.Thread | None = None
        self._failure: Error | None = None
        _choose("mode", mode, MODES)
        _choose("durability", durability, DURABILITIES)
        self.model = model if isinstance(model, Model) else Model(model)
        self.model.refuse_checkpoint()
        if store is not None and store.model is not self.model:
            raise UsageError(
                "the store belongs to another model", code=101, hint="create both from the same linnet.Model object"
            )
        self.store = store if store is not None else Store(self.model)
        lib, keep, error = sync_library(), list[Any](), ffi.new("linnet_error *")
        config = new_struct("linnet_server_config")
        config.link = (link or Link()).config(keep)
        addresses = [listen] if isinstance(listen, str) else list(listen)
        config.listen, config.listen_count = c_texts(addresses, keep), len(addresses)
        config.mode, config.durability = MODES.index(mode), DURABILITIES.index(durability)
        config.workers, config.quorum, config.elastic = at_least("workers", workers, 1), quorum, bool(elastic)
        config.staleness = -1 if staleness is None else staleness
        config.save_every, config.batch = save_every, batch
        config.max_bytes, config.max_workers = at_least("max_bytes", max_bytes, 0), max_workers
        config.plain = bool(plain)
        config.threads, config.repair = threads or 0, bool(repair)
        if folder is not None:
            config.folder = c_text(str(folder), keep)
        if metrics is not None:
            config.metrics = c_text(metrics, keep)
        out = ffi.new("linnet_server **")
        if lib.linnet_server_create(self.model.pointer, self.store.pointer, config, out, error):
            raise exception(error)
        self._pointer = out[0]

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except Error:
            if value is None:
                raise
        finally:
            self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def addresses(self) -> list[str]:
        """The addresses at which the server listens, with the ports that the system chose."""
        found: list[str] = []
        while (text := sync_library().linnet_server_address(self._alive(), len(found))) != ffi.NULL:
            found.append(string_of(text))
        return found

    @property
    def address(self) -> str:
        """The first of `addresses`."""
        return self.addresses[0]

    @property
    def metrics_address(self) -> str | None:
        """The address (host:port) for Prometheus, or None."""
        text = sync_library().linnet_server_address(self._alive(), -1)
        return None if text == ffi.NULL else string_of(text)

    def _alive(self) -> Any:
        if not self._pointer:
            raise UsageError("the server is closed", code=101, hint="create a new one")
        return self._pointer

    def run(self, updates: int = 0) -> None:
        """Serves until another thread calls `stop`, or until `updates` updates were made. At the end it writes a
        snapshot, if it has a folder. Raises SyncError (superseded), FileError (write_failed), and errors of updates."""
        error = ffi.new("linnet_error *")
        if sync_library().linnet_server_run(self._alive(), updates, error):
            raise exception(error)

    def start(self, updates: int = 0) -> None:
        """Calls `run` in a thread of its own. `stop` and `wait` raise the errors of this thread."""
        if self._thread is not None:
            raise UsageError("the server is already running", code=101)

        def serve() -> None:
            try:
                self.run(updates)
            except Error as failure:
                self._failure = failure

        self._thread = threading.Thread(target=serve, name="linnet server", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the server has ended by itself. Returns False if that takes longer than `timeout` seconds."""
        thread = self._thread  # several threads may wait
        if thread is not None:
            thread.join(timeout)
            if thread.is_alive():
                return False
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return True

    def stop(self, over: bool = False) -> None:
        """Ends `run` or `start`, after a snapshot if it has a folder. over: the job has ended, and workers are told so
        (status "job_over", as after `updates`). If over is false, workers wait for the server to come back."""
        if self._pointer:
            sync_library().linnet_server_stop(self._pointer, int(over))
        self.wait()

    def save(self) -> None:
        """Writes a snapshot now. Raises FileError (write_failed), UsageError (no folder)."""
        error = ffi.new("linnet_error *")
        if sync_library().linnet_server_save(self._alive(), error):
            raise exception(error)

    def status(self) -> dict[str, Any]:
        """The server's members, steps, versions, bytes and times. docs/protocol.md lists the keys."""
        size = 1 << 14
        while True:
            text = ffi.new("char[]", size)
            needed = sync_library().linnet_server_status(self._alive(), text, size)
            if needed < size:
                return dict(json.loads(bytes(ffi.string(text))))
            size = int(needed) + (1 << 12)

    def close(self) -> None:
        """Ends the server and closes its connections."""
        pointer, self._pointer = getattr(self, "_pointer", None), None
        if pointer:
            sync_library().linnet_server_stop(pointer, 0)
            thread = self._thread
            if thread is not None:
                thread.join()
            sync_library().linnet_server_free(pointer)


def _choose(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"unknown {name}", code=101, tensor=name, expected=" or ".join(allowed), got=repr(value))
