"""The commands `linnet shard` and `linnet merge`. The first splits a training file into one file per server and one for
workers; the second merges the trained values back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from linnet.cli.options import json_lines_option
from linnet.clib.errors import UsageError


@click.command(short_help="Split a training file over several parameter servers.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--servers", type=click.IntRange(1, 65534), default=1, show_default=True, help="Number of servers.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder for the files.")
@click.option(
    "--rows",
    multiple=True,
    metavar="NAME",
    help="Split this variable by rows. May be repeated. Default: variables that are too large for one server.",
)
@click.option("--whole", is_flag=True, help="Split no variable by rows.")
@click.option(
    "--train",
    is_flag=True,
    help="Keep the signature `train` in the worker file; federated rounds need it for their local steps.",
)
@json_lines_option
def shard(
    model: Path, servers: int, output: Path, rows: tuple[str, ...], whole: bool, train: bool, as_json: bool
) -> None:
    """Split MODEL into server-0.lnt, server-1.lnt, ... and worker.lnt. MODEL is a file written by
    linnet.sync.signatures.

    Parameters whose updates depend on each other stay together, along with their optimizer state. A table is split by
    rows only if the update of each row depends on that row alone.
    """
    from linnet.sync import shard as sharded

    parts = sharded(model, servers, split=list(rows) if rows or whole else "auto", train=train)
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


@click.command(short_help="Merge the trained values of several servers into one model.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("parts", nargs=-1, required=True, metavar="SERVER.lnt=SNAPSHOT...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The .lnt file to write, with the trained values.",
)
def merge(model: Path, parts: tuple[str, ...], output: Path) -> None:
    """Write MODEL with the trained values of its servers. Give one argument SERVER.lnt=SNAPSHOT per server: the file
    that `linnet shard` wrote and the server's latest snapshot."""
    from linnet.sync import merge as merged

    pairs = [part.partition("=") for part in parts]
    for file, equals, snapshot in pairs:
        if not equals or not snapshot:
            raise UsageError(
                "the argument does not name a server file and its snapshot",
                code=101,
                expected="SERVER.lnt=SNAPSHOT",
                got=file,
            )
    graph = merged(model, [(file, snapshot) for file, _, snapshot in pairs])
    graph.save(output)
    click.echo(f"{output}: {len(graph.variables)} variables of {len(parts)} servers")
