"""`linnet convert`: ONNX, TFLite and PyTorch models to .lnt files, with quantization, or a report of what --check finds.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.options import (
    CommandLineError,
    calibration_option,
    image_option,
    json_option,
    note,
    samples_option,
    shapes_of,
    shapes_option,
    trust_pickle_option,
    user_ops_of,
    user_ops_option,
)
from linnet.clib.errors import FileError
from linnet.report.tables import show as _show
from linnet.report.tables import size as _size

if TYPE_CHECKING:
    from linnet.facade import Graph
    from linnet.ir.user_op import UserOp
    from linnet.quantization.calibrate import Feeds

_TIMED = 1.0  # seconds that --html measures
DTYPES = ("f32", "f16", "i8", "i16")


@click.command(short_help="Convert an ONNX, TFLite or PyTorch model, or --check it.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The .lnt file to write.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="f32", show_default=True, help="Data type of the converted model."
)
@calibration_option
@samples_option
@image_option
@shapes_option()
@click.option("--table", type=click.Path(path_type=Path), help="Text file with per-layer quantization overrides.")
@click.option(
    "--table-out", type=click.Path(path_type=Path), help="Write the chosen per-layer quantization to this text file."
)
@click.option(
    "--check", is_flag=True, help="Report problems, precision, memory and operation counts without writing a .lnt file."
)
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    help="With --check: measure the model for a second, and write the report as an HTML page with timings, memory and a "
    "drawing of the graph.",
)
@trust_pickle_option
@user_ops_option
@json_option
def convert(
    model: Path,
    output: Path | None,
    dtype: str,
    calibration: Path | None,
    samples: int | None,
    image: str | None,
    inputs: Sequence[str],
    table: Path | None,
    table_out: Path | None,
    check: bool,
    html: Path | None,
    trust_pickle: bool,
    user_ops: Sequence[str],
    as_json: bool,
) -> int:
    """Convert MODEL to a .lnt file. With --dtype f16, i8 or i16 the model is also quantized.

    MODEL is an ONNX or TFLite file, a PyTorch module saved by torch.export.save, torch.jit.save or torch.save, or a .lnt
    file that is to be quantized.
    """
    from linnet.ir.graph import dtype_of_graph
    from linnet.report.inspect import summary
    from linnet.session.model import Model

    if output is None and not check:
        raise CommandLineError(
            "no output file is given", code=101, hint="give -o model.lnt, or --check to get only a report"
        )
    if output is not None and not check and output.exists() and model.exists() and output.samefile(model):
        raise CommandLineError(
            "the output file is the same file as the input model",
            code=101,
            tensor=str(output),
            hint="give another output path",
        )
    if html is not None and not check:
        raise CommandLineError("--html works only with --check", code=101, hint="add --check")
    if output is not None and check:
        raise CommandLineError(
            "-o and --check exclude each other because --check writes no .lnt file",
            code=101,
            tensor="-o",
            hint="remove one of them",
        )
    if calibration is not None and dtype == "f32" and table is None:
        raise CommandLineError(
            "--calibration has no effect because f32 models are not quantized", code=101, hint="add --dtype i8 or i16"
        )
    if samples is not None and calibration is None:
        raise CommandLineError(
            "--samples has no effect without calibration", code=101, hint="add --calibration, or remove --samples"
        )
    shapes = shapes_of(inputs)
    if check:
        return _check(
            model, shapes, dtype, calibration, samples, image, table, html, trust_pickle, user_ops_of(user_ops), as_json
        )
    from linnet.converters.formats import load_graph
    from linnet.converters.recognition import is_linnet

    if dtype == "f32" and table is None and image is None and is_linnet(model):
        raise FileError(
            "is already a linnet file", tensor=str(model), code=203, hint="use it with linnet run, bench or inspect, or "
            "change it with --dtype or --image",
        )  # fmt: skip
    ops = user_ops_of(user_ops)
    graph = load_graph(model, shapes, user_ops=ops, trust_pickle=trust_pickle)
    if dtype != "f32" or table is not None:
        from linnet.quantization.entry import quantize

        graph = quantize(
            graph, _samples(graph, calibration, samples, image), dtype=dtype, table=table, table_out=table_out,
            progress=sys.stderr.isatty(),
        )  # fmt: skip
    if image is not None:
        from linnet.preprocess import recipe

        graph = recipe(graph, image)
    dtype = graph.metadata.setdefault("dtype", dtype_of_graph(graph))
    content = graph.to_bytes()
    Model(content, user_ops=ops)  # write nothing that the runtime cannot load
    assert output is not None
    from linnet.file.atomic import write_atomic

    write_atomic(output, iter([content]))
    report = {
        "model": str(model), "output": str(output), "dtype": dtype, "bytes": len(content),
        "ops": summary(graph)["ops"], "problems": [],
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(report))
    else:
        nodes = sum(report["ops"].values())
        click.echo(f"{model}: {nodes} ops, {dtype}, {_size(len(content))} -> {output}")
    return 0


def _samples(graph: Graph, calibration: Path | None, samples: int | None, image: str | None) -> Iterable[Feeds] | None:
    from linnet.quantization.samples import calibration_samples

    return None if calibration is None else calibration_samples(graph, calibration, samples, image=image, note=note)


def _check(
    model: Path, shapes: dict[str, tuple[int, ...]], dtype: str, calibration: Path | None, samples: int | None,
    image: str | None, table: Path | None, html: Path | None, trust_pickle: bool, user_ops: Sequence[UserOp], as_json: bool,
) -> int:  # fmt: skip
    """Prints the report of a model. Returns 1 if the model cannot be converted, else 0."""
    from linnet.file.atomic import write_atomic
    from linnet.report import drawing
    from linnet.report import text as report_text
    from linnet.report.report import check

    seconds = 0.0 if html is None else _TIMED
    report = check(
        model, shapes or None, dtype=dtype, calibration=calibration, table=table, user_ops=user_ops, seconds=seconds,
        trust_pickle=trust_pickle, samples=samples, image=image,
    )  # fmt: skip
    if html is not None:
        write_atomic(html, iter([report.to_html().encode()]))
        if not drawing.installed():
            click.echo(f"linnet: note: {drawing.NO_DRAWING}", err=True)
    if as_json:
        click.echo(report.to_json())
    else:
        for line in report_text.lines(report):
            click.echo(line)
        _show(*report_text.tables(report))
    return 0 if report.converts else 1
