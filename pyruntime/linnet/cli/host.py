"""The command `linnet host`: starts linnet-host, which lends this machine to others."""

from __future__ import annotations

import click

from linnet.cli.native import become


@click.command(
    context_settings={"ignore_unknown_options": True},
    short_help="Lend this machine to others, which run parts of their models on it.",
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def host(options: tuple[str, ...]) -> None:
    """Lend the processors and the memory of this machine to others, which run parts of their models on it.

    Starts the program linnet-host and passes the options on; linnet-host --help lists them.
    """
    become("linnet-host", options)
