"""The command `linnet timeline`: summarizes the trace of a run over machines, or merges the traces of several workers.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from linnet.cli.options import json_lines_option


@click.command(short_help="Merge worker traces and show where step time is spent.")
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File for the merged trace; ui.perfetto.dev displays it."
)
@click.option(
    "--skip",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Number of steps at the start that the averages leave out.",
)
@json_lines_option
def timeline(traces: tuple[Path, ...], output: Path | None, skip: int, as_json: bool) -> None:
    """Merge TRACES written by workers (linnet.sync.Timeline) onto one clock, and show where the time of a step is
    spent. For one trace of a run (linnet run --trace), show the critical path over the machines and what would shorten
    it."""
    from linnet.report import critical_path
    from linnet.sync.simulate.units import duration_text
    from linnet.sync.timeline import read, summary, write

    if len(traces) == 1 and critical_path.is_run(traces[0]):
        if output is not None:
            raise click.UsageError("-o merges traces of workers; the trace of a run is complete, open it as it is")
        run = critical_path.read(traces[0])
        click.echo(json.dumps(dataclasses.asdict(run)) if as_json else critical_path.text(run))
        return
    workers = read(traces)
    found = summary(workers, skip)
    if output is not None:
        write(workers, output)
    if as_json:
        rest = {"step": found.step, "ratio": found.ratio, "speedup": found.speedup}
        click.echo(json.dumps(dataclasses.asdict(found) | rest))
        return
    click.echo(f"{found.steps} steps of {found.workers} workers, {duration_text(found.step)} each:")
    for name in ("compute", "transfer", "others", "update"):
        seconds = getattr(found, name)
        what = {"others": "waiting for others", "update": "update on servers"}.get(name, name)
        click.echo(f"  {what:<20} {duration_text(seconds):>8} {seconds / found.step:6.1%}")
    click.echo(
        f"ratio of computation to transfer: {found.ratio:.3g}; {found.workers} workers are {found.speedup:.2f} "
        "times as fast as one"
    )
