"""The commands export, train and finetune. linnet.cli.main adds them to its group. As with all commands, a failure
prints one line to stderr, and output files are written only after everything has succeeded."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from linnet.cli.declared import option, shared, takes
from linnet.cli.options import (
    json_lines_option,
    order_seed_option,
    refuse_same,
    session_options,
    training_data_option,
    user_ops_of,
    user_ops_option,
)
from linnet.clib.errors import FileError, UsageError

if TYPE_CHECKING:
    from linnet.data.source import Source
    from linnet.session.model import Model
    from linnet.session.options import SessionOptions
    from linnet.training.finetune import Result


@click.command(short_help="Write a .lnt model as ONNX.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--checkpoint", type=click.Path(path_type=Path), help="A checkpoint of the model. Its weights are used.")
@click.option("--signature", default="infer", show_default=True, help="Signature (entry point) to export.")
@click.option("--opset", type=int, help="Opset of the ONNX model, 18 to 23. Default: 20, or 21 if the model needs it.")
@user_ops_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a line.")
def export(
    model: Path, output: Path, checkpoint: Path | None, signature: str, opset: int | None, user_ops: Sequence[str],
    as_json: bool,
) -> None:  # fmt: skip
    """Write the .lnt file MODEL as the ONNX model OUTPUT. Variables become weights."""
    from linnet.converters.export import to_onnx
    from linnet.facade import Graph
    from linnet.session.checkpoint import load_checkpoint
    from linnet.session.model import Model, Store

    refuse_same(output, model)
    ops = user_ops_of(user_ops)
    graph = Graph.load(model, user_ops=ops)
    values = None
    if checkpoint is not None:
        found = load_checkpoint(checkpoint)
        Store(Model(model, user_ops=ops)).load(checkpoint)  # refuses a checkpoint of another model
        values = found.variables
    made = to_onnx(graph, output, values, signature=signature, opset=opset)
    report = {
        "model": str(model),
        "output": str(output),
        "opset": made.opset_import[0].version,
        "nodes": len(made.graph.node),
    }
    if as_json:
        click.echo(json.dumps(report))
    else:
        click.echo(f"{model}: {len(made.graph.node)} nodes, opset {report['opset']} -> {output}")


def _writable(*paths: Path | None) -> None:
    """Raises FileError if one of these files cannot be written, so that this is found before training starts."""
    for path in paths:
        if path is not None and not os.access(path.parent, os.W_OK):
            raise FileError(
                f"cannot write '{path}'", code=207, tensor=str(path),
                hint="give a path in an existing folder that you may write to",
            )  # fmt: skip


def _fraction(text: str) -> float:
    """Parses a number or a fraction such as 1/255."""
    above, _, below = text.partition("/")
    return float(above) / float(below or 1)


def examples(text: str, model: Model, signature: str, scales: Sequence[str]) -> Source:
    """Loads the examples of --data or --eval: FILE.npz, NAME=FILE,... (.npy or idx), or a folder with one sub-folder of
    images per class."""
    from linnet import data
    from linnet.training.finetune import IMAGE_STEPS

    factors: dict[str, float] = {}
    for pair in scales:
        name, equals, factor = pair.partition("=")
        try:
            factors[name] = _fraction(factor)
        except (ValueError, ZeroDivisionError):
            equals = ""
        if not equals:
            raise UsageError("invalid --scale", code=101, tensor=name, expected="NAME=1/255", got=pair)
    inputs = model.inputs(signature)
    if Path(text).is_dir():
        pictures = [s for s in inputs if s.shape is not None and len(s.shape) == 4]
        labels = [s for s in inputs if s not in pictures]
        if len(pictures) != 1 or len(labels) != 1:
            raise UsageError(
                "a folder of images needs a model with one image input and one label input", code=101, tensor=text
            )
        shape = pictures[0].shape or ()
        last = shape[-1] in (1, 3) and shape[1] not in (1, 3)
        height, width = (shape[1:3] if last else shape[2:4]) or (None, None)
        if height is None or width is None:
            raise UsageError(
                "the model does not fix the height and width of its image input", code=104, tensor=pictures[0].name
            )
        steps = {"colour": "grey" if shape[-1 if last else 1] == 1 else "RGB", "layout": "NHWC" if last else "NCHW"}
        known = json.loads(model.metadata(IMAGE_STEPS) or "{}")
        found = data.image_folder(text, (height, width), names=(pictures[0].name, labels[0].name), **(steps | known))
        classes = (model.metadata("classes") or "").splitlines()
        if classes and classes != found.classes:
            raise UsageError(
                "the sub-folders do not match the model's classes", code=101, tensor=text, expected=", ".join(classes),
                got=", ".join(found.classes),
            )  # fmt: skip
        return found
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for part in [text] if "=" not in text else text.split(","):
        name, _, path = part.rpartition("=")
        array = _array(Path(path))
        if isinstance(array, dict) != (not name):
            raise UsageError(
                "invalid --data or --eval",
                code=101,
                tensor=part,
                expected="FILE.npz, or NAME=FILE with a .npy or idx file",
                got=text,
            )
        arrays |= array if isinstance(array, dict) else {name: array}

    for unknown in (name for name in factors if name not in arrays):
        raise UsageError(
            "--scale names an array that the data does not have",
            code=102,
            tensor=unknown,
            expected=" or ".join(arrays),
            got=unknown,
        )
    for name in factors:
        if arrays[name].dtype.kind not in "iub":
            raise UsageError(
                "--scale works only on integer arrays",
                code=103,
                tensor=name,
                expected="integers",
                got=str(arrays[name].dtype),
                hint="remove --scale, or scale the array in the file",
            )
    specs = {spec.name: spec for spec in inputs}

    def example(name: str, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if name in factors:
            wanted = np.dtype("f8" if name in specs and specs[name].dtype == "f64" else "f4")
            rows = np.multiply(rows.astype(wanted), wanted.type(factors[name]))  # the same arithmetic as linnet-train
        return _in_shape(rows, specs[name].shape) if name in specs else rows

    def prepare(batch: data.Batch) -> data.Batch:
        return {name: example(name, rows) for name, rows in batch.items()}

    return data.Arrays(arrays, prepare)


def _in_shape(rows: np.ndarray[Any, Any], shape: Sequence[int | None] | None) -> np.ndarray[Any, Any]:
    """Reshapes examples to the input's shape if one of the two shapes is flat or they differ only in dimensions of size
    1. linnet-train does the same."""
    if shape is None or any(d is None for d in shape[1:]) or rows.shape[1:] == tuple(shape[1:]):
        return rows
    wanted = [d for d in shape[1:] if d is not None]
    declared, given = ([d for d in dims if d != 1] for dims in (wanted, rows.shape[1:]))
    flat = min(len(declared), len(given)) <= 1 and np.prod(declared) == np.prod(given)
    return rows.reshape(-1, *wanted) if flat or declared == given else rows


def _array(path: Path) -> np.ndarray[Any, Any] | dict[str, np.ndarray[Any, Any]]:
    """Reads an .npz, .npy or idx file. Raises FileError."""
    from linnet import data

    if path.suffix not in (".npz", ".npy"):
        return data.read_idx(path)
    try:
        found = np.load(path, allow_pickle=False)
        return {name: found[name] for name in found} if path.suffix == ".npz" else np.asarray(found)
    except FileNotFoundError:
        raise FileError(
            f"the file '{path}' does not exist", code=201, tensor=str(path), hint="check the path"
        ) from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FileError(f"cannot read '{path}': {error}", code=202, tensor=str(path)) from None


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The options of `linnet train`."""

    data: str = shared(training_data_option)
    evaluate: str | None = option(
        "--eval",
        metavar="FILE",
        help="Examples for the signature `eval`, which runs after each epoch. Same forms as --data.",
    )
    eval_every: int | None = option(
        "--eval-every", type=click.IntRange(1), help="Evaluate every N steps instead of after each epoch."
    )
    scale: Sequence[str] = option(
        "--scale",
        multiple=True,
        metavar="NAME=1/255",
        help="Convert this integer array to the float type of its input and multiply it by the factor. May be repeated.",
    )
    batch: int | None = option(
        "--batch", type=click.IntRange(1), help="Examples per step. Default: 32, or all if there are fewer."
    )
    epochs: int | None = option("--epochs", type=click.IntRange(1), help="Total number of epochs. Default: 1.")
    steps: int | None = option("--steps", type=click.IntRange(1), help="Total number of steps.")
    seed: int = shared(order_seed_option)
    directory: Path | None = option(
        "--directory",
        type=click.Path(path_type=Path),
        help="Folder of the run. If it already holds a run, training resumes from it.",
    )
    every: int | None = option("--every", type=click.IntRange(1), help="Steps between checkpoints. Default: one epoch.")
    best: str | None = option(
        "--best",
        metavar="METRIC=max|min",
        help="Keep the best model by this metric in best.lnt, for example val_accuracy=max.",
    )
    output: Path | None = option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        help="File for the trained model (.lnt). It can be run or trained further.",
    )
    options: SessionOptions = shared(session_options(on_loss=True))
    user_ops: Sequence[str] = shared(user_ops_option)
    as_json: bool = option("--json", is_flag=True, help="Print the last record as one JSON object.")


@click.command(short_help="Train a .lnt model that has a signature `train`.")
@click.argument("model", type=click.Path(path_type=Path))
@takes(TrainOptions)
def train(model: Path, given: TrainOptions) -> None:
    """Train the signature `train` of MODEL, as linnet.fit does, with a progress bar, checkpoints, records and a
    manifest.

    The program linnet-train does the same without Python and reads the same checkpoints.
    """
    from linnet.session.model import Model
    from linnet.training import Saver, fit

    if given.directory is None and given.output is None:
        raise UsageError(
            "the result would not be saved",
            code=101,
            hint="give --directory for checkpoints, or -o for the trained model",
        )
    _writable(given.output)
    opened = Model(model, user_ops=user_ops_of(given.user_ops))
    chosen = None
    if given.best is not None:
        name, _, mode = given.best.partition("=")
        chosen = (name, mode)
    history = fit(
        opened, examples(given.data, opened, "train", given.scale), batch_size=given.batch, epochs=given.epochs,
        steps=given.steps, seed=given.seed,
        validation=examples(given.evaluate, opened, "eval", given.scale) if given.evaluate is not None else None,
        validate_every=given.eval_every, directory=given.directory, resume=given.directory is not None,
        options=given.options, progress=not given.as_json,
        saver=Saver(given.every or "epoch", best=chosen),
    )  # fmt: skip
    if given.output is not None:
        history.graph.save(given.output)
    if given.as_json:
        click.echo(json.dumps({"step": history.step, "epoch": history.epoch, **(history.records or [{}])[-1]}))


def _numbers(text: str | None) -> float | tuple[float, ...] | None:
    if text is None:
        return None
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not one number or three numbers separated by commas") from None
    return found[0] if len(found) == 1 else found


@dataclasses.dataclass(frozen=True)
class FinetuneOptions:
    """The options of `linnet finetune`."""

    data: Path = option(
        "--data",
        required=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder with one sub-folder of images per class.",
    )
    head: int | None = option(
        "--head",
        type=click.IntRange(2),
        metavar="N",
        help="Expected number of classes. The command fails if the folder has a different number.",
    )
    validation: str = option(
        "--validation",
        default="0.2",
        show_default=True,
        metavar="SHARE|DIR",
        help="Share of the images to hold out for validation, or a folder of validation images.",
    )
    epochs: int = option("--epochs", type=click.IntRange(1), default=20, show_default=True, help="Number of epochs.")
    lr: float = option(
        "--lr", type=click.FloatRange(0, min_open=True), default=1e-3, show_default=True, help="Learning rate."
    )
    optimizer: str = option(
        "--optimizer", default="adam", show_default=True, help="Optimizer: adam, adamw, sgd, momentum, rmsprop or lamb."
    )
    batch: int = option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Images per step.")
    unfreeze: tuple[str, ...] = option(
        "--unfreeze",
        multiple=True,
        metavar="PATTERN",
        help="Train the weights whose names match this pattern too, not only the head ('*': all weights). May be repeated.",
    )
    preset: str | None = option(
        "--pixels", help="How pixels are scaled before they enter the model: imagenet, symmetric, unit or raw."
    )
    mean: str | None = option(
        "--mean", metavar="X[,X,X]", help="Mean subtracted from the scaled pixels. Overrides --pixels."
    )
    std: str | None = option(
        "--std", metavar="X[,X,X]", help="Standard deviation by which pixels are divided. Overrides --pixels."
    )
    size: str | None = option(
        "--size", metavar="N|H,W", help="Image height and width if the model leaves them open. Default: 224."
    )
    seed: int = option(
        "--seed", type=int, default=0, show_default=True, help="Random seed of the split and of training."
    )
    directory: Path | None = option(
        "--directory",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder for checkpoints and features. After a crash or Ctrl-C, the same command continues from there.",
    )
    options: SessionOptions = shared(session_options(on_loss=True))
    out: Path | None = option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        help="The .lnt file to write. Default: MODEL.finetuned.lnt.",
    )
    onnx: Path | None = option("--onnx", type=click.Path(path_type=Path), help="Also write the trained model as ONNX.")
    user_ops: Sequence[str] = shared(user_ops_option)
    as_json: bool = shared(json_lines_option)


@click.command(short_help="Train a pretrained image network on a folder of images.")
@click.argument("model", type=click.Path(path_type=Path))
@takes(FinetuneOptions)
def finetune(model: Path, given: FinetuneOptions) -> None:
    """Replace the head of the image network MODEL (.onnx, .tflite or .lnt) with one for the classes in a folder, and
    train it.

    Without --unfreeze, the network's features are computed once per image and only the head is trained. The resulting
    .lnt file accepts photos (linnet run OUT --input photo.jpg). It can be trained further because it has the signatures
    train and eval.
    """
    from linnet.training.finetune import finetune as run

    out = given.out or model.with_suffix(".finetuned.lnt")
    for path in (out, given.onnx):
        refuse_same(path, model)
    _writable(out, given.onnx)
    steps = {k: v for k, v in (("mean", _numbers(given.mean)), ("std", _numbers(given.std))) if v is not None}
    share: float | Path = Path(given.validation)
    with contextlib.suppress(ValueError):
        share = float(given.validation)
    sides = _numbers(given.size)
    if sides is not None:
        sides = (sides, sides) if isinstance(sides, float) else sides
        if len(sides) != 2 or any(d < 1 or d != int(d) for d in sides):
            raise click.BadParameter(f"{given.size!r} is not a valid size; give for example 224 or 48,192")
    made = run(
        model,
        given.data,
        classes=given.head,
        unfreeze=given.unfreeze,
        epochs=given.epochs,
        learning_rate=given.lr,
        optimizer=given.optimizer,
        batch_size=given.batch,
        validation=share,
        preset=given.preset,
        steps=steps,
        seed=given.seed,
        size=None if sides is None else (int(sides[0]), int(sides[1])),
        options=given.options,
        progress=not given.as_json,
        directory=given.directory,
        user_ops=user_ops_of(given.user_ops),
    )
    if given.onnx is not None:
        made.to_onnx(given.onnx)
    made.save(out)
    report = {
        "model": str(model), "output": str(out), "onnx": None if given.onnx is None else str(given.onnx), "classes": made.classes,
        "images": made.images, "validation_images": made.validation, "accuracy": made.accuracy,
        "loss": made.history["loss"], "features_seconds": made.features_seconds, "seconds": made.history.seconds,
    }  # fmt: skip
    report |= {"stopped": made.stopped, "steps": made.history.step}
    if made.stopped:
        again = "" if given.directory is None else "; the same command continues from there"
        click.echo(
            f"stopped by Ctrl-C after step {made.history.step}; what was learnt until then is in {out}{again}", err=True
        )
    if given.as_json:
        click.echo(json.dumps(report))
    else:
        _tell(made, model, out, given.onnx, bool(given.unfreeze))
    if made.stopped:
        click.get_current_context().exit(130)


def _tell(made: Result, model: Path, out: Path, onnx: Path | None, unfrozen: bool) -> None:
    click.echo(f"{made.images} training images, {made.validation} validation images, {len(made.classes)} classes")
    if not unfrozen:
        click.echo(
            f"computed all features in {made.features_seconds:.1f} s; trained the head for {made.history.epoch} epochs in "
            f"{made.history.seconds:.1f} s"
        )
    losses = made.history["loss"]
    click.echo(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, validation accuracy {made.accuracy:.1%}")
    click.echo(f"{model} -> {out}" + (f", {onnx}" if onnx is not None else ""))
