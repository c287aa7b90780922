"""study.toml: a search as a file. Its keys are the fields of Settings, and the function; paths in it are relative to its
folder. Errors name the file and the key."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from linnet.clib.errors import FileError, UsageError, nearest
from linnet.quantization.sources import Script, is_script
from linnet.search.settings import Settings

_KINDS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "function": ((str,), "a text such as 'digits:classifier' (MODULE:FUNCTION) or 'digits.py:classifier'"),
    "objectives": ((list, dict), "a list of names, or a table of names with 'maximize' or 'minimize'"),
    "limits": ((dict,), "a table of figures with numbers"),
    "trials": ((int,), "an integer"), "seed": ((int,), "an integer"), "journal": ((str,), "a path"),
    "name": ((str,), "a text"), "space": ((dict,), "a table for each parameter"),
    "boards": ((list,), "a list of addresses as linnet deploy takes them"), "threads": ((int,), "an integer"),
    "seconds": ((int, float), "a number"), "dtype": ((str,), "f32, f16, bf16, i16, i8 or auto"),
    "calibration": ((str,), "a path as linnet quantize --calibration takes it"),
    "effort": ((str,), "fast, normal or best"), "evaluate": ((str,), "'FILE.py:FUNCTION' or 'MODULE:FUNCTION'"),
    "sampler": ((str,), "tpe or random"),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class StudyFile:
    """A study.toml. function: what the file names, once it is imported."""

    path: Path
    settings: Settings
    function_name: str

    def function(self) -> Callable[[Any], Any]:
        """Imports the function. Raises UsageError if that fails."""
        return _function(self.path, "function", self.function_name)


def read_study(path: str | Path) -> StudyFile:
    """Reads a study.toml. Raises FileError if it cannot be read, and UsageError, which names the key that is wrong."""
    path = Path(path)
    values = _toml(path)
    for key, value in values.items():
        if key not in _KINDS:
            raise _wrong(path, key, nearest(key, _KINDS), "an unknown key")
        kinds, words = _KINDS[key]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise _wrong(path, key, words, repr(value))
    for key in ("function", "objectives"):
        if key not in values:
            raise _wrong(path, key, _KINDS[key][1], "nothing")
    name = values.pop("function")
    for key in ("journal", "calibration"):
        if key in values:
            values[key] = str(path.parent / values[key])
    values.setdefault("journal", str(path.with_suffix(".journal")))
    if "evaluate" in values:
        values["evaluate"] = _function(path, "evaluate", values["evaluate"])
    for key, value in values.get("space", {}).items():
        if not isinstance(value, dict):
            raise _wrong(
                path, f"space.{key}", "a table such as {low = 8, high = 64} or {choices = [3, 5]}", repr(value)
            )
    try:
        return StudyFile(path, Settings(**values), name)
    except UsageError as error:
        raise UsageError(
            f"{error.what}, in '{path}'", code=error.code, tensor=error.tensor, expected=error.expected, got=error.got,
            hint=error.hint,
        ) from None  # fmt: skip


def _function(path: Path, key: str, name: str) -> Callable[..., Any]:
    """The function of a text MODULE:FUNCTION or FILE.py:FUNCTION. The folder of the study is on Python's path."""
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if is_script(name):
        return Script(path.parent / name, f"the key {key} of {path}").function
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise _wrong(path, key, _KINDS[key][1], repr(name))
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:
        raise _wrong(
            path, key, f"a module {module} that can be imported", f"{type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise _wrong(path, key, f"a function of the module {module}", attribute)
    return found  # type: ignore[no-any-return]


def _toml(path: Path) -> dict[str, Any]:
    try:
        toml = import_module("tomllib")
    except ImportError:
        raise UsageError(
            "reading a study.toml needs Python 3.11",
            code=101,
            tensor=str(path),
            hint="call linnet.search.run from Python",
        ) from None
    try:
        return dict(toml.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise FileError(
            "the study cannot be read",
            code=202,
            tensor=str(path),
            got=error.strerror or str(error),
            hint="check the path",
        ) from None
    except ValueError as error:
        raise UsageError(
            "the study is not a TOML file",
            code=101,
            tensor=str(path),
            got=str(error),
            expected="a file as in docs/search.md",
        ) from None


def _wrong(path: Path, key: str, expected: str, got: str) -> UsageError:
    return UsageError(f"the key {key!r} in '{path}' is wrong", code=101, tensor=key, expected=expected, got=got)
