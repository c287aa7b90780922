"""The commands `linnet split` and `linnet join`: a training file as files of several servers and of their workers, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from linnet.errors import UsageError


@click.command(short_help="Spread a training file over several parameter servers.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--servers", type=click.IntRange(1, 65534), default=1, show_default=True, help="How many servers.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder for the files.")
@click.option("--rows", multiple=True, metavar="NAME", help="Split this variable by rows; default: what is too large.")
@click.option("--whole", is_flag=True, help="Split no variable.")
@click.option("--train", is_flag=True, help="Workers keep `train`, for the local steps of federated rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def split(
    model: Path, servers: int, output: Path, rows: tuple[str, ...], whole: bool, train: bool, as_json: bool
) -> None:
    """Write server-0.lnt, server-1.lnt, ... and worker.lnt of MODEL, a file of linnet.sync.signatures, into a folder.

    Parameters whose updates depend on one another stay together, with their optimizer state; a table is split by rows
    where each row's update depends on that row alone.
    """
    from linnet.sync import partition

    parts = partition(model, servers, split=list(rows) if rows or whole else "auto", train=train)
    paths = parts.save(output)
    files: list[dict[str, Any]] = [
        {
            "file": str(path),
            "variables": len(graph.variables),
            "bytes": sum(v.value.nbytes for v in graph.variables.values()),
            "rows": {
                key.partition("/")[2]: value
                for key, value in graph.metadata.items()
                if key.startswith("sync.first_row/")
            },
        }
        for path, graph in zip(paths, [*parts.servers, parts.worker], strict=True)
    ]
    if as_json:
        click.echo(json.dumps({"files": files, "kept_whole": parts.kept_whole}))
        return
    for file in files:
        rest = f", rows of {len(file['rows'])}" if file["rows"] else ""
        click.echo(f"{file['file']}: {file['variables']} variables, {file['bytes'] / 1e6:,.1f} MB{rest}")
    for reason in parts.kept_whole.values():
        click.echo(f"kept whole: {reason}")


@click.command(short_help="Put what several servers trained into one model again.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("parts", nargs=-1, required=True, metavar="SERVER.lnt=SNAPSHOT...")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The model with the trained values."
)
def join(model: Path, parts: tuple[str, ...], output: Path) -> None:
    """Write MODEL with the values of its servers: for each the file that `linnet split` made, and its latest snapshot."""
    from linnet.sync import join as joined

    pairs = [part.partition("=") for part in parts]
    for file, equals, snapshot in pairs:
        if not equals or not snapshot:
            raise UsageError("this is no part with its snapshot", code=101, expected="SERVER.lnt=SNAPSHOT", got=file)
    graph = joined(model, [(file, snapshot) for file, _, snapshot in pairs])
    graph.save(output)
    click.echo(f"{output}: {len(graph.variables)} variables of {len(parts)} servers")
