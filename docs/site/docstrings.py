"""Turns linnet's docstrings, which are plain text, into reStructuredText for Sphinx.
A line `name: text` describes an argument; lines that belong to it are indented. `x` is code. Indented paragraphs are code."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ARGUMENT = re.compile(r"^(\*{0,2}[A-Za-z_]\w*(?:(?:, | or | and )\*{0,2}[A-Za-z_]\w*)*): (.*)$")
_CODE = re.compile(r"`+([^`]+)`+")


def as_rst(lines: Sequence[str]) -> list[str]:
    """The lines of one docstring as lines of reStructuredText."""
    lines = _with_whole_code(lines)
    out: list[str] = []
    item = False  # inside the description of an argument
    i = 0
    while i < len(lines):
        line = lines[i].rstrip()
        if not line:
            out.append("")
            item = False
            i += 1
        elif line[0] == " " and not item:
            block = []
            while i < len(lines) and (not lines[i].strip() or lines[i].startswith(" ")):
                block.append(lines[i].rstrip())
                i += 1
            out += ["", "::", "", *("    " + text if text else "" for text in block), ""]
        else:
            argument = _ARGUMENT.match(line)
            after = lines[i + 1] if i + 1 < len(lines) else ""
            if after.strip() and after[0] != " " and line[-1] not in ".)]":
                argument = None  # a sentence that goes on without an indent
            if line[0] == " ":
                out.append("  " + _inline(line.strip()))
            elif i and argument and argument[1] not in ("Errors", "Raises", "Source", "Method", "Note"):
                out += [] if item else [""]
                out.append(f"* ``{argument[1]}``: {_inline(argument[2])}")
                item = True
            else:
                out += [""] if item else []
                out.append(_inline(line))
                item = False
            i += 1
    return [*out, ""]


def _with_whole_code(lines: Sequence[str]) -> list[str]:
    """The lines, with code that goes on in the next line on one line."""
    out: list[str] = []
    for line in lines:
        if out and out[-1].count("`") % 2 and line.strip():
            out[-1] += " " + line.strip()
        else:
            out.append(line)
    return out


def _inline(text: str) -> str:
    """Marks code, and takes the meaning from characters that reStructuredText would read as marks."""
    parts = _CODE.split(text)
    plain = [re.sub(r"([\\*|_`])", r"\\\1", part) for part in parts[::2]]
    code = [f"``{part.strip()}``" for part in parts[1::2]]
    out = plain[0]
    for mark, after in zip(code, plain[1:], strict=True):
        before = "" if not out or out[-1] in " ([{\"'" else "\\ "
        glue = "" if not after or after[0] in " .,;:!?)]}\"'" else "\\ "
        out += before + mark + glue + after
    return out
