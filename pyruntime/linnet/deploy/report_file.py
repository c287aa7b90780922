"""Reads and writes the file of `linnet report`, and checks that it contains only allowed values. The reader may not
know the person who sent the file. So the type and the range of each value are checked, and texts must be short and
plain."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from linnet.clib.errors import FileError
from linnet.deploy.models import DTYPES, SUMS

FORMAT: Final = "linnet-report-1"
TARGETS: Final = ("local", "ssh", "adb", "emulate")
_MOST_BYTES: Final = 1 << 20
_PLAIN: Final = r"[A-Za-z0-9 .,:;()+@_#-]"  # no markup, no control characters, and no "/", so no paths


class _Text:
    """A text of at most `most` plain characters, which may have to match a pattern."""

    def __init__(self, most: int, pattern: str = "", absent: bool = False) -> None:
        self.pattern, self.absent = re.compile(pattern or f"{_PLAIN}{{1,{most}}}", re.ASCII), absent
        self.expected = f"a text that matches {pattern}" if pattern else f"a text of 1 to {most} plain characters"

    def good(self, value: object) -> bool:
        return (value is None and self.absent) or (isinstance(value, str) and bool(self.pattern.fullmatch(value)))


class _Number:
    """A number from `low` to `high`."""

    def __init__(self, low: float, high: float, whole: bool = False, absent: bool = False) -> None:
        self.low, self.high, self.kinds, self.absent = low, high, (int,) if whole else (int, float), absent
        self.expected = f"a{' whole' if whole else ''} number from {low:g} to {high:g}{' or null' if absent else ''}"

    def good(self, value: object) -> bool:
        if value is None:
            return self.absent
        return isinstance(value, self.kinds) and not isinstance(value, bool) and self.low <= value <= self.high


class _Flag:
    expected = "true or false"

    def good(self, value: object) -> bool:
        return isinstance(value, bool)


class _List:
    """1 to `most` objects with the keys of `each`."""

    def __init__(self, each: Mapping[str, Any], most: int) -> None:
        self.each, self.most = each, most


def _words(*words: str) -> _Text:
    return _Text(0, "|".join(words))


_MS = _Number(1e-6, 1e8)
_BYTES = _Number(1, 1e13, whole=True, absent=True)
_STATE: Final = {
    "celsius": _Number(-60, 160, absent=True), "mhz": _Number(1, 20_000, whole=True, absent=True),
    "throttled": _Text(200, f"{_PLAIN}{{0,200}}", absent=True),
}  # fmt: skip
_REPORT: Final[dict[str, Any]] = {
    "format": _words(FORMAT),
    "linnet": _Text(30),
    "date": _Text(10, r"20\d\d-\d\d-\d\d"),
    "target": _words(*TARGETS),
    "seconds": _Number(0.001, 3600),
    "machine": {
        "name": _Text(120, absent=True), "cpu": _Text(120, absent=True), "cores": _Number(1, 4096, whole=True), "ram": _BYTES,
        "system": _Text(120), "architecture": _Text(20), "isa": _Text(20), "virtual": _Flag(),
    },
    "models": _List(
        {"name": _Text(60), "sha256": _Text(64, "[0-9a-f]{64}"), "macs": _Number(0, 1e15, whole=True), "standard": _Flag()}, 50
    ),
    "verified": _List(
        {
            "model": _Text(60), "dtype": _words(*DTYPES, SUMS), "same_bits": _Flag(), "worst": _Number(0, 1e30, absent=True),
            "allowed": _Number(0, 1),
        },
        500,
    ),
    "rows": _List(
        {
            "model": _Text(60), "dtype": _words(*DTYPES, SUMS), "threads": _Number(1, 1024, whole=True), "median_ms": _MS,
            "p95_ms": _MS, "min_ms": _MS, "runs": _Number(1, 1e9, whole=True), "plan_bytes": _BYTES, "peak_rss": _BYTES,
            "file_bytes": _Number(1, 1e13, whole=True), "before": _STATE, "after": _STATE,
        },
        2000,
    ),
}  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """Reads and checks a file. Raises FileError, which names the file and the key."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise FileError(
            "cannot read the report", code=202, tensor=str(path), got=error.strerror or "", hint="check the path"
        ) from None
    if len(content) > _MOST_BYTES:
        raise _fault(str(path), "", f"at most {_MOST_BYTES} bytes", "more")
    try:
        found = json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _fault(str(path), "", "JSON", str(error)[:100]) from None
    return checked(found, str(path))


def checked(report: object, name: str) -> dict[str, Any]:
    """Checks every key of a report and returns the report. name: the file's name, for messages. Raises FileError."""
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        got = report.get("format") if isinstance(report, dict) else type(report).__name__
        raise _fault(name, "format", repr(FORMAT), _short(got))
    _check(report, _REPORT, name, "")
    try:
        datetime.date.fromisoformat(report["date"])
    except ValueError:
        raise _fault(name, "date", "a date such as 2026-11-26", _short(report["date"])) from None
    models = [model["name"] for model in report["models"]]
    _once(models, name, "models")
    for key, words in (("rows", ("model", "dtype", "threads")), ("verified", ("model", "dtype"))):
        _once([tuple(row[word] for word in words) for row in report[key]], name, key)
        for i, row in enumerate(report[key]):
            if row["model"] not in models:
                raise _fault(name, f"{key}[{i}].model", "a name of models", _short(row["model"]))
    for i, row in enumerate(report["rows"]):
        if not row["min_ms"] <= row["median_ms"] <= row["p95_ms"]:
            raise _fault(name, f"rows[{i}].median_ms", "a number from min_ms to p95_ms", _short(row["median_ms"]))
    return report


def text(report: Mapping[str, Any]) -> str:
    """The file: JSON with one line for each row."""
    lines = []
    for key, value in report.items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            lines.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def plain(value: str | None, most: int = 120) -> str | None:
    """A text from the system in the form that a report may contain: characters that are not allowed become spaces. None
    if nothing is left."""
    return " ".join(re.sub(f"(?!{_PLAIN}).", " ", value or "", flags=re.DOTALL).split())[:most].strip() or None


def _check(value: object, form: Any, name: str, key: str) -> None:
    if isinstance(form, dict):
        if not isinstance(value, dict):
            raise _fault(name, key, "an object", _short(value))
        for part in [*form, *(part for part in value if part not in form)]:
            inner = f"{key}.{part[:40]}" if key else part[:40]
            if part not in form:
                raise _fault(name, inner, f"only the keys {', '.join(form)}", "this key")
            if part not in value:
                raise _fault(name, inner, "this key", "none")
            _check(value[part], form[part], name, inner)
    elif isinstance(form, _List):
        if not isinstance(value, list) or not 1 <= len(value) <= form.most:
            raise _fault(name, key, f"a list of 1 to {form.most} objects", _short(value))
        for i, row in enumerate(value):
            _check(row, form.each, name, f"{key}[{i}]")
    elif not form.good(value):
        raise _fault(name, key, form.expected, _short(value))


def _once(values: list[Any], name: str, key: str) -> None:
    for i, value in enumerate(values):
        if value in values[:i]:
            raise _fault(name, f"{key}[{i}]", "each combination once", _short(value))


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _short(value: object) -> str:
    shown = repr(value) if not isinstance(value, float) or math.isfinite(value) else "a number that is not finite"
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _fault(name: str, key: str, expected: str, got: str) -> FileError:
    where = f"the key {key} of the report" if key else "the report"
    return FileError(
        f"{where} is wrong",
        code=203,
        tensor=name,
        expected=expected,
        got=got,
        hint="make it again with `linnet report`",
    )
