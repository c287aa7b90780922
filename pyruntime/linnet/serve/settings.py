"""Settings: the limits of a server, and how it runs models. `linnet serve` has an option for each.
Refused: the answer to a request that cannot be served, as an HTTP status and a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from linnet.clib.arguments import at_least
from linnet.clib.errors import (
    Cancelled,
    DeadlineExceeded,
    DeviceError,
    Error,
    GraphError,
    ResourceError,
    UsageError,
)

_TOO_LARGE = 306


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How a server runs models, and what it refuses.

    max_bytes: limit in bytes for all models together: files, weights, variables, and the memory of runs (0: no limit).
    max_batch: most rows of one run. Requests for a model whose inputs have an open batch are put together up to here.
    max_wait_ms: how long a request may wait for others that could share its run. 0: it waits only while the model runs.
    max_queue: most requests that wait for one model; a further one is answered 429.
    max_body: most bytes of a request's body. max_pending: most bytes of all bodies that are being read or that wait.
    timeout: seconds after which a request is answered 504. A request may ask for less (its parameter `timeout`, in
        microseconds).
    body_timeout: seconds within which a request's headers, and then its body, must arrive.
    bounds: {input: "1..32,1..128"}, as `linnet plan --bounds`, for the open dimensions of the inputs with these names.
    threads: threads of each model (None: the cores that the process may use, which a container's quota limits).
    signature: the signature that is served; "": `infer`, or the first that changes no variable.
    key: what requests must carry as `Authorization: Bearer KEY`; "": nothing. Health and the page need no key.
    poll: seconds between two looks at the files, for hot swap; 0: files are not watched.
    unload_idle: whether a model that nobody has asked for lately may be unloaded to make room for another. The next
        request loads it again.
    """

    max_bytes: int = 0
    max_batch: int = 32
    max_wait_ms: float = 0.0
    max_queue: int = 256
    max_body: int = 64 << 20
    max_pending: int = 256 << 20
    timeout: float = 30.0
    body_timeout: float = 20.0
    bounds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    threads: int | None = None
    signature: str = ""
    key: str = ""
    poll: float = 1.0
    unload_idle: bool = False

    def __post_init__(self) -> None:
        for name, low in (("max_bytes", 0), ("max_batch", 1), ("max_queue", 1), ("max_body", 1), ("max_pending", 1)):
            at_least(name, getattr(self, name), low)
        for name in ("max_wait_ms", "timeout", "body_timeout", "poll"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not value >= 0 or (name.endswith("timeout") and value == 0):
                raise UsageError(
                    f"{name} is not a valid time", code=101, tensor=name, got=repr(value), expected="a number above 0"
                )

    @property
    def batches(self) -> tuple[int, ...]:
        """The numbers of rows for which runs are planned when requests share a run: powers of 2, and max_batch."""
        powers = [1 << i for i in range(self.max_batch.bit_length()) if 1 << i <= self.max_batch]
        return tuple(sorted({*powers, self.max_batch}))


class Refused(Exception):
    """A request that cannot be answered: the HTTP status, what the client is told, and further headers."""

    def __init__(self, status: int, text: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


def refusal(error: BaseException) -> Refused:
    """The answer to a request whose run or whose load has failed."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, DeadlineExceeded):
        return Refused(504, str(error))
    if isinstance(error, GraphError) and error.code == _TOO_LARGE:
        return Refused(413, str(error))
    if isinstance(error, (ResourceError, DeviceError, Cancelled)):
        return Refused(503, str(error))
    if isinstance(error, (Error, RecursionError, ValueError)):
        return Refused(400, str(error))
    if isinstance(error, MemoryError):
        return Refused(503, "out of memory: the server could not get the memory for this request")
    return Refused(500, f"{type(error).__name__}: {error} (please report this)")
