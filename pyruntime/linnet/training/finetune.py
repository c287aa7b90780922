"""Transfer learning: replaces the head of a pretrained network and trains it on a folder of images with one sub-folder
per class. With a frozen backbone, the features are computed once, and the head is trained on them."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linnet import data as datasets
from linnet import metrics, optimizers, preprocess
from linnet.clib.errors import ConversionError, UsageError
from linnet.data.media import read_image
from linnet.facade import Graph
from linnet.ir.function import Tensor
from linnet.ir.user_op import UserOp
from linnet.losses import softmax_cross_entropy
from linnet.passes import replace_head, trainable
from linnet.passes.heads import apply_head
from linnet.preprocess._edit import io_key, parse_io
from linnet.preprocess._recipes import PRESETS, pixels_graph
from linnet.session.device import Device
from linnet.session.model import Model
from linnet.session.options import SessionOptions
from linnet.session.session import Session
from linnet.training.callbacks import Callback, Run
from linnet.training.finetune_directory import Counted, Directory
from linnet.training.history import History
from linnet.training.loop import fit
from linnet.training.saver import Saver

_PIECE = 64  # images whose features are kept together
IMAGE_STEPS = "image_steps"
"""Metadata key. The value is JSON with the arguments of linnet.preprocess.image that turn pixels into the input of
`train`."""
OPTIMIZERS = {
    "adam": "Adam",
    "adamw": "AdamW",
    "sgd": "SGD",
    "momentum": "Momentum",
    "rmsprop": "RMSProp",
    "lamb": "LAMB",
}


@dataclasses.dataclass
class Result:
    """The result of `finetune`. graph: the graph with trained variables and the signatures infer, features, train and
    eval. deployed: the same graph, but "infer" takes a photo and returns labelled results. accuracy: the accuracy on
    the validation images, before quantization."""

    graph: Graph
    deployed: Graph
    classes: list[str]
    accuracy: float
    images: int
    validation: int
    features_seconds: float
    history: History
    stopped: bool = False  # Ctrl-C ended the training early

    def save(self, path: str | Path) -> None:
        """Writes the .lnt file. Its "infer" takes a photo (u8 [height, width, 3]) and returns scores and classes, with
        labels."""
        self.deployed.save(path)

    def to_onnx(self, path: str | Path) -> None:
        """Writes the network as ONNX, from the model's own input to "logits" and "probabilities". Its metadata has the
        labels."""
        frozen = self.graph.freeze()
        frozen.metadata["labels"] = "\n".join(self.classes)
        frozen.to_onnx(path)


def finetune(
    model: str | Path | Graph,
    folder: str | Path,
    *,
    classes: int | None = None,
    unfreeze: Sequence[str] = (),
    epochs: int = 20,
    learning_rate: float = 1e-3,
    optimizer: str = "adam",
    batch_size: int = 32,
    validation: float | str | Path = 0.2,
    preset: str | None = None,
    size: tuple[int, int] | None = None,
    steps: dict[str, Any] | None = None,
    seed: int = 0,
    directory: str | Path | None = None,
    threads: int | None = None,
    device: str | Device | None = None,
    options: SessionOptions | None = None,
    progress: bool | None = None,
    user_ops: Iterable[UserOp] = (),
) -> Result:
    """Replaces the head of an image classifier by one for the classes in a folder, and trains it.

    model: an .onnx, .tflite or .lnt file, or a graph with one image input.
    folder: CLASS/*.jpg (.png, .bmp).
    classes: expected number of classes.
    unfreeze: names of weights to train along with the head (`*` and `?` are wildcards). If it is empty, the features of
        all images are computed only once.
    validation: a fraction of the images, or a second folder.
    preset: how pixels are scaled: "imagenet", "symmetric", "unit" or "raw" (see PRESETS); default: "imagenet" with
        channels first, otherwise "symmetric"; for grey images "unit".
    size: (height, width), if the model leaves the image size open; default: 224 for both.
    steps: further arguments of linnet.preprocess.image. Pixels for a quantized input are scaled by its quantization,
        and a .lnt file that takes photos keeps its own steps.
    directory: for checkpoints and features. A later call with the same arguments continues from the last checkpoint,
        also after a crash, and gives the same bits as an uninterrupted call. In the later call, `epochs` may be larger.
    threads, device, options: as in linnet.fit. The device computes the features, trains and validates. The CPU decodes
        and scales the images.
    progress: None: a bar on a terminal; True: lines if there is no terminal; False: nothing.
    user_ops: the user ops that the model names. If `unfreeze` is given, they need gradients.
    Ctrl-C ends the training after the current step. The result then contains what has been learnt so far.
    Raises UsageError for a bad argument or folder, or if the directory belongs to other arguments. Raises FileError,
    ConversionError.
    """
    if optimizer not in OPTIMIZERS:
        raise UsageError("unknown optimizer", code=101, expected=" or ".join(OPTIMIZERS), got=repr(optimizer))
    chosen = SessionOptions.of(options, threads=threads, device=device)
    graph = _load(model, unfreeze, size or (224, 224), list(user_ops))
    photos = _Photos(graph, folder, preset, steps or {})
    if len(photos.classes) < 2 or classes not in (None, len(photos.classes)):
        raise UsageError(
            "the folder has the wrong number of classes",
            code=104,
            tensor=str(folder),
            got=", ".join(photos.classes) or "none",
            expected="at least 2 folders with images" if classes is None else f"{classes} folders with images",
        )
    train, held = _split(photos, graph, validation, preset, steps or {}, seed)
    place = None if directory is None else Path(directory)
    share = validation if isinstance(validation, int | float) else held.digest()
    about = {
        "data": photos.digest(), "validation": share, "unfreeze": list(unfreeze),
        "learning rate": learning_rate, "optimizer": optimizer, "batch size": batch_size, "preset": preset, "size": size,
        "steps": {key: str(value) for key, value in (steps or {}).items()}, "seed": seed,
    }  # fmt: skip
    kept = Directory(place, model, about)
    with kept.held():
        logits = replace_head(graph, len(photos.classes), standardize=True)
        features = graph.find("features")
        x, batch = graph.find(photos.name), graph.find(photos.name).shape
        open_batch = batch is not None and not isinstance(batch[0], int)
        if unfreeze and not open_batch:
            raise UsageError(
                "a network with a batch size of 1 can only train its head",
                code=104,
                tensor=photos.name,
                expected="an input whose first dimension is open",
                got=str(list(batch or ())),
                hint="export it with an open batch dimension",
            )
        rule = getattr(optimizers, OPTIMIZERS[optimizer])
        graph.signature("features", {photos.name: x}, {"features": features})
        labels = graph.placeholder("labels", (1 if photos.own_steps or batch is None else batch[0],), "i32")
        _signatures(graph, {photos.name: x, "labels": labels}, logits, labels, rule(learning_rate), "")
        started = time.monotonic()
        given: Any = {}
        session = Session(Model(graph), "features", **chosen.fields)
        if unfreeze:
            sets: list[Any] = [train, held]
            some = np.random.default_rng(seed).permutation(len(train))[:256]
            some_photos = train.subset(np.sort(some))
            vectors = _features(session, some_photos, photos.name, True, kept, "some", progress)["features"]
        else:
            parts = ("train", train), ("validation", held)
            sets = [_features(session, part, photos.name, open_batch, kept, role, progress) for role, part in parts]
            vectors = sets[0]["features"]
            examples = graph.placeholder("features_in", ("examples", vectors.shape[1]), features.dtype)
            answers = graph.placeholder("labels_in", ("examples",), "i32")
            inputs = {"features": examples, "labels": answers}
            _signatures(graph, inputs, apply_head(examples), answers, rule(learning_rate), "_head")
            given = {"train": "train_head", "eval": "eval_head"}
        graph.variables["head/mean"].value = vectors.mean(0)
        graph.variables["head/scale"].value = 1 / np.maximum(vectors.std(0), 1e-6 + 1e-3 * vectors.std())
        spent = time.monotonic() - started
        watch = _Watch()
        history = _until_stopped(
            watch,
            graph,
            sets[0],
            epochs=epochs,
            batch_size=min(batch_size, len(sets[0])),
            validation=sets[1],
            seed=seed,
            options=chosen,
            progress=progress,
            directory=place,
            resume=place is not None,
            saver=Saver(minutes=1),
            **given,
        )
        if history.epoch > epochs:
            raise UsageError(
                "the directory holds a run of more epochs", code=101, tensor=str(directory), expected=f"at most {epochs} epochs",
                got=str(history.epoch), hint="give at least as many epochs as that run, or another directory",
            )  # fmt: skip
        made = history.graph
        made.metadata["classes"] = "\n".join(photos.classes)
        if not photos.own_steps:
            made.metadata[IMAGE_STEPS] = json.dumps(
                photos.image_steps()
            )  # for later training with `linnet train --data DIR`
        deployed = photos.deployed(made)
        accuracy = history["val_accuracy"][-1]
        return Result(
            made, deployed, photos.classes, accuracy, len(train), len(held), spent, history, bool(history.stopped)
        )  # fmt: skip


class _Watch(Callback):
    """Remembers the run, for use after it has ended."""

    run: Run | None = None

    def on_start(self, run: Run) -> None:
        self.run = run


def _until_stopped(watch: _Watch, graph: Graph, data: Any, **arguments: Any) -> History:
    """Calls `fit`. After Ctrl-C, returns the history so far, with the accuracy reached. Raises KeyboardInterrupt if no
    step was made."""
    started = time.monotonic()
    try:
        return fit(graph, data, callbacks=[watch], **arguments)
    except KeyboardInterrupt:
        run = watch.run
        if run is None or run.step == 0:
            raise
        if run.unrecorded or not run.history.records:
            run.record(scheduled=False)
        run.history.step, run.history.epoch = run.step, run.epoch
        run.history.stopped, run.history.seconds = "SIGINT", time.monotonic() - started
        return run.history


def _signatures(
    graph: Graph, inputs: dict[str, Tensor], logits: Tensor, labels: Tensor, optimizer: Any, ending: str
) -> None:
    loss = softmax_cross_entropy(logits, labels).mean()
    outputs = {"loss": loss, "accuracy": metrics.accuracy(logits, labels)}
    graph.signature(f"train{ending}", inputs, outputs, updates=optimizer.minimize(loss))
    graph.signature(f"eval{ending}", inputs, outputs)


def _load(
    model: str | Path | Graph, unfreeze: Sequence[str], size: tuple[int, int], user_ops: Sequence[UserOp]
) -> Graph:
    """The graph, with an open batch dimension if possible, and with a fixed image size."""
    patterns = list(unfreeze) or None
    if not isinstance(model, Graph) and Path(model).suffix.lower() == ".lnt":
        model = Graph.load(model, user_ops=user_ops)
        if "head/weight" in model.variables:
            raise UsageError(
                "the file has already been fine-tuned", code=101, tensor="head/weight",
                hint="train it further with `linnet train FILE --data DIR`, or give the original network",
            )  # fmt: skip
        return trainable(model, patterns) if patterns else model
    if isinstance(model, Graph):
        return trainable(model.copy(), patterns) if patterns else model.copy()
    path = Path(model)
    from linnet.converters import tflite
    from linnet.converters.formats import format_of_model

    if format_of_model(path) == "tflite":
        return tflite.from_tflite(path, trainable=patterns, user_ops=user_ops)
    import onnx

    from linnet.converters.onnx import from_onnx, loader

    loader.load(path)  # its error messages are more specific
    proto = onnx.load(path)
    fed = {t.name for t in proto.graph.initializer}
    for value in proto.graph.input:
        shape = value.type.tensor_type.shape
        if value.name not in fed and len(shape.dim) == 4:
            shape.dim[0].dim_param = "batch"
            open_sides = [d for d in shape.dim[1:] if not d.dim_value]
            for side, pixels in zip(open_sides, size, strict=False):
                side.dim_value = pixels
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        graph = from_onnx(proto, trainable=patterns, user_ops=user_ops)
        shape_found = graph.signatures["infer"].function.outputs[0].shape
        if shape_found is not None and not isinstance(shape_found[0], int):
            return graph
    except ConversionError:
        pass
    return from_onnx(path, trainable=patterns, user_ops=user_ops)


class _Photos(datasets.ImageFolder):
    """The images of a folder as the network's input. They go through the same steps that the deployed file will run."""

    def __init__(self, graph: Graph, folder: str | Path, preset: str | None, steps: dict[str, Any]) -> None:
        signature = graph.signatures["infer"]
        tensors = dict(zip(signature.inputs, signature.function.inputs, strict=True))
        if len(tensors) != 1:
            raise UsageError(
                "finetune needs a network with exactly one image input", code=105, got=", ".join(tensors),
                hint="build the graph yourself: linnet.replace_head, linnet.fit",
            )  # fmt: skip
        (name, tensor), = tensors.items()  # fmt: skip
        described = parse_io(graph.metadata.get(io_key("infer", name), ""))
        self.name, self.own_steps = name, described is not None and described[0] == "image"
        shape = list(tensor.shape or ())
        axes = [axis for axis in (1, 3) if len(shape) == 4 and shape[axis] in (1, 3)]
        if not self.own_steps and len(axes) != 1:
            raise UsageError(
                "finetune needs a network with one image as its input", code=104, tensor=name,
                expected="[batch, channels, height, width] or [batch, height, width, channels], with 1 or 3 channels",
                got=str(shape),
            )  # fmt: skip
        last = axes == [3] and not self.own_steps
        channels = 3 if self.own_steps else shape[axes[0]]
        size = (1, 1) if self.own_steps else tuple(d for d in (shape[1:3] if last else shape[2:]) if isinstance(d, int))
        if len(size) != 2:
            raise UsageError(
                "the image size of the model is open",
                code=104,
                tensor=name,
                got=str(shape),
                expected="a fixed height and width",
                hint="convert the model again with a fixed input shape",
            )
        if preset is not None and preset not in PRESETS:
            raise UsageError("unknown preset", code=101, expected=" or ".join(PRESETS), got=repr(preset))
        usual = "unit" if tensor.dtype != "f32" or channels == 1 else "symmetric" if last else "imagenet"
        chosen = PRESETS[preset or usual] | ({"colour": "grey"} if channels == 1 else {})
        self.steps = {"fit": "shortest", **chosen, **steps}
        super().__init__(folder, (size[0], size[1]), (name, "labels"))
        if not self.own_steps:
            sides = [1, *size, channels] if last else [1, channels, *size]
            self.size = (size[0], size[1])
            plain = pixels_graph(name, sides, tensor.dtype, tensor.quantization, self.image_steps())
            self._session = Session(plain, threads=1)

    def image_steps(self) -> dict[str, Any]:
        """The arguments for linnet.preprocess.image."""
        return {"resize": min(self.size), "crop": self.size, **self.steps}

    def take(self, indices: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        pixels = [read_image(self.paths[i]) for i in indices]
        if not self.own_steps:
            pixels = [self._session.run({self.name: p})["y"] for p in pixels]
        made = pixels[0] if self.own_steps else np.concatenate(pixels)
        return {self.name: made, "labels": self.labels[indices]}

    def deployed(self, graph: Graph) -> Graph:
        """The graph that takes photos and returns labelled results."""
        if not self.own_steps:
            graph = preprocess.image(graph, self.name, **self.image_steps())
        count = min(5, len(self.classes))
        return preprocess.top_k(graph, "probabilities", count, labels=self.classes)


def _split(
    photos: _Photos, graph: Graph, validation: float | str | Path, preset: str | None, steps: dict[str, Any], seed: int
) -> tuple[datasets.Source, datasets.Source]:
    if isinstance(validation, int | float):
        return photos.split(float(validation), seed)
    other = _Photos(graph, validation, preset, dict(steps))
    if other.classes != photos.classes:
        raise UsageError(
            "the folders have different classes", code=104, tensor=str(validation), expected=", ".join(photos.classes),
            got=", ".join(other.classes),
        )  # fmt: skip
    return photos, other


def _features(
    session: Session,
    source: datasets.Source,
    name: str,
    batches: bool,
    kept: Directory,
    role: str,
    progress: bool | None,
) -> dict[str, npt.NDArray[Any]]:
    """The output of the frozen part for every image. It is computed once, in pieces that are kept in the directory."""

    def compute(begin: int) -> dict[str, npt.NDArray[Any]]:
        rows, labels, size = [], [], 16 if batches else 1
        end = min(begin + _PIECE, len(source))
        for start in range(begin, end, size):
            batch = source.take(np.arange(start, min(start + size, end)))
            rows.append(session.run({name: batch[name]})["features"])
            labels.append(batch["labels"])
        return {"features": np.concatenate(rows), "labels": np.concatenate(labels)}

    pieces = [
        kept.piece(f"features-{role}-{begin:06d}", lambda begin=begin: compute(begin))  # type: ignore[misc]
        for begin in Counted(f"features of {role} images", len(source), progress).over(range(0, len(source), _PIECE))
    ]
    return {key: np.concatenate([piece[key] for piece in pieces]) for key in ("features", "labels")}


__all__ = ["OPTIMIZERS", "PRESETS", "Result", "finetune"]
