"""`linnet report`: measures a machine and writes a small file that its owner can send. linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.deploy import dtypes_of, interrupted, ssh_option, threads_list_option, threads_of, warn, warn_of_left
from linnet.cli.options import CommandLineError, json_option, note, shapes_of, shapes_option, trust_pickle_option
from linnet.clib.errors import Error, FileError
from linnet.report.tables import show as _show
from linnet.report.tables import size


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """The options of `linnet report`."""

    output: Path = option(
        "-o", "--output", type=click.Path(path_type=Path), default=Path("report.json"), show_default=True,
        help="The file to write.",
    )  # fmt: skip
    models: str | None = option(
        "--models", metavar="NAME,...",
        help="Standard models to measure: any of mobilenet_v2, kws, lstm, resnet50. Default: the first three, "
        "if no MODEL is given.",
    )  # fmt: skip
    dtypes: str | None = option(
        "--dtypes", metavar="NAME,...", help="Dtypes to measure: any of f32, f16, i16 and i8. Default: all."
    )
    threads: str | None = shared(threads_list_option)
    seconds: float = option(
        "--seconds",
        type=click.FloatRange(0.01, 600),
        default=3.0,
        show_default=True,
        help="How many seconds each measurement takes.",
    )
    inputs: Sequence[str] = shared(shapes_option())
    ssh_options: Sequence[str] = shared(ssh_option)
    trust_pickle: bool = shared(trust_pickle_option)
    as_json: bool = shared(json_option)


@click.command(short_help="Measure a machine and write a file to send back.")
@click.argument("target", metavar="[TARGET]", default="local")
@click.argument("files", metavar="[MODEL]...", nargs=-1, type=click.Path(path_type=Path))
@takes(ReportOptions)
def report(target: str, files: Sequence[Path], given: ReportOptions) -> int:
    """Measure TARGET with standard models, check its results, and write a small file that its owner can send back.

    TARGET is local (the default) or, as for `linnet deploy`, an ssh host, adb or emulate:CPU. The standard models have
    random weights, and ranges for i16 and i8 come from random samples, so the report is about speed and not about
    accuracy. If MODEL is given (any file that `linnet convert` reads), these files are measured instead, and the report
    contains their names. It contains no names of hosts or users, no addresses, no paths and no serial numbers.
    """
    from linnet.deploy import report_file, report_run, report_text
    from linnet.deploy.address import target_of
    from linnet.deploy.interrupts import Interrupted
    from linnet.file.atomic import write_atomic

    if not math.isfinite(given.seconds):
        raise CommandLineError(
            "--seconds must be a finite number", code=101, got=str(given.seconds), hint="for example --seconds 3"
        )
    if given.output.is_dir() or not given.output.parent.is_dir():
        raise FileError(
            "the report cannot be written", code=207, tensor=str(given.output), expected="a file in an existing folder",
            hint="give another path with -o",
        )  # fmt: skip
    place = target_of(target, given.ssh_options)
    request = report_run.Request(
        place,
        _models(given.models, files),
        dtypes_of(given.dtypes),
        threads_of(given.threads),
        given.seconds,
        shapes_of(given.inputs),
        given.trust_pickle,
    )
    found = report_run.Found()
    quiet = given.as_json and not sys.stderr.isatty()

    def show(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    try:
        report_run.measure_all(request, found, show)
        content = found.report(request)
    except Interrupted:
        return interrupted(found, place)
    except Error:
        if not given.as_json:
            _show(*report_text.tables(found.rows, found.verified))
        warn_of_left(found, place)
        raise
    text = report_file.text(content)
    write_atomic(given.output, iter([text.encode()]))
    warn_of_left(found, place)
    for line in report_text.throttled(found.rows) + [f"{line}; please send this report" for line in found.bad]:
        warn(line)
    if place.prefix:
        note(
            "times under emulation say nothing about the real CPU, so the report is marked and does not count as hardware"
        )
    if given.as_json:
        click.echo(json.dumps(content))
        return 0
    click.echo(report_text.machine_line(content))
    _show(*report_text.tables(found.rows, found.verified))
    click.echo(
        f"{given.output}: {size(len(text.encode()))}. To send it, open an issue and attach it, or add it to docs/reports."
    )
    return 0


def _models(names: str | None, files: Sequence[Path]) -> list[str | Path]:
    from linnet.deploy.standard_models import DEFAULT, MODELS

    wanted = tuple(dict.fromkeys(names.split(","))) if names else () if files else DEFAULT
    for name in wanted:
        if name not in MODELS:
            raise CommandLineError(
                "--models contains an unknown name", code=102, expected=", ".join(MODELS), got=name,
                hint="for example --models mobilenet_v2,kws",
            )  # fmt: skip
    return [*wanted, *files]
