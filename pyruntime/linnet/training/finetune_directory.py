"""The directory of `finetune`: the arguments of the run, and the features that are already computed. `fit` keeps its
own files in the same directory. So a killed run can continue, and gives the same bits as an uninterrupted one."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet.clib.errors import FileError, UsageError
from linnet.facade import Graph
from linnet.file.atomic import write_atomic
from linnet.ir.dtypes import for_npy
from linnet.session.model import Model
from linnet.training import directory_lock
from linnet.training.progress import left_text

SETTINGS = "finetune.json"
_MARK = b"\nsha256 "  # before the digest at the end of each file of arrays; NumPy reads such a file, too
Arrays = dict[str, npt.NDArray[Any]]


def _sealed(content: bytes) -> bytes:
    """The content, followed by its digest. A file that differs from it in any bit is damaged."""
    return content + _MARK + hashlib.sha256(content).digest()


def _opened(sealed: bytes) -> bytes | None:
    """The content of such a file. None: it is damaged."""
    content = sealed[: -len(_MARK) - 32]
    return content if sealed == _sealed(content) else None


def _settings_text(settings: dict[str, Any]) -> bytes:
    """The file of the settings. It names its own digest, and is exactly this text."""
    digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
    return json.dumps({**settings, "sha256": digest}, indent=2).encode()


def _read_settings(path: Path) -> dict[str, Any]:
    """Raises FileError if the file is damaged."""
    text = path.read_bytes()
    try:
        settings = json.loads(text)
        settings.pop("sha256")
        whole = _settings_text(settings) == text
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise FileError(
            f"'{path}' is damaged, so the settings of the run in its directory are unknown", code=202, tensor=str(path),
            expected=f"the {SETTINGS} that finetune wrote", got=f"{text[:40]!r}",
            hint="restore the file, or delete the directory, or give another one",
        )  # fmt: skip
    return dict(settings)


def _digest_of(model: str | Path | Graph) -> str | None:
    """A digest of the model's file, or of the graph."""
    if isinstance(model, Graph):
        return Model(model).metadata("digest")
    digest = hashlib.sha256()
    with Path(model).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class Directory:
    """The directory of `finetune`. Without a path, nothing is kept."""

    def __init__(self, path: Path | None, model: str | Path | Graph, about: dict[str, Any]) -> None:
        """Creates the directory. about: what the result depends on besides the model, by the names of the arguments.
        Raises UsageError if the directory belongs to a run with another model or other arguments, or if it holds other
        files."""
        self.path = path
        if path is None:
            return
        settings = json.loads(json.dumps({"model": _digest_of(model), **about}))
        known, before = path / SETTINGS, None
        try:
            path.mkdir(parents=True, exist_ok=True)
            other = not known.exists() and any(entry.name != directory_lock.NAME for entry in path.iterdir())
            if known.exists():
                before = _read_settings(known)
        except FileError:
            raise
        except OSError as error:
            raise FileError(
                f"cannot use the directory '{path}': {error}", code=202, tensor=str(path), hint="give another directory",
            ) from None  # fmt: skip
        if other:
            raise UsageError(
                f"the directory '{path}' holds something other than a run of finetune", code=101, tensor=str(path),
                expected=f"an empty directory, or one with {SETTINGS}", hint="give another directory",
            )  # fmt: skip
        if before is None:
            write_atomic(known, iter([_settings_text(settings)]))
            return
        differ = [name for name in settings if before.get(name) != settings[name]]
        if differ:
            raise UsageError(
                f"the run in '{path}' was started with another {' and another '.join(differ)}", code=101, tensor=differ[0],
                expected=", ".join(f"{name} {before.get(name)!s:.60}" for name in differ),
                got=", ".join(f"{name} {settings[name]!s:.60}" for name in differ),
                hint="repeat the arguments of that run, or give another directory",
            )  # fmt: skip

    def held(self) -> contextlib.AbstractContextManager[None]:
        """The context in which no other process uses the directory. Raises UsageError if one does."""
        return directory_lock.locked(self.path)

    def piece(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """Returns the arrays that an earlier run computed under this name. If there are none, or if the file differs in
        any bit from what was written, computes and keeps them."""
        if self.path is None:
            return compute()
        path = self.path / f"{name}.npz"
        try:
            content = _opened(path.read_bytes())
        except FileNotFoundError:
            content = None
        except OSError as error:
            raise FileError(
                f"cannot read '{path}': {error.strerror or error}", code=202, tensor=str(path),
                hint="delete it, and its arrays are computed again; or give another directory",
            ) from None  # fmt: skip
        if content is not None:
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                return {key: found[key] for key in found}
        made = compute()
        buffer = io.BytesIO()
        np.savez(buffer, **{key: for_npy(array) for key, array in made.items()})  # type: ignore[arg-type]
        write_atomic(path, iter([_sealed(buffer.getvalue())]))
        return made


class Counted:
    """Shows progress. On a terminal, this is one line that is updated. Otherwise, lines are printed at the start, then
    at most every ten seconds, and at the end. progress: as for `fit`."""

    def __init__(self, what: str, total: int, progress: bool | None) -> None:
        self.what, self.total, self.begun = what, total, time.monotonic()
        self.terminal = sys.stdout.isatty()
        self.shown = progress is not False and (self.terminal or progress is True)

    def over(self, starts: range) -> Iterator[int]:
        """Yields the starts of the batches. Reports the progress before a batch, if a report is due, and at the end."""
        last = 0.0
        for start in starts:
            now = time.monotonic()
            if self.terminal or not last or now - last >= 10:
                self._say(start, now)
                last = now
            yield start
        self._say(self.total, time.monotonic())
        if self.terminal and self.shown:
            print()

    def _say(self, done: int, now: float) -> None:
        if not self.shown:
            return
        left = f", {left_text((now - self.begun) / done * (self.total - done))} left" if 0 < done < self.total else ""
        line = f"{self.what}: {done} of {self.total}{left}"
        print(f"\r{line:<60}" if self.terminal else line, end="" if self.terminal else "\n", flush=True)
