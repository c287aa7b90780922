"""`linnet tune`: measures which kernels are fastest for a model on this machine, and writes a tuning file.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.declared import option, shared, takes
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
from linnet.report.tables import show as _show
from linnet.report.tables import table as _table

if TYPE_CHECKING:
    from linnet.session.options import SessionOptions


@dataclasses.dataclass(frozen=True)
class TuneOptions:
    """The options of `linnet tune`."""

    output: Path | None = option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        help="The tuning file. Default: MODEL with the suffix .tuning, or machine.tuning.",
    )
    of_machine: bool = option(
        "--machine",
        is_flag=True,
        help="Measure the rates of this machine, from which plans compute times. Without MODEL, only the rates are "
        "measured.",
    )
    inputs: Sequence[str] = shared(shapes_option())
    seconds: float = option(
        "--seconds", type=click.FloatRange(0.01), default=10.0, show_default=True, help="How many seconds to measure."
    )
    signature: str = shared(signature_option)
    options: SessionOptions = shared(session_options("threads", "isa_max", "precision"))
    user_ops: Sequence[str] = shared(user_ops_option)
    as_json: bool = shared(json_option)


@click.command(short_help="Measure which kernels are fastest on this machine.")
@click.argument("model", type=click.Path(path_type=Path), required=False)
@takes(TuneOptions)
def tune(model: Path | None, given: TuneOptions) -> None:
    """Run MODEL on random input, and run each op with every kernel that can compute it. The fastest kernels are written
    into a file for --tuning and Session(tuning=). If the kernels that a plan chooses by itself are just as fast, the
    file has no lines.

    With --machine, the file also has the rates of this machine (in multiply-accumulates, operations and bytes per
    nanosecond), and plans that use the file compute the modelled times of any model from these rates."""
    from linnet.file import tuning as tuning_file
    from linnet.session.tune import tune as measure

    if not math.isfinite(given.seconds):
        raise CommandLineError(
            "--seconds must be a finite number", code=101, got=str(given.seconds), hint="for example --seconds 10"
        )
    if model is None and not given.of_machine:
        raise CommandLineError(
            "no model was given",
            code=101,
            expected="MODEL, --machine, or both",
            hint="for example linnet tune --machine",
        )
    rates: dict[str, float] = {}
    if given.of_machine:
        from linnet.machine import measure as measure_machine

        machine = measure_machine(min(given.seconds, 5.0))
        rates = machine.rates
        if model is None:
            path = given.output or Path("machine.tuning")
            tuning_file.write(path, machine.text)
            if given.as_json:
                click.echo(json.dumps({"output": str(path), "isa": machine.isa, "rates": rates}))
                return
            _show_rates(rates)
            click.echo(f"wrote {path}: give it to --tuning or Session(tuning=)")
            return
    assert model is not None
    found = measure(
        model,
        signature=given.signature,
        seconds=given.seconds,
        input_shapes=shapes_of(given.inputs),
        user_ops=user_ops_of(given.user_ops),
        rates=rates,
        options=given.options,
    )
    note_batches(found.assumed)
    path = given.output or model.with_suffix(".tuning")
    tuning_file.write(path, found.text)
    changed = [m for m in found.measured if m.best != m.before]
    if rates and not given.as_json:
        _show_rates(rates)
    if given.as_json:
        report = dataclasses.asdict(found) | ({"rates": rates} if rates else {})
        del report["text"]
        click.echo(json.dumps({"model": str(model), "output": str(path), "changed": len(changed), **report}))
        return
    click.echo(
        f"{model}: {_count(found.threads, 'thread')}, {found.isa}, {_count(len(found.measured), 'call')} with several "
        f"kernels, each measured {found.turns} times"
    )
    if changed:
        table = _table("Faster kernels", "call", ">steps", "=from", "=to", ">us", ">us now", ">ratio")
        for m in sorted(changed, key=lambda m: m.times[m.best] - m.times[m.before]):
            now, then = m.times[m.best] / 1e3, m.times[m.before] / 1e3
            table.add_row(m.key, str(len(m.steps)), m.before, m.best, f"{then:.2f}", f"{now:.2f}", f"{m.ratio:.2f}")
        _show(table)
        click.echo(
            f"a run takes {found.after_ms:.3f} ms with these kernels and {found.before_ms:.3f} ms without: "
            f"ratio {found.after_ms / found.before_ms:.3f}"
        )
    if found.kept:
        click.echo(f"wrote {path} with {_count(len(changed), 'line')}")
    else:
        click.echo(f"wrote {path} without lines, because the plan's own kernels are as fast")


_UNITS = {
    "f32": "f32 products",
    "i8": "i8 products",
    "i16": "i16 products",
    "map": "operations",
    "move": "single moves",
}
_OTHERS = {
    "cache": "bytes per ns in a core's cache", "shared": "bytes per ns in the cache of all cores",
    "memory": "bytes per ns beyond", "step": "ns of any step", "fork": "ns to give work to another thread",
    "thread": "of a core added by each further thread",
}  # fmt: skip


def _show_rates(rates: Mapping[str, float]) -> None:
    """Shows one row per instruction set with its rates per nanosecond, and then the other figures of the machine."""
    sets = list(dict.fromkeys(name.split(" ")[0] for name in rates if " " in name))
    table = _table("Rates per nanosecond and core", "instructions", *(f">{unit}" for unit in _UNITS.values()))
    for isa in sets:
        found = [rates.get(f"{isa} {kind}") for kind in _UNITS]
        table.add_row(isa, *("-" if rate is None else f"{rate:.4g}" for rate in found))
    _show(table)
    for name, text in _OTHERS.items():
        if name in rates:
            click.echo(f"{rates[name]:8.4g} {text}")
