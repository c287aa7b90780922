"""`linnet bench`: how long a model and each of its ops take.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.options import (
    CommandLineError,
    json_option,
    note_batches,
    session_options,
    shapes_of,
    shapes_option,
    signature_option,
    user_ops_of,
    user_ops_option,
)
from linnet.report.tables import count as _count
from linnet.report.tables import places as _places
from linnet.report.tables import region as _region
from linnet.report.tables import say as _say
from linnet.report.tables import show as _show
from linnet.report.tables import table as _table

if TYPE_CHECKING:
    from linnet.session.options import SessionOptions

_PRODUCTS = {"f32_gflops": "GFLOP/s (f32)", "i8_gops": "GOP/s (i8)"}
_COPIES = {"cache_gbs": "(cache)", "shared_gbs": "(shared)", "memory_gbs": "(memory)"}


@click.command(short_help="Time a model and each of its ops.")
@click.argument("model", type=click.Path(path_type=Path))
@shapes_option()
@click.option(
    "--seconds", type=click.FloatRange(0.01), default=2.0, show_default=True, help="How many seconds to measure."
)
@signature_option
@session_options(on_loss=True)
@user_ops_option
@json_option
def bench(
    model: Path,
    inputs: Sequence[str],
    seconds: float,
    signature: str,
    user_ops: Sequence[str],
    options: SessionOptions,
    as_json: bool,
) -> None:
    """Time MODEL on random input: load, plan, first run, steady-state runs, and each op."""
    from linnet.cli import peaks
    from linnet.session.bench import measure
    from linnet.session.machine import machine_text, state_text, warnings

    if not math.isfinite(seconds):
        raise CommandLineError(
            "--seconds must be a finite number", code=101, got=str(seconds), hint="for example --seconds 2"
        )
    report = measure(
        model,
        signature=signature,
        seconds=seconds,
        input_shapes=shapes_of(inputs),
        user_ops=user_ops_of(user_ops),
        options=options,
    )
    note_batches({entry["name"]: entry["shape"] for entry in report["inputs"] if entry["assumed"]})
    for text in warnings(report["before"], report["after"]):
        click.echo(f"linnet: warning: {text}", err=True)
    times = _own_times(report["ops"])
    report["steps_ms"] = sum(times)
    report["peaks"] = most = peaks.measured(report["threads"], report["isa"])
    for op, ms in zip(report["ops"], times, strict=True):
        op |= peaks.shares(op, ms, most)
    if as_json:
        click.echo(json.dumps(report))
        return
    sums = "" if options.precision in (None, "f32") else f"floats may use {options.precision}, "
    _say(f"{model}: {report['dtype']}, {sums}{_count(report['threads'], 'thread')}, {report['isa']}")
    _say(
        f"median {report['median_ms']:.3f} ms, min {report['min_ms']:.3f}, p95 {report['p95_ms']:.3f} "
        f"over {report['runs']} runs; first run {report['first_run_ms']:.3f}, load {report['load_ms']:.3f}, "
        f"plan {report['plan_ms']:.3f} ms"
    )
    beside = sum("fork" in op for op in report["ops"])
    overlap = f"; {beside} of them run side by side on several threads" if beside else ""
    _say(f"the medians of the ops add up to {report['steps_ms']:.3f} ms{overlap}")
    if options.devices:
        _say(_places(report["steps_on"], report["transfers"], report["fallbacks"]))
    _say(f"machine {machine_text(report['machine'])}", " " * 8)
    _say(f"before  {state_text(report['before'])}", " " * 8)
    _say(f"after   {state_text(report['after'])}", " " * 8)
    memory = _table("Memory", "region", ">bytes")
    for name, value in report["memory"].items():
        memory.add_row(_region(name), f"{value:,}")
    if most is not None:
        _say(f"at most {_rates(most)}")
    ops = _table("Ops", "name", "=kernel", ">ms", ">share", ">GFLOP/s", ">GB/s", ">% of peak", "=peak")
    total = sum(times) or 1.0  # --json prints more columns
    for op, ms in sorted(zip(report["ops"], times, strict=True), key=lambda row: -row[1]):
        reached = "" if op["peak_share"] is None else f"{100 * op['peak_share']:.0f}"
        numbers = (f"{ms:.4f}", f"{ms / total:.1%}", f"{op['gflops']:.2f}", f"{op['gbs']:.2f}")
        ops.add_row(op["name"], op["kernel"], *numbers, reached, op["peak_of"] or "")
    _show(memory, ops)
    if any((op["peak_share"] or 0) > 1.005 for op in report["ops"]):
        _say(
            "over 100 % of peak: the kernel needs fewer products than are counted (Winograd), or the peak was measured while "
            "other programs ran"
        )


def _rates(peaks: Mapping[str, Any]) -> str:
    """Text such as "110 GFLOP/s at f32, 440 GOP/s at i8, copies 100 GB/s in a core's cache, ... (4 threads, avx2)"."""
    products = [f"{peaks[key]:.0f} {unit}" for key, unit in _PRODUCTS.items() if peaks[key]]
    copies = [f"{peaks[key]:.0f} GB/s {place}" for key, place in _COPIES.items() if peaks[key]]
    return f"{', '.join(products)}; copies {', '.join(copies)} ({_count(peaks['threads'], 'thread')}, {peaks['isa']})"


def _own_times(ops: Sequence[dict[str, Any]]) -> list[float]:
    """The milliseconds of each step, medians. A device runs its steps after they have been submitted, and the host waits for
    them. So a step on a device gets the time that the device measured. This time is subtracted from the time of the
    waits."""
    left = sum(op["device_ms"] for op in ops)
    times = []
    for op in ops:
        ms = op["device_ms"] or op["ms"]
        if op["kernel"] == "wait":
            ms, left = max(0.0, ms - left), max(0.0, left - ms)
        times.append(ms)
    return times
