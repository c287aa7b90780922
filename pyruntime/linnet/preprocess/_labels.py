"""Labels of classes in the forms in which they are published: one per line, numbered, CSV, JSON, or a Python dict."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.clib.errors import UsageError

Labels = Sequence[str] | str | Path
FORMS = (
    "one label per line, lines `NUMBER: LABEL`, CSV with a number and a label, or JSON with a list or {NUMBER: LABEL}"
)
_NUMBERED = re.compile(r"\s*(\d+)\s*[:,;\t ]\s*(.*\S)\s*$")


def read_labels(labels: Labels) -> list[str]:
    """The given labels, or those in a file. The file may have one label per line, lines such as `3: cat` or `3 cat`,
    CSV with a column of numbers, JSON (a list, or a dict from numbers to labels or from labels to numbers), or such a
    dict as Python prints it. If a number has several words, as in Keras's index of ImageNet, the last one is the label.
    Numbers that are left out have the label "". Raises UsageError if the file cannot be read, a number is given twice,
    or a label contains a line break."""
    if not isinstance(labels, str | Path):
        return _checked([str(label) for label in labels])
    try:
        text = Path(labels).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the labels in '{labels}'", code=101, tensor=str(labels), expected="a text file with one label per line",
            got=str(getattr(error, "strerror", None) or error),
        ) from None  # fmt: skip
    return _checked(_parsed(text, str(labels)))


def _checked(made: list[str]) -> list[str]:
    for i, label in enumerate(made):
        if "\n" in label or "\0" in label:
            raise UsageError(f"label {i} contains a line break", code=101, expected="one line", got=repr(label))
    return made


def _parsed(text: str, where: str) -> list[str]:
    if text.lstrip()[:1] in ("{", "["):
        return _of_value(_value(text, where), where)
    lines = text.splitlines()
    numbered = [_NUMBERED.match(line) for line in lines if line.strip()]
    pairs = [(int(found[1]), found[2]) for found in numbered if found is not None]
    if len(pairs) == len(numbered) and len({number for number, _ in pairs}) == len(pairs) > 1:
        if all("," in line for line in lines if line.strip()):
            return _of_rows(list(csv.reader(io.StringIO(text))), where)
        return _of_pairs(pairs, where)
    if where.lower().endswith((".csv", ".tsv")):
        rows = list(csv.reader(io.StringIO(text), delimiter="\t" if where.lower().endswith(".tsv") else ","))
        return _of_rows(rows, where)
    return lines


def _value(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        try:
            return ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise UsageError(
                f"cannot read the labels in '{where}'", code=101, tensor=where, expected=FORMS, got="damaged JSON"
            ) from None


def _of_value(value: Any, where: str) -> list[str]:
    if isinstance(value, list):
        return [_last(entry) for entry in value]
    pairs = list(value.items()) if isinstance(value, Mapping) else []
    if pairs and all(str(key).isdigit() for key, _ in pairs):
        return _of_pairs([(int(key), _last(entry)) for key, entry in pairs], where)
    if pairs and all(isinstance(entry, int) and entry >= 0 for _, entry in pairs):
        return _of_pairs([(entry, str(key)) for key, entry in pairs], where)
    raise UsageError(f"cannot read the labels in '{where}'", code=101, tensor=where, expected=FORMS, got="other JSON")


def _last(entry: Any) -> str:
    return str(entry[-1]) if isinstance(entry, list | tuple) and entry else str(entry)


def _of_rows(rows: list[list[str]], where: str) -> list[str]:
    """The labels in the rows of a CSV file, which may have a header."""
    rows = [[cell.strip() for cell in row] for row in rows if any(cell.strip() for cell in row)]
    width = min(map(len, rows), default=0)
    body = rows[1:] if rows and not any(cell.isdigit() for cell in rows[0]) and len(rows) > 1 else rows
    numbers = next((i for i in range(width) if all(row[i].isdigit() for row in body)), None)
    if numbers is None:
        return [row[-1] for row in (body if width > 1 else rows)]
    names = [i for i in range(width) if i != numbers]
    if not names:
        raise UsageError(
            f"cannot read the labels in '{where}'", code=101, tensor=where, expected=FORMS, got="numbers only"
        )
    return _of_pairs([(int(row[numbers]), row[names[-1]]) for row in body], where)


def _of_pairs(pairs: list[tuple[int, str]], where: str) -> list[str]:
    most = max((number for number, _ in pairs), default=-1)
    if len({number for number, _ in pairs}) < len(pairs) or most > 10_000_000:
        raise UsageError(
            f"the labels in '{where}' have a number twice, or one that is too large",
            code=101,
            tensor=where,
            expected=FORMS,
        )
    first = min((number for number, _ in pairs), default=0)
    start = 1 if first == 1 and most == len(pairs) else 0  # numbered from 1 without a gap
    found = [""] * (most + 1 - start)
    for number, label in pairs:
        found[number - start] = label
    return found
