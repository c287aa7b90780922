"""`linnet run`: runs a model once on arrays, images or audio, and prints what it finds in them.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    CommandLineError,
    dims,
    json_option,
    known,
    note_batches,
    pairs,
    session_options,
    shapes_of,
    signature_option,
    strict_dims_option,
    user_ops_of,
    user_ops_option,
)
from linnet.clib.errors import UsageError
from linnet.report.tables import show as _show
from linnet.report.tables import table as _table

if TYPE_CHECKING:
    import numpy.typing as npt

    from linnet.session.options import SessionOptions


_FIGURES = ("min", "mean", "max")
_SHOWN = 1000  # elements; --json has the values of smaller outputs
_PRINTED = 16  # elements; the values of smaller outputs are printed, as linnet-run does


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """The options of `linnet run`."""

    inputs: Sequence[str] = option(
        "--input",
        multiple=True,
        metavar="[NAME=]FILE",
        help="Value of an input: a .npy file, or an image or audio file if the model contains the preprocessing for it. "
        "Repeat for each input. NAME= may be omitted if the model has only one input. NAME may be any tensor of the graph, "
        "or a step, which stands for its result. The run then starts there.",
    )
    random: bool = option(
        "--random", is_flag=True, help="Use random values (zeros for plain integers) for inputs that are not given."
    )
    shapes: Sequence[str] = option(
        "--shape", multiple=True, metavar="NAME=D,D,...",
        help="With --random: shape of an input whose shape the model leaves open. Repeat for each input.",
    )  # fmt: skip
    output_dir: Path | None = option(
        "-o", "--output-dir", type=click.Path(path_type=Path), help="Write each output to a .npy file in this folder."
    )
    fetches: Sequence[str] = option(
        "--fetch",
        multiple=True,
        metavar="NAME",
        help="Compute this output, tensor or step instead of all outputs. May be repeated. `linnet inspect --all` lists them.",
    )
    checkpoint: Path | None = option(
        "--checkpoint", type=click.Path(path_type=Path), help="Checkpoint whose trained variables are loaded first."
    )
    trace_file: Path | None = option(
        "--trace",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write a trace of the run for ui.perfetto.dev: the phases, and each step with its kernel.",
    )
    timeout: float | None = option(
        "--timeout", type=float, metavar="SECONDS", help="Stop the run after this many seconds."
    )
    signature: str = shared(signature_option)
    strict_dims: bool | None = shared(strict_dims_option)
    options: SessionOptions = shared(session_options(on_loss=True))
    user_ops: Sequence[str] = shared(user_ops_option)
    as_json: bool = shared(json_option)


@click.command(short_help="Run a model once on arrays, images or audio.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1, metavar="[[NAME=]FILE]...")
@takes(RunOptions)
def run(model: Path, files: Sequence[str], given: RunOptions) -> None:
    """Run MODEL once on .npy arrays, images or audio, each given as FILE or with --input. Prints the labels, boxes and
    text that the model finds or, if there are none, a table of its outputs."""
    import numpy as np

    from linnet.data.media import read_feed
    from linnet.data.results import Described
    from linnet.ir.dtypes import dtype_of
    from linnet.session.c_plan import unknown
    from linnet.session.model import Model
    from linnet.session.session import Session
    from linnet.session.trace import Trace

    trace = Trace()
    opened = Model(model, user_ops=user_ops_of(given.user_ops))
    trace.phase("load")
    described = Described(opened, given.signature)
    specs = {spec.name: spec for spec in opened.inputs(given.signature)}
    feeds: dict[str, Any] = {}
    only = next(iter(specs)) if len(specs) == 1 else ""
    for name, text in pairs(
        [f"{only}={i}" if only and "=" not in i else i for i in (*given.inputs, *files)], "--input x=x.npy"
    ):
        spec = specs.get(name) or opened.tensor(name, given.signature)
        if spec is None:
            raise unknown(opened, given.signature, name)
        else:
            feeds[name] = read_feed(Path(text), name, spec.dtype, described.about(name))
    if given.shapes and not given.random:
        raise CommandLineError("--shape applies only to random inputs", code=101, hint="add --random, or give --input")
    planned = {name: np.shape(value) for name, value in feeds.items() if name in specs}
    if given.random:
        from linnet.session.open_sizes import open_batches
        from linnet.session.random_inputs import random_feeds
        from linnet.session.usable_sizes import usable_shapes

        shapes = shapes_of(given.shapes)
        for name in shapes:
            known(name, specs)
        present = {name: np.shape(value) for name, value in feeds.items()} | shapes
        assumed = open_batches(opened, given.signature, list(specs.values()), present)
        note_batches(assumed)
        missing = [spec for name, spec in specs.items() if name not in feeds]
        planned |= {spec.name: shape for spec in missing if (shape := (shapes | assumed).get(spec.name)) is not None}
    trace.phase("read inputs")
    session = Session(
        opened,
        given.signature,
        fetches=list(given.fetches) or None,
        input_shapes=planned if given.trace_file is not None or given.random else None,
        trace=given.trace_file is not None,
        strict_dims=given.strict_dims,
        **given.options.fields,
    )
    if given.checkpoint is not None:
        session.variables.load(given.checkpoint)
    trace.phase("plan")
    if given.random:  # after planning, which rejects shapes for which there is too little memory
        feeds |= random_feeds(
            missing, planned, partial(usable_shapes, opened, given.signature, planned, given.fetches or None)
        )
        trace.phase("random inputs")
    outputs = session.run(feeds, timeout=given.timeout)
    trace.phase("run")
    if given.trace_file is not None:
        trace.write(given.trace_file, str(model), session.steps)
    written = {
        name: None if given.output_dir is None else given.output_dir / f"{_file_name(name)}.npy" for name in outputs
    }
    if given.output_dir is not None:
        _save_all(given.output_dir, {path: outputs[name] for name, path in written.items() if path is not None})
        described.save_pictures(
            outputs, {n: path.with_suffix(".png") for n, path in written.items() if path is not None}
        )
    declared = {spec.name: spec.dtype for spec in session.outputs}
    report = [
        {
            "name": name, "dtype": declared.get(name) or dtype_of(value.dtype), "shape": list(value.shape),
            **_figures(value), "file": None if written[name] is None else str(written[name]),
        }
        for name, value in outputs.items()
    ]  # fmt: skip
    if given.as_json:
        found = described.found(outputs)
        click.echo(
            json.dumps(
                {"model": str(model), "signature": given.signature, "outputs": _for_json(report), "found": found}
            )
        )
        return
    table = _table("Outputs", "name", "dtype", "shape", ">min", ">mean", ">max", "file")
    for row, value in zip(report, outputs.values(), strict=True):
        figures = [f"{row[key]:.6g}" if row[key] is not None else "" for key in _FIGURES]
        table.add_row(str(row["name"]), str(row["dtype"]), dims(value.shape), *figures, str(row["file"] or ""))
    found = described.found(outputs)
    best = [name for name, rows in found.items() if rows and set(rows[0]) == {"score", "label"}]
    for name in best:
        rows = found.pop(name)
        for entry in [row for row in rows if row["score"]] or rows[:1]:  # 8 bits round small probabilities to 0
            click.echo(f"{entry['label']} {_rounded(entry['score'])}")
    tables = [] if best and given.output_dir is None else [table]  # the values of classes and scores are printed
    for name, rows in found.items():
        columns = list(rows[0]) if rows else ["nothing found"]
        tables.append(_table(name, *(c if c in ("label", "text") else f">{c}" for c in columns)))
        for entry in rows:
            tables[-1].add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in entry.values()))
    _show(*tables)
    for row in report if tables and tables[0] is table else []:
        if row["values"] and len(row["values"]) <= _PRINTED:
            click.echo(f"{row['name']}: " + " ".join(f"{number:.6g}" for number in row["values"]))


def _rounded(score: float) -> str:
    """The score with two decimals, or with two significant digits if it is smaller than 0.01."""
    return f"{score:.2f}" if abs(score) >= 0.01 or score == 0 else f"{score:.2g}"


def _figures(value: npt.NDArray[Any]) -> dict[str, Any]:
    """What the command prints about the values of an output."""
    import numpy as np

    numbers = value.astype(np.float64)
    found: dict[str, Any] = {key: float(getattr(np, key)(numbers)) if value.size else None for key in _FIGURES}
    return found | {"values": value.reshape(-1).tolist() if value.size <= _SHOWN else None}


def _for_json(value: Any) -> Any:
    """Replaces NaN and infinity by None, because JSON has neither."""
    if isinstance(value, dict):
        return {key: _for_json(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_for_json(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "_"


def _save_all(folder: Path, arrays: dict[Path, Any]) -> None:
    """Writes each array through a temporary file. Raises UsageError if the folder cannot be created, FileError if a
    file cannot be written."""
    import io

    import numpy as np

    from linnet.file.atomic import write_atomic
    from linnet.ir.dtypes import for_npy

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot create the folder '{folder}': {error.strerror}",
            code=101,
            tensor=str(folder),
            hint="give another folder",
        ) from None
    for path, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, for_npy(array), allow_pickle=False)
        write_atomic(path, iter([buffer.getvalue()]))
