"""`linnet debug-quant`: finds which layers of a quantized model hurt its accuracy, and the table that fixes them.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    CommandLineError,
    note,
    shapes_of,
    shapes_option,
    threads_option,
    trust_pickle_option,
    user_ops_of,
    user_ops_option,
)
from linnet.cli.quantizing import Quantizing, quantize_options
from linnet.report.tables import say as print_line
from linnet.report.tables import show as _show

if TYPE_CHECKING:
    from linnet.facade import Graph
    from linnet.quantization.table import Table

_EVERY = 10.0  # seconds between lines of progress that are not on a terminal


@dataclasses.dataclass(frozen=True)
class DebugQuantOptions:
    """The options of `linnet debug-quant`."""

    quantizing: Quantizing = shared(quantize_options("i8", "What MODEL is quantized to."))
    quantized: Path | None = option(
        "--quantized", type=click.Path(path_type=Path), metavar="FILE.lnt",
        help="An existing quantized model to examine. Default: MODEL is quantized.",
    )  # fmt: skip
    data: Path | None = option(
        "--data", type=click.Path(path_type=Path), metavar="NPZ|DIR|SCRIPT.py:FUNCTION",
        help="Samples to compare on, in any form that --calibration takes. Default: those of --calibration.",
    )  # fmt: skip
    limit: int = option(
        "--limit",
        type=click.IntRange(1),
        default=16,
        show_default=True,
        metavar="N",
        help="Largest number of samples to compare on.",
    )
    target: float | None = option(
        "--target", type=float, metavar="DB",
        help="Signal-to-noise ratio (SQNR) of the outputs that the table must reach. Default: within 1 dB of the best found.",
    )  # fmt: skip
    seconds: float = option(
        "--seconds", type=click.FloatRange(1, 86400), default=120.0, show_default=True,
        help="How long to measure layers and to try them at a higher precision, after MODEL is quantized.",
    )  # fmt: skip
    no_fix: bool = option("--no-fix", is_flag=True, help="Only measure; try no layer at a higher precision.")
    html: Path | None = option(
        "--html", type=click.Path(path_type=Path), help="Write a page with histograms of the worst layers."
    )
    json_file: Path | None = option(
        "--json", type=click.Path(path_type=Path), metavar="FILE", help="Write all figures as JSON."
    )
    inputs: Sequence[str] = shared(shapes_option())
    threads: int | None = shared(threads_option)
    trust_pickle: bool = shared(trust_pickle_option)
    user_ops: Sequence[str] = shared(user_ops_option)


@click.command("debug-quant", short_help="Find the layers that a quantization hurts.")
@click.argument("model", type=click.Path(path_type=Path))
@takes(DebugQuantOptions)
def debug_quant(model: Path, given: DebugQuantOptions) -> None:
    """Compare MODEL, which computes in floats, with its quantized form, layer by layer.

    For each layer, prints the error of the outputs if only this layer were quantized, the layer's own error, and the
    layer's error including what it inherits from earlier layers. Also prints the range of values that was seen and the
    range that the layer can hold. The worst layers are tried at a higher precision. --table-out writes the table that
    brings the outputs back near to those of MODEL. `linnet quantize --table` reads it.
    """
    no_fix = given.no_fix
    from linnet.converters.formats import load_graph
    from linnet.file.atomic import write_atomic
    from linnet.ir.graph import dtype_of_graph
    from linnet.quantization.debug import debug_quantization
    from linnet.quantization.sources import samples_of
    from linnet.report import debug_text
    from linnet.report.compare import finite

    if given.quantizing.dtype == "f32" and given.quantized is None:
        raise CommandLineError("--dtype f32 quantizes nothing", code=101, hint="give --dtype i8, i16, f16 or bf16")
    source = given.data or given.quantizing.calibration
    if source is None:
        raise CommandLineError(
            "no data is given", code=101, expected="--calibration or --data with a file, a folder or SCRIPT.py:FUNCTION",
            hint="add --calibration",
        )  # fmt: skip
    if (
        given.quantized is not None
        and given.quantizing.calibration is None
        and not no_fix
        and given.quantizing.dtype in ("i8", "i16", "auto")
    ):
        note("no layer is tried at a higher precision, because that needs --calibration")
        no_fix = True
    if given.quantizing.table_out is not None and no_fix:
        raise CommandLineError(
            "--table-out has no effect, because no layer is tried",
            code=101,
            hint="give --calibration, and leave out --no-fix",
        )
    given.quantizing.check()
    ops = user_ops_of(given.user_ops)
    graph = load_graph(model, shapes_of(given.inputs), user_ops=ops, trust_pickle=given.trust_pickle)
    base = _table(given.quantizing)
    plain = dataclasses.replace(given.quantizing, table_out=None)
    say = _progress()
    again: Callable[[Table], Graph] | None = None
    if given.quantized is None:
        if given.quantizing.calibration is not None or plain.dtype not in ("i8", "i16"):  # else an error comes at once
            say(f"quantizing to {plain.dtype}")
        found = plain.quantized(graph)
        made, again = found.graph, found.again
    else:
        made = _raw(load_graph(given.quantized, user_ops=ops))
        plain.dtype = dtype_of_graph(made)
    begin = time.monotonic()
    samples = samples_of(graph, source, given.limit, image=given.quantizing.image, role="data", note=note)
    say("measuring each layer")
    report = debug_quantization(
        graph, made, samples, limit=given.limit, table=base, seconds=given.seconds * (1.0 if no_fix else 0.5),
        threads=given.threads, draw=given.html is not None, progress=say,
    )  # fmt: skip
    if not no_fix:
        from linnet.quantization.costs import Costs
        from linnet.quantization.debug_fix import FixOptions, find_fix

        options = FixOptions(
            table=base,
            target=given.target,
            limit=given.limit,
            seconds=max(1.0, given.seconds - (time.monotonic() - begin)),
            threads=given.threads,
            progress=say,
            cost=Costs(next(iter(samples))).of,
        )
        report.fix = find_fix(report, graph, made, again or _Again(graph, plain, say), samples, options)
    say("")
    if given.json_file is not None:
        write_atomic(given.json_file, iter([json.dumps(finite(_plain(report.to_dict()))).encode()]))
    if given.html is not None:
        from linnet.report.debug_page import debug_page

        write_atomic(given.html, iter([debug_page(report, f"{model.name}: {report.dtype} against float").encode()]))
    if given.quantizing.table_out is not None and report.fix is not None:
        report.fix.table.write(given.quantizing.table_out)
    for line in debug_text.lines(report):
        print_line(line)
    _show(*debug_text.tables(report))


def _table(quantizing: Quantizing) -> Table:
    from linnet.quantization.table import Table

    return Table() if quantizing.table_file is None else Table.read(quantizing.table_file)


def _raw(graph: Graph) -> Graph:
    """The graph with the model's own input, if it was converted with --image."""
    if "raw" in graph.signatures:
        graph.signatures["infer"] = graph.signatures.pop("raw")
    return graph


def _plain(report: dict[str, Any]) -> dict[str, Any]:
    """The figures in a form for JSON, with the table as a list of rows."""
    if report.get("fix") is not None:
        report["fix"] = {key: value for key, value in report["fix"].items() if key != "table"}
    return report


@dataclasses.dataclass
class _Again:
    """Quantizes a graph with a table: the first time whole, then from what was observed."""

    graph: Graph
    quantizing: Quantizing
    say: Callable[[str], None]
    made: Callable[[Table], Graph] | None = None

    def __call__(self, table: Table) -> Graph:
        if self.made is not None:
            return self.made(table)
        self.say(f"quantizing to {self.quantizing.dtype}")
        found = dataclasses.replace(self.quantizing, table=table).quantized(self.graph)
        self.made = found.again
        return found.graph


def _progress() -> Callable[[str], None]:
    """Says what is being done, in one line of the terminal that is overwritten. If stderr is not a terminal, a line is
    printed at first, and then at most every ten seconds."""
    if sys.stderr.isatty():
        return lambda text: click.echo(f"\r\033[K{text[:78]}", nl=False, err=True)
    due = time.monotonic()

    def say(text: str) -> None:
        nonlocal due
        if text and time.monotonic() >= due:
            click.echo(f"debug-quant: {text[:120]}", err=True)
            due = time.monotonic() + _EVERY

    return say
