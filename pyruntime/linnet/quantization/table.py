"""The quantization table: the dtype in which each layer computes, as a small text file for people to edit.

One line per layer: `name  dtype  # op and ranges`. Names may contain * and ?; the last matching line wins.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable
from pathlib import Path

from linnet.clib.errors import UsageError

DTYPES = ("f32", "f16", "i16", "i8")


@dataclasses.dataclass
class Row:
    """A pattern of layer names and the dtype in which these layers compute."""

    pattern: str
    dtype: str
    remark: str = ""


class Table:
    """Rows in order. Later rows override earlier ones."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = list(rows)

    def dtype(self, *names: str, default: str) -> str:
        """Dtype of the layer known by any of `names` (node name, output tensor name)."""
        for row in reversed(self.rows):
            if any(name == row.pattern or fnmatch.fnmatchcase(name, row.pattern) for name in names):
                return row.dtype
        return default

    @staticmethod
    def read(path: str | Path) -> Table:
        """Parses a table. Raises UsageError with file and line number for a line that is not `name dtype`."""
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
            if len(words) != 2 or words[1] not in DTYPES:
                raise UsageError(
                    what=f"line {number} of the quantization table is invalid", tensor=str(path),
                    expected=f"NAME DTYPE, with DTYPE one of {', '.join(DTYPES)}", got=line.strip(),
                    hint="to leave the layer at the default, comment the line out with #",
                )  # fmt: skip
            rows.append(Row(words[0], words[1], remark.strip()))
        return Table(rows)

    def write(self, path: str | Path) -> None:
        """Writes the table atomically, in a form that `read` accepts."""
        width = max((len(row.pattern) for row in self.rows), default=4)
        lines = [
            "# linnet quantization table: layer, dtype in which it computes (f32, f16, i16 or i8).",
            "# Edit a dtype and use the file: linnet convert ... --table FILE. Names may contain * and ?.",
        ]
        # A space or # would end a name. It is written as `?`, which matches it when the table is read.
        patterns = [re.sub(r"[\s#]", "?", row.pattern) for row in self.rows]
        lines += [
            f"{pattern:<{width}}  {row.dtype:<4}  # {row.remark}"
            for pattern, row in zip(patterns, self.rows, strict=True)
        ]
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
