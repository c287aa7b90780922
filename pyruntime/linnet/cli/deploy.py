"""`linnet deploy`: runs and times a model on another machine. linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    CommandLineError,
    calibration_option,
    image_option,
    json_option,
    note,
    samples_option,
    shapes_of,
    shapes_option,
    trust_pickle_option,
)
from linnet.clib.errors import Error
from linnet.report.tables import show as _show

if TYPE_CHECKING:
    from linnet.deploy.connection import Leftover
    from linnet.deploy.target import Target

threads_list_option = click.option(
    "--threads", metavar="N,...",
    help="Numbers of threads to measure. Default: 1, and the cores of the target's largest cluster.",
)  # fmt: skip
ssh_option = click.option(
    "--ssh-option", "ssh_options", multiple=True, metavar="NAME=VALUE", help="Option for ssh -o. May be repeated."
)


@dataclasses.dataclass(frozen=True)
class DeployOptions:
    """The options of `linnet deploy`."""

    bench: bool = option(
        "--bench", is_flag=True, help="Only measure times. Without --bench and --verify, both are done."
    )
    verify: bool = option("--verify", is_flag=True, help="Only compare results with those of this machine.")
    dtypes: str | None = option(
        "--dtypes", metavar="NAME,...",
        help="Dtypes to make and compare: any of f32, f16, i16 and i8. Default: f32, and i8 with --calibration; the "
        "model's own if it is already quantized.",
    )  # fmt: skip
    threads: str | None = shared(threads_list_option)
    calibration: Path | None = shared(calibration_option)
    samples: int | None = shared(samples_option)
    image: str | None = shared(image_option)
    inputs: Sequence[str] = shared(shapes_option())
    seconds: float = option(
        "--seconds",
        type=click.FloatRange(0.01),
        default=2.0,
        show_default=True,
        help="How many seconds each measurement takes.",
    )
    picture: Path | None = option(
        "--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Write the times as a bar chart."
    )
    keep: bool = option("--keep", is_flag=True, help="Leave the files on the target, and print how to run them there.")
    ssh_options: Sequence[str] = shared(ssh_option)
    trust_pickle: bool = shared(trust_pickle_option)
    as_json: bool = shared(json_option)


@click.command(short_help="Run and time a model on another machine.")
@click.argument("target", metavar="TARGET")
@click.argument("model", type=click.Path(path_type=Path))
@takes(DeployOptions)
def deploy(target: str, model: Path, given: DeployOptions) -> int:
    """Send MODEL to TARGET, compare its results there with those of this machine, time it there, and remove it again.

    TARGET has one of these forms: [user@]host[:port] (over ssh); adb or adb:SERIAL; local; emulate:CPU, for example
    emulate:cortex-a72. MODEL is any file that `linnet convert` reads, or a .lnt file.
    """
    from linnet.deploy import outcome_text
    from linnet.deploy.address import target_of
    from linnet.deploy.deployment import Outcome, Request
    from linnet.deploy.deployment import deploy as run
    from linnet.deploy.interrupts import Interrupted
    from linnet.deploy.models import Source

    if not math.isfinite(given.seconds):
        raise CommandLineError(
            "--seconds must be a finite number", code=101, got=str(given.seconds), hint="for example --seconds 2"
        )
    if given.picture is not None:
        if given.verify and not given.bench:
            raise CommandLineError(
                "--plot shows times, which --verify alone does not measure", code=101, hint="add --bench"
            )
        outcome_text.check_plot()
    source = Source(given.calibration, given.samples, given.image, given.trust_pickle, note)
    place = target_of(target, given.ssh_options)
    request = Request(
        place, model, given.bench or not given.verify, given.verify or not given.bench, dtypes_of(given.dtypes),
        threads_of(given.threads), given.seconds, shapes_of(given.inputs), source, given.keep, sys.stderr.isatty(),
    )  # fmt: skip
    outcome = Outcome()
    quiet = given.as_json and not sys.stderr.isatty()

    def show(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    try:
        run(request, outcome, show)
    except Interrupted:
        return interrupted(outcome, place)
    except Error as error:
        if given.as_json:
            click.echo(json.dumps(outcome_text.as_json(outcome, place.name, model, str(error))))
        else:
            _show(*outcome_text.tables(outcome, bool(place.prefix)))
        warn_of_left(outcome, place)
        raise
    warn_of_left(outcome, place)
    for line in outcome_text.throttled(outcome):
        warn(line)
    if given.as_json and place.prefix and outcome.results:  # the table's title says so
        click.echo("linnet: note: times under emulation say nothing about the real CPU", err=True)
    if given.picture is not None:
        outcome_text.plot(outcome, place.name, given.picture)
    if given.as_json:
        click.echo(json.dumps(outcome_text.as_json(outcome, place.name, model)))
        return 0
    click.echo(f"{model} on {place.name}: {outcome_text.machine_line(outcome, bool(place.prefix))}")
    _show(*outcome_text.tables(outcome, bool(place.prefix)))
    if outcome.kept:
        click.echo(f"kept on {place.name}: {outcome.kept}")
        for line in outcome.commands:
            click.echo(f"  {line}")
    return 0


def warn(line: str) -> None:
    """Prints a warning to stderr."""
    click.echo(f"linnet: warning: {line}", err=True)


def warn_of_left(outcome: Leftover, place: Target) -> None:
    """Warns if linnet could not confirm that the folder on the target is removed."""
    if outcome.left:
        warn(_left(outcome, place))


def interrupted(outcome: Leftover, place: Target) -> int:
    """Prints what is left on the target after Ctrl-C, and returns the exit status."""
    left = _left(outcome, place) if outcome.left else f"nothing is left on {place.name}"
    click.echo(f"linnet: error: interrupted; {left}", err=True)
    return 130


def _left(outcome: Leftover, place: Target) -> str:
    return f"{outcome.left} may be left on {place.name}; remove it with: {outcome.removal}"


def dtypes_of(text: str | None) -> tuple[str, ...]:
    """The value of --dtypes."""
    from linnet.deploy.models import DTYPES
    from linnet.ir.dtypes import named

    names = tuple(dict.fromkeys(named(name) for name in text.split(","))) if text else ()
    for name in names:
        if name not in DTYPES:
            raise CommandLineError(
                "--dtypes contains an unknown dtype",
                code=103,
                expected=", ".join(DTYPES),
                got=name,
                hint="for example f32,i8",
            )
    return names


def threads_of(text: str | None) -> tuple[int, ...]:
    """The value of --threads."""
    words = text.split(",") if text else []
    if not all(word.isascii() and word.isdecimal() and 1 <= int(word) <= 1024 for word in words):
        raise CommandLineError(
            "--threads is not a list of numbers", code=101, expected="numbers from 1 to 1024", got=text or "",
            hint="for example --threads 1,4",
        )  # fmt: skip
    return tuple(dict.fromkeys(map(int, words)))
