"""The table of messages in docs/protocol.md, made of runtime_c/sync/codec/messages.inc: `python -m tests.message_table --write`.
tests/test_sync_protocol.py holds both equal."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "runtime_c" / "sync" / "codec" / "messages.inc"
PAGE = ROOT / "docs" / "protocol.md"
BEGIN, END = "<!-- messages: python -m tests.message_table --write -->\n", "<!-- end of the messages -->\n"
# The groups of messages.inc: the column "from", and the roles.
WRITERS = {"WORKER", "WRITER"}
PULLERS = WRITERS | {"READER"}
CLIENTS = PULLERS | {"OBSERVER"}
SENDERS: dict[str, tuple[str, set[str]]] = {
    "WORKERS": ("C", {"WORKER"}),
    "WRITERS": ("C", WRITERS),
    "PULLERS": ("C", PULLERS),
    "CLIENTS": ("C", CLIENTS),
    "CLIENTS_AND_PEERS": ("C", CLIENTS | {"PEER"}),
    "SERVER": ("S", {"SERVER"}),
    "SERVER_AND_PEERS": ("S", {"SERVER", "PEER"}),
    "PEERS": ("peer", {"PEER"}),
    "ALL": ("both", CLIENTS | {"PEER", "SERVER"}),
}
_LINE = re.compile(
    r'^LN_MESSAGE\((\d+), (\w+), (\w+), (\w+), (\w+), (\w+), (\w+), (\w+), (\d+), "(.*)"\)$', re.MULTILINE
)


@dataclass(frozen=True)
class Message:
    """A line of messages.inc."""

    number: int
    name: str
    lower: str
    kind: str
    flags: str
    phase: str
    senders: str
    form: str
    size: int
    text: str

    @property
    def bulk(self) -> bool:
        """Whether the message is sent in chunks."""
        return self.kind != "CONTROL"

    @property
    def payload(self) -> str:
        """What the table says of its payload."""
        size = f"{self.size} bytes"
        words = {"STRUCT": size, "ENTRIES": f"entries of {size}", "TEXT": f"{size} and a text", "OWN": "see below"}
        return "chunks" if self.bulk else words.get(self.form, "none")


def messages() -> list[Message]:
    """The lines of messages.inc."""
    return [Message(int(n), *words, int(size), text) for n, *words, size, text in _LINE.findall(LIST.read_text())]


def sent_by(role: str, *phases: str) -> set[str]:
    """The names of the messages of these phases that a role may send."""
    return {message.name for message in messages() if message.phase in phases and role in SENDERS[message.senders][1]}


def table() -> str:
    """The table as the page has it."""
    rows = ["| type | name | from | kind | payload | |", "|---|---|---|---|---|---|"]
    for m in messages():
        kind = "bulk" if m.bulk else "control"
        rows.append(f"| {m.number} | {m.name} | {SENDERS[m.senders][0]} | {kind} | {m.payload} | {m.text} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """The page with the table in its place."""
    text = PAGE.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:begin] + "\n" + table() + "\n" + text[end:]


def main() -> None:
    """Writes the table into the page with --write; prints it without."""
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        print(table(), end="")


if __name__ == "__main__":
    main()
