"""The command `linnet parameter-server`: runs a parameter server in this process."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.options import user_ops_of, user_ops_option

if TYPE_CHECKING:
    from linnet.sync import Link


def link_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options for keys, certificates and heartbeats. The command receives them as one argument `link`, a
    linnet.sync.Link."""

    @functools.wraps(command)
    def with_link(
        *, key_file: Path | None, certificate: Path | None, private_key: Path | None, authority: Path | None,
        server_name: str | None, insecure: bool, heartbeat: float | None, lease: float | None, **others: Any,
    ) -> None:  # fmt: skip
        from linnet.sync import Link

        link = Link(
            key_file, certificate, private_key, authority, insecure=insecure, heartbeat=heartbeat, lease=lease,
            server_name=server_name,
        )  # fmt: skip
        command(link=link, **others)

    path, seconds = click.Path(path_type=Path), click.FloatRange(0.001, 2_000_000)
    made: Callable[..., None] = with_link
    for option in (
        click.option(
            "--lease",
            type=seconds,
            help="Seconds of silence after which the other side counts as lost. Default: three heartbeats.",
        ),
        click.option(
            "--heartbeat",
            type=seconds,
            help="Seconds between heartbeats. Default for a server: a third of --lease, or 5 without --lease. "
            "Default for all others: the server's value.",
        ),
        click.option(
            "--insecure", is_flag=True, help="Allow connections to other machines without a key or certificate."
        ),
        click.option(
            "--server-name",
            metavar="NAME",
            help="Name that the server's certificate must carry. Default: the host of the address.",
        ),
        click.option("--authority", type=path, help="PEM file of the certificate authority to trust."),
        click.option("--private-key", type=path, help="PEM file of this side's private key."),
        click.option(
            "--certificate", type=path, help="PEM file of this side's certificate. Needs --private-key and --authority."
        ),
        click.option(
            "--key", "key_file", type=path, help="File with a pre-shared key, the same on both sides. Turns on TLS 1.3."
        ),
    ):
        made = option(made)
    return made


@click.command("parameter-server", short_help="Serve a model's parameters to workers.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--listen",
    multiple=True,
    metavar="ADDRESS",
    help="host:port, unix:PATH or shm:PATH to listen on. May be repeated. Default: a free port on loopback.",
)
@click.option(
    "--mode",
    type=click.Choice(["synchronous", "asynchronous"]),
    default="synchronous",
    show_default=True,
    help="synchronous: each update averages one push from every worker. asynchronous: each push is its own update.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of workers that must join before a step begins.",
)
@click.option(
    "--backup",
    type=click.IntRange(0),
    default=0,
    help="Number of workers that a step does not wait for; their late pushes are dropped.",
)
@click.option("--elastic", is_flag=True, help="Stop waiting for workers that are lost.")
@click.option(
    "--staleness",
    type=click.IntRange(-1),
    default=-1,
    help="Asynchronous mode: maximum number of steps by which a worker may be ahead of the slowest. -1: no limit.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Folder for snapshots and the journal. A server started again on this folder resumes from it.",
)
@click.option(
    "--durability",
    type=click.Choice(["journal", "fsync", "volatile"]),
    default="journal",
    show_default=True,
    help="What happens before an update is acknowledged: journal writes it to the journal, "
    "fsync also flushes it to disk, volatile does neither and relies on snapshots.",
)
@click.option(
    "--repair", is_flag=True, help="Resume from the intact part of a damaged journal. The damaged file is kept."
)
@click.option(
    "--save-every",
    type=click.IntRange(0),
    default=0,
    metavar="UPDATES",
    help="Number of updates between snapshots. 0: only at the end.",
)
@click.option(
    "--updates", type=click.IntRange(0), default=0, help="Stop after this many updates. 0: run until interrupted."
)
@click.option(
    "--batch", type=click.IntRange(0), default=0, help="Examples in a global batch, divided among workers by speed."
)
@click.option("--metrics", metavar="ADDRESS", help="Address for Prometheus metrics over HTTP.")
@click.option(
    "--threads", type=click.IntRange(0), default=0, help="Threads that apply updates. 0: this machine's default."
)
@user_ops_option
@link_options
def parameter_server(
    model: Path, listen: tuple[str, ...], mode: str, workers: int, backup: int, elastic: bool, staleness: int,
    folder: Path | None, durability: str, repair: bool, save_every: int, updates: int, batch: int, metrics: str | None,
    threads: int, user_ops: tuple[str, ...], link: Link,
) -> None:  # fmt: skip
    """Serve the parameters of MODEL until interrupted. MODEL is a file written by linnet.sync.signatures.

    The addresses are printed, one per line, as soon as workers can connect. SIGINT or SIGTERM stops the server; with
    --folder it writes a snapshot first.
    """
    from linnet.session.model import Model
    from linnet.sync import Server

    if backup >= workers:
        raise click.BadParameter(f"{backup} must be less than --workers {workers}", param_hint="'--backup'")

    server = Server(
        Model(model, user_ops=user_ops_of(user_ops)),
        listen=listen or ":0", mode=mode, workers=workers, quorum=workers - backup if backup else 0, elastic=elastic,
        staleness=None if staleness < 0 else staleness, folder=folder, durability=durability, save_every=save_every,
        batch=batch, metrics=metrics, threads=threads, repair=repair,
        link=link,
    )  # fmt: skip
    if repair and (lost := server.status()["left_out"]):
        click.echo(
            f"skipped {lost:,} damaged bytes of the journal; the original is kept as {folder}/journal.damaged-*",
            err=True,
        )
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    for address in server.addresses:
        click.echo(address)
    if server.metrics_address is not None:
        click.echo(f"http://{server.metrics_address}/metrics", err=True)
    server.start(updates)
    while not ended and not server.wait(0.1):
        pass
    server.stop()
    version = server.status()["version"]
    server.close()
    click.echo(f"stopped after {version:,} updates")
