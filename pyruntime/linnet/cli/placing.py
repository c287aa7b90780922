"""`linnet place`, and the answer of `linnet plan --over`: where the nodes of a model should run over several machines."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    CommandLineError,
    json_option,
    pairs,
    session_options,
    shapes_option,
    signature_option,
)
from linnet.clib.errors import UsageError
from linnet.report.tables import say, show, size, table

if TYPE_CHECKING:
    from linnet.placing import Placement
    from linnet.session.options import SessionOptions

over_option = click.option(
    "--over",
    metavar="HOST:PORT,...",
    help="Say what this model would cost over these machines, which run linnet-host: what each of them gets, and what each "
    "would take alone. With --placement: what this placement costs.",
)
key_option = click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The key of the machines of --over (`linnet sync-key`).",
)


def devices_over(over: str, key: Path | None) -> list[str]:
    """The devices that --over and --key name."""
    names = [name.strip() for name in over.split(",") if name.strip()]
    if not names:
        raise CommandLineError("--over names no machine", code=101, expected="as in --over pi1:7700,pi2:7700")
    text = f",key={key}" if key else ""
    return [(name if name.startswith("remote:") else f"remote:{name}") + text for name in names]


def sizes_of(inputs: Sequence[str]) -> dict[str, list[int]]:
    """The shapes of --input NAME=4,3,224,224."""
    found = {}
    for name, text in pairs(inputs, "--input x=8,3,224,224"):
        try:
            found[name] = [int(part) for part in text.split(",") if part]
        except ValueError:
            raise CommandLineError(
                f"--input {name}={text}: each dimension must be a number", code=101, tensor=name,
                expected="as in --input x=8,3,224,224",
            ) from None  # fmt: skip
    return found


def report_of(found: Placement) -> dict[str, Any]:
    """A placement as JSON."""
    machines = [dataclasses.asdict(share) for share in found.machines]
    for machine in machines:
        if math.isinf(machine["alone_ms"]):
            machine["alone_ms"] = None
    return {
        "ms": found.ms, "measured_ms": found.measured_ms or None, "why": found.why, "machines": machines,
        "crossing": found.schedule.crossing, "places": found.places,
    }  # fmt: skip


def show_placement(found: Placement, why: bool, picture: Path | None) -> None:
    """Prints one row per machine, and the answer in words. why: also one row per node. picture: an SVG file of the machines
    over time."""
    from linnet.placing.costs import title

    made = table("Machines", "machine", ">nodes", ">ms", ">weights", ">other memory", ">traffic of a run", ">ms alone")
    for share in found.machines:
        alone = f"{share.alone_ms:.3g}" if math.isfinite(share.alone_ms) else "does not fit"
        made.add_row(
            title(share.machine),
            f"{share.nodes:,}",
            f"{share.ms:.3g}",
            size(share.weights),
            size(share.other),
            size(share.traffic),
            alone,
        )
    show(made)
    say(found.why)
    if found.measured_ms:
        say(f"measured: {found.measured_ms:.3g} ms a run, the median on these machines")
    if why:
        _show_nodes(found)
    if picture is not None:
        picture.write_text(found.picture())


def _show_nodes(found: Placement) -> None:
    """Shows what each node would take on each machine, and where it runs."""
    names = [machine.name for machine in found.costs.machines]
    made = table("Nodes", "node", "machine", *(f">us on {name}" for name in names), ">bytes in", ">bytes out")
    for node, at in zip(found.costs.nodes, found.chosen, strict=True):
        if not any(node.ns):
            continue  # a view
        times = (f"{ns / 1000:.3g}" if math.isfinite(ns) else "cannot" for ns in node.ns)
        moved = (sum(found.costs.sizes.get(value, 0) for value in values) for values in (node.reads, node.writes))
        made.add_row(node.name, names[at], *times, *(f"{each:,}" for each in moved))
    show(made)


@dataclasses.dataclass(frozen=True)
class PlaceOptions:
    """The options of `linnet place`."""

    over: str = shared(over_option)
    key: Path | None = shared(key_option)
    output: Path | None = option(
        "--output",
        "-o",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the placement as JSON, for --placement.",
    )
    search: float = option(
        "--search", type=click.FloatRange(0), default=0.0, metavar="SECONDS",
        help="Go on searching for so many seconds: by the predictions first, then by runs on the machines.",
    )  # fmt: skip
    seed: int = option("--seed", type=click.IntRange(0), default=0, help="Seed of the search.")
    why: bool = option("--why", is_flag=True, help="Show what each node would take on each machine.")
    picture: Path | None = option(
        "--picture", type=click.Path(path_type=Path), metavar="FILE.svg", help="Draw the machines as lanes over time."
    )
    inputs: Sequence[str] = shared(shapes_option("The shape of an input that the model leaves open."))
    signature: str = shared(signature_option)
    options: SessionOptions = shared(session_options("threads", "isa_max", "precision", "max_bytes", "tuning"))
    as_json: bool = shared(json_option)


@click.command(short_help="Find where a model's nodes should run over several machines.")
@click.argument("model", type=click.Path(path_type=Path))
@takes(PlaceOptions)
def place(model: Path, given: PlaceOptions) -> None:
    """Find on which of several machines each node of MODEL should run.

    The machines run linnet-host, and predict what nodes take there. The result is a file for --placement of the other
    commands, and for Session(placement=).
    """
    from linnet.placing import place as find

    if not given.over:
        raise UsageError("--over is missing", code=101, expected="as in --over pi1:7700,pi2:7700")
    found = find(
        model, devices_over(given.over, given.key), given.signature, shapes=sizes_of(given.inputs), options=given.options,
        search=given.search, seed=given.seed,
    )  # fmt: skip
    if given.output is not None:
        found.save(given.output)
    if given.as_json:
        click.echo(json.dumps(report_of(found)))
    else:
        show_placement(found, given.why, given.picture)
