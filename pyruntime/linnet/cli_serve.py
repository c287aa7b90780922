"""The command `linnet serve`: a parameter server in this process."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from linnet.sync import Link


def link_options(command: Callable[..., None]) -> Callable[..., None]:
    """The flags of keys, certificates and signs of life, which the command gets as one `link`, a linnet.sync.Link."""

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
        click.option("--lease", type=seconds, help="Seconds of silence after which the other side is lost."),
        click.option("--heartbeat", type=seconds, help="Seconds between signs of life; 5 unless the server says so."),
        click.option("--insecure", is_flag=True, help="Without a key also beyond this machine."),
        click.option("--server-name", metavar="NAME", help="Of the server's certificate, if not the address's host."),
        click.option("--authority", type=path, help="PEM: whom to trust."),
        click.option("--private-key", type=path, help="PEM."),
        click.option("--certificate", type=path, help="PEM; with --private-key and --authority."),
        click.option("--key", "key_file", type=path, help="Pre-shared key, the same file on both sides (TLS 1.3)."),
    ):
        made = option(made)
    return made


@click.command(short_help="Serve a model's parameters to workers.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--listen", multiple=True, metavar="ADDRESS", help="host:port, unix:PATH or shm:PATH. Default: loopback.")
@click.option("--mode", type=click.Choice(["synchronous", "asynchronous"]), default="synchronous", show_default=True)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="So many begin a step.")
@click.option("--quorum", type=click.IntRange(0), default=0, help="Pushes that close a step; 0: of all workers.")
@click.option("--elastic", is_flag=True, help="Lost workers are not waited for.")
@click.option("--staleness", type=click.IntRange(-1), default=-1, help="Asynchronous: steps ahead; -1: any.")
@click.option("--folder", type=click.Path(path_type=Path), help="For snapshots and the journal; goes on from there.")
@click.option("--durability", type=click.Choice(["journal", "fsync", "volatile"]), default="journal", show_default=True)
@click.option("--repair", is_flag=True, help="Go on from what is whole of a damaged journal; keeps the file aside.")
@click.option("--save-every", type=click.IntRange(0), default=0, metavar="UPDATES", help="Between snapshots.")
@click.option("--updates", type=click.IntRange(0), default=0, help="End after so many; 0: when interrupted.")
@click.option("--batch", type=click.IntRange(0), default=0, help="Examples of a global batch, shared out by speed.")
@click.option("--metrics", metavar="ADDRESS", help="Prometheus text over HTTP.")
@click.option("--threads", type=click.IntRange(0), default=0, help="Of the updates; 0: this machine's default.")
@link_options
def serve(
    model: Path, listen: tuple[str, ...], mode: str, workers: int, quorum: int, elastic: bool, staleness: int,
    folder: Path | None, durability: str, repair: bool, save_every: int, updates: int, batch: int, metrics: str | None,
    threads: int, link: Link,
) -> None:  # fmt: skip
    """Serve the parameters of MODEL, a file of linnet.sync.signatures, until interrupted.

    Prints the addresses it listens on, one per line, as soon as workers may come. SIGINT and SIGTERM end it after a
    snapshot, with --folder.
    """
    from linnet.sync import Server

    server = Server(
        model, listen=listen or ":0", mode=mode, workers=workers, quorum=quorum, elastic=elastic,
        staleness=None if staleness < 0 else staleness, folder=folder, durability=durability, save_every=save_every,
        batch=batch, metrics=metrics, threads=threads, repair=repair,
        link=link,
    )  # fmt: skip
    if repair and (lost := server.status()["left_out"]):
        click.echo(f"left out {lost:,} bytes of the journal; {folder}/journal.damaged-* is what it was", err=True)
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
    click.echo(f"ended after {version:,} updates")
