"""The command `linnet`: convert, inspect, verify, run, plan, bench. Every failure is one line on stderr and exit status 1
(2 where the command line itself is wrong). Files are written only when everything has succeeded."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from linnet import cli_sync, cli_training, cli_verify
from linnet.errors import ConversionError, Error, UsageError
from linnet.tables import count as _count
from linnet.tables import region as _region
from linnet.tables import show as _show
from linnet.tables import size as _size
from linnet.tables import table as _table


class CommandLineError(UsageError):
    """The command line itself is wrong, whatever the files hold: exit status 2."""


DTYPES = ("f32", "f16", "i8", "i16")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="linnet", prog_name="linnet")
def cli() -> None:
    """Convert models, look into them, run, plan and time them; write them as ONNX."""


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
_threads = click.option(
    "--threads", type=click.IntRange(1, 1024), help="Threads; default: cores of the largest cluster."
)
_isa_max = click.option("--isa-max", metavar="NAME", help="Use kernels up to this ISA level only.")
_strict_dims = click.option(
    "--strict-dims",
    is_flag=True,
    default=None,
    help="Refuse shapes that give open dimensions of one name several sizes; otherwise a warning says so.",
)
_signature = click.option("--signature", default="infer", show_default=True, help="Entry point of the model.")


@cli.command(short_help="Convert an ONNX or TFLite model, or --check it.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The .lnt file to write.")
@click.option("--dtype", type=click.Choice(DTYPES), default="f32", show_default=True, help="Numbers of the result.")
@click.option("--calibration", type=click.Path(path_type=Path), metavar="NPZ", help="Sample inputs, for i8 and i16.")
@click.option(
    "--input", "--shape", "inputs", multiple=True, metavar="NAME=D,D,...", help="Shape of an input; may be repeated."
)
@click.option("--table", type=click.Path(path_type=Path), help="Per-layer overrides to obey (text).")
@click.option("--table-out", type=click.Path(path_type=Path), help="Write the per-layer table as decided.")
@click.option("--check", is_flag=True, help="Report problems, precision, memory, operations; write no .lnt file.")
@click.option(
    "--html", type=click.Path(path_type=Path), help="With --check: the report as a page, with the graph drawn."
)
@_json
def convert(
    model: Path,
    output: Path | None,
    dtype: str,
    calibration: Path | None,
    inputs: Sequence[str],
    table: Path | None,
    table_out: Path | None,
    check: bool,
    html: Path | None,
    as_json: bool,
) -> int:
    """Convert an ONNX or TFLite MODEL into a .lnt file, quantizing it where --dtype asks for it."""
    import linnet
    from linnet.inspect_ import summary
    from linnet.model import Model

    if output is None and not check:
        raise CommandLineError("nowhere to write to", code=101, hint="give -o model.lnt, or --check to only look")
    if output is not None and not check and output.exists() and model.exists() and output.samefile(model):
        raise CommandLineError("the output is the model itself", code=101, tensor=str(output), hint="give another path")
    if html is not None and not check:
        raise CommandLineError("--html is the report of --check", code=101, hint="add --check")
    if output is not None and check:
        raise CommandLineError("--check writes no .lnt file", code=101, tensor="-o", hint="leave one of both out")
    if calibration is not None and dtype == "f32" and table is None:
        raise CommandLineError("--calibration quantizes nothing at f32", code=101, hint="add --dtype i8 or i16")
    shapes = {name: _shape(name, text) for name, text in _pairs(inputs, "--input x=1,3,224,224")}
    if check:
        return _check(model, shapes, dtype, calibration, table, html, as_json)
    from linnet.converters import tflite
    from linnet.converters.formats import importer_of

    importer = linnet.from_tflite if importer_of(model) is tflite else linnet.from_onnx
    graph = importer(model, input_shapes=shapes or None)
    if dtype != "f32" or table is not None:
        graph = linnet.quantize(
            graph, _batches(calibration, graph), dtype=dtype, table=table, table_out=table_out,
            progress=sys.stderr.isatty(),
        )  # fmt: skip
    graph.metadata.setdefault("dtype", dtype)
    content = graph.to_bytes()
    Model(content)  # nothing is written that the runtime would not load
    assert output is not None
    from linnet.file import write_atomic

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


def _batches(calibration: Path | None, graph: Any) -> Any:
    from linnet.calibrate import batches_for

    return None if calibration is None else batches_for(calibration, graph)


def _check(
    model: Path, shapes: dict[str, tuple[int, ...]], dtype: str, calibration: Path | None, table: Path | None,
    html: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Prints the report of a model; 1 when it does not convert."""
    import linnet
    from linnet import drawing, report_text
    from linnet.file import write_atomic

    if html is not None:
        drawing.renderer()  # before the work, not after it
    report = linnet.check(model, shapes or None, dtype=dtype, calibration=calibration, table=table)
    if html is not None:
        write_atomic(html, iter([report.to_html().encode()]))
    if as_json:
        click.echo(report.to_json())
    else:
        for line in report_text.lines(report):
            click.echo(line)
        _show(*report_text.tables(report))
    return 0 if report.converts else 1


@cli.command(short_help="Show what is in a model.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="List every op and tensor.")
@_json
def inspect(model: Path, everything: bool, as_json: bool) -> None:
    """Show what is in a MODEL: signatures, ops, tensors, sizes, quantization, provenance."""
    from linnet.inspect_ import details

    report = details(model)
    if as_json:
        click.echo(json.dumps(report))
        return
    checkpoint_of = report["metadata"].pop("checkpoint_of", None)
    click.echo(f"{model}: {_size(report['bytes'])}, format {report['format']}, {report['producer'] or 'a checkpoint'}")
    click.echo(
        f"  digest: {report['digest']}" if checkpoint_of is None else f"  of the model with digest: {checkpoint_of}"
    )
    click.echo(f"  weights: {report['weights']}")
    for key, value in report["metadata"].items():
        click.echo(f"  {key}: {_short_text(value)}")
    tables = []
    ports = _table("Signatures", "signature", "", "name", "dtype", "shape", "quantization")
    for signature in report["signatures"]:
        for role in ("inputs", "outputs"):
            for spec in signature[role]:
                ports.add_row(
                    signature["name"], role[:-1], spec["name"], spec["dtype"], _dims(spec["shape"]), _quant(spec)
                )
    tables.append(ports)
    if report["variables"]:
        variables = _table("Variables", "name", "dtype", "shape", ">bytes")
        for spec in report["variables"]:
            variables.add_row(spec["name"], spec["dtype"], _dims(spec["shape"]), f"{spec['bytes']:,}")
        tables.append(variables)
    if checkpoint_of is not None:
        _show(tables[-1])
        return
    counts = _table("Ops", "op", ">count")
    for op, count in report["ops"].items():
        counts.add_row(op, str(count))
    tables.append(counts)
    sizes = _table("Constants", "dtype", ">count", ">bytes")
    for dtype, entry in report["constants"].items():
        sizes.add_row(dtype, str(entry["count"]), f"{entry['bytes']:,}")
    tables.append(sizes)
    if everything:
        for function in report["functions"]:
            nodes = _table(
                f"Function {function['name']}", ">#", "op", "name", "inputs", "outputs", "attributes", "from"
            )
            for i, node in enumerate(function["nodes"]):
                attributes = " ".join(f"{k}={_short(v)}" for k, v in node["attributes"].items())
                nodes.add_row(
                    str(i), node["op"], node["name"], " ".join(node["inputs"]),
                    "\n".join(f"{t['name']} {t['dtype']}{_dims(t['shape'])} {_quant(t)}" for t in node["outputs"]),
                    attributes, node["source"],
                )  # fmt: skip
            tables.append(nodes)
    _show(*tables)


@cli.command(short_help="Run a model once on arrays, pictures or sound.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE",
    help="Value of an input: a .npy file, or a picture or sound where the model has the steps for it inside; may be "
    "repeated. NAME= may be left out when there is one.",
)
@click.option("--random", is_flag=True, help="Random values (zeros for plain integers) for inputs that are not given.")
@click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=D,D,...",
    help="With --random: shape of an input that the model leaves open; may be repeated.",
)  # fmt: skip
@click.option("--output-dir", type=click.Path(path_type=Path), help="Folder for one .npy per output.")
@click.option(
    "--fetch", "fetches", multiple=True, metavar="NAME", help="Compute this output or tensor instead; may be repeated."
)
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Trained variables, as training saves them.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Longest that the run may take.")
@_signature
@_strict_dims
@_threads
@_isa_max
@_json
def run(
    model: Path,
    inputs: Sequence[str],
    random: bool,
    shapes: Sequence[str],
    output_dir: Path | None,
    fetches: Sequence[str],
    checkpoint: Path | None,
    timeout: float | None,
    signature: str,
    strict_dims: bool | None,
    threads: int | None,
    isa_max: str | None,
    as_json: bool,
) -> None:
    """Run a MODEL once on arrays from .npy files, pictures or sound; prints labels, boxes and text that it finds."""
    import numpy as np

    from linnet.media import read_feed
    from linnet.results import Described
    from linnet.session import Session

    session = Session(model, signature, threads=threads, isa_max=isa_max, strict_dims=strict_dims)
    if checkpoint is not None:
        session.variables.load(checkpoint)
    described = Described(session.model, signature)
    specs = {spec.name: spec for spec in session.inputs}
    feeds: dict[str, Any] = {}
    only = next(iter(specs)) if len(specs) == 1 else ""
    for name, text in _pairs([f"{only}={i}" if only and "=" not in i else i for i in inputs], "--input x=x.npy"):
        _known(name, specs)
        feeds[name] = read_feed(Path(text), name, specs[name].dtype, described.about(name))
    if shapes and not random:
        raise CommandLineError("--shape is for random inputs", code=101, hint="add --random, or give --input")
    if random:
        from linnet.bench import random_feeds

        given = {name: _shape(name, text) for name, text in _pairs(shapes, "--shape x=1,3,224,224")}
        for name in given:
            _known(name, specs)
        feeds |= random_feeds([spec for spec in session.inputs if spec.name not in feeds], given)
    outputs = session.run(feeds, list(fetches) or None, timeout=timeout)
    files = {name: None if output_dir is None else output_dir / f"{_file_name(name)}.npy" for name in outputs}
    if output_dir is not None:
        _save_all(output_dir, {path: outputs[name] for name, path in files.items() if path is not None})
        described.save_pictures(outputs, {n: path.with_suffix(".png") for n, path in files.items() if path is not None})
    report = [
        {
            "name": name, "dtype": str(value.dtype), "shape": list(value.shape),
            "file": None if files[name] is None else str(files[name]),
        }
        for name, value in outputs.items()
    ]  # fmt: skip
    if as_json:
        found = described.found(outputs)
        click.echo(json.dumps({"model": str(model), "signature": signature, "outputs": report, "found": found}))
        return
    table = _table("Outputs", "name", "dtype", "shape", ">min", ">mean", ">max", "file")
    for row, value in zip(report, outputs.values(), strict=True):
        numbers = value.astype(np.float64)
        figures = [f"{f(numbers):.6g}" for f in (np.min, np.mean, np.max)] if value.size else ["", "", ""]
        table.add_row(str(row["name"]), str(row["dtype"]), _dims(value.shape), *figures, str(row["file"] or ""))
    tables = [table]
    for name, rows in described.found(outputs).items():
        columns = list(rows[0]) if rows else ["nothing found"]
        tables.append(_table(name, *(c if c in ("label", "text") else f">{c}" for c in columns)))
        for entry in rows:
            tables[-1].add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in entry.values()))
    _show(*tables)


@cli.command(short_help="Show the memory that a model takes.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "--shape",
    "inputs",
    multiple=True,
    metavar="NAME=D,D,...",
    help="Sizes of an input: numbers, ranges (1..8), ? for what the model declares; may be repeated.",
)
@click.option("--snapshot", is_flag=True, help="For a session that serves while others train (Session(snapshot=True)).")
@_signature
@_strict_dims
@_threads
@_isa_max
@_json
def plan(
    model: Path,
    inputs: Sequence[str],
    snapshot: bool,
    signature: str,
    strict_dims: bool | None,
    threads: int | None,
    isa_max: str | None,
    as_json: bool,
) -> None:
    """Show the memory that a MODEL takes: exactly for one shape, at most for a range of shapes."""
    from linnet.bounds import parse, text_of
    from linnet.planner import Planner

    pairs = _pairs(inputs, "--input x=1..8,3,?,?")
    try:
        given = {name: parse(name, text) for name, text in pairs}
    except UsageError as error:
        raise CommandLineError(**vars(error)) from None
    planner = Planner(model, signature, threads=threads, isa_max=isa_max, strict_dims=strict_dims, snapshot=snapshot)
    bound = planner.plan_bounds(given)
    exact, info, memory = bound.shapes == 1, planner.plan_info, planner.memory
    report = {
        "model": str(model), "signature": signature, "shapes": bound.largest, "exact": exact, "memory": memory,
        "bound": bound.regions, "arena": bound.arena, "later_segments": bound.later, "unbounded": bound.unbounded,
        "shapes_inside": bound.shapes, "every_shape_planned": bound.every, "shapes_planned": bound.planned,
        "shapes_refused": bound.refused, "plan": info,
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(report))
        return
    click.echo(f"{model}: " + ", ".join(f"{name} [{text_of(shape)}]" for name, shape in bound.largest.items()))
    click.echo(
        f"{_count(info['steps'], 'step')}, {_count(info['segments'], 'segment')}, "
        f"{_count(info['threads'], 'thread')}, {info['isa']}, "
        f"planned in {info['plan_ms']:.2f} ms"
    )
    columns = (">bytes",) if exact else (">at the largest shape", ">at most")
    table = _table("Memory", "region", *columns)
    later = "no bound" if bound.unbounded else f"{bound.later:,}"
    for name, value in memory.items():
        if name in ("snapshot", "committed") and not snapshot:
            continue
        if name == "total" and (bound.later or bound.unbounded):
            table.add_row("later segments", *((later,) if exact else ("", later)))
        most = "no bound" if name == "total" and bound.unbounded else f"{bound.regions[name]:,}"
        table.add_row(_region(name), *((most,) if exact else (f"{value:,}", most)))
    _show(table)
    if bound.unbounded:
        click.echo(f"no bound: {bound.unbounded}")
        return
    inside = "" if exact else f" for each of the {bound.shapes:,} shapes inside"
    click.echo(f"at most {bound.total:,} bytes, with an arena of {bound.arena:,} bytes{inside}")
    if not exact:
        made = (
            "every shape was planned" if bound.every else "by construction: any shape fits in the places of the largest"
        )
        click.echo(made)


@cli.command(short_help="Time a model and every op of it.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--input", "--shape", "inputs", multiple=True, metavar="NAME=D,D,...", help="Shape of an input; may be repeated."
)
@click.option("--seconds", type=click.FloatRange(0.01), default=2.0, show_default=True, help="How long to time.")
@_signature
@_threads
@_isa_max
@_json
def bench(
    model: Path,
    inputs: Sequence[str],
    seconds: float,
    signature: str,
    threads: int | None,
    isa_max: str | None,
    as_json: bool,
) -> None:
    """Time a MODEL on random input: load, plan, first run, steady runs, and every op."""
    from linnet.bench import measure

    if not math.isfinite(seconds):
        raise CommandLineError("--seconds is no finite number", code=101, got=str(seconds), hint="give for example 2")
    shapes = {name: _shape(name, text) for name, text in _pairs(inputs, "--input x=1,3,224,224")}
    report = measure(model, signature=signature, threads=threads, isa_max=isa_max, seconds=seconds, input_shapes=shapes)
    if as_json:
        click.echo(json.dumps(report))
        return
    machine = report["machine"]
    click.echo(
        f"{model}: {report['dtype']}, {_count(report['threads'], 'thread')}, {report['isa']}, on {machine['cpu']}"
    )
    click.echo(
        f"median {report['median_ms']:.3f} ms, min {report['min_ms']:.3f}, p95 {report['p95_ms']:.3f} "
        f"over {report['runs']} runs; first run {report['first_run_ms']:.3f}, load {report['load_ms']:.3f}, "
        f"plan {report['plan_ms']:.3f} ms"
    )
    memory = _table("Memory", "region", ">bytes")
    for name, value in report["memory"].items():
        memory.add_row(_region(name), f"{value:,}")
    ops = _table("Ops", "name", "=kernel", ">ms", ">share", ">GFLOP/s")  # --json has more
    total = sum(op["ms"] for op in report["ops"]) or 1.0
    for op in sorted(report["ops"], key=lambda op: -op["ms"]):
        rate = op["flops"] / op["ms"] / 1e6 if op["ms"] else 0.0
        ops.add_row(op["name"], op["kernel"], f"{op['ms']:.4f}", f"{op['ms'] / total:.1%}", f"{rate:.2f}")
    _show(memory, ops)


cli.add_command(cli_verify.verify)
cli.add_command(cli_training.export)
cli.add_command(cli_training.train)
cli.add_command(cli_training.finetune)
for _command in cli_sync.COMMANDS:
    cli.add_command(_command)


# ---- options and tables


def _pairs(items: Sequence[str], example: str) -> list[tuple[str, str]]:
    """NAME=VALUE arguments; the name may hold "=" no more than the value may lack it."""
    pairs: list[tuple[str, str]] = []
    for item in items:
        name, sign, value = item.partition("=")
        if not sign or not name or not value:
            raise CommandLineError(f"{item!r} is not NAME=VALUE", code=101, expected=f"for example {example}")
        if any(name == other for other, _ in pairs):
            raise CommandLineError(f"{name!r} is given twice", code=101, hint="give every input once")
        pairs.append((name, value))
    return pairs


def _known(name: str, specs: Collection[str]) -> None:
    if name not in specs:
        expected = " or ".join(specs) or "no input"
        raise UsageError(f"the model has no input {name!r}", code=102, tensor=name, expected=expected)


def _shape(name: str, text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(d) for d in text.replace("x", ",").split(","))
        if min(shape) < 0:
            raise ValueError
    except ValueError:
        raise CommandLineError(
            f"the shape of {name!r} is not one", code=101, expected="numbers such as 1,3,224,224", got=text
        ) from None
    return shape


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "_"


def _save_all(folder: Path, arrays: dict[Path, Any]) -> None:
    """Every array, each through a temporary file. UsageError when the folder cannot be made, FileError when not written."""
    import io

    import numpy as np

    from linnet.file import write_atomic

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder '{folder}': {error.strerror}",
            code=101,
            tensor=str(folder),
            hint="give another one",
        ) from None
    for path, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        write_atomic(path, iter([buffer.getvalue()]))


def _dims(shape: Any) -> str:
    return "[?]" if shape is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


def _quant(spec: dict[str, Any]) -> str:
    q = spec.get("quantization")
    if not q:
        return ""
    if q["axis"] is not None:
        return f"per axis {q['axis']} ({len(q['scale'])} scales)"
    return f"scale {q['scale'][0]:.6g} zero {q['zero'][0]}"


def _short_text(text: str) -> str:
    """One line: of several, the first and how many follow."""
    first, *rest = text.split("\n")
    return f"{first} (and {len(rest)} more lines)" if rest else first


def _short(value: Any) -> str:
    text = str(value).replace(" ", "")
    return text if len(text) <= 60 else text[:57] + "..."


def main() -> NoReturn:
    """Entry point of the console script."""
    sys.exit(_main(sys.argv[1:]))


def _main(arguments: Sequence[str]) -> int:
    try:
        result = cli.main(list(arguments), prog_name="linnet", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except ConversionError as error:
        from linnet.report_text import problem_table

        one, what = len(error.problems) == 1, error.tensor or "the model"
        _fail(str(error.problems[0]) if one else f"cannot convert {what}: {len(error.problems)} problems")
        if not one:
            _show(problem_table(error.problems), error=True)
        if "--json" in arguments:
            click.echo(json.dumps({"problems": [vars(problem) for problem in error.problems]}))
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            click.echo(error.format_message(), err=True)
        else:
            path = "linnet" if context is None else context.command_path
            _fail(f"{error.format_message().rstrip('.')}; see {path} --help")
        return 2 if isinstance(error, click.UsageError) else 1
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read us has gone
    except MemoryError:
        _fail("out of memory")
    except Error as error:
        _fail(str(error))
        return 2 if isinstance(error, CommandLineError) else 1
    except OSError as error:
        _fail(f"cannot write the output: {error.strerror or error}; nothing of it may have come through")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ModuleNotFoundError as error:
        name = (error.name or "?").split(".")[0]
        _fail(f"the package {name!r} is missing; install linnet again with its dependencies, or pip install {name}")
    except Exception as error:
        if os.environ.get("LINNET_TRACEBACK"):
            raise
        _fail(f"{type(error).__name__}: {error} (set LINNET_TRACEBACK=1 to see where, and report it)")
    return 1


def _fail(*messages: str) -> None:
    for message in messages:
        click.echo("linnet: error: " + " ".join(message.split()), err=True)


if __name__ == "__main__":
    main()
