"""`linnet timeline`: the traces of several workers joined into one, and what they say. linnet.cli adds it to its group."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click


@click.command(short_help="Join the traces of workers; show where the time of a step goes.")
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The joined trace, for ui.perfetto.dev.")
@click.option("--skip", type=click.IntRange(0), default=1, show_default=True, help="First steps that are not averaged.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def timeline(traces: tuple[Path, ...], output: Path | None, skip: int, as_json: bool) -> None:
    """Join TRACES that workers wrote (linnet.sync.Timeline), all on one clock, and show where the time of a step goes."""
    from linnet.sync.simulate.units import duration_text
    from linnet.sync.timeline import read, summary, write

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
        f"computing to transfer: {found.ratio:.3g}; {found.workers} workers are {found.speedup:.2f} times one alone"
    )
