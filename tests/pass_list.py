"""The list of passes in docs/architecture.md, made of runtime_c/plan/compile/passes.inc: `python -m tests.pass_list --write`.
tests/test_passes.py holds both equal."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLAN = ROOT / "runtime_c" / "plan"
LIST = PLAN / "compile" / "passes.inc"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- passes: python -m tests.pass_list --write -->\n", "<!-- end of the passes -->\n"
WHEN = {
    "ALWAYS": "",
    "OF_SIGNATURE": "Runs when the plan of a signature is made, not for bodies or later segments.",
    "OF_SEGMENT": "Runs only for a later segment.",
    "WITH_DEVICES": "Runs only with devices.",
    "PLACED": "Runs only with devices or a cluster.",
    "FAST": "Does not run in reference plans.",
    "STRUCTURED": "Does not run in reference plans, nor with `reference = 2`.",
    "TO_FIT": "Runs only to make a plan that assigns variables fit `max_bytes`.",
    "SIDE_BY_SIDE": "Runs for signatures that write no variables, on several threads, without devices.",
    "IN_FRAME": "Runs only with `reference = 2`.",
}
_LINE = re.compile(r"^LN_(FACT|PASS)\((.*?)\)$", re.MULTILINE | re.DOTALL)
_TEXT = re.compile(r'"(?:\\.|[^"\\])*"')


@dataclass(frozen=True)
class Pass:
    """A line of the list. file: where its function is, below runtime_c/plan."""

    name: str
    function: str
    when: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    ends: tuple[str, ...]
    does: str

    @property
    def file(self) -> str:
        """The file that defines the function, below runtime_c/plan."""
        definition = re.compile(rf"^linnet_status {self.function}\(ln_work \*w\) {{$", re.MULTILINE)
        (file,) = (path for path in sorted(PLAN.glob("*/*.c")) if definition.search(path.read_text()))
        return file.relative_to(PLAN).as_posix()


def _fields(line: str) -> list[str]:
    """The arguments of a line. Only the last one is a text, of one or more pieces."""
    before = line[: line.index('"')]
    text = "".join(ast.literal_eval(piece) for piece in _TEXT.findall(line))
    return [*(part.strip() for part in before.rstrip().rstrip(",").split(",")), text]


def facts() -> dict[str, str]:
    """The sentence of each fact."""
    lines = (_fields(body) for kind, body in _LINE.findall(LIST.read_text()) if kind == "FACT")
    return {name: sentence for name, _, sentence in lines}


def passes() -> list[Pass]:
    """The passes in order."""

    def names(text: str) -> tuple[str, ...]:
        return tuple(name for name in text.split(" | ") if name != "NOTHING")

    found = []
    for kind, body in _LINE.findall(LIST.read_text()):
        if kind == "PASS":
            name, function, when, needs, gives, ends, does = _fields(body)
            found.append(Pass(name, function, when, names(needs), names(gives), names(ends), does))
    return found


def page() -> str:
    """The list for the page: a table of passes and a table of facts."""

    def words(names: tuple[str, ...]) -> str:
        return ", ".join(name.lower() for name in names)

    rows = ["| pass | file | what it does | needs | then holds |", "|---|---|---|---|---|"]
    for p in passes():
        ends = f"; no longer: {words(p.ends)}" if p.ends else ""
        does = f"{WHEN[p.when]} {p.does}".strip()
        rows.append(f"| {p.name} | `{p.file}` | {does} | {words(p.needs)} | {words(p.gives)}{ends} |")
    rows += ["", "| fact | what holds between passes |", "|---|---|"]
    rows += [f"| {name.lower()} | {sentence} |" for name, sentence in facts().items()]
    return "\n".join(rows) + "\n"


def parts() -> tuple[str, str, str]:
    """The page's text before the list, the list, and the text after it."""
    before, rest = PAGE.read_text().split(BEGIN)
    written, after = rest.split(END)
    return before, written, after


def main() -> None:
    before, _, after = parts()
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(before + BEGIN + page() + END + after)
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
