"""What all objects that own memory of the C library have in common: how they are displayed and closed, and that they
cannot be pickled. Session, Model and Store inherit from here."""

from __future__ import annotations

import threading
from collections.abc import MutableMapping, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar

from linnet.clib.errors import UsageError


class Native:
    """An object of this process: its memory cannot be sent to another one."""

    _instead: ClassVar[str]  # what to send instead

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise UsageError(
            f"a {type(self).__name__} cannot be pickled or copied, because it owns memory of this process", code=101,
            hint=self._instead,
        )  # fmt: skip


def shape_text(shape: Sequence[int | None] | None) -> str:
    return "any shape" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def described(specs: Sequence[Any]) -> str:
    """Describes TensorSpecs in one line: "x: f32[?, 3], t: i32[?]"."""
    shown = [f"{s.name}: {s.dtype}{shape_text(s.shape) if s.shape is not None else ' of any shape'}" for s in specs[:4]]
    return ", ".join(shown + ["..."] * (len(specs) > 4)) or "nothing"


S = TypeVar("S", bound="Closes")


class Closes(Native):
    """How a Session ends: by `close`, or at the end of a `with` block."""

    _instead = "send the path or the bytes of the model, and create a Session from them in the other process"
    _closed = False
    _lock: threading.Lock
    _last: Any
    _arena: Any
    _plans: MutableMapping[Any, Any]
    model: Any  # linnet.Model, whose module imports this one
    signature: str
    inputs: Any
    outputs: Any

    def close(self) -> None:
        """Frees the plans, their memory and their threads now, not when the session is garbage-collected. Waits for the
        current run. Variables can still be read; runs raise UsageError. Bindings keep their own memory."""
        with self._lock:
            self._closed, self._last, self._arena = True, None, None
            self._plans.clear()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the session is closed", code=101, hint="create a new Session of the same model")

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        of = f" of {self.model.path!r}" if self.model.path else ""
        texts = f"{described(self.inputs)} -> {described(self.outputs)}"
        return f"<linnet.Session{of}, signature {self.signature!r}{closed}: {texts}>"
