"""`linnet plan`: shows how much memory a model needs, exactly for one shape or as a bound for a range of shapes.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    CommandLineError,
    json_option,
    pairs,
    session_options,
    shapes_option,
    signature_option,
    strict_dims_option,
    user_ops_of,
    user_ops_option,
)
from linnet.cli.placing import devices_over, key_option, over_option, report_of, show_placement, sizes_of
from linnet.clib.errors import UsageError
from linnet.report.tables import count as _count
from linnet.report.tables import places as _places
from linnet.report.tables import region as _region
from linnet.report.tables import say as _say
from linnet.report.tables import show as _show
from linnet.report.tables import table as _table

if TYPE_CHECKING:
    from linnet.session.changes import PassChange
    from linnet.session.choices import Choice
    from linnet.session.options import SessionOptions
    from linnet.session.planner import Planner

_NAMED = 3  # number of steps of constants that are named


@dataclasses.dataclass(frozen=True)
class PlanOptions:
    """The options of `linnet plan`."""

    inputs: Sequence[str] = shared(
        shapes_option(
            "Each dimension is a number, a range (1..8), or ? for whatever the model declares. Repeat for each input."
        )
    )
    why: bool = option("--why", is_flag=True, help="Show which kernels could run each step, and why the others cannot.")
    passes: bool = option("--passes", is_flag=True, help="Show what each pass of planning changed.")
    snapshot: bool = option(
        "--snapshot", is_flag=True, help="Plan for Session(snapshot=True), which can run during training."
    )
    signature: str = shared(signature_option)
    strict_dims: bool | None = shared(strict_dims_option)
    options: SessionOptions = shared(session_options())
    user_ops: Sequence[str] = shared(user_ops_option)
    over: str | None = shared(over_option)
    key: Path | None = shared(key_option)
    picture: Path | None = option(
        "--picture", type=click.Path(path_type=Path), metavar="FILE.svg",
        help="With --over: draw the machines as lanes over time.",
    )  # fmt: skip
    as_json: bool = shared(json_option)


@click.command(short_help="Show how much memory a model needs.")
@click.argument("model", type=click.Path(path_type=Path))
@takes(PlanOptions)
def plan(model: Path, given: PlanOptions) -> None:
    """Show how much memory MODEL needs: the exact amount for one shape, or an upper bound for a range of shapes."""
    from linnet.session.bounds import parse, text_of
    from linnet.session.planner import Planner

    if given.over:
        _plan_over(model, given)
        return
    given_pairs = pairs(given.inputs, "--input x=1..8,3,?,?")
    try:
        ranges = {name: parse(name, text) for name, text in given_pairs}
    except UsageError as error:
        raise CommandLineError(**vars(error)) from None
    planner = Planner(
        model,
        given.signature,
        strict_dims=given.strict_dims,
        snapshot=given.snapshot,
        user_ops=user_ops_of(given.user_ops),
        **given.options.fields,
    )
    bound = planner.plan_bounds(ranges)
    exact, info, memory = bound.shapes == 1, planner.plan_info, planner.memory
    report = {
        "model": str(model), "signature": given.signature, "shapes": bound.largest, "exact": exact, "memory": memory,
        "bound": bound.regions, "arena": bound.arena, "later_segments": bound.later, "unbounded": bound.unbounded,
        "shapes_inside": bound.shapes, "every_shape_planned": bound.every, "shapes_planned": bound.planned,
        "shapes_refused": bound.refused, "plan": info,
    }  # fmt: skip
    places = Counter(step.device for step in planner.steps if step.op != "transfer")
    transfers = len(planner.steps) - places.total()
    if given.options.devices:
        report |= {"steps_on": places, "transfers": transfers}
    report["recomputed"] = again = _recomputed(model, given, planner)
    choices = planner.choices if given.why else []
    if given.why:
        report["why"] = [dataclasses.asdict(choice) for choice in choices]
    changes = planner.passes if given.passes else []
    if given.passes:
        report["passes"] = [dataclasses.asdict(change) for change in changes]
    if given.as_json:
        click.echo(json.dumps(report))
        return
    floats = (
        "" if info["precision"] == "f32" else f"floats may use {info['precision']}, "
    )  # integers do not depend on it
    _say(f"{model}: " + ", ".join(f"{name} [{text_of(shape)}]" for name, shape in bound.largest.items()))
    _say(
        f"{_count(info['steps'], 'step')}, {_count(info['segments'], 'segment')}, "
        f"{_count(info['threads'], 'thread')}, {info['isa']}, {floats}"
        f"planned in {info['plan_ms']:.2f} ms, {info['modelled_ms']:.3g} ms a run by the model of time"
    )
    if beside := sum(step.fork > 0 for step in planner.steps):
        click.echo(f"{_count(beside, 'step')} side by side with others, each on one thread")
    if again:
        more = f", and {len(again) - _NAMED} more (--json names all)" if len(again) > _NAMED else ""
        _say(
            f"{_count(len(again), 'step')} of constants in every run, because planning would exceed its limits of memory "
            f"or work: {', '.join(again[:_NAMED])}{more}"
        )
    if given.options.devices:
        _say(_places(places, transfers, info["fallbacks"]))
    if given.passes:
        _show_passes(changes)
    if given.why:
        for device in given.options.devices:
            _show_missing(device if isinstance(device, str) else device.name)
        _show_why(choices)
        if info["segments"] > 1:
            _say("Later steps are planned in the run, because their shapes depend on data.")
    if given.why or given.passes:
        return
    columns = (">bytes",) if exact else (">at the largest shape", ">at most")
    table = _table("Memory", "region", *columns)
    later = "no bound" if bound.unbounded else f"{bound.later:,}"
    for name, value in memory.items():
        if (name in ("snapshot", "committed") and not given.snapshot) or (name == "loop_values" and not value):
            continue
        if name == "total" and (bound.later or bound.unbounded):
            table.add_row("later segments", *((later,) if exact else ("", later)))
        most = "no bound" if name == "total" and bound.unbounded else f"{bound.regions[name]:,}"
        table.add_row(_region(name), *((most,) if exact else (f"{value:,}", most)))
    _show(table)
    if info["loop_iterations"]:
        _say(f"at most {info['loop_iterations']:,} iterations of loops whose number is known only in the run")
    if bound.unbounded:
        _say(f"no bound: {bound.unbounded}")
        return
    inside = "" if exact else f" for each of the {bound.shapes:,} shapes inside"
    _say(f"at most {bound.total:,} bytes, with an arena of {bound.arena:,} bytes{inside}")
    if not exact:
        made = (
            "every shape was planned"
            if bound.every
            else "upper bound: every shape fits in the memory layout of the largest"
        )
        _say(made)


def _recomputed(model: Path, given: PlanOptions, planner: Planner) -> list[str]:
    """The names of the steps that compute the same result in every run."""
    from linnet.facade import Graph
    from linnet.session.recomputed import recomputed

    graph = Graph.load(model, user_ops=user_ops_of(given.user_ops))
    return recomputed(graph.signatures[given.signature].function, planner.steps)


def _plan_over(model: Path, given: PlanOptions) -> None:
    """The answer of --over."""
    from linnet.placing import place

    found = place(
        model,
        devices_over(given.over or "", given.key),
        given.signature,
        shapes=sizes_of(given.inputs),
        options=given.options,
    )
    if given.as_json:
        click.echo(json.dumps(report_of(found)))
    else:
        show_placement(found, given.why, given.picture)


def _show_passes(changes: Sequence[PassChange]) -> None:
    """Shows one row for each pass that ran. If the pass did not change a number, the number appears only once. The bytes
    are those of all results, and from the pass `offsets` on those of the memory that holds them."""
    table = _table("Passes", "pass", ">nodes", ">added", ">removed", ">moved", ">fused", ">values", ">bytes")
    for change in changes:
        if not change.ran:
            continue
        nodes, values, size = (
            f"{after:,}" if before == after else f"{before:,} -> {after:,}"
            for before, after in (change.nodes, change.values, change.bytes)
        )
        counts = (str(n or "") for n in (change.added, change.removed, change.moved, change.fused))
        table.add_row(change.name, nodes, *counts, values, size)
    _show(table)
    left_out = [change.name for change in changes if not change.ran]
    if left_out:
        _say(f"left out, because this plan does not need them: {', '.join(left_out)}")


# Why a step is on the CPU although a device was given, by Step.placed.
_FALLBACKS = {
    "cannot": "no device can run it", "cost": "a device would take longer, transfers included",
    "refused": "the device refused it, though it runs such steps: it lacks the program, or the memory",
}  # fmt: skip


def _show_missing(name: str) -> None:
    """Shows what a device's library does not find on this machine, for example a compiler for kernels."""
    from linnet.session.device import devices as find

    for found in find(name):
        if found.missing:
            _say(f"{name}: {found.missing}")


def _show_why(choices: Sequence[Choice]) -> None:
    """For each call, shows three things: the steps that make it; the kernels that can run it, sorted by cost; and the
    other kernels, grouped by reason."""
    alike: dict[str, list[Choice]] = {}
    for number, choice in enumerate(choices):
        alike.setdefault(choice.key or f"{number}", []).append(choice)
    for same in alike.values():
        first = same[0]
        names = [choice.step.name for choice in same]
        more = f" and {_count(len(names) - 3, 'more step')}" if len(names) > 3 else ""
        _say(f"\n{first.key or first.step.op}\n  steps   {', '.join(names[:3])}{more}")
        if not first.candidates:
            _say(f"  runs    {first.step.kernel} ({first.step.device})")
        if first.step.placed in _FALLBACKS:
            _say(f"  on cpu  {_FALLBACKS[first.step.placed]}")
        if first.step.placed == "scope":
            _say(f"  placed  on {first.step.device}, by the graph's device scope")
        able = sorted((c for c in first.candidates if not c.why), key=lambda c: (c.cost_ns, not c.chosen))
        for c in able:
            word = "tuned" if c.tuned else "chosen" if c.chosen else "could"
            _say(f"  {word:7} {c.kernel:40} {c.cost_ns / 1000:10.3f} us by the model")
        reasons: dict[str, list[str]] = {}
        for c in first.candidates:
            if c.why:
                reasons.setdefault(c.why, []).append(c.kernel)
        for reason, kernels in reasons.items():
            _say(f"  cannot  {reason}:")
            _say(" " * 10 + ", ".join(kernels), " " * 10, 118)
