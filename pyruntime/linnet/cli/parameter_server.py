"""The command `linnet parameter-server`: runs a parameter server in this process."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.declared import gathers, option, shared, takes
from linnet.cli.options import user_ops_of, user_ops_option

if TYPE_CHECKING:
    from linnet.sync import Link


_PATH, _SECONDS = click.Path(path_type=Path), click.FloatRange(0.001, 2_000_000)
# The command-line option of each field of linnet.sync.Link that commands set.
_LINK = {
    "key_file": click.option(
        "--key", "key_file", type=_PATH, help="File with a pre-shared key, the same on both sides. Turns on TLS 1.3."
    ),
    "certificate": click.option(
        "--certificate", type=_PATH, help="PEM file of this side's certificate. Needs --private-key and --authority."
    ),
    "private_key": click.option("--private-key", type=_PATH, help="PEM file of this side's private key."),
    "authority": click.option("--authority", type=_PATH, help="PEM file of the certificate authority to trust."),
    "server_name": click.option(
        "--server-name",
        metavar="NAME",
        help="Name that the server's certificate must carry. Default: the host of the address.",
    ),
    "insecure": click.option(
        "--insecure", is_flag=True, help="Allow connections to other machines without a key or certificate."
    ),
    "heartbeat": click.option(
        "--heartbeat",
        type=_SECONDS,
        help="Seconds between heartbeats. Default for a server: a third of --lease, or 5 without --lease. "
        "Default for all others: the server's value.",
    ),
    "lease": click.option(
        "--lease",
        type=_SECONDS,
        help="Seconds of silence after which the other side counts as lost. Default: three heartbeats.",
    ),
}


def _link(**given: Any) -> Link:
    from linnet.sync import Link

    return Link(**given)


link_options = gathers("link", _LINK, _link)
"""Adds the options for keys, certificates and heartbeats. The command receives them as one argument `link`, a
linnet.sync.Link."""


@dataclasses.dataclass(frozen=True)
class ParameterServerOptions:
    """The options of `linnet parameter-server`."""

    listen: tuple[str, ...] = option(
        "--listen",
        multiple=True,
        metavar="ADDRESS",
        help="host:port, unix:PATH or shm:PATH to listen on. May be repeated. Default: a free port on loopback.",
    )
    mode: str = option(
        "--mode",
        type=click.Choice(["synchronous", "asynchronous"]),
        default="synchronous",
        show_default=True,
        help="synchronous: each update averages one push from every worker. asynchronous: each push is its own update.",
    )
    workers: int = option(
        "--workers",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Number of workers that must join before a step begins.",
    )
    backup: int = option(
        "--backup",
        type=click.IntRange(0),
        default=0,
        help="Number of workers that a step does not wait for; their late pushes are dropped.",
    )
    elastic: bool = option("--elastic", is_flag=True, help="Stop waiting for workers that are lost.")
    staleness: int = option(
        "--staleness",
        type=click.IntRange(-1),
        default=-1,
        help="Asynchronous mode: maximum number of steps by which a worker may be ahead of the slowest. -1: no limit.",
    )
    folder: Path | None = option(
        "--folder",
        type=click.Path(path_type=Path),
        help="Folder for snapshots and the journal. A server started again on this folder resumes from it.",
    )
    durability: str = option(
        "--durability",
        type=click.Choice(["journal", "fsync", "volatile"]),
        default="journal",
        show_default=True,
        help="What happens before an update is acknowledged: journal writes it to the journal, "
        "fsync also flushes it to disk, volatile does neither and relies on snapshots.",
    )
    repair: bool = option(
        "--repair", is_flag=True, help="Resume from the intact part of a damaged journal. The damaged file is kept."
    )
    save_every: int = option(
        "--save-every",
        type=click.IntRange(0),
        default=0,
        metavar="UPDATES",
        help="Number of updates between snapshots. 0: only at the end.",
    )
    updates: int = option(
        "--updates", type=click.IntRange(0), default=0, help="Stop after this many updates. 0: run until interrupted."
    )
    batch: int = option(
        "--batch", type=click.IntRange(0), default=0, help="Examples in a global batch, divided among workers by speed."
    )
    metrics: str | None = option("--metrics", metavar="ADDRESS", help="Address for Prometheus metrics over HTTP.")
    threads: int = option(
        "--threads", type=click.IntRange(0), default=0, help="Threads that apply updates. 0: this machine's default."
    )
    user_ops: tuple[str, ...] = shared(user_ops_option)
    link: Link = shared(link_options)


@click.command("parameter-server", short_help="Serve a model's parameters to workers.")
@click.argument("model", type=click.Path(path_type=Path))
@takes(ParameterServerOptions)
def parameter_server(model: Path, given: ParameterServerOptions) -> None:
    """Serve the parameters of MODEL until interrupted. MODEL is a file written by linnet.sync.signatures.

    The addresses are printed, one per line, as soon as workers can connect. SIGINT or SIGTERM stops the server; with
    --folder it writes a snapshot first.
    """
    from linnet.session.model import Model
    from linnet.sync import Server

    if given.backup >= given.workers:
        raise click.BadParameter(f"{given.backup} must be less than --workers {given.workers}", param_hint="'--backup'")

    server = Server(
        Model(model, user_ops=user_ops_of(given.user_ops)),
        listen=given.listen or ":0", mode=given.mode, workers=given.workers,
        quorum=given.workers - given.backup if given.backup else 0, elastic=given.elastic,
        staleness=None if given.staleness < 0 else given.staleness, folder=given.folder,
        durability=given.durability, save_every=given.save_every, batch=given.batch, metrics=given.metrics,
        threads=given.threads, repair=given.repair, link=given.link,
    )  # fmt: skip
    if given.repair and (lost := server.status()["left_out"]):
        click.echo(
            f"skipped {lost:,} damaged bytes of the journal; the original is kept as {given.folder}/journal.damaged-*",
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
    server.start(given.updates)
    while not ended and not server.wait(0.1):
        pass
    server.stop()
    version = server.status()["version"]
    server.close()
    click.echo(f"stopped after {version:,} updates")
