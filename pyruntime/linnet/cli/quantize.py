"""`linnet quantize`: quantizes a model and shows the effect on size, speed and accuracy, and which layers stay in
floats. linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    CommandLineError,
    eval_option,
    json_option,
    labels_option,
    note,
    refuse_same,
    shapes_of,
    shapes_option,
    threads_option,
    trust_pickle_option,
    user_ops_of,
    user_ops_option,
)
from linnet.cli.quantizing import Quantizing, quantize_options, refuse_dynamic
from linnet.report.tables import say as _say
from linnet.report.tables import show as _show
from linnet.report.tables import size as _size
from linnet.report.tables import table as _table

if TYPE_CHECKING:
    from linnet.facade import Graph
    from linnet.quantization.accuracy import Evaluation
    from linnet.quantization.computed import Computed
    from linnet.quantization.curve import Line
    from linnet.quantization.embeddings import Described
    from linnet.quantization.goal import Goal
    from linnet.quantization.table import Row
    from linnet.report.compare import Comparison
    from linnet.session.step import Step

_SAMPLES = 32  # number of calibration samples on which the quantized model is compared with the float model
_SECONDS = 0.3  # seconds for which the latency of each model is measured
_ROWS = 12
_MORE = {  # why the search gave a layer another scheme, by --dtype and the scheme
    ("i8", "w8a16"): "8 bits would lose too much", ("i8", "w16a16"): "8 bits would lose too much",
    ("i8", "f16"): "more exact or faster in floats", ("i16", "f16"): "faster in floats",
    ("i8", "w16"): "more exact or faster in floats", ("i16", "w16"): "more exact in floats, with weights in f16",
    ("f16", "w16"): "what it reads or gives does not fit f16; its weights do",
}  # fmt: skip
_SAME = {"i8": ("i8", "w8a8"), "i16": ("i16", "w8a16", "w16a16")}  # by --dtype: the schemes that it means


@dataclasses.dataclass(frozen=True)
class QuantizeOptions:
    """The options of `linnet quantize`."""

    output: Path = option(
        "-o", "--output", type=click.Path(path_type=Path), required=True, help="The .lnt file to write."
    )
    quantizing: Quantizing = shared(
        quantize_options(
            "i8",
            "f16 and bf16 store 16-bit floats, i16 and i8 integers; auto takes the first of i8, i16, f16 that is exact enough.",
        )
    )
    target: str | None = option(
        "--target", metavar="99.5%|40dB", help="How near the outputs must come: share of equal decisions, or decibels."
    )
    max_loss: str | None = option(
        "--max-loss", metavar="0.5%", help="With --eval: the share of its first figure that may be lost."
    )
    max_ms: float | None = option("--max-ms", type=float, help="The most ms of a run, by the model of time.")
    max_bytes: int | None = option("--max-bytes", type=int, help="The most bytes of the file.")
    machine: str | None = option(
        "--for", metavar="PROCESSOR", help="For cortex-a53, -a72, -a76, or a file of linnet tune --machine."
    )
    curve: Path | None = option(
        "--curve",
        type=click.Path(path_type=Path),
        metavar="FILE.svg",
        help="Draw time against error of all that was tried.",
    )
    dynamic: bool = option(
        "--dynamic", is_flag=True,
        help="With i8: quantize activations in each run, over their own range. Needs no calibration; if data are given, "
        "they only compare the models.",
    )  # fmt: skip
    labels: Path | None = shared(labels_option)
    evaluate: Path | None = shared(eval_option)
    inputs: Sequence[str] = shared(shapes_option())
    threads: int | None = shared(threads_option)
    trust_pickle: bool = shared(trust_pickle_option)
    user_ops: Sequence[str] = shared(user_ops_option)
    as_json: bool = shared(json_option)


@click.command(short_help="Quantize a model, and say what it costs.")
@click.argument("model", type=click.Path(path_type=Path))
@takes(QuantizeOptions)
def quantize(model: Path, given: QuantizeOptions) -> None:
    """Quantize MODEL in the same way as `linnet convert --dtype`, and compare the result with MODEL.

    Prints size, memory, latency, the agreement with the float model on the calibration data, and the layers that stay in
    floats. With --eval, also prints the accuracy before and after. Integers need --calibration or --dynamic.
    """
    from linnet.cli.convert import finished, write
    from linnet.converters.formats import bytes_of_model, load_graph
    from linnet.preprocess import classes
    from linnet.preprocess._labels import read_labels
    from linnet.quantization import curve as curves
    from linnet.quantization.accuracy import evaluation
    from linnet.quantization.computed import computed, shares
    from linnet.quantization.embeddings import sentence
    from linnet.quantization.table import Row
    from linnet.report import compare_text

    refuse_same(given.output, model)
    if given.quantizing.dtype == "f32" and given.quantizing.table is None:
        raise CommandLineError(
            "--dtype f32 quantizes nothing", code=101, hint="give another --dtype or a --table, or use linnet convert"
        )
    given.quantizing.dynamic = given.dynamic
    given.quantizing.check()
    if given.dynamic:
        names = ("target", "max_loss", "max_ms", "max_bytes", "curve")
        refuse_dynamic({"for": given.machine, **{name: getattr(given, name) for name in names}})
    if given.labels is not None:
        read_labels(given.labels)  # so that an error comes before the work
    measure = None if given.evaluate is None else evaluation(given.evaluate, image=given.quantizing.image, note=note)
    if given.evaluate is not None and measure is None:
        note(
            f"{given.evaluate} has no sub-folders and so no labels; agreement with the float model is measured instead"
        )
    ops = user_ops_of(given.user_ops)
    graph = load_graph(model, shapes_of(given.inputs), user_ops=ops, trust_pickle=given.trust_pickle)
    found_all = given.quantizing.quantized(graph, _goal(given, measure, ops), given.threads)
    plain, rows = found_all.graph, [row for row in found_all.table.rows if isinstance(row, Row)]
    if given.curve is not None:
        curves.write(given.curve, found_all.curve)
    made, _ = finished(plain, given.quantizing, None)
    content = write(made, given.output, ops)
    # Neither model of the comparison has the steps of --image, so that size, memory and time describe the same network.
    found, steps = _compared(model, given, graph, plain, measure, ops)
    ran = computed(plain, steps)
    dtype = made.metadata["dtype"] if given.quantizing.dtype == "auto" else given.quantizing.dtype
    kept = _kept(graph, plain, given.quantizing, dtype, rows, ran)
    tables = _embeddings(graph, plain, rows)
    scores = ""
    if given.labels is not None:  # after the comparison, which needs the outputs of the model
        made, scores = classes(made, given.labels)
        content = write(made, given.output, ops)
    if given.as_json:
        comparison = None if found is None else found.to_dict()
        report = {
            "model": str(model), "output": str(given.output), "dtype": made.metadata["dtype"], "bytes": len(content),
            "notes": found_all.notes, "curve": [curves.as_dict(line) for line in found_all.curve],
            "comparison": comparison, "products": shares(ran), "steps": [dataclasses.asdict(step) for step in ran],
            "kept": [dict(zip(("layer", "dtype", "why"), row, strict=True)) for row in kept],
            "embeddings": [dataclasses.asdict(one) for one in tables],
        }  # fmt: skip
        click.echo(json.dumps(report))
        return
    for remark in found_all.notes:
        _say(f"{made.metadata['dtype']}: {remark}", width=80)
    _say(f"{model}: {_size(bytes_of_model(model))} -> {given.output}: {made.metadata['dtype']}, {_size(len(content))}")
    if scores:
        _say(f"  {scores}")
    shown_tables = []
    if found is not None:
        for line in compare_text.lines(found):
            _say(line)
        shown_tables = compare_text.tables(found)
    if tables:
        _say(sentence(tables))
    for line in _ran_lines(ran, given.quantizing):
        _say(line)
    if kept:
        macs, total = {step.layer: step.macs for step in ran}, sum(step.macs for step in ran)
        shown = _table(f"Layers that do not compute in {dtype}", "layer", "=as", ">products", "why")
        for layer, dtype, why in kept[:_ROWS]:
            shown.add_row(layer, dtype, f"{macs[layer] / total:.1%}" if total and macs.get(layer) else "", why)
        if len(kept) > _ROWS:
            shown.add_row(f"... and {len(kept) - _ROWS} more", "", "", "--json lists all")
        shown.columns[0].max_width, shown.columns[3].max_width = 26, 31
        shown_tables.append(shown)
    if len(found_all.curve) > 2:
        shown_tables.append(_curve_table(found_all.curve))
    _show(*shown_tables)


def _ran_lines(ran: Sequence[Computed], quantizing: Quantizing) -> Iterator[str]:
    """The lines that say how much of the quantized model ran in which dtype."""
    from linnet.quantization.computed import shares

    if quantizing.image is not None and ran:
        yield "memory and ms: both without the picture steps of --image"
    if found := shares(ran):
        macs = sum(step.macs for step in ran)
        yield f"products: {', '.join(f'{share:.1%} in {dtype}' for dtype, share in found.items())} of {_millions(macs)}"
    others = Counter((step.dtype, step.op) for step in ran if not step.macs)
    for dtype in dict.fromkeys(dtype for dtype, _ in others):
        yield f"other steps in {dtype}: {', '.join(f'{n} {op}' for (d, op), n in others.items() if d == dtype)}"


def _millions(macs: int) -> str:
    return f"{macs / 1e6:,.1f} million multiply-accumulates"


def _goal(given: QuantizeOptions, measure: Evaluation | None, ops: Sequence[Any]) -> Goal:
    """What the options ask for."""
    from linnet.quantization.compared_models import Subject
    from linnet.quantization.goal import Goal

    def score(graph: Graph) -> float:
        assert measure is not None
        return next(iter(measure.measure(Subject(graph, "model", given.threads, ops)).values()))

    if given.max_loss is not None and measure is None:
        raise CommandLineError(
            "--max-loss needs a figure",
            code=101,
            hint="add --eval with labelled pictures or FILE.py:FUNCTION, or use --target",
        )
    loss = None if given.max_loss is None else _share(given.max_loss)
    return Goal(
        given.target, score if loss is not None else None, loss, given.max_ms, given.max_bytes, given.machine,
    )  # fmt: skip


def _share(text: str) -> float:
    """A fraction from "0.5%" or "0.005"."""
    try:
        return float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise CommandLineError(
            "--max-loss is not a number", code=101, expected="a share such as 0.5%", got=repr(text)
        ) from None


def _curve_table(found: Sequence[Line]) -> Any:
    """What was tried, and what it costs; the model's own time and size are 1."""
    from linnet.quantization.costs import narrow

    shown = _table("What can be had", "=", "what", ">in 8 bits", ">time", ">size", ">dB", ">loss")
    kept = found if len(found) <= _ROWS else [line for line in found if line.chosen or line in _front(found)]
    for line in kept:
        decibels = "" if math.isinf(line.error_db) else f"{line.error_db:.1f}"
        share = f"{narrow(line.products):.0%}" if line.products else ""
        shown.add_row(
            "*" if line.chosen else "",
            line.how,
            share,
            f"{line.time:.2f}",
            f"{line.size:.2f}",
            decibels,
            f"{line.loss:.2%}",
        )
    return shown


def _front(found: Sequence[Line]) -> list[Line]:
    """The lines of which no other is faster and more exact."""
    return [a for a in found if not any(b.time < a.time and b.error_db >= a.error_db for b in found)]


def _embeddings(old: Graph, new: Graph, rows: Sequence[Row]) -> list[Described]:
    """How the tables of embeddings are stored, with the remarks of the quantization table."""
    from linnet.quantization.embeddings import described

    remarks = {row.pattern: row.remark for row in rows}
    return described(old.signatures["infer"].function, new.signatures["infer"].function, remarks)


def _kept(
    old: Graph, new: Graph, quantizing: Quantizing, dtype: str, rows: Sequence[Row], ran: Sequence[Computed]
) -> list[tuple[str, str, str]]:
    """(layer, scheme, why) for each layer that computes in another way than `dtype`: the layers that the quantizer
    decides on, and those of `ran` whose ops have no integer form. The layers with most multiply-accumulates come first."""
    from linnet.ir.node_names import step_names
    from linnet.quantization.computed import FLOATS
    from linnet.quantization.debug import left_float
    from linnet.quantization.table import Table

    results = {name: [t.name for t in n.outputs] for n, name in step_names(old.signatures["infer"].function).items()}
    asked = Table() if quantizing.table_file is None else Table.read(quantizing.table_file)
    same = _SAME.get(dtype, (dtype,))
    why = {left.layer: left.why for left in left_float(old, new, asked)}
    found = []
    for row in rows:
        if row.dtype not in same:
            said = asked.dtype(row.pattern, *results.get(row.pattern, ()), default="")
            given = row.dtype in _SAME.get(said, (said,))
            reason = _MORE.get((dtype, row.dtype), why.get(row.pattern, row.remark))
            found.append((row.pattern, row.dtype, "--table says so" if given else reason))
    decided = {row.pattern for row in rows}
    for step in ran:
        if step.is_layer and step.dtype in FLOATS and step.dtype != dtype and step.layer not in decided:
            why_not = f"{step.op} has no integer form" if step.only_floats else "what it reads or gives stays in floats"
            found.append((step.layer, step.dtype, why_not))
    macs = {step.layer: step.macs for step in ran}
    return sorted(found, key=lambda row: -macs.get(row[0], 0))


def _compared(
    model: Path, given: QuantizeOptions, old: Graph, new: Graph, measure: Any, ops: Sequence[Any]
) -> tuple[Comparison | None, Sequence[Step]]:
    """The float and the quantized model on the same samples, or None if there are no samples; and the steps that the
    quantized model ran."""
    from linnet.quantization.compared_models import Subject
    from linnet.report import compare as comparing

    quantizing, output, threads = given.quantizing, given.output, given.threads
    source = given.evaluate
    if source is None or not source.is_dir():
        source = quantizing.calibration
    if source is None:
        if measure is not None:
            note("accuracy is measured on data of the script only; give --calibration for agreement and latency too")
        return (None, ()) if measure is None else _scores(model, output, old, new, measure, threads, ops)
    names = list(comparing.paths_of([model, output]))
    subjects = [Subject(old, names[0], threads, ops), Subject(new, names[1], threads, ops)]
    found = comparing.compare(
        subjects, comparing.paths_of([model, output]), source, measure, limit=min(quantizing.samples or _SAMPLES, _SAMPLES),
        image=quantizing.image, seconds=_SECONDS, note=lambda text: None,
    )  # fmt: skip
    return found, subjects[1].session.steps


def _scores(
    model: Path, output: Path, old: Graph, new: Graph, measure: Any, threads: int | None, ops: Sequence[Any]
) -> tuple[Comparison, Sequence[Step]]:
    """The comparison without samples: accuracy, size, memory and latency, but no agreement. Also the steps of the
    quantized model."""
    import statistics

    from linnet.converters.formats import bytes_of_model
    from linnet.quantization.compared_models import Subject
    from linnet.report.compare import Compared, Comparison

    made = []
    for path, graph in ((model, old), (output, new)):
        subject = Subject(graph, path.name, threads, ops)
        figures = measure.measure(subject)
        times = subject.latency(_SECONDS)
        made.append(
            Compared(
                str(path), subject.runtime, graph.metadata.get("dtype", "f32"), bytes_of_model(path), subject.memory,
                statistics.median(times), len(times), figures, {},
            )
        )  # fmt: skip
    return Comparison(made, 0, threads or 1, list(measure.remarks)), subject.session.steps
