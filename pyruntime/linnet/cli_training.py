"""Commands that train and that leave linnet again: export, finetune. linnet.cli adds them to its group.
As there, a failure is one line on stderr, and files are written only when everything has succeeded."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(short_help="Write a .lnt model as ONNX.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Weights from this checkpoint of the model.")
@click.option("--signature", default="infer", show_default=True, help="Entry point to write.")
@click.option("--opset", type=int, default=21, show_default=True, help="Of the ONNX model: 18 to 23.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a line.")
def export(model: Path, output: Path, checkpoint: Path | None, signature: str, opset: int, as_json: bool) -> None:
    """Write the .lnt file MODEL as the ONNX model OUTPUT, its variables as weights."""
    import linnet
    from linnet.converters.onnx.export import to_onnx

    graph = linnet.Graph.load(model)
    values = None
    if checkpoint is not None:
        found = linnet.load_checkpoint(checkpoint)
        linnet.Store(linnet.Model(model)).load(checkpoint)  # refuses that of another model
        values = found.variables
    made = to_onnx(graph, output, values, signature=signature, opset=opset)
    report = {"model": str(model), "output": str(output), "opset": opset, "nodes": len(made.graph.node)}
    if as_json:
        click.echo(json.dumps(report))
    else:
        click.echo(f"{model}: {len(made.graph.node)} nodes, opset {opset} -> {output}")
