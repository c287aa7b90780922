"""`linnet search`: runs the study that a study.toml describes, and shows what it has found. linnet.cli.main adds it to its
group."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import json_option
from linnet.report.tables import show as _show

if TYPE_CHECKING:
    from linnet.search.result import Found


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """The options of `linnet search`."""

    show: bool = option("--show", is_flag=True, help="Only show what the journal has; run no trial.")
    trials: int | None = option(
        "--trials",
        type=click.IntRange(1),
        metavar="N",
        help="How many trials the study has in the end. Default: as in STUDY.",
    )
    workers: int = option(
        "--workers", type=click.IntRange(1, 256), default=1, show_default=True, metavar="N",
        help="Processes that share the trials. One process makes the same trials in each run; several depend on time.",
    )  # fmt: skip
    page: Path | None = option(
        "--html", type=click.Path(path_type=Path), metavar="FILE.html", help="Write the result as one page."
    )
    picture: Path | None = option(
        "--picture", type=click.Path(path_type=Path), metavar="FILE.png",
        help="Draw the Pareto front, or the course of a single objective.",
    )  # fmt: skip
    as_json: bool = shared(json_option)


@click.command(short_help="Search hyper-parameters and architectures for a device.")
@click.argument("study", type=click.Path(path_type=Path))
@takes(SearchOptions)
def search(study: Path, given: SearchOptions) -> int:
    """Run the trials that STUDY, a study.toml, describes, and show the best, or the Pareto front.

    If it is interrupted or killed, the same command continues the study. Processes that are started on the same STUDY,
    also on several machines with a common folder, share its trials.
    """
    from linnet.search import drawing, load, read_study, run, words

    if given.page is not None:
        drawing.check(given.page, "the page", ("html", "htm"))
    if given.picture is not None:
        drawing.check(given.picture, "the picture", drawing.FORMATS)
    read = read_study(study)
    settings = read.settings if given.trials is None else dataclasses.replace(read.settings, trials=given.trials)
    quiet = given.as_json and not sys.stderr.isatty()
    try:
        if given.show:
            found = load(settings)
        else:
            function = read.function()
            with _helpers(study, settings.trials, given.workers - 1):
                found = run(
                    function, settings,
                    lambda row: None if quiet else click.echo(words.line(row, settings), err=True),
                )  # fmt: skip
            found = load(settings) if given.workers > 1 else found
    except KeyboardInterrupt:
        click.echo("linnet: error: interrupted; run the same command again to continue", err=True)
        return 130
    _write(found, study, given)
    if given.as_json:
        click.echo(json.dumps({"study": str(study), **found.as_dict()}))
        return 0
    click.echo(f"{study}: {words.goal(settings)}\n{words.summary(found)}")
    _show(*words.tables(found))
    return 0


def _write(found: Found, study: Path, given: SearchOptions) -> None:
    from linnet.search import drawing

    if given.picture is not None:
        drawing.write_picture(found, given.picture)
    if given.page is not None:
        drawing.write_page(found, given.page, f"Search of {study.name}")


@contextlib.contextmanager
def _helpers(study: Path, trials: int, number: int) -> Iterator[None]:
    """Further processes of the same study. Their lines go to stderr. If one fails, the others take over its trial."""
    words = [sys.executable, "-m", "linnet", "search", str(study), "--trials", str(trials)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(number):
            started.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        yield
        for process in started:
            process.wait()
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
                process.wait()
