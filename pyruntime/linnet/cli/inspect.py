"""`linnet inspect`: shows the signatures, ops, tensors, sizes, quantization and provenance of a model or checkpoint.
linnet.cli.main adds it to its group."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from linnet.cli.options import dims, json_option
from linnet.report.tables import show as _show
from linnet.report.tables import size as _size
from linnet.report.tables import table as _table


@click.command(short_help="Show the contents of a model.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="List every op and every tensor.")
@json_option
def inspect(model: Path, everything: bool, as_json: bool) -> None:
    """Show the contents of MODEL: signatures, ops, tensors, sizes, quantization and provenance."""
    from linnet.report.inspect import details

    report = details(model)
    if as_json:
        click.echo(json.dumps(report))
        return
    checkpoint_of = report["metadata"].pop("checkpoint_of", None)
    click.echo(f"{model}: {_size(report['bytes'])}, format {report['format']}, {report['producer'] or 'a checkpoint'}")
    click.echo(
        f"  digest: {report['digest']}"
        if checkpoint_of is None
        else f"  belongs to the model with digest: {checkpoint_of}"
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
                    signature["name"], role[:-1], spec["name"], spec["dtype"], dims(spec["shape"]), _quant(spec)
                )
    tables.append(ports)
    if report["variables"]:
        placed = any(spec.get("placement") for spec in report["variables"])
        variables = _table("Variables", "name", "dtype", "shape", ">bytes", *["placement"] * placed)
        for spec in report["variables"]:
            row = [spec["name"], spec["dtype"], dims(spec["shape"]), f"{spec['bytes']:,}"]
            variables.add_row(*row, *[spec["placement"]] * placed)
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
            placed = any(node["placement"] for node in function["nodes"])
            nodes = _table(
                f"Function {function['name']}", ">#", "op", "name", "inputs", "outputs", "attributes", "from",
                *["placement"] * placed,
            )  # fmt: skip
            for i, node in enumerate(function["nodes"]):
                attributes = " ".join(f"{k}={_short(v)}" for k, v in node["attributes"].items())
                nodes.add_row(
                    str(i), node["op"], node["name"], " ".join(node["inputs"]),
                    "\n".join(f"{t['name']} {t['dtype']}{dims(t['shape'])} {_quant(t)}" for t in node["outputs"]),
                    attributes, node["source"], *[node["placement"]] * placed,
                )  # fmt: skip
            tables.append(nodes)
    _show(*tables)


def _quant(spec: dict[str, Any]) -> str:
    q = spec.get("quantization")
    if not q:
        return ""
    if "block" in q:
        return f"{q['bits']} bits, blocks of {q['block']} along axis {q['axis']} ({math.prod(q['blocks'])} scales)"
    if q["axis"] is not None:
        return f"per axis {q['axis']} ({len(q['scale'])} scales)"
    return f"scale {q['scale'][0]:.6g} zero {q['zero'][0]}"


def _short_text(text: str) -> str:
    """The first line of a text. If there are more lines, their number is added."""
    first, *rest = text.split("\n")
    return f"{first} (and {len(rest)} more lines)" if rest else first


def _short(value: Any) -> str:
    text = str(value).replace(" ", "")
    return text if len(text) <= 60 else text[:57] + "..."
