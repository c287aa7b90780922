"""What both searches share: their options, the lines during the run, and the table, picture and page at its end."""

from __future__ import annotations

import argparse
from pathlib import Path

from linnet import search
from linnet.report.tables import show
from linnet.search import drawing, words


def options(name: str, doc: str | None, trials: int) -> argparse.ArgumentParser:
    """The options of both commands."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.search.{name}", description=doc)
    parser.add_argument("--trials", type=int, default=trials, help="number of trials (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the study and of the training (%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path(f"search-{name}"),
        help="folder for the journal, the picture and the page (%(default)s); run again, the study continues there",
    )  # fmt: skip
    return parser


def line(row: search.Row, settings: search.Settings) -> None:
    """Prints a finished trial."""
    print(words.line(row, settings), flush=True)


def finish(found: search.Found, out: Path, title: str) -> None:
    """Prints the tables, and writes the picture and the page."""
    print(f"{words.goal(found.settings)}\n{words.summary(found)}")
    show(*words.tables(found))
    drawing.write_picture(found, out / "front.png")
    drawing.write_page(found, out / "study.html", title)
    print(f"Picture: {out / 'front.png'}; page: {out / 'study.html'}")
