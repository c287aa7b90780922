"""`python -m examples.evaluation` lists the evaluations and runs them all; `--list` only lists them. `--publish` then keeps the
figures as published.json, and puts their sentences and figures into README.md."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import result

NAMES = ("step_times", "null_step", "backup_workers", "scaling", "language_model", "deepbench", "placement")
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- figures: `python -m examples.evaluation --publish` writes them -->", "<!-- end of figures -->"


def module(name: str) -> Any:
    """The module of an evaluation."""
    return importlib.import_module(f"examples.evaluation.{name}")


def about(name: str) -> str:
    """What an evaluation shows, in words: the docstring of its module after the command."""
    return " ".join(str(module(name).__doc__).split("`: ", 1)[1].split())


def section(records: dict[str, Any]) -> str:
    """The README's figures, as Markdown: one part per evaluation."""
    parts = []
    for name, record in records.items():
        lines = [f"### {record['title']}", "", f"`{name}`, {result.named(record['machine'])}. {record['sentence']}", ""]
        lines += ["| figure | here | unit | how | source |", "|---|---:|---|---|---|"]
        for figure in record["figures"]:
            value = result.short(figure["value"])
            lines.append(f"| {figure['name']} | {value} | {figure['unit']} | {figure['kind']} | {figure['source']} |")
        parts.append("\n".join([*lines, "", record["setting"], "", f"Source: {record['source']}."]))
    return "\n\n".join(parts)


def publish(names: Sequence[str], folder: Path) -> None:
    """Adds the records of these evaluations to published.json, and writes the README's figures from it."""
    records = result.published()
    for name in names:
        records[name] = json.loads((folder / f"{name}.json").read_text())
        records[name].pop("extra")  # may be large
    records = {name: records[name] for name in NAMES if name in records}
    result.PUBLISHED.write_text(json.dumps(records, indent=1) + "\n")
    text = README.read_text()
    head, rest = text.split(BEGIN)
    README.write_text(f"{head}{BEGIN}\n\n{section(records)}\n\n{END}{rest.split(END)[1]}")
    print(f"Published: {', '.join(names)}, in {result.PUBLISHED.name} and {README.name}.")


def main(words: Sequence[str] | None = None) -> None:
    """Runs `python -m examples.evaluation`."""
    made = result.parser("evaluation", __doc__)
    made.prog = "python -m examples.evaluation"
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    made.add_argument("--list", action="store_true", help="list the evaluations, and run none")
    made.add_argument("--publish", action="store_true", help="keep the figures as the published ones")
    given: argparse.Namespace = made.parse_args(words)
    if unknown := [name for name in given.names if name not in NAMES]:
        made.error(f"no evaluation is called {', '.join(unknown)}: expected {', '.join(NAMES)}")
    if given.publish and given.quick:
        made.error("--quick has no figures to publish: leave out --quick or --publish")
    names = given.names or NAMES
    for name in names:
        print(f"{name}: {about(name)}")
    if given.list:
        return
    for name in names:
        print(f"\n{name}", flush=True)
        begin = time.monotonic()
        options = ["--out", str(given.out), "--seed", str(given.seed), *(["--quick"] if given.quick else [])]
        module(name).main(options)
        print(f"{name} took {time.monotonic() - begin:.0f} s.", file=sys.stderr)
    if given.publish:
        publish(names, given.out)


if __name__ == "__main__":
    main()
