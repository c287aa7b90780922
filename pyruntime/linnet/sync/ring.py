"""All-reduce without a server: `Ring` sums NumPy arrays over the processes of one training job.
It is for dense models that every worker holds completely. liblinnet_sync does the work (runtime_c/sync/ring/posix_ring.c).
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from linnet.clib.errors import UsageError
from linnet.clib.ffi import ffi
from linnet.clib.library import NULL, exception, new_struct
from linnet.sync._library import sync_library
from linnet.sync.link import Link, c_text, milliseconds

if TYPE_CHECKING:
    from typing_extensions import Self

_DTYPES: Final = {"float32": 1, "float64": 4, "int32": 7, "int64": 8}  # linnet_dtype


class Ring:
    """A ring of all ranks of one training run. All ranks create it at the same time.

    address: the address at which rank 0 waits for the others, the same in all ranks: "host:port", "unix:PATH" or
        "shm:PATH".
    rank: index of this process. size: number of processes.
    listen: address at which the neighbour connects to this rank; None: chosen by the system.
    timeout: seconds that the other ranks may take to connect, and that a neighbour may be silent during an all-reduce.
    link: keys or certificates, and the chunk size; its heartbeat and lease are not used.
    Raises SyncError (timed_out: names the ranks that did not connect; refused; unreachable) and UsageError.

        with linnet.sync.Ring("10.0.0.1:7000", rank, size) as ring:
            ring.all_reduce(gradient, "mean")

    Each rank sends and receives 2 (size - 1) / size of an array's bytes, so traffic per rank is bounded for any ring
    size. Only one thread may use a ring at a time.
    """

    def __init__(
        self,
        address: str,
        rank: int,
        size: int,
        *,
        listen: str | None = None,
        timeout: float = 60.0,
        link: Link | None = None,
    ) -> None:
        self.rank, self.size, self._ring = int(rank), int(size), NULL
        self._timeout, self._link = timeout, link or Link()
        config = new_struct("linnet_ring_config")
        kept: list[Any] = []  # the config points to these
        config.address = c_text(address, kept)
        config.listen = NULL if listen is None else c_text(listen, kept)
        config.rank, config.size = self.rank, self.size
        config.timeout_ms = milliseconds("timeout", timeout)
        config.link = self._link.config(kept)
        out, record = ffi.new("linnet_ring **"), ffi.new("linnet_error *")
        if sync_library().linnet_ring_create(config, out, record):
            raise exception(record)
        self._ring = out[0]

    def all_reduce(self, array: np.ndarray, operation: Literal["sum", "mean"] = "sum") -> np.ndarray:
        """Replaces `array` by its sum or mean over all ranks, with the same bits in each rank, and returns it.

        array: contiguous and writable, float32 or float64, or int32 or int64 ("sum" only), of any shape. All ranks must
        call in the same order with arrays of the same size and dtype. If a rank is lost, every other rank raises
        SyncError within `timeout`, and `error.op_index` is the number of the lost rank. `array` is then undefined and
        the ring is unusable; see `without`. Raises UsageError for an array that cannot be reduced.
        """
        if self._ring == NULL:
            raise UsageError("the ring is closed", code=101, hint="create a new ring")
        if array.dtype.name not in _DTYPES or not array.flags.c_contiguous or not array.flags.writeable:
            raise UsageError(
                "the ring cannot reduce an array of this kind",
                code=103,
                expected="float32, float64, int32 or int64, contiguous, writable",
                got=f"{array.dtype}{'' if array.flags.c_contiguous else ', strided'}"
                f"{'' if array.flags.writeable else ', read-only'}",
            )
        if operation not in ("sum", "mean"):
            raise UsageError("unknown operation", code=101, expected="sum or mean", got=repr(operation))
        record = ffi.new("linnet_error *")
        data = ffi.from_buffer(array, require_writable=True) if array.size else NULL
        if sync_library().linnet_ring_all_reduce(
            self._ring, data, array.size, _DTYPES[array.dtype.name], int(operation == "mean"), record
        ):
            raise exception(record)
        return array

    def without(self, lost: int, address: str, *, listen: str | None = None) -> Ring:
        """A new ring of the remaining ranks, numbered in their old order. All remaining ranks must call this method
        with the lost rank (`error.op_index`) and the same address. The old ring is closed."""
        if not 0 <= lost < self.size or lost == self.rank:
            raise UsageError(
                "the lost rank must be another rank of the ring",
                code=101,
                expected=f"one of 0 to {self.size - 1}, not {self.rank}",
                got=str(lost),
            )
        self.close()
        return Ring(
            address,
            self.rank - (lost < self.rank),
            self.size - 1,
            listen=listen,
            timeout=self._timeout,
            link=self._link,
        )

    def close(self) -> None:
        """Leaves the ring. The next all-reduce of the other ranks fails. Calling it again has no effect."""
        ring, self._ring = self._ring, NULL
        if ring != NULL:
            sync_library().linnet_ring_free(ring)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_ring", NULL) != NULL:
            self.close()
