"""The C headers for Doxygen and for the reference: their comments are plain, `/* ... */`, above or behind what they describe.
`python headers.py FILE` prints the file with comments that Doxygen reads, as the filter of its input."""

from __future__ import annotations

import html
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

HEADERS = ("linnet.h", "linnet_ext.h", "linnet_sync.h", "linnet_sync_ext.h", "linnet_device.h")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SECTION = re.compile(r"/\* -+ (.*?) -+ \*/", re.DOTALL)
_DECLARED = re.compile(
    r"^(?:typedef )?(?P<kind>struct|enum) (?P<name>\w+) \{[^}]*\}\s*\w*;"
    r"|^typedef struct (?P<opaque>\w+) \w+;"
    r"|^typedef [^;{]*?\(\*(?P<callback>\w+)\)\([^;]*\);"
    r"|^(?:LINNET_API|static inline) [^;{(]*?\b(?P<function>\w+)\([^;{]*\)"
    r"|^#define (?P<define>LINNET_(?!H\b|API\b|\w+_H\b)\w+) .",
    re.MULTILINE | re.DOTALL,
)


# A struct of one header may be declared in another.
_DEFINITION = re.compile(r"^(?:typedef )?struct (\w+) \{", re.MULTILINE)


@dataclass
class Section:
    """One part of a header: its title, and (kind, name) of what it declares, in order."""

    title: str
    names: list[tuple[str, str]] = field(default_factory=list)


def defined(folder: Path) -> set[str]:
    """The structs whose fields a header shows."""
    return {name for header in HEADERS for name in _DEFINITION.findall((folder / header).read_text())}


def sections(path: Path) -> list[Section]:
    """The parts of a header. Kinds: struct, enum, opaque, callback, function, define."""
    text, shown = path.read_text(), defined(path.parent)
    found = [(match.start(), Section(_title(match[1]))) for match in _SECTION.finditer(text)]
    found.insert(0, (0, Section("Basics")))
    bare = _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), text)
    taken: set[str] = set()
    for match in _DECLARED.finditer(bare):
        kinds = {kind: name for kind, name in match.groupdict().items() if name and kind not in ("kind", "name")}
        kind, name = (match["kind"], match["name"]) if match["kind"] else next(iter(kinds.items()))
        if name not in taken and not (
            kind == "opaque" and name in shown
        ):  # an opaque struct that is declared again, a macro with two definitions
            taken.add(name)
            [section for start, section in found if start <= match.start()][-1].names.append((kind, name))
    return [section for _, section in found if section.names]


def introduction(text: str) -> str:
    """The comment at the top of a header, as Markdown."""
    comment = _COMMENT.match(text)
    assert comment, "a header begins with a comment"
    lines = _plain(comment[0]).splitlines()
    lines[0] = re.sub(r"^\w+\.h - ", "", lines[0])
    lines[0] = lines[0][0].upper() + lines[0][1:]
    lines = [re.sub(r"^ (\w+) {2,}(\S)", r"- **\1** \2", line) for line in lines]
    lines = [re.sub(r"^ ?- ", "- ", line) for line in lines]
    out: list[str] = []
    for line in lines:
        begins, inside = line.startswith("- "), bool(out) and out[-1].startswith(("- ", " "))
        if out and (
            (begins and not inside) or (inside and not begins and re.match(r"\S", line))
        ):  # a list begins or ends
            out.append("")
        out.append(re.sub(r"\blinnet\w*_\w+(?!\.h)\b(?:\(\))?", r"`\g<0>`", line) if "`" not in line else line)
    return "\n".join(out)


def for_doxygen(text: str) -> str:
    """A header with comments that Doxygen reads. Lines keep their numbers."""
    first = _COMMENT.match(text)
    start = first.end() if first else 0
    out, last = [re.sub(r"[^\n]", "", text[:start])], start
    for match in _COMMENT.finditer(text, start):
        out.append(text[last : match.start()])
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        comment = match[0]
        if _SECTION.fullmatch(comment) or re.match(r"\s*\n\s*\n", text[match.end() :]):
            comment = re.sub(r"[^\n]", "", comment)  # a title, or about nothing that follows
        else:
            comment = ("/**< " if before.strip() else "/** ") + _escaped(comment[2:-2]) + "*/"
        out.append(comment)
        last = match.end()
    return "".join([*out, text[last:]])


def _title(text: str) -> str:
    """A section's title without the explanation behind a colon or in parentheses."""
    words = re.split(r"[:;(]|, for", " ".join(text.replace("*", " ").split()))[0].strip()
    return words[0].upper() + words[1:]


def _plain(comment: str) -> str:
    return "\n".join(re.sub(r"^ ?\*? ?", "", line) for line in comment[2:-2].strip().split("\n")).rstrip()


def _escaped(text: str) -> str:
    """Text without commands and tags of Doxygen, but with its code marked."""
    text = (
        html.escape(text, quote=False).replace("\\", "\\\\").replace("@", "\\@").replace("#", "\\#").replace("%", "\\%")
    )
    return re.sub(r"`([^`\n]+)`", r"<tt>\1</tt>", text)


if __name__ == "__main__":
    sys.stdout.write(for_doxygen(Path(sys.argv[1]).read_text()))
