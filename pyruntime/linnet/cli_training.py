"""Commands that train and that leave linnet again: export, finetune. linnet.cli adds them to its group.
As there, a failure is one line on stderr, and files are written only when everything has succeeded."""

from __future__ import annotations

import contextlib
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


def _numbers(text: str | None) -> float | tuple[float, ...] | None:
    if text is None:
        return None
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number, nor three with commas") from None
    return found[0] if len(found) == 1 else found


@click.command(short_help="Train a pretrained image network on a folder of images.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--data", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Images, in one sub-folder per class."
)
@click.option("--head", type=click.IntRange(2), metavar="N", help="How many classes there must be.")
@click.option("--validation", default="0.2", show_default=True, metavar="SHARE|DIR", help="Held-out images.")
@click.option("--epochs", type=click.IntRange(1), default=20, show_default=True)
@click.option("--lr", type=click.FloatRange(0, min_open=True), default=1e-3, show_default=True, help="Learning rate.")
@click.option("--optimizer", default="adam", show_default=True, help="adam, adamw, sgd, momentum, rmsprop or lamb.")
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Images per step.")
@click.option(
    "--unfreeze",
    multiple=True,
    metavar="PATTERN",
    help="Weights to train besides the head ('*': all); may be repeated.",
)
@click.option("--pixels", "preset", help="Numbers that pixels become: imagenet, symmetric, unit or raw.")
@click.option("--mean", metavar="X[,X,X]", help="Subtracted from pixels (after scaling); overrides --pixels.")
@click.option("--std", metavar="X[,X,X]", help="Divides pixels; overrides --pixels.")
@click.option("--size", metavar="N|H,W", help="Height and width, where the model leaves them open; default: 224.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--threads", type=click.IntRange(1, 1024))
@click.option("--out", type=click.Path(path_type=Path), help="The .lnt file to write; default: MODEL.finetuned.lnt.")
@click.option("--onnx", type=click.Path(path_type=Path), help="Write the trained network as ONNX, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def finetune(
    model: Path, data: Path, head: int | None, validation: str, epochs: int, lr: float, optimizer: str, batch: int,
    unfreeze: tuple[str, ...], preset: str | None, mean: str | None, std: str | None, size: str | None, seed: int,
    threads: int | None, out: Path | None, onnx: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Give the image network MODEL (.onnx, .tflite, .lnt) a new head for the classes of a folder, and train it.

    Without --unfreeze the network's features of all images are computed once, and only the head is trained. The .lnt file takes
    photos (linnet run OUT --input photo.jpg), and can train on: it has the signatures train and eval.
    """
    from linnet.finetune import finetune as run

    steps = {k: v for k, v in (("mean", _numbers(mean)), ("std", _numbers(std))) if v is not None}
    share: float | Path = Path(validation)
    with contextlib.suppress(ValueError):
        share = float(validation)
    sides = _numbers(size)
    if sides is not None:
        sides = (sides, sides) if isinstance(sides, float) else sides
        if len(sides) != 2 or any(d < 1 or d != int(d) for d in sides):
            raise click.BadParameter(f"{size!r} is no size: give for example 224, or 48,192")
    made = run(
        model, data, classes=head, unfreeze=unfreeze, epochs=epochs, learning_rate=lr, optimizer=optimizer, batch_size=batch,
        validation=share, preset=preset, steps=steps, seed=seed,
        size=None if sides is None else (int(sides[0]), int(sides[1])), threads=threads, progress=False if as_json else None,
    )  # fmt: skip
    out = out or model.with_suffix(".finetuned.lnt")
    if onnx is not None:
        made.to_onnx(onnx)
    made.save(out)
    report = {
        "model": str(model), "output": str(out), "onnx": None if onnx is None else str(onnx), "classes": made.classes,
        "images": made.images, "validation_images": made.validation, "accuracy": made.accuracy,
        "loss": made.history["loss"], "features_seconds": made.features_seconds, "seconds": made.history.seconds,
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(report))
        return
    click.echo(f"{made.images} images to train on, {made.validation} held out, {len(made.classes)} classes")
    if not unfreeze:
        click.echo(
            f"features once: {made.features_seconds:.1f} s; {epochs} epochs of the head: {made.history.seconds:.1f} s"
        )
    losses = made.history["loss"]
    click.echo(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, validation accuracy {made.accuracy:.1%}")
    click.echo(f"{model} -> {out}" + (f", {onnx}" if onnx is not None else ""))
