"""The quantization table: which element type each layer computes in, as a small text file that a person edits.

One line a layer: `name  dtype  # op and ranges`. Names may hold * and ?; the last line that matches wins.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable
from pathlib import Path

from linnet.errors import UsageError

DTYPES = ("f32", "f16", "i16", "i8")


@dataclasses.dataclass
class Row:
    """A pattern of layer names and the element type they compute in."""

    pattern: str
    dtype: str
    remark: str = ""


class Table:
    """Rows in order; later rows win."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = list(rows)

    def dtype(self, *names: str, default: str) -> str:
        """Element type of the layer that goes by any of `names` (node name, output tensor name)."""
        for row in reversed(self.rows):
            if any(name == row.pattern or fnmatch.fnmatchcase(name, row.pattern) for name in names):
                return row.dtype
        return default

    @staticmethod
    def read(path: str | Path) -> Table:
        """Parses a table. Raises UsageError naming file and line for a line that is not `name dtype`."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            got = "bytes that are no UTF-8" if isinstance(error, ValueError) else error.strerror or str(error)
            raise UsageError(
                what="the quantization table cannot be read", tensor=str(path), got=got,
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
                    what=f"line {number} of the quantization table is not understood", tensor=str(path),
                    expected=f"NAME DTYPE, with DTYPE one of {', '.join(DTYPES)}", got=line.strip(),
                    hint="comment the line out with # to leave the layer at the default",
                )  # fmt: skip
            rows.append(Row(words[0], words[1], remark.strip()))
        return Table(rows)

    def write(self, path: str | Path) -> None:
        """Writes the table, atomically, in a form that `read` takes back."""
        width = max((len(row.pattern) for row in self.rows), default=4)
        lines = [
            "# linnet quantization table: layer, element type it computes in (f32, f16, i16 or i8).",
            "# Edit a type and give the file back: linnet convert ... --table FILE. Names may hold * and ?.",
        ]
        # A space or # inside a name would end it: `?` matches it on the way back.
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
                what="the quantization table cannot be written", tensor=str(path), got=error.strerror or str(error),
                expected="a writable path", hint="give another path",
            ) from None  # fmt: skip
