"""What an evaluation hands back: figures, each measured, simulated or modelled, and a sentence. Here they become a table beside
the published figures, a JSON file and a picture; `begin` makes the options that every command has."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import linnet
from examples.load import Meter
from linnet.report import tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

MEASURED, SIMULATED, MODELLED = "measured", "simulated", "modelled"
PUBLISHED = Path(__file__).with_name("published.json")
CLOSE = 0.1  # the share by which a figure may differ from the published one of the same machine
BUSY = 0.2  # cores that other processes may use on a quiet machine


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure of an evaluation. name: is unique in it. kind: MEASURED on this machine, SIMULATED by `linnet simulate`, or
    MODELLED by linnet's cost model. source: what the source document says, in words; "" if it has no such figure."""

    name: str
    value: float
    unit: str
    kind: str
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a command. setting: what was measured and how, in one sentence. source: the document with the figures of
    the source, and its machine. sentence: what the figures show, and which part is measured and which is simulated.
    extra: further facts for the JSON file and the picture."""

    name: str
    title: str
    setting: str
    source: str
    figures: tuple[Figure, ...]
    sentence: str
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    def value(self, name: str) -> float:
        """The value of the figure with this name."""
        return next(figure.value for figure in self.figures if figure.name == name)


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that every command has. quick: small sizes, for a try of a few seconds. out: the folder for NAME.png and
    NAME.json. seed: of weights, inputs and simulations. given: the command's own options."""

    quick: bool
    out: Path
    seed: int
    given: argparse.Namespace


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options of every command; a command adds its own."""
    made = argparse.ArgumentParser(prog=f"python -m examples.evaluation.{name}", description=description)
    made.add_argument(
        "--quick", action="store_true", help="small sizes: seconds instead of minutes, and no published figures"
    )
    made.add_argument(
        "--out", type=Path, default=Path("evaluation-out"), help="folder for the picture and the JSON file"
    )
    made.add_argument("--seed", type=int, default=0, help="seed of weights, inputs and simulations (%(default)s)")
    return made


def command(
    made: argparse.ArgumentParser,
    evaluate: Callable[[Options], Result],
    draw: Callable[[Result, Canvas], None],
    words: Sequence[str] | None = None,
) -> Result:
    """Runs an evaluation: parses the options, evaluates, prints the table and the sentence, and writes the picture that `draw`
    fills and the JSON file. words: the options, by default those of this process."""
    given = made.parse_args(words)
    try:
        given.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"cannot make the folder {given.out}: {error.strerror}; give another one with --out") from None
    options, meter = Options(given.quick, given.out, given.seed, given), Meter()
    try:
        result = evaluate(options)
    except linnet.Error as error:
        raise SystemExit(str(error)) from None
    about = machine() | {"others": round(meter.others(), 2), "quick": options.quick}
    show(result, about)
    record = {"machine": about, **dataclasses.asdict(result)}
    (options.out / f"{result.name}.json").write_text(json.dumps(record, indent=1) + "\n")
    picture(options.out / f"{result.name}.png", result, draw)
    print(f"Picture: {options.out / result.name}.png, figures: {options.out / result.name}.json")
    return result


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system and versions. It has no names of hosts or folders."""
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", cpu)
    return {
        "processor": model.group(1).strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)
        if hasattr(os, "sysconf")
        else 0,
        "system": f"{platform.system()} {platform.machine()}",
        "isa": linnet.isa_names()[-1],
        "linnet": linnet.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def cores() -> int:
    """The number of cores that this process may use."""
    return int(machine()["cores"])


def named(about: dict[str, Any]) -> str:
    """A machine in words, and whether others used it."""
    text = f"{about['processor']}, {about['cores']} cores, {about['isa']}, {about['date']}"
    return text + (f"; other processes used {about['others']:.1f} cores" if about.get("others", 0) >= BUSY else "")


def published() -> dict[str, Any]:
    """{name of an evaluation: its published record, as `command` writes it}."""
    return dict(json.loads(PUBLISHED.read_text())) if PUBLISHED.exists() else {}


def short(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(result: Result, about: dict[str, Any]) -> None:
    """Prints the figures beside those that linnet's pages publish and those of the source, and the sentence. Figures of
    --quick have other sizes, so they stand alone."""
    record = {} if about["quick"] else published().get(result.name, {})
    before = {figure["name"]: figure["value"] for figure in record.get("figures", ())}
    table = tables.table(
        result.title, "=figure", ">here", "=unit", "=how", ">published", ">here / published", "=source"
    )
    far = 0
    for figure in result.figures:
        cells = ["", ""]
        if before.get(figure.name):
            ratio = figure.value / before[figure.name]
            far += abs(ratio - 1) > CLOSE
            cells = [short(before[figure.name]), f"{ratio:.2f}"]
        table.add_row(figure.name, short(figure.value), figure.unit, figure.kind, *cells, figure.source)
    tables.show(table)
    print(f"Here: {named(about)}.")
    if before:
        print(f"Published by linnet: {named(record['machine'])}.")
        print(f"{len(before) - far} of {len(before)} figures are within {CLOSE:.0%} of the published ones.")
    print(f"Source: {result.source}.\n{result.setting}\n\n{result.sentence}")
    sys.stdout.flush()


def picture(path: Path, result: Result, draw: Callable[[Result, Canvas], None]) -> None:
    """Writes a PNG that `draw` has filled."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(11, 4.2), dpi=120, layout="constrained")
    canvas.suptitle(result.title)
    draw(result, canvas)
    for axes in canvas.axes:
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    canvas.savefig(path)


def series(result: Result, prefix: str, kind: str = "") -> tuple[list[float], list[float]]:
    """The figures named "PREFIX, N workers" (or "N of anything"): the numbers N, and the values. kind: of these only."""
    x, y = [], []
    for figure in result.figures:
        found = re.fullmatch(re.escape(prefix) + r", ([\d.]+) \w.*", figure.name)
        if found and kind in ("", figure.kind):
            x.append(float(found[1]))
            y.append(figure.value)
    return x, y


def labels(result: Result) -> list[str]:
    """What stands before ", N workers" in the names of the figures, each once."""
    found = (re.match(r"(.*?), [\d.]+ \w", figure.name) for figure in result.figures)
    return list(dict.fromkeys(match[1] for match in found if match))


def workers(number: int) -> str:
    """ "1 worker", "2 workers"."""
    return tables.count(number, "worker")
