"""Which TFLite ops have a rule, as the table of docs/tflite.md: `python -m linnet.converters.tflite.coverage docs/tflite.md`
rewrites it there. A test holds the page against the rules."""

from __future__ import annotations

import sys
from pathlib import Path

from linnet.converters.tflite import rules
from linnet.converters.tflite.registry import RULES
from linnet.converters.tflite.schema import OPS

BEGIN, END = "<!-- coverage: generated from the rules -->", "<!-- end of coverage -->"


def table() -> str:
    """Markdown: one row per family of rules, then the builtin ops without one."""
    rules.load()
    families: dict[str, list[str]] = {}
    for op, function in RULES.items():
        families.setdefault(function.__module__.rsplit(".", 1)[-1], []).append(op)
    covered = sum(1 for op in OPS if op in RULES)
    lines = [f"{covered} of the {len(OPS)} builtin ops have a rule.", "", "| rules | ops |", "|---|---|"]
    lines += [f"| {family} | {', '.join(sorted(ops))} |" for family, ops in sorted(families.items())]
    lines += [f"| none | {', '.join(sorted(op for op in OPS if op not in RULES))} |"]
    return "\n".join(lines)


def write(page: Path) -> None:
    """Puts the table between the markers of a page."""
    text = page.read_text()
    start, rest = text.split(BEGIN)
    page.write_text(f"{start}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
