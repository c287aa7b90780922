"""A worker of a training job: it pulls parameters, computes gradients on its own data, and pushes them to the servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from linnet._generated.ffi import ffi
from linnet._library import exception
from linnet.errors import UsageError
from linnet.graph import Graph, numpy_dtype
from linnet.model import Array, Model, Store, string_of
from linnet.running import Signals
from linnet.session import Session, _Planned
from linnet.sync._library import sync_library
from linnet.sync.compression import Compression
from linnet.sync.contract import GRAD, GRADIENT, IDS, REMOTE, ROWS, names_in
from linnet.sync.link import Link, c_text, c_texts, milliseconds
from linnet.training.feeding import examples

_OUTCOMES: Final = ("applied", "late", "not_finite")


@dataclasses.dataclass(frozen=True)
class LinkInfo:
    """One server, as a worker sees it. version: updates of its variables that the worker knows of. epoch: how often a server
    was started on this state. offset: the server's clock less ours, in seconds, by the exchange with the shortest delay;
    delay: of that exchange, None before the first. clock: seconds of the server's clock at its last answer: first and last
    push of the step, begin and end of the update, answer."""

    address: str
    shard: int
    connected: bool
    version: int
    epoch: int
    bytes_sent: int
    bytes_received: int
    reconnects: int
    offset: float
    delay: float | None
    clock: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class WorkerInfo:
    """Where a worker stands. worker: its number. step: the one it computes next. version: of its variables, the least of all
    servers'. outcome: of the last push, "applied", "late" (the step was closed without it) or "not_finite"; staleness: updates
    of others between the values it was computed from and itself. applied, late, not_finite: pushes so far. tensors_pulled,
    tensors_same: variables that came, and that were skipped because they had not changed. Seconds of the last step: compute
    (from the values to the push), push (until its last byte was handed over), wait (until the answer), and of the last pull;
    decided: when that answer came, by time.monotonic. share: (first example, examples, examples in all) of the next global
    batch, or None. memory: bytes, besides the store's."""

    worker: int
    step: int
    version: int
    outcome: str
    compression: str
    staleness: int
    applied: int
    late: int
    not_finite: int
    bytes_sent: int
    bytes_received: int
    tensors_pulled: int
    tensors_same: int
    compute: float
    push: float
    wait: float
    pull: float
    decided: float
    share: tuple[int, int, int] | None
    members: int
    memory: int
    links: tuple[LinkInfo, ...]


class Worker:
    """A worker of the job that the servers serve. Use it with `with`, or close it.

    model: a file of linnet.sync.signatures or linnet.sync.partition: path, bytes, Graph or Model. servers: the address of each
    shard's server, in any order ("host:port", ":port", "unix:PATH", "shm:PATH"). store: variables shared with other sessions
    of the same Model; a new one otherwise. number: its own, the same again after a restart; None: the server chooses. group:
    for servers with several. compression: how gradients travel, as linnet.sync.Compression.parse takes it; what is lost is
    added to the next one. read_only: pulls, and is no member that others wait for. keep_pulled: keeps a copy of what was
    pulled, for `round`; as many bytes as the variables. lost: seconds that a server may be out of reach before a call fails.
    timeout: the longest that a call takes, in seconds, other workers' slowness included; None: no limit. name: for people.
    threads, isa_max: of its sessions.
    Connections that break are made again, a step that was pushed twice counts once. One thread at a time uses a worker.
    Raises SyncError (nobody answers, refused, ...), FileError (the servers have another model), UsageError.
    """

    def __init__(
        self,
        model: str | Path | bytes | Graph | Model,
        servers: str | Sequence[str],
        *,
        store: Store | None = None,
        number: int | None = None,
        group: int = 0,
        compression: str | Compression = "none",
        read_only: bool = False,
        keep_pulled: bool = False,
        lost: float = 60.0,
        timeout: float | None = None,
        name: str = "",
        link: Link | None = None,
        threads: int | None = None,
        isa_max: str | None = None,
    ) -> None:
        self.model = model if isinstance(model, Model) else Model(model)
        if store is not None and store.model is not self.model:
            raise UsageError(
                "the store belongs to another model", code=101, hint="make both of one linnet.Model object"
            )
        self.store = store if store is not None else Store(self.model)
        self._options: dict[str, Any] = {"store": self.store, "threads": threads, "isa_max": isa_max}
        self._sessions: dict[str, Session] = {}
        self._last: _Planned | None = None
        self._remote = names_in({REMOTE: self.model.metadata(REMOTE) or ""}, REMOTE)
        lib, keep, error = sync_library(), list[Any](), ffi.new("linnet_error *")
        config, chosen = ffi.new("linnet_worker_config *"), Compression.parse(compression)
        lib.linnet_worker_config_init(config)
        (link or Link()).fill(config.link, keep)
        config.worker = -1 if number is None else number
        config.group, config.read_only, config.keep_pulled = group, int(read_only), int(keep_pulled)
        config.compression, config.fraction = chosen.encoding, chosen.fraction
        config.lost_ms, config.timeout_ms = milliseconds("lost", lost), milliseconds("timeout", timeout)
        config.name = c_text(name, keep)
        self._signal = Signals()
        config.interrupted = self._signal.callback
        addresses = [servers] if isinstance(servers, str) else list(servers)
        out = ffi.new("linnet_worker **")
        names = c_texts(addresses, keep)
        if lib.linnet_worker_create(self.model.pointer, self.store.pointer, names, len(addresses), config, out, error):
            raise self._signal.taken() or exception(error)
        self._pointer: Any = out[0]

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self.close()

    def close(self) -> None:
        """Leaves the job in order: nobody waits for this worker any more."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            sync_library().linnet_worker_free(pointer)

    def _call(self, function: str, *arguments: Any) -> None:
        if not self._pointer:
            raise UsageError("the worker is closed", code=101, hint="make another one")
        error = ffi.new("linnet_error *")
        if getattr(sync_library(), function)(self._pointer, *arguments, error):
            raise self._signal.taken() or exception(error)

    def pull(self) -> None:
        """Brings the store's variables to the servers' newest values; what has not changed does not travel."""
        self._call("linnet_worker_pull")

    def pull_rows(self, table: str, rows: npt.ArrayLike) -> Array:
        """Rows of a table by their numbers [n] -> [n, ...], whether this model holds the table or not."""
        numbers = np.ascontiguousarray(rows, np.int64).reshape(-1)
        info = self._table(table)
        result = np.empty((numbers.size, *info[0]), info[1])
        where, data = ffi.from_buffer("int64_t[]", numbers), ffi.from_buffer(result, require_writable=True)
        self._call("linnet_worker_pull_rows", table.encode(), where, numbers.size, data, result.nbytes)
        return result

    def _table(self, table: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape of a row, and dtype: of the variable, or of the input that its rows are fed to."""
        for spec in self.model.variables:
            if spec.name == table and spec.shape:
                return tuple(d or 0 for d in spec.shape[1:]), numpy_dtype(spec.dtype)
        for spec in self.model.inputs(GRAD):
            if spec.name == ROWS + table and spec.shape:
                return tuple(d or 0 for d in spec.shape[1:]), numpy_dtype(spec.dtype)
        raise UsageError(f"there is no table {table!r}", code=102, tensor=table, expected=" or ".join(self._remote))

    def session(self, signature: str = GRAD) -> Session:
        """The session of a signature over the worker's store; made when it is first asked for."""
        if signature not in self._sessions:
            self._sessions[signature] = Session(self.model, signature, **self._options)
        return self._sessions[signature]

    def _looked_up(self, feeds: Mapping[str, npt.ArrayLike]) -> tuple[_Planned | None, dict[str, tuple[int, ...]]]:
        """The filled plan of `ids`, and the shapes of the inputs that rows will come to."""
        if not self._remote:
            return None, {}
        session = self.session(IDS)
        wanted = {spec.name for spec in session.inputs}
        planned = session._filled({name: value for name, value in feeds.items() if name in wanted}, None)
        counts = {name: len(view) for name, view in planned.outputs if view is not None}
        shapes = {f"{ROWS}{t}": (counts[f"{ROWS}{t}/ids"], *self._table(t)[0]) for t in self._remote}
        return planned, shapes

    def step(self, feeds: Mapping[str, npt.ArrayLike], weight: float | None = None) -> dict[str, Array]:
        """One step: newest values, a run of `grad` on the batch, and a push that brings the next values along.

        feeds: the batch. weight: examples behind it, for the mean over workers; None: the first dimension of the first feed.
        Returns the outputs of `grad` less the gradients. `info.outcome` says whether the step counted.
        """
        ids, shapes = self._looked_up(feeds)
        planned = self._last = self.session()._filled(feeds, None, shapes)
        count = weight_of(feeds) if weight is None else weight
        self._call("linnet_worker_step", planned.session, ids.session if ids else ffi.NULL, count)
        return results(planned)

    def push(self, weight: float = 1.0) -> None:
        """Pushes what the last run of `session()` computed, or with keep_pulled and no such run what local steps changed."""
        planned = self.session()._last if GRAD in self._sessions else None
        self._call("linnet_worker_push", planned.session if planned else ffi.NULL, float(weight))

    def round(
        self,
        batches: Iterable[Mapping[str, npt.ArrayLike]] | Callable[[Session], float],
        weight: float | None = None,
        signature: str = "train",
    ) -> dict[str, Array]:
        """A round of federated averaging (McMahan et al. 2017): newest values, local steps, and a push of how far they came.

        batches: feeds of `signature`, each of which is a local step; or a function that is given the session, trains, and
        returns the number of examples. weight: of this worker in the mean; None: the examples that it saw.
        Needs keep_pulled. Returns the outputs of the last local step. The servers' optimizer takes the mean as a gradient:
        SGD(1) is FedAvg, Adam is FedAdam.
        """
        self.pull()
        session, seen, last = self.session(signature), 0.0, dict[str, Array]()
        if callable(batches):
            seen = float(batches(session))
        else:
            for feeds in batches:
                last = session.run(feeds)
                seen += weight_of(feeds)
        self._call("linnet_worker_push", ffi.NULL, float(seen if weight is None else weight))
        return last

    def save(self) -> None:
        """Lets every server write a snapshot, and waits until they have. Raises FileError (write_failed)."""
        self._call("linnet_worker_save")

    @property
    def info(self) -> WorkerInfo:
        """Where it stands."""
        record = ffi.new("linnet_worker_info *")
        if not self._pointer or sync_library().linnet_worker_get_info(self._pointer, record):
            raise UsageError("the worker is closed", code=101, hint="make another one")
        links = tuple(_link_info(record.links[i]) for i in range(record.link_count))
        share = (int(record.first_example), int(record.examples), int(record.batch)) if record.batch else None
        whole = ("worker", "step", "version", "staleness", "applied", "late", "not_finite", "members")
        return WorkerInfo(
            **{name: int(getattr(record, name)) for name in whole},
            outcome=_OUTCOMES[record.outcome],
            compression=Compression.of(record.compression).name,
            bytes_sent=int(record.sent),
            bytes_received=int(record.received),
            tensors_pulled=int(record.tensors_pulled),
            tensors_same=int(record.tensors_same),
            compute=record.compute_ns / 1e9,
            push=record.push_ns / 1e9,
            wait=record.wait_ns / 1e9,
            pull=record.pull_ns / 1e9,
            decided=record.decided_ns / 1e9,
            share=share,
            memory=int(record.bytes),
            links=links,
        )


def _link_info(record: Any) -> LinkInfo:
    return LinkInfo(
        address=string_of(record.address),
        shard=record.shard,
        connected=bool(record.connected),
        version=int(record.version),
        epoch=int(record.epoch),
        bytes_sent=int(record.sent),
        bytes_received=int(record.received),
        reconnects=record.reconnects,
        offset=record.offset_ns / 1e9,
        delay=record.delay_ns / 1e9 if record.delay_ns >= 0 else None,
        clock=tuple(ns / 1e9 for ns in record.clock_ns),
    )


def results(planned: _Planned) -> dict[str, Array]:
    """Copies of the outputs of the last run, less the gradients."""
    return {
        name: planned.output(i) if view is None else view.copy()
        for i, (name, view) in enumerate(planned.outputs)
        if not name.startswith(GRADIENT)
    }


def weight_of(feeds: Mapping[str, npt.ArrayLike]) -> float:
    """How many examples a batch holds, at least 1."""
    return float(max(examples({name: np.asarray(value) for name, value in feeds.items()}), 1))
