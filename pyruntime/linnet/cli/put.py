"""The command `linnet put`: sets variables of a running job at its servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.options import user_ops_of, user_ops_option
from linnet.cli.parameter_server import link_options

if TYPE_CHECKING:
    from linnet.sync import Link


@click.command(short_help="Set variables of a running job on its servers.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("servers", nargs=-1, required=True, metavar="ADDRESS...")
@click.option(
    "--value",
    "values",
    multiple=True,
    required=True,
    metavar="NAME=FILE.npy",
    help="Variable and the file with its value, or a number for all elements. May be repeated.",
)
@click.option(
    "--lost",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    help="Give up after this many seconds without a server.",
)
@user_ops_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects instead of lines.")
@link_options
def put(
    model: Path, servers: tuple[str, ...], values: tuple[str, ...], lost: float, user_ops: tuple[str, ...], as_json: bool,
    link: Link,
) -> None:  # fmt: skip
    """Set variables of the job that trains MODEL. Give the ADDRESS of one server per shard.

    A server checks the value, writes it to its journal and stores it between two updates. Workers get the new value
    when they next receive values. The optimizer's state does not change. This needs the same key or certificate as a
    worker.
    """
    from linnet.clib.errors import UsageError
    from linnet.session.model import Model
    from linnet.sync import Worker

    made = Model(model, user_ops=user_ops_of(user_ops))
    shapes = {spec.name: tuple(d or 0 for d in spec.shape or ()) for spec in made.variables}
    chosen: dict[str, Any] = {}
    for text in values:
        name, equals, source = text.partition("=")
        if not equals or not source:
            raise click.BadParameter(f"'{text}' is not NAME=FILE.npy or NAME=NUMBER", param_hint="'--value'")
        if name not in shapes:
            raise UsageError(
                "the model has no variable of this name", code=102, tensor=name, expected=", ".join(sorted(shapes)[:20])
            )
        chosen[name] = _value(source, shapes[name])
    with Worker(made, servers, writer=True, lost=lost, link=link) as writer:
        for name, value in chosen.items():
            writer.put(name, value)
            record = {"name": name, "shape": list(value.shape)}
            click.echo(json.dumps(record) if as_json else f"put {name} {list(value.shape)}")


def _value(source: str, shape: tuple[int, ...]) -> Any:
    """The array of a .npy file, or an array of one number."""
    import numpy as np

    from linnet.clib.errors import UsageError

    try:
        return np.full(shape, int(source))
    except ValueError:
        pass
    try:
        return np.full(shape, float(source), np.float32)
    except ValueError:
        pass
    try:
        return np.load(source, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            "a value cannot be read", code=201, tensor=source, expected="a .npy file or a number", got=str(error)
        ) from None
