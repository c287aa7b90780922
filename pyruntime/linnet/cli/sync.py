"""The commands for training on several machines. Each command has a module of its own; linnet.cli.main adds them to its
group."""

from __future__ import annotations

from typing import Any, Final

import click

from linnet.cli.launch import launch
from linnet.cli.parameter_server import parameter_server
from linnet.cli.put import put
from linnet.cli.shard import merge, shard
from linnet.cli.simulate import simulate
from linnet.cli.sync_key import sync_key
from linnet.cli.timeline import timeline
from linnet.cli.top import top
from linnet.cli.worker import worker


def _renamed(old: str, command: click.Command) -> click.Command:
    """The command under its old name, for one version. It says the new name on stderr, and help does not list it."""

    @click.pass_context
    def run(context: click.Context, /, **options: Any) -> Any:
        click.echo(f"linnet: warning: `linnet {old}` is now `linnet {command.name}`", err=True)
        return context.invoke(command, **options)

    return click.Command(old, callback=run, params=command.params, help=command.help, hidden=True)


COMMANDS: Final[tuple[click.Command, ...]] = (
    launch,
    merge,
    parameter_server,
    put,
    shard,
    simulate,
    sync_key,
    timeline,
    top,
    worker,
    _renamed("split", shard),
    _renamed("join", merge),
)
