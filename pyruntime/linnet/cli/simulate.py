"""The command `linnet simulate`: predicts how training scales to many workers, from measured step times and links.
This module reads the options; linnet.sync.simulate gives them meaning and is imported only when the command runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import json_option, user_ops_of, user_ops_option
from linnet.clib.errors import FileError, UsageError
from linnet.report.tables import show, table

if TYPE_CHECKING:
    from linnet.sync.simulate import Result, Setting
    from linnet.sync.simulate.predict import Step
    from linnet.sync.simulate.published import Comparison

_PUBLISHED = ("null-step", "backup", "inception", "dense", "sparse", "all")


@dataclasses.dataclass(frozen=True)
class SimulateOptions:
    """The options of `linnet simulate`."""

    workers: str = option(
        "--workers",
        default="1,2,4,8,16,32",
        show_default=True,
        metavar="N,N,...",
        help="Numbers of workers to simulate.",
    )
    mode: str = option(
        "--mode", default="synchronous", show_default=True, metavar="MODE,...",
        help="synchronous, asynchronous, groups, federated, ring or tree. Several modes separated by commas are compared.",
    )  # fmt: skip
    backup: str = option(
        "--backup",
        default="0",
        show_default=True,
        metavar="B,...",
        help="Number of backup workers: a step does not wait for this many of the slowest.",
    )
    staleness: int | None = option(
        "--staleness",
        type=click.IntRange(0),
        metavar="TAU",
        help="Modes asynchronous and groups: maximum number of steps by which a worker may be ahead of the slowest.",
    )
    groups: int = option(
        "--groups", type=click.IntRange(1), default=4, show_default=True, help="Mode groups: number of groups."
    )
    local_steps: int = option(
        "--local-steps",
        type=click.IntRange(1),
        default=10,
        show_default=True,
        help="Mode federated: local steps between two rounds.",
    )
    fan_in: int = option(
        "--fan-in", type=click.IntRange(1), default=32, show_default=True, help="Mode tree: workers per aggregator."
    )
    step_time: str = option(
        "--step-time",
        default="100ms",
        show_default=True,
        help="Time of one worker's step, for example 80ms or 1.5s. With MODEL, the time is measured.",
    )
    times: Path | None = option(
        "--times",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="File of measured step times in seconds: .json, .jsonl or .csv.",
    )
    scatter: str = option(
        "--scatter", default="constant", show_default=True,
        help="Distribution of step times: constant, lognormal:SIGMA, pareto:ALPHA or stragglers:SHARE,DELAY.",
    )  # fmt: skip
    spread: float = option(
        "--spread",
        type=click.FloatRange(0),
        default=0.0,
        help="SIGMA of the log-normal distribution of machine speeds.",
    )
    balance: bool = option(
        "--balance", is_flag=True, help="Give faster machines more examples, so that all take the same time."
    )
    bytes_: str = option(
        "--bytes",
        default="100MB",
        show_default=True,
        help="Size of the dense parameters. With MODEL, the size is read from the file.",
    )
    rows: float = option(
        "--rows", type=click.FloatRange(0), default=0, help="Embedding-table rows that one worker's step touches."
    )
    row_bytes: str = option("--row-bytes", default="2KB", show_default=True, help="Size of one table row.")
    table_bytes: str = option(
        "--table", default="0", help="Size of the embedding tables. The size does not change the result."
    )
    examples: float = option(
        "--examples",
        type=click.FloatRange(0, min_open=True),
        default=32,
        show_default=True,
        help="Examples in one worker's step.",
    )
    shapes: Sequence[str] = option(
        "--shape",
        multiple=True,
        metavar="NAME=D,D,...",
        help="Shape of an input that MODEL leaves open. Repeat for each input.",
    )
    threads: int | None = option(
        "--threads", type=click.IntRange(1, 1024), help="Number of threads for measuring MODEL."
    )
    compression: str = option(
        "--compression", default="none", show_default=True, metavar="NAME",
        help="Compression of gradients: none, f16, bf16, i8, topk:SHARE, 1bit, or a ratio.",
    )  # fmt: skip
    pull_compression: str = option(
        "--pull-compression",
        default="none",
        show_default=True,
        metavar="NAME",
        help="Compression of pulled values: none, f16, bf16, or a ratio.",
    )
    servers: int = option(
        "--servers",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Number of servers that share the parameters.",
    )
    link: str = option(
        "--link",
        default="10gbit",
        show_default=True,
        help="Bandwidth of a worker's link, for example 1gbit or 900MB/s. TCP reaches 94 % of this.",
    )
    server_link: str | None = option(
        "--server-link", help="Bandwidth of a server's link. Default: the value of --link."
    )
    latency: str = option("--latency", default="50us", show_default=True, help="One-way latency of a link.")
    sharing: str = option(
        "--sharing",
        type=click.Choice(["fair", "fifo"]),
        default="fair",
        show_default=True,
        help="How workers share a server's port: all at once (fair) or one after another (fifo).",
    )
    overlap: float = option(
        "--overlap",
        type=click.FloatRange(0, 1),
        default=0.0,
        help="Fraction of the computation that overlaps with transfers.",
    )
    costs: Path | None = option(
        "--costs", type=click.Path(path_type=Path), metavar="JSON",
        help="JSON object with a server thread's costs in seconds: message, receive, send, aggregate, apply, row.",
    )  # fmt: skip
    steps: int = option(
        "--steps", type=click.IntRange(1), default=100, show_default=True, help="Number of steps to simulate."
    )
    seed: int = option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random step times."
    )
    published: str | None = option(
        "--published",
        type=click.Choice(_PUBLISHED),
        help="Simulate a published experiment and compare with its results.",
    )
    outlook: bool = option("--outlook", is_flag=True, help="Simulate linnet on up to 10,000 workers.")
    measure: Path | None = option(
        "--measure", type=click.Path(path_type=Path), metavar="JSON",
        help="Measure linnet's costs on this machine over loopback and write them to this file, which --costs accepts.",
    )  # fmt: skip
    plot: Path | None = option(
        "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Write a plot: .png, .svg or .pdf."
    )
    user_ops: Sequence[str] = shared(user_ops_option)
    as_json: bool = shared(json_option)


@click.command(short_help="Simulate training on many workers and predict the speed-up.")
@click.argument("model", type=click.Path(path_type=Path), required=False)
@takes(SimulateOptions)
def simulate(model: Path | None, given: SimulateOptions) -> None:
    """Simulate training on many workers, message by message. If MODEL (.lnt) is given, it sets the transfer sizes and the
    step time.

    Examples:

    \b
    linnet simulate --workers 50 --backup 0,4 --step-time 1s --scatter stragglers:0.02,2 --servers 16
    linnet simulate model.lnt --link 1gbit --workers 1,2,4,8,16
    linnet simulate --published all --plot published.png
    """
    from linnet.sync import simulate as sim
    from linnet.sync.simulate import plots, units

    if given.measure is not None:
        _measure(given.measure, given.as_json)
        return
    if given.plot is not None:
        plots.figure(1)  # fails early if the plotting package is missing
    if given.published or given.outlook:
        _comparisons(given.published, given.outlook, given.seed, given.plot, given.as_json)
        return
    hardware = sim.Hardware(
        servers=given.servers, latency=units.seconds(given.latency), worker_rate=units.rate(given.link) * sim.TCP,
        server_rate=units.rate(given.server_link or given.link) * sim.TCP, sharing=given.sharing, overlap=given.overlap,
    )  # fmt: skip
    if given.costs is not None:
        hardware = dataclasses.replace(hardware, **_costs(given.costs))
    step = None
    if model is not None:
        from linnet.sync.simulate.predict import setting_of, step_of

        step = step_of(
            model, shapes=dict(map(_shape, given.shapes)), threads=given.threads, user_ops=user_ops_of(given.user_ops)
        )
        setting = setting_of(step, hardware)
    else:
        size = units.size(given.bytes_)
        traffic = sim.Traffic(
            size,
            size,
            given.rows,
            units.size(given.row_bytes) if given.rows else 0.0,
            units.size(given.table_bytes),
            given.examples,
        )
        setting = sim.Setting(sim.Compute(units.seconds(given.step_time)), traffic, hardware)
    compute = dataclasses.replace(
        setting.compute,
        scatter=given.scatter,
        spread=given.spread,
        balanced=given.balance,
        measured=() if given.times is None else sim.read_times(given.times),
    )
    traffic = dataclasses.replace(
        setting.traffic,
        push_ratio=sim.ratio(given.compression),
        pull_ratio=sim.ratio(given.pull_compression, parameters=True),
    )
    setting = dataclasses.replace(setting, compute=compute, traffic=traffic)
    found: dict[str, list[Result]] = {}
    counts, backups = _numbers(given.workers, "--workers", 1), _numbers(given.backup, "--backup", 0)
    for kind in given.mode.split(","):
        for late in backups if kind in ("synchronous", "groups", "federated") else [0]:
            chosen = sim.Mode(
                kind, backup=late, staleness=given.staleness if kind in ("asynchronous", "groups") else None,
                groups=given.groups if kind == "groups" else 1, local_steps=given.local_steps if kind == "federated" else 1,
                fan_in=given.fan_in,
            )  # fmt: skip
            label = kind + (f", {late} backup" if late else "")
            # Backup workers are added to the workers that a step waits for, as in the published runs.
            totals = [n + late for n in counts]
            found[label] = sim.sweep(
                dataclasses.replace(setting, mode=chosen), totals, steps=given.steps, seed=given.seed
            )
    if given.plot is not None:
        plots.curves(found, given.plot)
    if given.as_json:
        report: dict[str, Any] = {"results": [{"label": k, **r.as_dict()} for k, v in found.items() for r in v]}
        if step is not None:
            report["model"] = _model_report(model, step, setting)
        click.echo(json.dumps(report))
        return
    if step is not None:
        _say_model(model, step, setting)
    _show_results(found)


def _model_report(model: Path | None, step: Step, setting: Setting) -> dict[str, Any]:
    return {
        "model": str(model), "signature": step.signature, "step_seconds": step.seconds, "bytes_up": setting.traffic.up,
        "bytes_down": setting.traffic.down, "compute_to_transfer": step.ratio(setting.hardware, setting.traffic),
    }  # fmt: skip


def _say_model(model: Path | None, step: Step, setting: Setting) -> None:
    from linnet.sync.simulate.units import duration_text, size_text

    traffic = setting.traffic
    click.echo(
        f"{model}: signature {step.signature}, {duration_text(step.seconds)} a step of {traffic.examples:g} examples, "
        f"{size_text(traffic.up)} up and {size_text(traffic.down)} down"
    )
    ratio = step.ratio(setting.hardware, traffic)
    click.echo(
        f"ratio of computation to transfer: {ratio:.3g} (one worker is limited by "
        f"{'computation' if ratio >= 1 else 'its link'})"
    )


def _show_results(found: dict[str, list[Result]]) -> None:
    from linnet.sync.simulate import explain
    from linnet.sync.simulate.units import duration_text, size_text

    shown = table(
        "Simulated", "mode", ">workers", ">step, median", ">p90", ">examples/s", ">speed-up", ">efficiency", ">dropped",
        ">staleness", ">bytes/step", ">busiest",
    )  # fmt: skip
    for label, results in found.items():
        for r in results:
            report = r.as_dict()
            busiest = max(r.busy, key=lambda name: r.busy[name]) if r.busy else ""
            shown.add_row(
                label, str(r.setting.hardware.workers), duration_text(r.median),
                duration_text(report["step_seconds"]["p90"]), f"{r.examples_per_second:,.4g}", f"{r.speedup:.3g}",
                f"{r.efficiency:.0%}", f"{r.dropped:.1%}", f"{r.staleness:.3g}", size_text(r.bytes_per_step),
                f"{busiest} {r.busy[busiest]:.0%}" if busiest else "",
            )  # fmt: skip
    parts = {label: [explain.parts_of(r) for r in results] for label, results in found.items()}
    times = table(
        "Where the time of a step goes", "mode", ">workers", ">computing", ">transfers", ">waiting for slower workers"
    )
    for label, results in found.items():
        for r, shares in zip(results, parts[label], strict=True):
            times.add_row(label, str(r.setting.hardware.workers), *(f"{share:.0%}" for share in shares))
    show(shown, times)
    for line in explain.lines(found, parts):
        click.echo(line)


def _comparisons(published: str | None, outlook: bool, seed: int, plot: Path | None, as_json: bool) -> None:
    from linnet.sync.simulate import plots
    from linnet.sync.simulate.outlook import outlook as look_ahead
    from linnet.sync.simulate.published import EXPERIMENTS

    names = () if published is None else tuple(EXPERIMENTS) if published == "all" else (published,)
    found = [EXPERIMENTS[name](seed=seed) for name in names] + (look_ahead(seed=seed) if outlook else [])
    if plot is not None:
        plots.comparisons(found, plot)
    if as_json:
        click.echo(json.dumps({"comparisons": [dataclasses.asdict(comparison) for comparison in found]}))
        return
    for comparison in found:
        _show_comparison(comparison)


def _show_comparison(comparison: Comparison) -> None:
    shown = table(comparison.title, "", *(f">{x:g}" for x in comparison.series[0].x))
    for series in comparison.series:
        if series.x != comparison.series[0].x:
            click.echo(
                f"{comparison.title}, {series.label}: {series.simulated[0]:.4g}, published {series.published[0]}"
            )
            continue
        shown.add_row(series.label, *(f"{value:,.4g}" for value in series.simulated))
        if any(value is not None for value in series.published):
            shown.add_row("  published", *("" if v is None else f"{v:,.4g}" for v in series.published))
    show(shown)
    for word, lines in (
        ("source", [comparison.source]),
        ("stated", comparison.stated),
        ("assumed", comparison.assumed),
    ):
        for line in filter(None, lines):
            click.echo(f"  {word}: {line}")
    click.echo("")


def _measure(path: Path, as_json: bool) -> None:
    from linnet.file.atomic import write_atomic
    from linnet.sync.simulate.measure import costs
    from linnet.sync.simulate.units import duration_text

    found = costs()
    text = json.dumps(found)
    write_atomic(path, iter([text.encode()]))
    if as_json:
        click.echo(text)
        return
    for name, value in found.items():
        each = {"message": "message", "worker_message": "message", "row": "row"}.get(name)
        click.echo(f"{name:<15} " + (f"{duration_text(value)} a {each}" if each else f"{value * 1e9:.3g} ns a byte"))


def _costs(path: Path) -> dict[str, Any]:
    """Reads a server thread's costs from a JSON object."""
    names = ("message", "worker_message", "receive", "send", "aggregate", "apply", "row", "overhead")
    try:
        given = json.loads(path.read_text())
        found = {str(name): float(value) for name, value in given.items()}
    except OSError as error:
        raise FileError("cannot read the file of costs", code=201, tensor=str(path), got=str(error)) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise FileError(
            "the file of costs must hold a JSON object with numbers", code=206, tensor=str(path), got=str(error)
        ) from None
    unknown = sorted(set(found) - set(names))
    if unknown:
        raise UsageError(
            "the file of costs has unknown names",
            code=102,
            tensor=str(path),
            expected=", ".join(names),
            got=", ".join(unknown),
        )
    return found


def _numbers(text: str, option: str, least: int) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [least - 1]
    if min(found) < least:
        raise UsageError(
            f"{option} must be whole numbers separated by commas",
            code=101,
            expected=f"a finite number of at least {least}",
            got=text,
        )
    return found


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, sign, sizes = text.partition("=")
    try:
        found = tuple(int(part) for part in sizes.split(","))
    except ValueError:
        found = ()
    if not sign or not name or not found:
        raise UsageError(
            f"{text!r} does not have the form NAME=D,D,...", code=101, expected="for example --shape x=32,1,28,28"
        )
    return name, found
