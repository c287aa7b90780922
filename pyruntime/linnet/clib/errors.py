"""The exceptions: one class per group of error codes, and one per way to end a run. All have the fields of the C
library's error record. Errors that Python itself finds have the same form: what, where, expected, got, what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Final

STATUS: Final[dict[int, str]] = {
    101: "invalid_argument", 102: "unknown_name", 103: "wrong_dtype", 104: "wrong_shape", 105: "missing_input",
    201: "not_found", 202: "read_failed", 203: "bad_magic", 204: "newer_format", 205: "truncated", 206: "corrupt",
    207: "write_failed", 208: "other_model",
    301: "unsupported", 302: "bad_attribute", 303: "shape_mismatch", 304: "unknown_shape",
    305: "index_out_of_range", 306: "too_large", 307: "user_op_failed", 401: "out_of_memory", 402: "arena_too_small",
    403: "thread_failed", 501: "device_failed",
    601: "unreachable", 602: "refused", 603: "timed_out", 604: "protocol_error", 605: "not_authenticated",
    606: "superseded", 607: "connection_lost", 608: "job_over",
    701: "cancelled", 702: "deadline_exceeded",
}  # fmt: skip


class Error(Exception):
    """Base class of every error that linnet raises. `str(error)` is one line for a person; the fields are for a
    program. `linnet explain STATUS` prints the usual causes of a code.

    code: number of `linnet_status` (0 if Python found the problem and no code fits). op, op_index: the node, or "" and
    -1 if there is none. tensor: the tensor, input, variable or file concerned, or "". what, expected, got, hint: the
    parts of the text.
    """

    def __init__(
        self,
        what: str,
        *,
        code: int = 0,
        op: str = "",
        op_index: int = -1,
        tensor: str = "",
        expected: str = "",
        got: str = "",
        hint: str = "",
    ) -> None:
        self.what, self.code, self.op, self.op_index, self.tensor = what, code, op, op_index, tensor
        self.expected, self.got, self.hint = expected, got, hint
        super().__init__(str(self))

    @property
    def status(self) -> str:
        """Name of the code, for example "out_of_memory"."""
        return STATUS.get(self.code, "error")

    def __str__(self) -> str:
        text = self.what  # the same form as linnet_error_format
        if self.tensor and f"'{self.tensor}'" not in text:
            text = f"'{self.tensor}': {text}"
        if self.op and f"'{self.op}'" not in text:
            text = (f"node {self.op_index} " if self.op_index >= 0 else "") + f"'{self.op}': {text}"
        if self.code:
            text = f"{self.status}: {text}"
        if self.expected:
            text += f"; expected {self.expected}"
        if self.got:
            text += f", got {self.got}" if self.expected else f"; got {self.got}"
        if self.hint:
            text += f"; {self.hint}"
        return " ".join(text.split())


class UsageError(Error, ValueError):
    """The call is wrong: an unknown name, a wrong dtype or shape, or a missing input (codes 1xx)."""


class FileError(Error, OSError):
    """The file is missing, unreadable, not a .lnt file, too new, truncated, damaged, from another model, or cannot be
    written (codes 2xx)."""


class GraphError(Error):
    """The graph cannot be built, planned or run: incompatible operands, an unsupported op, or an index out of range
    (codes 3xx)."""


class ResourceError(Error):
    """There is not enough memory, or a thread cannot be created (codes 4xx)."""


class DeviceError(Error):
    """A device of an extension failed, or the target machine of a deployment failed (codes 5xx)."""


class SyncError(Error, ConnectionError):
    """Training on several machines, or a deployment to another machine, failed: the other side does not answer or refuses,
    a timeout expires, the keys do not match, another server owns the shard, or the connection is lost (codes 6xx)."""


class Cancelled(Error):
    """The run was ended by Session.cancel. No variable has changed, and the session can run again."""


class DeadlineExceeded(Error, TimeoutError):
    """The run's time limit expired. No variable has changed, and the session can run again."""


class TrainingError(Error):
    """Training cannot continue because the loss is NaN or infinite. `step`: the training step where this happened."""

    step = -1


@dataclasses.dataclass(frozen=True)
class Problem:
    """One reason why a model cannot be converted: the name of the source node, its op, what is wrong, and what to
    do."""

    node: str
    op: str
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.op} {self.node!r}" if self.op and self.node else self.op or repr(self.node)
        return f"{where}: {self.reason}" + (f"; {self.hint}" if self.hint else "")


class ConversionError(Error):
    """A model cannot be converted. `problems` lists every reason; the text contains only the first."""

    def __init__(self, problems: Sequence[Problem], model: str = "") -> None:
        self.problems = list(problems)
        count = len(self.problems)
        what = f"cannot convert: {count} problem{'s' if count != 1 else ''}"
        super().__init__(
            f"{what}: {self.problems[0]}" + (f" (and {count - 1} more)" if count > 1 else "") if count else what,
            code=301,
            tensor=model,
        )


def checkpoint_as_model(where: str, digest: str) -> FileError:
    """The error for a checkpoint that was given where a model is needed. digest: the digest of the checkpoint's
    model."""
    return FileError(
        f"'{where}' is a checkpoint, not a model: it has the values of variables, but no graph",
        code=208, tensor=where, expected=f"the model with digest {digest}, which this checkpoint was saved from",
        hint=f"give that model: `linnet run MODEL --checkpoint {where}` loads the checkpoint into it, as Store.load does in "
        "Python",
    )  # fmt: skip


def class_of(code: int) -> type[Error]:
    """The exception class for a status code."""
    groups = {1: UsageError, 2: FileError, 3: GraphError, 4: ResourceError, 5: DeviceError, 6: SyncError}
    ended: dict[int, type[Error]] = {701: Cancelled, 702: DeadlineExceeded}
    return ended.get(code) or groups.get(code // 100, Error)


def nearest(
    name: str, names: Collection[str], usual: Collection[str] | None = None, merged: Mapping[str, str] | None = None
) -> str:
    """Text for the field `expected`, such as "a, b or c": the three names that are most like the name that a user gave.
    If no name is like it, the usual names, by default the first three; "" if there are no names. Wildcards in the
    user's name are ignored. merged: maps a name that has become a part of something else to the name of the whole,
    which is then the answer."""
    import difflib

    if merged and name in merged:
        return f"{merged[name]}, of which it has become a part"

    plain, every = name.strip("*?").casefold(), list(dict.fromkeys(names))
    parts = [other for other in every if len(plain) > 2 and plain in other.casefold()]
    like = difflib.get_close_matches(plain, [other.casefold() for other in every], n=3, cutoff=0.4)
    near = [other for other in every if other.casefold() in like]
    found = list(dict.fromkeys([*sorted(near, key=lambda other: like.index(other.casefold())), *parts]))[:3]
    found = found or list(every[:3] if usual is None else usual)
    return " or ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)
