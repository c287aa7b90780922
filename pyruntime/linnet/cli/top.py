"""The command `linnet top`: shows a training job in the terminal. It polls the servers for their reports as an observer
that no worker waits for. linnet.sync.dashboard makes the tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.serve import link_options
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

    def view(self, lines: int | None = None) -> Any:
        """The table to draw, with at most `lines` lines."""
        from linnet.sync.dashboard import view

        pairs = [(now, then) for now, then in zip(self._now, self._then, strict=True) if now is not None]
        pairs.sort(key=lambda pair: int(pair[0]["shard"]))
        known = all(then is not None for _, then in pairs)
        before = [then for _, then in pairs if then is not None] if known else []
        # The headline, two titles, and four lines of borders and column names for each table.
        limit = None if lines is None else max(lines - 12 - len(pairs) - len(self.trouble), 3)
        return view([now for now, _ in pairs], before, self.trouble, limit)


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
    """Watch the job of the servers at ADDRESS... (host:port or unix:PATH). Ctrl-C ends the display; the job is not
    affected.

    Workers below two thirds of the median speed are marked slow. A worker that all others wait for is marked awaited.
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
    """Polls each server twice and prints the tables. Raises the server's error if no server answers."""
    from rich.console import Console

    watch.refresh()
    if not watch.reports:
        raise Error("no server answers: " + "; ".join(watch.trouble))
    time.sleep(interval)
    watch.refresh()
    Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(watch.view())


def live(watch: Watch, interval: float) -> None:
    """Shows the tables in the terminal until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, screen=True) as screen:
        try:
            while True:
                watch.refresh()
                screen.update(watch.view(console.height), refresh=True)
                time.sleep(interval)
        except KeyboardInterrupt:
            pass
