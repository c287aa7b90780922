"""The quantization table: how each layer computes and how each tensor is stored, as a small text file for people to edit.

A line is `layer NAME SCHEME` or `tensor NAME STORAGE [LOW HIGH] [CALIBRATOR]`, and a remark after `#`. Names may contain * and ?;
the last matching line wins. `layer` may be left out: `NAME SCHEME`."""

from __future__ import annotations

import dataclasses
import fnmatch
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from linnet.clib.errors import UsageError, nearest
from linnet.quantization.calibrators import CALIBRATORS as METHODS
from linnet.quantization.scheme import HALVES, LIMITS, SCHEMES

DTYPES = ("f32", *HALVES, *reversed(LIMITS))
LAYERS = (*DTYPES, *SCHEMES)
CALIBRATORS = (*METHODS, "table")  # the last: the range was given


@dataclasses.dataclass
class Row:
    """A pattern of layer names and how these layers compute: a dtype, or bits of weights and activations such as w8a16."""

    pattern: str
    dtype: str
    remark: str = ""

    def text(self, width: int) -> str:
        return f"layer  {_word(self.pattern):<{width}}  {self.dtype:<6}"


@dataclasses.dataclass
class TensorRow:
    """A pattern of tensor names and how these tensors are stored: a dtype, and for integers the range or the calibrator.

    f32 keeps a tensor float, and then the layers that read it compute in floats too. i16 makes these layers compute in
    16 bits."""

    pattern: str
    dtype: str
    low: float | None = None
    high: float | None = None
    calibrator: str = ""
    remark: str = ""

    def text(self, width: int) -> str:
        ends = "" if self.low is None or self.high is None else f" {self.low:.7g} {self.high:.7g}"
        return f"tensor {_word(self.pattern):<{width}}  {self.dtype:<6}{ends}{' ' + self.calibrator if self.calibrator else ''}"


class Table:
    """Rows in order. Later rows override earlier ones. notes: comments that `write` puts above the rows."""

    def __init__(self, rows: Iterable[Row | TensorRow] = (), notes: Iterable[str] = ()) -> None:
        self.rows, self.notes = list(rows), list(notes)

    def dtype(self, *names: str, default: str) -> str:
        """How a layer computes. names: all names of the layer (node name, output tensor name)."""
        for row in reversed(self.rows):
            if isinstance(row, Row) and any(matches(row.pattern, name) for name in names):
                return row.dtype
        return default

    def names(self, *names: str) -> bool:
        """Whether a row matches the layer that has these names."""
        return any(isinstance(row, Row) and matches(row.pattern, name) for row in self.rows for name in names)

    def tensor(self, name: str) -> TensorRow | None:
        """The row of a tensor."""
        for row in reversed(self.rows):
            if isinstance(row, TensorRow) and matches(row.pattern, name):
                return row
        return None

    def check(self, layers: Collection[str], tensors: Collection[str], merged: Mapping[str, str] | None = None) -> None:
        """Raises UsageError for a row that matches none of the model's layers or tensors. The error names the most
        similar ones. merged: maps each node of the source model that became a part of a layer to this layer."""
        for row in self.rows:
            kind, names = ("layer", layers) if isinstance(row, Row) else ("tensor", tensors)
            if any(matches(row.pattern, name) for name in names):
                continue
            raise UsageError(
                f"a row of the quantization table matches no {kind} of the model", code=102, tensor=row.pattern,
                expected=nearest(row.pattern, names, merged=merged) or f"a model with a {kind}", got=row.text(0).strip(),
                hint="write the names of this model with --table-out (table_out=), or remove the row",
            )  # fmt: skip

    @staticmethod
    def read(path: str | Path) -> Table:
        """Parses a table. Raises UsageError with file and line number for a line that is not a row."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            got = "bytes that are not UTF-8" if isinstance(error, ValueError) else error.strerror or str(error)
            raise UsageError(
                what="cannot read the quantization table", tensor=str(path), got=got,
                expected="a text file", hint="write one with quantize(..., table_out=PATH) and edit it",
            ) from None  # fmt: skip
        rows = []
        for number, line in enumerate(text.splitlines(), start=1):
            fields, _, remark = line.partition("#")
            words = fields.split()
            if not words:
                continue
            row = _row(words, remark.strip())
            if row is None:
                raise UsageError(
                    what=f"line {number} of the quantization table is invalid", tensor=str(path),
                    expected=f"layer NAME SCHEME, with SCHEME one of {', '.join(LAYERS)}; or tensor NAME STORAGE [LOW HIGH] "
                    f"[CALIBRATOR], with STORAGE one of {', '.join(DTYPES)}",
                    got=line.strip(), hint="to leave a decision to the quantizer, comment the line out with #",
                )  # fmt: skip
            rows.append(row)
        return Table(rows)

    def write(self, path: str | Path) -> None:
        """Writes the table atomically, in a form that `read` accepts."""
        width = max((len(row.pattern) for row in self.rows), default=4)
        lines = [
            "# linnet quantization table. layer NAME SCHEME: how a layer computes. tensor NAME STORAGE [LOW HIGH] [CALIBRATOR].",
            f"# Schemes: {', '.join(LAYERS)} (bits of weights and activations).",
            "# Edit a row and use the file: linnet quantize ... --table FILE. Names may contain * and ?; the last match wins.",
        ]
        lines += [f"# {note}" for note in self.notes]
        lines += [f"{row.text(width)}  # {row.remark}" if row.remark else row.text(width) for row in self.rows]
        target = Path(path)
        temporary = target.with_name(target.name + ".tmp")
        try:
            temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UsageError(
                what="cannot write the quantization table", tensor=str(path), got=error.strerror or str(error),
                expected="a writable path", hint="give another path",
            ) from None  # fmt: skip


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern of a row, which may contain * and ?, is for a layer or tensor of this name."""
    return name == pattern or fnmatch.fnmatchcase(name, pattern)


def _word(pattern: str) -> str:
    """A space or # would end a name. So each of these characters is written as `?`, which matches any character when
    the table is read."""
    return re.sub(r"[\s#]", "?", pattern)


def _row(words: Sequence[str], remark: str) -> Row | TensorRow | None:
    """The row that a line contains; None if it contains no row."""
    if len(words) == 2 and words[1] in LAYERS:
        return Row(words[0], words[1], remark)
    if len(words) == 3 and words[0] == "layer" and words[2] in LAYERS:
        return Row(words[1], words[2], remark)
    if not 3 <= len(words) <= 6 or words[0] != "tensor" or words[2] not in DTYPES:
        return None
    rest = list(words[3:])
    calibrator = rest.pop() if rest and rest[-1] in CALIBRATORS else ""
    if not rest:
        return TensorRow(words[1], words[2], None, None, calibrator, remark)
    try:
        low, high = map(float, rest)
    except ValueError:
        return None
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        return None
    return TensorRow(words[1], words[2], low, high, calibrator, remark)
