"""`linnet convert`: converts ONNX, TFLite and PyTorch models to .lnt files and can quantize them. With --check, it only
reports. linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    CommandLineError,
    json_option,
    labels_option,
    refuse_same,
    shapes_of,
    shapes_option,
    trust_pickle_option,
    user_ops_of,
    user_ops_option,
)
from linnet.cli.quantizing import Quantizing, quantize_options
from linnet.clib.errors import FileError
from linnet.report.tables import say as _say
from linnet.report.tables import show as _show
from linnet.report.tables import size as _size

if TYPE_CHECKING:
    from linnet.facade import Graph
    from linnet.ir.user_op import UserOp

_TIMED = 1.0  # seconds that --html measures


@dataclasses.dataclass(frozen=True)
class ConvertOptions:
    """The options of `linnet convert`."""

    output: Path | None = option("-o", "--output", type=click.Path(path_type=Path), help="The .lnt file to write.")
    quantizing: Quantizing = shared(quantize_options("f32"))
    labels: Path | None = shared(labels_option)
    inputs: Sequence[str] = shared(shapes_option())
    check: bool = option(
        "--check",
        is_flag=True,
        help="Report problems, precision, memory and operation counts without writing a .lnt file.",
    )
    html: Path | None = option(
        "--html",
        type=click.Path(path_type=Path),
        help="With --check: measure the model for a second, and write the report as an HTML page with timings, memory and a "
        "drawing of the graph.",
    )
    trust_pickle: bool = shared(trust_pickle_option)
    user_ops: Sequence[str] = shared(user_ops_option)
    as_json: bool = shared(json_option)


@click.command(short_help="Convert an ONNX, TFLite or PyTorch model, or --check it.")
@click.argument("model", type=click.Path(path_type=Path))
@takes(ConvertOptions)
def convert(model: Path, given: ConvertOptions) -> int:
    """Convert MODEL to a .lnt file. With --dtype, the model is also quantized, as by `linnet quantize`.

    MODEL is an ONNX or TFLite file, a PyTorch module saved by torch.export.save, torch.jit.save or torch.save, or a
    .lnt file to quantize.
    """
    from linnet.report.inspect import summary

    if given.output is None and not given.check:
        raise CommandLineError(
            "no output file is given", code=101, hint="give -o model.lnt, or --check to get only a report"
        )
    if not given.check:
        refuse_same(given.output, model)
    if given.html is not None and not given.check:
        raise CommandLineError("--html works only with --check", code=101, hint="add --check")
    if given.output is not None and given.check:
        raise CommandLineError(
            "-o and --check exclude each other because --check writes no .lnt file",
            code=101,
            tensor="-o",
            hint="remove one of them",
        )
    if given.labels is not None and given.check:
        raise CommandLineError("--labels has no effect with --check", code=101, hint="remove one of them")
    given.quantizing.check()
    shapes = shapes_of(given.inputs)
    if given.check:
        return _check(model, shapes, given)
    from linnet.converters.formats import load_graph
    from linnet.converters.recognition import is_linnet

    if not given.quantizing.asked and given.quantizing.image is None and given.labels is None and is_linnet(model):
        raise FileError(
            "is already a linnet file", tensor=str(model), code=203, hint="use it with linnet run, bench or inspect, or "
            "change it with --dtype, --image or --labels",
        )  # fmt: skip
    ops = user_ops_of(given.user_ops)
    graph = load_graph(model, shapes, user_ops=ops, trust_pickle=given.trust_pickle)
    graph, scores = finished(given.quantizing.apply(graph), given.quantizing, given.labels)
    assert given.output is not None
    content = write(graph, given.output, ops)
    dtype = graph.metadata["dtype"]
    report = {
        "model": str(model), "output": str(given.output), "dtype": dtype, "bytes": len(content),
        "ops": summary(graph)["ops"], "problems": [],
    }  # fmt: skip
    if given.as_json:
        click.echo(json.dumps(report))
    else:
        nodes = sum(report["ops"].values())
        click.echo(f"{model}: {nodes} ops, {dtype}, {_size(len(content))} -> {given.output}")
        if scores:
            click.echo(f"  {scores}")
    return 0


def finished(graph: Graph, quantizing: Quantizing, labels: Path | None) -> tuple[Graph, str]:
    """Returns the graph. It has the steps of --image and --labels, and its metadata contain its dtype. Also returns
    what the graph's scores are."""
    from linnet.ir.graph import dtype_of_graph

    scores = ""
    if quantizing.image is not None:
        from linnet.preprocess import recipe

        graph = recipe(graph, quantizing.image)
    graph.metadata.setdefault("dtype", dtype_of_graph(graph))
    if labels is not None:
        from linnet.preprocess import classes

        graph, scores = classes(graph, labels)
    return graph, scores


def write(graph: Graph, output: Path, ops: Sequence[UserOp]) -> bytes:
    """Writes the file, after checking that the runtime can load it."""
    from linnet.file.atomic import write_atomic
    from linnet.session.model import Model

    content = graph.to_bytes()
    Model(content, user_ops=ops)
    write_atomic(output, iter([content]))
    return content


def _check(model: Path, shapes: dict[str, tuple[int, ...]], given: ConvertOptions) -> int:
    """Prints the report of a model. Returns 1 if the model cannot be converted, else 0."""
    from linnet.file.atomic import write_atomic
    from linnet.report import drawing
    from linnet.report import text as report_text
    from linnet.report.report import check

    quantizing, html = given.quantizing, given.html
    seconds = 0.0 if html is None else _TIMED
    report = check(
        model, shapes or None, dtype=quantizing.dtype, calibration=quantizing.calibration, table=quantizing.table_file,
        user_ops=user_ops_of(given.user_ops), seconds=seconds, trust_pickle=given.trust_pickle, samples=quantizing.samples,
        image=quantizing.image,
    )  # fmt: skip
    if html is not None:
        write_atomic(html, iter([report.to_html().encode()]))
        if not drawing.installed():
            click.echo(f"linnet: note: {drawing.NO_DRAWING}", err=True)
    if given.as_json:
        click.echo(report.to_json())
    else:
        for line in report_text.lines(report):
            _say(line)
        _show(*report_text.tables(report))
    return 0 if report.converts else 1
