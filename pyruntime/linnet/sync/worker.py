"""A worker of a training job. It pulls parameters, computes gradients on its own data, and pushes them to the
servers."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import exception, new_struct
from linnet.facade import Graph
from linnet.ir.dtypes import has_floats, numpy_dtype
from linnet.ir.exact import numbers_of
from linnet.session.device import Device
from linnet.session.model import Array, Model, Store, string_of
from linnet.session.options import SessionOptions
from linnet.session.planned import Planned
from linnet.session.running import Signals
from linnet.session.session import Session
from linnet.sync._library import sync_library
from linnet.sync.compression import Compression
from linnet.sync.contract import GRAD, GRADIENT, IDS, REMOTE, ROWS, names_in
from linnet.sync.link import Link, c_text, c_texts, milliseconds
from linnet.training.feeding import examples

_OUTCOMES: Final = ("applied", "late", "not_finite")


@dataclasses.dataclass(frozen=True)
class LinkInfo:
    """One server, as seen by a worker. version: number of updates of its variables that the worker knows. epoch: how
    many times a server was started on this state. offset: the server's clock minus the worker's clock in seconds, from
    the exchange with the shortest delay. delay: delay of this exchange in seconds; None before the first exchange.
    clock: times in seconds on the server's clock, from its last reply: the first and the last push of the step, the
    beginning and the end of the update, and the reply."""

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
    """The state of a worker.
    worker: its number.
    compression: the compression of gradients. pull_compression: the compression of pulled values. All servers agreed on
    both.
    step: number of the next step to compute.
    version: version of its variables; with several servers, the lowest one.
    outcome: result of the last push: "applied", "late" (the step was closed without it) or "not_finite".
    staleness: number of updates that other workers made between the pull of the values and the last push.
    applied, late, not_finite: number of pushes so far.
    tensors_pulled, tensors_same: number of variables that were received, and number of those that were skipped because
        they had not changed. Seconds of the last step: compute (from receiving the values to the push), push (until its
        last byte was sent), wait (until the reply), and pull (the last pull).
    decided: value of time.monotonic() when the reply to the last push arrived.
    share: (first example, examples, total examples) of the next global batch, or None.
    memory: bytes in use, without the store.
    loss: mean loss of all workers in the step of the last push, with the same weights as their gradients. None if no
        worker has an output `loss`.
    """

    worker: int
    step: int
    version: int
    outcome: str
    compression: str
    pull_compression: str
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
    loss: float | None = None


class Worker:
    """A worker of a job. Use it with `with`, or call close.

    model: a file from linnet.sync.signatures or linnet.sync.shard, as a path, bytes, Graph or Model.
    servers: the address of each shard's server, in any order ("host:port", ":port", "unix:PATH", "shm:PATH").
    store: variables shared with other sessions of the same Model; default: a new one.
    number: number of this worker, which must be the same after a restart; None: the server chooses.
    group: for servers with several groups.
    compression: encoding of gradients, as accepted by linnet.sync.Compression.parse. The error of each encoding is
        added to the next gradient.
    pull_compression: "none", "f16" or "bf16": how servers send f32 variables of 1,024 or more elements, and rows of such
        tables. The store then has the rounded values, and the servers keep f32. Averaged variables are sent as f32.
    writer: this worker only pulls values and puts values (`put`); other workers never wait for it.
    read_only: this worker only pulls values; other workers never wait for it.
    keep_pulled: keep a copy of the pulled values for `round`. This doubles the memory for variables.
    lost: seconds that a server may be unreachable before a call fails.
    timeout: the longest time of a call in seconds, including waiting for slower workers; None: no limit.
    name: for display.
    log: is called with a sentence when the worker begins to wait for a server that refuses it for now, for example
        because another process has its number. It may be called in another thread, and must not use the worker.
        Default: warnings.warn.
    threads, device, isa_max: as in Session, for the worker's sessions. The device computes gradients; servers apply
        them. options: further options of these sessions. Broken connections are made again. A step that was pushed
        twice counts only once.
        Only one thread at a time may use a worker.
    Raises SyncError (unreachable, refused, ...), FileError (the servers have another model), UsageError.
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
        pull_compression: str | Compression = "none",
        read_only: bool = False,
        writer: bool = False,
        keep_pulled: bool = False,
        lost: float = 60.0,
        timeout: float | None = None,
        name: str = "",
        link: Link | None = None,
        log: Callable[[str], None] | None = None,
        threads: int | None = None,
        device: str | Device | None = None,
        isa_max: str | None = None,
        options: SessionOptions | None = None,
    ) -> None:
        self.model = model if isinstance(model, Model) else Model(model)
        self.model.refuse_checkpoint()
        if store is not None and store.model is not self.model:
            raise UsageError(
                "the store belongs to another model", code=101, hint="create both from the same linnet.Model object"
            )
        self.store = store if store is not None else Store(self.model)
        self._options = SessionOptions.of(options, threads=threads, device=device, isa_max=isa_max)
        self._sessions: dict[str, Session] = {}
        self._last: Planned | None = None
        self._remote = names_in({REMOTE: self.model.metadata(REMOTE) or ""}, REMOTE)
        lib, keep, error = sync_library(), list[Any](), ffi.new("linnet_error *")
        config, chosen = new_struct("linnet_worker_config"), Compression.parse(compression)
        config.link = (link or Link()).config(keep)
        config.worker = -1 if number is None else number
        config.group, config.read_only, config.keep_pulled = group, bool(read_only), bool(keep_pulled)
        config.writer = bool(writer)
        config.compression, config.fraction = chosen.encoding, chosen.fraction
        config.pull_compression = Compression.of_values(pull_compression).encoding
        config.lost_ms, config.timeout_ms = milliseconds("lost", lost), milliseconds("timeout", timeout)
        config.name = c_text(name, keep)
        self._signal = Signals()
        config.interrupted = self._signal.callback
        self._log = ffi.callback("linnet_log", partial(_told, log or warnings.warn))
        config.log = self._log
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
        """Leaves the job properly, so that servers no longer wait for this worker."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            sync_library().linnet_worker_free(pointer)

    def _call(self, function: str, *arguments: Any) -> None:
        if not self._pointer:
            raise UsageError("the worker is closed", code=101, hint="create a new one")
        error = ffi.new("linnet_error *")
        if getattr(sync_library(), function)(self._pointer, *arguments, error):
            raise self._signal.taken() or exception(error)

    def pull(self) -> None:
        """Updates the store's variables to the servers' newest values. Unchanged variables are not transferred."""
        self._call("linnet_worker_pull")

    def pull_rows(self, table: str, rows: npt.ArrayLike) -> Array:
        """Gets rows of a table by their numbers: [n] -> [n, ...]. The model need not hold the table."""
        numbers = np.ascontiguousarray(rows, np.int64).reshape(-1)
        info = self._table(table)
        result = np.empty((numbers.size, *info[0]), info[1])
        where, data = ffi.from_buffer("int64_t[]", numbers), ffi.from_buffer(result, require_writable=True)
        self._call("linnet_worker_pull_rows", table.encode(), where, numbers.size, data, result.nbytes)
        return result

    def _table(self, table: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """The shape of a row of a table, and its dtype. They come from the variable, or from the input to which the
        rows are fed."""
        for spec in self.model.variables:
            if spec.name == table and spec.shape:
                return tuple(d or 0 for d in spec.shape[1:]), numpy_dtype(spec.dtype)
        for spec in self.model.inputs(GRAD):
            if spec.name == ROWS + table and spec.shape:
                return tuple(d or 0 for d in spec.shape[1:]), numpy_dtype(spec.dtype)
        raise UsageError(
            f"the model has no table named {table!r}", code=102, tensor=table, expected=" or ".join(self._remote)
        )

    def session(self, signature: str = GRAD) -> Session:
        """The session of a signature on the worker's store. It is created on first use."""
        if signature not in self._sessions:
            self._sessions[signature] = Session(self.model, signature, store=self.store, **self._options.fields)
        return self._sessions[signature]

    def _looked_up(self, feeds: Mapping[str, npt.ArrayLike]) -> tuple[Planned | None, dict[str, tuple[int, ...]]]:
        """The plan of the signature `ids` with its inputs filled, and the shapes of the inputs for the looked-up
        rows."""
        if not self._remote:
            return None, {}
        session = self.session(IDS)
        wanted = {spec.name for spec in session.inputs}
        planned = session._filled({name: value for name, value in feeds.items() if name in wanted}, None)
        counts = {name: len(view) for name, view in planned.outputs if view is not None}
        shapes = {f"{ROWS}{t}": (counts[f"{ROWS}{t}/ids"], *self._table(t)[0]) for t in self._remote}
        return planned, shapes

    def step(self, feeds: Mapping[str, npt.ArrayLike], weight: float | None = None) -> dict[str, Array]:
        """One step: gets the newest values, runs `grad` on the batch, and pushes the gradients. The reply contains the
        next values.

        feeds: the batch. weight: number of examples, for the mean over workers; None: the first dimension of the first
        feed. Returns the outputs of `grad` except the gradients. `info.outcome` says whether the step counted.
        """
        ids, shapes = self._looked_up(feeds)
        planned = self._last = self.session()._filled(feeds, None, shapes)
        count = weight_of(feeds) if weight is None else weight
        self._call("linnet_worker_step", planned.session, ids.session if ids else ffi.NULL, count)
        return results(planned)

    def push(self, weight: float = 1.0) -> None:
        """Pushes the results of the last run of `session()`. If there was no such run, pushes the changes made by local
        steps, which needs keep_pulled."""
        planned = self.session()._last if GRAD in self._sessions else None
        self._call("linnet_worker_push", planned.session if planned else ffi.NULL, float(weight))

    def round(
        self,
        batches: Iterable[Mapping[str, npt.ArrayLike]] | Callable[[Session], float],
        weight: float | None = None,
        signature: str = "train",
    ) -> dict[str, Array]:
        """A round of federated averaging (McMahan et al. 2017): gets the newest values, runs local steps, and pushes
        the change.

        batches: feeds of `signature`, one local step each; or a function that takes the session, trains, and returns
        the number of examples. weight: weight of this worker in the mean; None: the number of examples used. Needs
        keep_pulled. Returns the outputs of the last local step. The servers' optimizer treats the mean as a gradient:
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

    def put(self, name: str, value: npt.ArrayLike) -> None:
        """Sets the value of a variable at its servers, for example to load pretrained weights into a job.

        name: a variable that workers pull and push. value: an array of exactly its shape; floats are converted to any
        float dtype, integers to any dtype that can represent them. Returns when all servers have stored the value, in the
        journal first. If the connection is lost in between, the value is still stored only once. The servers store it
        between two updates. Gradients that are in transit at this moment were computed from the old value, but are
        applied to the new one. The optimizer's state does not change. This worker's store gets the value with the next
        pull. Raises UsageError (unknown name, wrong shape or dtype, NaN or infinity, a read-only worker), SyncError.
        """
        shape, dtype = self._whole(name)
        given = np.asarray(value)
        floats = has_floats(given)
        if (floats and not has_floats(np.empty(0, dtype))) or (not floats and given.dtype.kind not in "biu"):
            raise UsageError(
                "the value has the wrong dtype", code=103, tensor=name, expected=str(dtype), got=str(given.dtype)
            )
        if given.shape != shape:
            raise UsageError(
                "the value has the wrong shape", code=104, tensor=name, expected=str(shape), got=str(given.shape)
            )
        with np.errstate(over="ignore"):  # a value that is too large becomes infinite, which is refused
            data = np.ascontiguousarray(given, dtype) if floats else np.ascontiguousarray(numbers_of(given, dtype))
        self._call("linnet_worker_put", name.encode(), ffi.from_buffer(data) if data.size else ffi.NULL, data.nbytes)

    def _whole(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """The shape and dtype of a variable. For a table that the model does not hold, only the shape of its rows is
        known."""
        for spec in self.model.variables:
            if spec.name == name:
                return tuple(d or 0 for d in spec.shape or ()), numpy_dtype(spec.dtype)
        raise UsageError(
            "the model has no variable of this name", code=102, tensor=name,
            hint="to put a table that workers do not hold, open the job's whole file with writer=True",
        )  # fmt: skip

    def save(self) -> None:
        """Asks every server to write a snapshot, and waits until all have written it. Raises FileError
        (write_failed)."""
        self._call("linnet_worker_save")

    @property
    def info(self) -> WorkerInfo:
        """The current state of the worker."""
        record, link = new_struct("linnet_worker_info"), new_struct("linnet_link_info")
        if not self._pointer or sync_library().linnet_worker_get_info(self._pointer, record):
            raise UsageError("the worker is closed", code=101, hint="create a new one")
        links = []
        for i in range(record.link_count):
            sync_library().linnet_worker_get_link(self._pointer, i, link)
            links.append(_link_info(link))
        share = (int(record.first_example), int(record.examples), int(record.batch)) if record.batch else None
        whole = ("worker", "step", "version", "staleness", "applied", "late", "not_finite", "members")
        return WorkerInfo(
            **{name: int(getattr(record, name)) for name in whole},
            outcome=_OUTCOMES[record.outcome],
            compression=Compression.of(record.compression).name,
            pull_compression=Compression.of(record.pull_compression).name,
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
            links=tuple(links),
            loss=float(record.loss) if record.loss_weight else None,
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


def _told(log: Callable[[str], None], context: Any, level: int, text: Any) -> None:
    log(string_of(text))


def results(planned: Planned) -> dict[str, Array]:
    """Copies of the outputs of the last run, except the gradients."""
    return {
        name: planned.output(i) if view is None else view.copy()
        for i, (name, view) in enumerate(planned.outputs)
        if not name.startswith(GRADIENT)
    }


def weight_of(feeds: Mapping[str, npt.ArrayLike]) -> float:
    """Number of examples in a batch, at least 1."""
    return float(max(examples({name: np.asarray(value) for name, value in feeds.items()}), 1))
