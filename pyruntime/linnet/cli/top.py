"""The command `linnet top`: shows a training job in the terminal. It polls the servers for their reports as an
observer, so no worker ever waits for it. linnet.sync.dashboard makes the tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.parameter_server import link_options
from linnet.clib.errors import Error

if TYPE_CHECKING:
    from linnet.sync.link import Link

Ask = Callable[[str], dict[str, Any]]


class Watch:
    """The latest and previous reports of several servers. The last report of a server that does not answer is kept."""

    def __init__(self, addresses: Sequence[str], ask: Ask) -> None:
        self.addresses, self._ask = list(addresses), ask
        self._now: list[dict[str, Any] | None] = [None] * len(self.addresses)
        self._then: list[dict[str, Any] | None] = [None] * len(self.addresses)
        self.trouble: list[str] = []

    def refresh(self) -> None:
        """Polls every server once."""
        self.trouble = []
        for i, address in enumerate(self.addresses):
            try:
                report = self._ask(address)
            except Error as error:
                self.trouble.append(str(error))
            else:
                self._then[i], self._now[i] = self._now[i], report

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The last report of each server that has ever answered, ordered by shard."""
        return sorted((report for report in self._now if report is not None), key=lambda r: int(r["shard"]))

    def view(self, lines: int | None = None, width: int | None = None) -> Any:
        """The tables to draw, in at most this many lines and columns."""
        from linnet.sync.dashboard import view

        pairs = [(now, then) for now, then in zip(self._now, self._then, strict=True) if now is not None]
        pairs.sort(key=lambda pair: int(pair[0]["shard"]))
        known = all(then is not None for _, then in pairs)
        before = [then for _, then in pairs if then is not None] if known else []
        return view([now for now, _ in pairs], before, self.trouble, lines, width)

    def first(self) -> None:
        """Polls every server for the first time. Raises the error if none answers."""
        self.refresh()
        if not self.reports:
            raise Error(
                "no server answers: " + "; ".join(self.trouble),
                hint="check the addresses; `linnet parameter-server` and `linnet launch` print them",
            )


@click.command(short_help="Watch a training job: workers, speed, staleness, traffic.")
@click.argument("servers", nargs=-1, required=True, metavar="ADDRESS...")
@click.option(
    "--interval", type=click.FloatRange(0.05), default=1.0, show_default=True, help="Seconds between reports."
)
@click.option("--once", is_flag=True, help="Print the tables once, with rates measured over one interval, and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print the servers' reports as one JSON array and exit.")
@link_options
def top(
    servers: tuple[str, ...], interval: float, once: bool, as_json: bool, link: Link
) -> None:  # fmt: skip
    """Watch a job. Each ADDRESS (host:port or unix:PATH) is a server of the job. Ctrl-C ends the display; the job is
    not affected.

    A worker is marked slow if it is below two thirds of the median speed, and awaited if all others wait for it.
    """
    from linnet.sync.link import status

    watch = Watch(servers, lambda address: status(address, link))
    if as_json:
        click.echo(json.dumps([status(address, link) for address in servers]))
        return
    if once:
        show_once(watch, interval)
        return
    live(watch, interval)


def show_once(watch: Watch, interval: float) -> None:
    """Polls each server twice and prints the tables. Raises the servers' errors if none answers."""
    from rich.console import Console

    watch.first()
    time.sleep(interval)
    watch.refresh()
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(watch.view(width=console.width))


def live(watch: Watch, interval: float) -> None:
    """Shows the tables in the terminal until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    watch.first()  # reports an address that nobody serves at once, and not on a screen that is cleared later
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, screen=True) as screen:
        try:
            while True:
                screen.update(watch.view(console.height, console.width), refresh=True)
                time.sleep(interval)
                watch.refresh()
        except KeyboardInterrupt:
            pass
