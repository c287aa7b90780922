"""The command `linnet`: convert, inspect, run, plan, bench. Every failure is one line on stderr and exit status 1.
Files are written only when everything has succeeded."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from linnet.errors import ConversionError, Error, UsageError

if TYPE_CHECKING:
    from rich.table import Table

DTYPES = ("f32", "f16", "i8", "i16")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="linnet", prog_name="linnet")
def cli() -> None:
    """Convert models, look into them, run, plan and time them."""


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
_threads = click.option(
    "--threads", type=click.IntRange(1, 1024), help="Threads; default: cores of the largest cluster."
)
_isa_max = click.option("--isa-max", metavar="NAME", help="Use kernels up to this ISA level only.")
_signature = click.option("--signature", default="infer", show_default=True, help="Entry point of the model.")


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The .lnt file to write.")
@click.option("--dtype", type=click.Choice(DTYPES), default="f32", show_default=True, help="Numbers of the result.")
@click.option("--calibration", type=click.Path(path_type=Path), metavar="NPZ", help="Sample inputs, for i8 and i16.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=D,D,...", help="Shape of an input; may be repeated.")
@click.option("--table", type=click.Path(path_type=Path), help="Per-layer overrides to obey (text).")
@click.option("--table-out", type=click.Path(path_type=Path), help="Write the per-layer table as decided.")
@click.option("--check", is_flag=True, help="Report everything that stands in the way; write nothing.")
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
    as_json: bool,
) -> None:
    """Convert an ONNX or TFLite MODEL into a .lnt file, quantizing it where --dtype asks for it."""
    import linnet
    from linnet.inspect_ import summary
    from linnet.session import Model

    if output is None and not check:
        raise UsageError("nowhere to write to", code=101, hint="give -o model.lnt, or --check to only look")
    shapes = {name: _shape(name, text) for name, text in _pairs(inputs, "--input x=1,3,224,224")}
    from linnet.converters.tflite import is_tflite

    importer = linnet.from_tflite if is_tflite(model) else linnet.from_onnx
    graph = importer(model, input_shapes=shapes or None)
    if dtype != "f32" or table is not None:
        batches = None
        if calibration is not None:
            from linnet.calibrate import load_batches

            batches = load_batches(calibration, graph.signatures["infer"].inputs)
        graph = linnet.quantize(
            graph,
            batches,
            dtype=dtype,
            table=table,
            table_out=None if check else table_out,
            progress=sys.stderr.isatty(),
        )
    graph.metadata.setdefault("dtype", dtype)
    content = graph.to_bytes()
    Model(content)  # nothing is written that the runtime would not load
    if not check and output is not None:
        from linnet.file import write_atomic

        write_atomic(output, iter([content]))
    report = {
        "model": str(model), "output": None if check else str(output), "dtype": dtype, "bytes": len(content),
        "ops": summary(graph)["ops"], "problems": [],
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(report))
    else:
        nodes = sum(report["ops"].values())
        click.echo(f"{model}: {nodes} ops, {dtype}, {_size(len(content))}" + ("" if check else f" -> {output}"))


@cli.command()
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
    click.echo(f"{model}: {_size(report['bytes'])}, format {report['format']}, {report['producer']}")
    for key, value in report["metadata"].items():
        click.echo(f"  {key}: {value}")
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


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="Value of an input; may be repeated.")
@click.option("--output-dir", type=click.Path(path_type=Path), help="Folder for one .npy per output.")
@click.option(
    "--fetch", "fetches", multiple=True, metavar="NAME", help="Compute this output or tensor instead; may be repeated."
)
@_signature
@_threads
@_isa_max
@_json
def run(
    model: Path,
    inputs: Sequence[str],
    output_dir: Path | None,
    fetches: Sequence[str],
    signature: str,
    threads: int | None,
    isa_max: str | None,
    as_json: bool,
) -> None:
    """Run a MODEL once on arrays from .npy files."""
    import numpy as np

    from linnet.session import Session

    feeds: dict[str, Any] = {}
    for name, text in _pairs(inputs, "--input x=x.npy"):
        try:
            feeds[name] = np.load(text, allow_pickle=False)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise UsageError(
                f"cannot read the value of input {name!r}", code=101, tensor=text, got=reason, expected="a .npy file",
                hint="write it with numpy.save",
            ) from None  # fmt: skip
    session = Session(model, signature, threads=threads, isa_max=isa_max)
    outputs = session.run(feeds, list(fetches) or None)
    files = {name: None if output_dir is None else output_dir / f"{_file_name(name)}.npy" for name in outputs}
    if output_dir is not None:
        _save_all(output_dir, {path: outputs[name] for name, path in files.items() if path is not None})
    report = [
        {
            "name": name, "dtype": str(value.dtype), "shape": list(value.shape),
            "file": None if files[name] is None else str(files[name]),
        }
        for name, value in outputs.items()
    ]  # fmt: skip
    if as_json:
        click.echo(json.dumps({"model": str(model), "signature": signature, "outputs": report}))
        return
    table = _table("Outputs", "name", "dtype", "shape", ">min", ">mean", ">max", "file")
    for row, value in zip(report, outputs.values(), strict=True):
        numbers = value.astype(np.float64)
        figures = [f"{f(numbers):.6g}" for f in (np.min, np.mean, np.max)] if value.size else ["", "", ""]
        table.add_row(str(row["name"]), str(row["dtype"]), _dims(value.shape), *figures, str(row["file"] or ""))
    _show(table)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=D,D,...",
    help="Sizes of an input: numbers, ranges (1..8), ? for what the model declares; may be repeated.",
)
@_signature
@_threads
@_isa_max
@_json
def plan(
    model: Path, inputs: Sequence[str], signature: str, threads: int | None, isa_max: str | None, as_json: bool
) -> None:
    """Show the memory that a MODEL takes: exactly for one shape, at most for a range of shapes."""
    from linnet.bounds import parse, samples, text_of
    from linnet.session import Session

    given = {name: parse(name, text) for name, text in _pairs(inputs, "--input x=1..8,3,?,?")}
    session = Session(model, signature, threads=threads, isa_max=isa_max, bounds=given)
    bound, corner = session.bound, samples(session._ranges)[0]
    assert bound is not None
    exact = bound.planned == 1
    if not exact:
        session = Session(session.model, signature, threads=threads, isa_max=isa_max, input_shapes=corner)
    elif session._last is None:
        session._planned(corner, None)
    info, memory = session.plan_info, session.memory
    report = {
        "model": str(model), "signature": signature, "shapes": corner, "exact": exact, "memory": memory,
        "bound": {**bound.regions, "total": bound.total}, "arena": bound.arena, "later_segments": bound.later,
        "unbounded": bound.unbounded, "shapes_planned": bound.planned, "shapes_refused": bound.refused, "plan": info,
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(report))
        return
    click.echo(f"{model}: " + ", ".join(f"{name} [{text_of(shape)}]" for name, shape in corner.items()))
    click.echo(
        f"{info['steps']} steps, {info['segments']} segment(s), {info['threads']} thread(s), {info['isa']}, "
        f"planned in {info['plan_ms']:.2f} ms"
    )
    columns = (">bytes",) if exact else (">at the largest shape", ">at most")
    table = _table("Memory", "region", *columns)
    for name, value in memory.items():
        table.add_row(name, f"{value:,}", *(() if exact else (f"{bound.regions[name]:,}",)))
    if bound.later or bound.unbounded:
        text = "no bound" if bound.unbounded else f"{bound.later:,}"
        table.add_row("later segments", *((text,) if exact else ("", text)))
    _show(table)
    if bound.unbounded:
        click.echo(f"no bound for what depends on data: {bound.unbounded}")
    else:
        click.echo(f"at most {bound.total:,} bytes, with an arena of {bound.arena:,} bytes for every shape inside")


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--input", "inputs", multiple=True, metavar="NAME=D,D,...", help="Shape of an input; may be repeated.")
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
        raise UsageError("--seconds is no finite number", code=101, got=str(seconds), hint="give for example 2")
    shapes = {name: _shape(name, text) for name, text in _pairs(inputs, "--input x=1,3,224,224")}
    report = measure(model, signature=signature, threads=threads, isa_max=isa_max, seconds=seconds, input_shapes=shapes)
    if as_json:
        click.echo(json.dumps(report))
        return
    machine = report["machine"]
    click.echo(f"{model}: {report['dtype']}, {report['threads']} thread(s), {report['isa']}, on {machine['cpu']}")
    click.echo(
        f"median {report['median_ms']:.3f} ms, min {report['min_ms']:.3f}, p95 {report['p95_ms']:.3f} "
        f"over {report['runs']} runs; first run {report['first_run_ms']:.3f}, load {report['load_ms']:.3f}, "
        f"plan {report['plan_ms']:.3f} ms"
    )
    memory = _table("Memory", "region", ">bytes")
    for name, value in report["memory"].items():
        memory.add_row(name, f"{value:,}")
    ops = _table("Ops", "name", "op", "kernel", "layout", ">ms", ">share", ">MB", ">MFLOP", ">GFLOP/s")
    total = sum(op["ms"] for op in report["ops"]) or 1.0
    for op in sorted(report["ops"], key=lambda op: -op["ms"]):
        rate = op["flops"] / op["ms"] / 1e6 if op["ms"] else 0.0
        ops.add_row(
            op["name"], op["op"], op["kernel"], op["layout"], f"{op['ms']:.4f}", f"{op['ms'] / total:.1%}",
            f"{op['bytes'] / 1e6:.2f}", f"{op['flops'] / 1e6:.2f}", f"{rate:.2f}",
        )  # fmt: skip
    _show(memory, ops)


# ---- options and tables


def _pairs(items: Sequence[str], example: str) -> list[tuple[str, str]]:
    """NAME=VALUE arguments; the name may hold "=" no more than the value may lack it."""
    pairs = []
    for item in items:
        name, sign, value = item.partition("=")
        if not sign or not name or not value:
            raise UsageError(f"{item!r} is not NAME=VALUE", code=101, expected=f"for example {example}")
        pairs.append((name, value))
    return pairs


def _shape(name: str, text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(d) for d in text.replace("x", ",").split(","))
        if min(shape) < 0:
            raise ValueError
    except ValueError:
        raise UsageError(
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


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB" if count >= 1000 else f"{count} bytes"


def _dims(shape: Any) -> str:
    return "[?]" if shape is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"


def _quant(spec: dict[str, Any]) -> str:
    q = spec.get("quantization")
    if not q:
        return ""
    if q["axis"] is not None:
        return f"per axis {q['axis']} ({len(q['scale'])} scales)"
    return f"scale {q['scale'][0]:.6g} zero {q['zero'][0]}"


def _short(value: Any) -> str:
    text = str(value).replace(" ", "")
    return text if len(text) <= 60 else text[:57] + "..."


def _table(title: str, *columns: str) -> Table:
    """A table; a column whose title begins with ">" is for numbers."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return table


def _show(*tables: Table) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    for table in tables:
        console.print(table)


def main() -> NoReturn:
    """Entry point of the console script."""
    sys.exit(_main(sys.argv[1:]))


def _main(arguments: Sequence[str]) -> int:
    try:
        result = cli.main(list(arguments), prog_name="linnet", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except ConversionError as error:
        _fail(*(f"{error.tensor}: {problem}" if error.tensor else str(problem) for problem in error.problems))
        if "--json" in arguments:
            click.echo(json.dumps({"problems": [vars(problem) for problem in error.problems]}))
    except click.ClickException as error:
        _fail(error.format_message().rstrip(".") + "; see linnet --help")
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read us has gone
    except MemoryError:
        _fail("out of memory")
    except Error as error:
        _fail(str(error))
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
