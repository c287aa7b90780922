"""`linnet check-device`: compares a device with the CPU, op by op. linnet.cli.main adds it to its group."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from linnet.cli.options import CommandLineError, json_option
from linnet.report.tables import show as _show
from linnet.report.tables import table as _table

if TYPE_CHECKING:
    from linnet.conformance import CheckReport

_SHOWN = 20  # failures that are printed in full


@click.command("check-device", short_help="Compare a device with the CPU, op by op.")
@click.argument("name", metavar="NAME|PATH")
@click.option("--ops", metavar="OP,OP,...", help="Only these ops (docs/ops.md). Default: all that a device may run.")
@click.option("--quick", is_flag=True, help="A short list of cases, with one dtype for most ops.")
@click.option("--all", "everything", is_flag=True, help="All cases, which is about five times as many as by default.")
@click.option("--seconds", type=float, help="Start no more cases after this time.")
@click.option("--case", "one", metavar="ID", help="Only this case, such as matmul.f32.6.")
@json_option
def check_device(
    name: str, ops: str | None, quick: bool, everything: bool, seconds: float | None, one: str | None, as_json: bool
) -> int:
    """Run every op and dtype that the device NAME takes, and compare the results with those of the CPU.

    Steps that the device refuses are listed; they are not failures. If a result differs, or a function of the device fails,
    the exit status is 1, and each such case is printed with the command that runs it alone.
    """
    from linnet.conformance import check_device as check

    if quick and everything:
        raise CommandLineError("--quick and --all are both given", code=101, hint="give one of them")
    names = None if ops is None else [word.strip() for word in ops.split(",") if word.strip()]
    which = "quick" if quick else "all" if everything else "usual"
    report = check(name, ops=names, seconds=seconds, cases=which, case=one)
    if as_json:
        click.echo(json.dumps(report.as_dict()))
    else:
        _print(report)
    return 0 if report.ok else 1


def _print(report: CheckReport) -> None:
    table = _table(
        f"{report.device} compared with the CPU", "op", ">agree", ">differ", ">fail", ">refused", ">no step",
        ">worst of floats", ">worst of integers",
    )  # fmt: skip
    for op, counts in report.by_op().items():
        floats, integers = report.worst(op)
        ran = counts["agrees"] + counts["differs"] > 0
        numbers = [str(counts[status] or "") for status in ("agrees", "differs", "failed", "refused", "no step")]
        table.add_row(op, *numbers, f"{floats:.1e}" if ran else "", f"{integers:g}" if ran else "")
    _show(table)
    refusals = report.refusals
    if refusals:
        table = _table("Steps that the device did not take", "op", "dtype", ">cases", "example", "why")
        for (op, dtype, why), cases in refusals.items():
            table.add_row(op, dtype, str(len(cases)), f"{cases[0].id}: {cases[0].about}", why)
        _show(table)
    for finding in report.findings:
        click.echo(f"{finding.status}: {finding.name}" + (f" ({finding.why})" if finding.why else ""))
    for result in report.failures[:_SHOWN]:
        click.echo(f"{result.status}: {result.id}: {result.op} {result.dtype}: {result.about}")
        click.echo(f"    {result.why}")
        click.echo(f"    worst difference {result.worst:.3g}; run it alone: {report.how(result)}")
    if len(report.failures) > _SHOWN:
        click.echo(f"and {len(report.failures) - _SHOWN} more cases, which --json lists")
    click.echo(report.summary)
