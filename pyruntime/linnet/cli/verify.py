"""The command `linnet verify`: checks that a .lnt file (model or checkpoint) is byte for byte as it was written.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.clib.errors import Error, FileError, GraphError
from linnet.report.tables import count, size

if TYPE_CHECKING:
    from linnet.session.model import Model


@click.command(short_help="Check every byte of a model or checkpoint against its digests.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a line.")
def verify(model: Path, as_json: bool) -> int:
    """Check every byte of MODEL (a model or checkpoint) against the digests in the file: header, structure, weights and
    initial values. Bytes that are missing, added or moved are found as well. If anything differs, the exit status is 1
    and the first differing tensor is named."""
    from linnet.session.model import Verified

    found = Verified(0, 0, 0, 0)
    problem: Error | None
    try:
        found, problem = _opened(model).verified(strict=True)
    except FileError as error:  # the structure itself is damaged
        problem = error
    if as_json:
        parts = ("status", "what", "tensor", "expected", "got", "hint")
        told = None if problem is None else {part: getattr(problem, part) for part in parts}
        click.echo(
            json.dumps({"model": str(model), "ok": problem is None, **dataclasses.asdict(found), "problem": told})
        )
    if problem is not None:
        text = str(problem) if str(model) in str(problem) else f"{model}: {problem}"
        more = f" ({count(found.problems, 'place')} differ)" if found.problems > 1 else ""
        click.echo(f"linnet: error: {text}{more}", err=True)
        return 1
    if not as_json:
        click.echo(f"{model}: intact: {count(found.segments, 'segment')}, {size(found.bytes)}, as written")
    return 0


def _opened(path: Path) -> Model:
    """The model. The bytes of a file can be checked without the user ops that it names."""
    from linnet.file.reader import from_bytes, read_linnet
    from linnet.ir.user_op import named_in
    from linnet.session.model import Model

    try:
        return Model(path, verify=False)
    except GraphError:
        graph = from_bytes(read_linnet(path), str(path), verify=False)
        return Model(path, verify=False, user_ops=named_in(graph))
